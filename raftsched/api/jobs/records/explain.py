"""Explain why a job is not running: the reasons of `core.explain`, with the known workers.

The leader knows which workers wait for jobs now. Another node, for a stale answer, knows the workers by their marks,
which are written to the log every few seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from raftsched.api.http.json_reply import time_text
from raftsched.core.explain import Detail, LeaseLiveness, Reason, ServingWorker, explain
from raftsched.core.records.ids import TimeMs, job_id_text
from raftsched.core.records.job import Job
from raftsched.core.records.queue_patterns import accepts
from raftsched.storage.reader import StateReader
from raftsched.wire.runs import ExplainReply, ReasonReply

_SEEN_MS: Final = 60_000
"""A worker without a request for this long counts as gone."""
_TIMES: Final = ("_at_ms", "since_ms", "until_ms")


def explain_reply(
    state: StateReader, job: Job, now_ms: int, workers: Sequence[ServingWorker], liveness: LeaseLiveness | None = None
) -> ExplainReply:
    """Return the reasons why `job` is not running at `now_ms`, from its queue's `workers` and its lease's `signs`."""
    reasons = explain(state, job, TimeMs(now_ms), workers=workers, liveness=liveness)
    return ExplainReply(
        id=job_id_text(job.id),
        status=job.status_at(now_ms).label,
        reasons=[_reason_reply(reason) for reason in reasons],
        revision=job.revision,
    )


def marked_workers(state: StateReader, queue: str, now_ms: int) -> list[ServingWorker]:
    """Return the workers of `queue` according to their marks."""
    return [
        ServingWorker(worker.name, worker.queues, worker.region, worker.seen_at_ms, tenant=worker.tenant)
        for worker in state.workers()
        if worker.seen_at_ms > now_ms - _SEEN_MS and accepts(worker.queues, queue)
    ]


def _reason_reply(reason: Reason) -> ReasonReply:
    details = dict(_shown(name, value) for name, value in reason.details.items())
    return ReasonReply(code=reason.code, text=reason.text, details=details)


def _shown(name: str, value: Detail) -> tuple[str, Any]:
    """Convert times to RFC 3339 and durations to seconds, as everywhere in the API."""
    if not name.endswith("_ms") or not isinstance(value, int):
        return name, value
    if name == "at_ms" or name.endswith(_TIMES):
        return name.removesuffix("_ms"), time_text(value)
    return f"{name.removesuffix('_ms')}_seconds", value / 1000
