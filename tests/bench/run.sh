#!/usr/bin/env bash
# Runs the same work on a peer and on raftsched, back to back:
#
#     tests/bench/run.sh HARNESS PEER [CASE …]          e.g.  tests/bench/run.sh ../shared/bench celery-redis B C D
#
# HARNESS is the folder of the peer benchmarks (its README says what the cases are). It is copied, this project's adapter
# is put beside the others, an environment is made for both, and the ratio raftsched / peer ends the table.
set -euo pipefail
harness=${1:?folder of the peer benchmarks} peer=${2:?name of a peer}
shift 2
project=$(cd "$(dirname "$0")/../.." && pwd)
work=${BENCH_DIRECTORY:-$(mktemp -d)}

cp -r "$harness/." "$work" && chmod -R u+w "$work"
cp "$project/tests/bench/raftsched.py" "$work/adapters/raftsched.py"
if [ ! -x "$work/venv/bin/python" ]; then
    (cd "$work" && ./setup.sh "$work/venv")
    "$work/venv/bin/pip" install -q "$project"
fi
export PEERS_PYTHON_ARQ="$work/venv-arq/bin/python"
cases=()
for case in "$@"; do cases+=(--case "$case"); done
cd "$work" && venv/bin/python run.py --peer "$peer" --peer raftsched "${cases[@]}"
