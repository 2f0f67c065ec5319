"""Why a job isn't running: the reasons of `core.explain`, with what is known of the workers.

The leader knows who waits for jobs at this moment. Another node, asked for a stale answer, knows the workers by their
marks, which the log hears of every few seconds.
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

_HEARD_MS: Final = 60_000
"""A worker that was not heard of for this long serves nobody."""
_TIMES: Final = ("_at_ms", "since_ms", "until_ms")


def explain_reply(
    state: StateReader, job: Job, now_ms: int, workers: Sequence[ServingWorker], liveness: LeaseLiveness | None = None
) -> ExplainReply:
    """Return why `job` isn't running at `now_ms`; `workers` are those of its queue, `signs` those of its lease."""
    reasons = explain(state, job, TimeMs(now_ms), workers=workers, liveness=liveness)
    return ExplainReply(
        id=job_id_text(job.id),
        status=job.status_at(now_ms).label,
        reasons=[_reason_reply(reason) for reason in reasons],
        revision=job.revision,
    )


def marked_workers(state: StateReader, queue: str, now_ms: int) -> list[ServingWorker]:
    """Return the workers of `queue` as their marks tell of them."""
    return [
        ServingWorker(worker.name, worker.queues, worker.region, worker.seen_at_ms)
        for worker in state.workers()
        if worker.seen_at_ms > now_ms - _HEARD_MS and accepts(worker.queues, queue)
    ]


def _reason_reply(reason: Reason) -> ReasonReply:
    details = dict(_shown(name, value) for name, value in reason.details.items())
    return ReasonReply(code=reason.code, text=reason.text, details=details)


def _shown(name: str, value: Detail) -> tuple[str, Any]:
    """Times as RFC 3339 and durations in seconds, as everywhere in the API."""
    if not name.endswith("_ms") or not isinstance(value, int):
        return name, value
    if name == "at_ms" or name.endswith(_TIMES):
        return name.removesuffix("_ms"), time_text(value)
    return f"{name.removesuffix('_ms')}_seconds", value / 1000
