#!/usr/bin/env bash
# Use the HTTP API by curl: bash examples/http.sh
set -euo pipefail
api="${RAFTSCHED_URL:-http://127.0.0.1:8400}/api/v1"
json=(-sS --fail-with-body -H 'content-type: application/json')

# A repeated request with the same key is the same job.
key="example-$(date +%s%N)"
job=$(curl "${json[@]}" -H "idempotency-key: $key" -d '{"name": "report", "payload": {"day": 1}}' "$api/jobs")
same=$(curl "${json[@]}" -H "idempotency-key: $key" -d '{"name": "report", "payload": {"day": 1}}' "$api/jobs")
id=$(sed -E 's/.*"id":"([^"]+)".*/\1/' <<<"$job")
grep -q "$id" <<<"$same"

# Lease a job as a worker does, and report its outcome.
curl "${json[@]}" -o /dev/null -d '{"name": "by-hand", "payload": 7}' "$api/jobs"
leases=$(curl "${json[@]}" -d '{"worker": "shell", "queues": ["by-hand"], "capacity": 1, "wait_seconds": 2}' "$api/leases")
run_id=$(sed -E 's/.*"run_id":"([^"]+)".*/\1/' <<<"$leases")
token=$(sed -E 's/.*"fencing_token":([0-9]+).*/\1/' <<<"$leases")
outcome="{\"run_id\": \"$run_id\", \"fencing_token\": $token, \"status\": \"completed\", \"result\": 49}"
curl "${json[@]}" -d "{\"worker\": \"shell\", \"outcomes\": [$outcome]}" "$api/leases/outcomes"
echo

# Explain, history, and an error as a problem document.
curl "${json[@]}" "$api/jobs/$id/explain"
echo
curl "${json[@]}" "$api/jobs?queue=by-hand&status=completed&limit=1"
echo
curl -sS -H 'content-type: application/json' -d '{"name": "report", "delay": 5}' "$api/jobs"
echo
