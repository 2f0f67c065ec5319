"""Raw HTTP, as a user with curl: the tests of what the API itself promises go past the client's help."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from typing import Any

RETRY_SECONDS_MAX = 20.0
NOTHING_HAPPENED = {"not_leader", "no_majority", "disk_stalled", "unavailable"}
"""Codes of 503: a machine that stands still for a second may bring an election into any test."""


def call(base: str, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
    """As `call_once`, and again for a while, as with `curl --retry`, where the answer says that nothing happened."""
    deadline = time.monotonic() + RETRY_SECONDS_MAX
    while True:
        status, answer = call_once(base, method, path, body, **options)
        may_retry = status == 503 and answer["code"] in NOTHING_HAPPENED
        if not may_retry or time.monotonic() > deadline:
            return status, answer
        time.sleep(0.05)


def call_once(
    base: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    timeout: float = 15,
    tls: ssl.SSLContext | None = None,
    **headers: str,
) -> tuple[int, Any]:
    """Return (status, JSON document) of one request to one node; raises OSError where there is no answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{base}{path}", data=data, method=method)
    request.add_header("Content-Type", "application/json")
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=tls) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def lease(base: str, worker: str, queue: str, *, capacity: int = 1, wait: float = 10) -> list[Any]:
    """Lease jobs as the worker `worker`."""
    wish = {"worker": worker, "queues": [queue], "capacity": capacity, "wait_seconds": wait}
    status, answer = call(base, "POST", "/api/v1/leases", wish, timeout=wait + 10)
    assert status == 200, answer
    leases: list[Any] = answer["leases"]
    return leases


def report(base: str, worker: str, granted: Any, **outcome: Any) -> tuple[int, Any]:
    """Report the outcome of one lease."""
    entry = {"run_id": granted["run_id"], "fencing_token": granted["fencing_token"], "status": "completed"} | outcome
    return call(base, "POST", "/api/v1/leases/outcomes", {"worker": worker, "outcomes": [entry]})


def ask(base: str, method: str, path: str, body: Any = None, **options: Any) -> Any:
    """Return the document of a request under `/api/v1` that must succeed."""
    status, answer = call(base, method, f"/api/v1{path}", body, **options)
    assert status in (200, 201), (method, path, status, answer)
    return answer


def submit(base: str, **fields: Any) -> Any:
    """Return the new job; its queue is called like the job, unless `queue` says otherwise."""
    return ask(base, "POST", "/jobs", fields)


def job_of(base: str, job_id: str) -> Any:
    return ask(base, "GET", f"/jobs/{job_id}")


def reasons_of(base: str, job_id: str) -> dict[str, Any]:
    """Why a job isn't running: details by code."""
    explained = ask(base, "GET", f"/jobs/{job_id}/explain")
    return {reason["code"]: reason["details"] for reason in explained["reasons"]}


def all_pages(base: str, path: str, key: str) -> list[Any]:
    """Return what a list holds, of all its pages."""
    found: list[Any] = []
    page = ask(base, "GET", path)
    while True:
        found += page[key]
        if not page["next_cursor"]:
            return found
        page = ask(base, "GET", f"{path}{'&' if '?' in path else '?'}cursor={page['next_cursor']}")
