"""Tell HTTP exchanges as operations of a history: `asked` reads a request, `ends` its reply.

A request for several runs is one operation for each. A refusal is `fail` only if the API calls it definite: a code of
its own, not `outcome_unknown` nor an internal error. Requests that no checker judges are no operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

from chaos.checkers.history.events import Granted
from raftsched.api.http.consistency import REVISION_HEADER
from raftsched.api.http.routes import BASE_PATH, KEY_HEADER
from raftsched.api.jobs.convert import fingerprint_of
from raftsched.exchange import Exchange, Reply

TENANT: Final = "default"
OP_TAG: Final = "op:"
"""A submit's tag that carries the number of its operation into the log."""
_UNKNOWN: Final = frozenset({"outcome_unknown", "internal_error", "invariant_broken", ""})
_REFUSED: Final = 400

Fields = dict[str, Any]


class Asked(NamedTuple):
    """An operation that a request asks for."""

    f: str
    fields: Fields
    op: int = 0
    """The number that its submission carries; 0 = none."""
    request: str = ""
    """The worker's own id of a request for leases, the same if it is sent again; "" = none."""


class End(NamedTuple):
    """The end of an operation, as its reply tells."""

    type: str
    fields: Fields


UNKNOWN: Final = End("info", {})


def asked(exchange: Exchange) -> list[Asked]:
    """Return the operations that a request asks for."""
    url = urlsplit(exchange.url)
    path = url.path.removeprefix(BASE_PATH)
    document = msgspec.json.decode(exchange.body) if exchange.body else {}
    match exchange.method, path.strip("/").split("/"):
        case "POST", ["jobs"]:
            return [_submit(exchange.headers, document)]
        case "GET", ["jobs", job]:
            is_stale = "stale" in parse_qs(url.query).get("consistency", [])
            return [Asked("get", {"job": digits(job), "stale": is_stale})]
        case "DELETE", ["jobs", job]:
            return [Asked("cancel", {"job": digits(job)})]
        case "POST", ["leases"]:
            names = tuple(document.get("names") or ())
            fields = {"worker": document["worker"], "queues": tuple(document["queues"]), "names": names}
            return [Asked("lease", fields, request=document.get("request_id", ""))]
        case "POST", ["leases", "heartbeat"]:
            return [Asked("heartbeat", _held(document["worker"], each)) for each in document["leases"]]
        case "POST", ["leases", "outcomes"]:
            return [Asked("outcome", _reported(document["worker"], each)) for each in document["outcomes"]]
        case "POST", ["runs", run, "start"]:
            job, _, number = run.partition(".")
            return [Asked("start", {"job": digits(job), "run": int(number), "token": document["fencing_token"]})]
        case method, words:
            return _of_features(method, words, document, exchange.headers)


def _of_features(method: str, words: list[str], document: Fields, headers: Mapping[str, str]) -> list[Asked]:
    match method, words:
        case "POST", ["schedules"]:
            return [Asked("save_schedule", {"subject": document["name"]})]
        case "POST", ["schedules", schedule, "trigger"]:
            return [Asked("run_schedule", {"subject": digits(schedule)})]
        case "POST", ["schedules", schedule, action]:
            return [Asked("control_schedule", {"subject": digits(schedule), "action": action})]
        case "DELETE", ["schedules", schedule]:
            return [Asked("control_schedule", {"subject": digits(schedule), "action": "delete"})]
        case "POST", ["workflows"]:
            return [Asked("submit_workflow", {"tenant": TENANT, "key": headers.get(KEY_HEADER, "")})]
        case "DELETE", ["workflows", workflow]:
            return [Asked("cancel_workflow", {"subject": digits(workflow)})]
        case "PATCH", ["queues", queue]:
            return [Asked("configure_queue", {"subject": queue})]
        case "POST", ["queues", queue, action]:
            return [Asked(f"{action}_queue", {"subject": queue})]
    return []


def _submit(headers: Mapping[str, str], document: Fields) -> Asked:
    key = headers.get(KEY_HEADER, "")
    fields = {
        "tenant": TENANT,
        "key": key,
        "body": fingerprint_of(document).hex() if key else "",  # without a key nobody compares bodies
        "due_ms": -1 if document.get("delay_seconds") else 0,
        "max_attempts": document["max_attempts"],
        "once": document.get("start") == "at_most_once",
    }
    return Asked("submit", fields, op=next(_tagged(document.get("tags", ())), 0))


def _tagged(tags: Sequence[str]) -> Iterator[int]:
    return (int(tag.removeprefix(OP_TAG)) for tag in tags if tag.startswith(OP_TAG))


def _held(worker: str, held: Fields) -> Fields:
    job, _, run = held["run_id"].partition(".")
    return {"worker": worker, "job": digits(job), "run": int(run), "token": held["fencing_token"]}


def _reported(worker: str, report: Fields) -> Fields:
    return _held(worker, report) | {
        "outcome": report["status"],
        "completion_id": report.get("completion_id") or "",
        "retryable": report.get("retryable", True),
    }


def ends(operations: Sequence[Asked], reply: Reply) -> list[End]:
    """Return what became of the operations of a request."""
    try:
        document = msgspec.json.decode(reply.body) if reply.body else {}
    except msgspec.DecodeError:
        return [UNKNOWN] * len(operations)
    if reply.status >= _REFUSED:
        return [_refused(str(document.get("code", "")))] * len(operations)
    applied = int(reply.headers.get(REVISION_HEADER, 0))
    match operations[0].f:
        case "lease":
            return [End("ok", {"applied": applied, "grants": tuple(map(granted, document["leases"]))})]
        case "heartbeat":
            return [
                End("ok", {"valid": each["valid"], "cancel_requested": each.get("cancel_requested", False)})
                for each in document["leases"]
            ]
        case "outcome":
            return [_recorded(each) for each in document["outcomes"]]
        case "submit" | "get" | "cancel" as f:
            return [End("ok", {"applied": applied, **_shown(f, document)})]
        case "submit_workflow":
            return [End("ok", {"applied": applied, "job": digits(document["id"])})]
        case _:
            return [End("ok", {"applied": applied})]


def _refused(code: str) -> End:
    return UNKNOWN if code in _UNKNOWN else End("fail", {"error": code})


def _recorded(answer: Fields) -> End:
    return End("ok", {"revision": answer.get("revision", 0)}) if answer["accepted"] else _refused(answer["code"])


def _shown(f: str, job: Fields) -> Fields:
    shown = {"status": job["status"], "attempt": job["attempt_number"], "revision": job["revision"]}
    if f == "submit":
        shown |= {"job": digits(job["id"]), "duplicate": job.get("duplicate", False)}
    return shown


def granted(lease: Fields) -> Granted:
    """Return a lease as a history has it."""
    job, _, run = lease["run_id"].partition(".")
    return Granted(digits(job), int(run), lease["attempt_number"], lease["fencing_token"])


def digits(job_id: str) -> str:
    """Return the id of a job as histories have it."""
    return job_id.replace("-", "")
