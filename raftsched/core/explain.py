"""Why a job isn't running: all that stands in its way now, as users can act on it.

A pure look at the state. What only the leader knows, the workers that it heard of lately, is handed in. Every reason
has a stable code, a sentence, and the numbers behind it (times in milliseconds of cluster time). A job that nothing
stands in the way of is `ready`, and waits for its turn. Bounded: whatever may be long is cut, and says how long it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from raftsched.core import bucket
from raftsched.core.admission import concurrency_key, key_concurrency_max
from raftsched.core.ids import JobId, TimeMs, job_id_text
from raftsched.core.job import FINISHED, LEASED, Condition, Job, Status
from raftsched.core.queue import Queue
from raftsched.core.view import View
from raftsched.core.workflow import WorkflowId

PARENTS_NAMED_MAX: Final = 20
PARENTS_READ_MAX: Final = 1_000
"""Parents looked at to find those to name: those that come first mostly end first, but need not."""

Detail = str | int | bool | list[str] | list[dict[str, str]]


class ServingWorker(NamedTuple):
    """A worker that was heard of lately: where it would take jobs from."""

    name: str
    queues: tuple[str, ...]
    region: str = ""
    """"" = it takes jobs of any region."""


class Reason(NamedTuple):
    code: str
    """Stable; `Reason.text` is for people and may change."""
    text: str
    details: dict[str, Detail] = {}  # noqa: RUF012  # nobody changes it


def explain(view: View, job: Job, now_ms: TimeMs, *, workers: Iterable[ServingWorker]) -> list[Reason]:
    """Return why `job` isn't running, what must happen first in front; for one that runs or has finished, that it does.

    Reads the queue, a count for each of its limits, and at most `PARENTS_READ_MAX` parents.
    """
    if job.status in FINISHED:
        return [_finished(job)]
    if job.status in LEASED:
        return [_leased(job)]
    reasons = [*_parked(view, job), *_untimely(job, now_ms), *_over_limits(view, job, now_ms)]
    reasons.extend(_unserved(job, workers))
    return reasons or [Reason("ready", "nothing stands in its way; it waits for its turn and a free worker")]


# -- what is over, and what runs --------------------------------------------------------------------------------------


def _finished(job: Job) -> Reason:
    details: dict[str, Detail] = {
        "status": job.status.label,
        "finished_at_ms": job.finished_at_ms,
        "run_number": job.run_number,
        "attempt_count": job.attempt_number,
    }
    if job.failure_reason:
        details["reason"] = job.failure_reason
    text = f"it has ended: {job.status.label}"
    return Reason("finished", f"{text} ({job.failure_reason})" if job.failure_reason else text, details)


def _leased(job: Job) -> Reason:
    details: dict[str, Detail] = {"started_at_ms": job.started_at_ms, "attempt_number": job.attempt_number}
    if job.lease is not None:
        details["worker"] = job.lease.worker
    if job.status is Status.CANCELLING:
        details["cancel_requested_at_ms"] = job.cancel_requested_at_ms
        return Reason("cancelling", "it was cancelled, and its worker has been told to stop", details)
    return Reason("running", "it is running", details)


# -- what a user or a parent must do ----------------------------------------------------------------------------------


def _parked(view: View, job: Job) -> list[Reason]:
    reasons = []
    if job.status is Status.PAUSED and job.pause is not None:
        reasons.append(_paused(job))
    if job.pending_count:
        reasons.append(_waits_for_parents(view, job))
    return reasons


def _paused(job: Job) -> Reason:
    pause = job.pause
    assert pause is not None
    details: dict[str, Detail] = {"since_ms": pause.since_ms}
    if pause.until_ms:
        details["until_ms"] = pause.until_ms
    if pause.reason:
        details["reason"] = pause.reason
    actor = next((note.actor for note in reversed(job.notes) if note.action == "paused"), "")
    if actor:
        details["by"] = actor
    how_long = "until its time comes" if pause.until_ms else "until somebody resumes it"
    return Reason("paused", f"{actor or 'somebody'} paused it, {how_long}", details)


def _waits_for_parents(view: View, job: Job) -> Reason:
    workflow_id = job.options.workflow_id if job.options is not None else b""
    workflow = view.workflow(WorkflowId(workflow_id)) if workflow_id else None
    if workflow is not None and not workflow.is_whole:
        return Reason(
            "workflow_incomplete",
            "its workflow has not been submitted in full",
            {"stored_count": workflow.stored_count, "job_count": workflow.job_count},
        )
    named: list[dict[str, str]] = []
    for dependency in view.dependencies(job.id)[:PARENTS_READ_MAX]:
        parent = view.job(dependency.parent)
        if parent is not None and parent.status not in FINISHED:
            named.append(_named(parent.id, parent.status, dependency.condition))
        if len(named) == PARENTS_NAMED_MAX:
            break
    details: dict[str, Detail] = {
        "pending_count": job.pending_count,
        "dependency_count": job.dependency_count,
        "parents": named,
    }
    text = f"{job.pending_count} of the {job.dependency_count} jobs that it depends on have not ended"
    return Reason("waits_for_parents", text, details)


def _named(parent: JobId, status: Status, condition: Condition) -> dict[str, str]:
    return {"id": job_id_text(parent), "status": status.label, "condition": condition.label}


# -- what time must bring ---------------------------------------------------------------------------------------------


def _untimely(job: Job, now_ms: TimeMs) -> list[Reason]:
    reasons = []
    if job.due_at_ms > now_ms:
        reasons.append(_not_due(job, now_ms))
    if 0 < job.alarm_at_ms <= now_ms and job.pause is None:
        reasons.append(Reason("expiring", "its time to start or to end has passed", {"at_ms": job.alarm_at_ms}))
    return reasons


def _not_due(job: Job, now_ms: TimeMs) -> Reason:
    details: dict[str, Detail] = {"due_at_ms": job.due_at_ms, "in_ms": job.due_at_ms - now_ms}
    if job.status is not Status.RETRYING:
        return Reason("not_due", "its time has not come", details)
    details |= {
        "failure_count": job.failure_count,
        "max_attempts": job.max_attempts,
        "lost_count": job.lost_count,
        "reason": job.failure_reason,
    }
    return Reason("will_retry", f"its latest attempt failed ({job.failure_reason}); it will be tried again", details)


# -- what its queue lets through --------------------------------------------------------------------------------------


def _over_limits(view: View, job: Job, now_ms: TimeMs) -> list[Reason]:
    queue = view.queue(job.queue)
    reasons = [] if queue is None else [*_queue_limits(view, queue, now_ms)]
    key = concurrency_key(job)
    if key:
        running_count, limit = view.key_running_count(job.queue, key), key_concurrency_max(queue)
        if job.held or running_count >= limit:
            details: dict[str, Detail] = {
                "concurrency_key": key,
                "running_count": running_count,
                "key_concurrency_max": limit,
                "held": job.held,
            }
            text = f"{running_count} of {limit} jobs with its concurrency key are running"
            reasons.append(Reason("key_limit", text, details))
    return reasons


def _queue_limits(view: View, queue: Queue, now_ms: TimeMs) -> Iterable[Reason]:
    if queue.paused:
        yield _queue_paused(queue)
    if queue.concurrency_max:
        running_count = view.running_count(queue.name)
        if running_count >= queue.concurrency_max:
            yield Reason(
                "concurrency_limit",
                f"{running_count} of {queue.concurrency_max} jobs of its queue are running",
                {"queue": queue.name, "running_count": running_count, "concurrency_max": queue.concurrency_max},
            )
    next_at_ms = bucket.next_lease_at_ms(queue, now_ms)
    if next_at_ms > now_ms:
        yield Reason(
            "rate_limited",
            f"its queue starts at most {queue.rate_count} jobs in {queue.rate_period_ms} ms",
            {
                "queue": queue.name,
                "rate_count": queue.rate_count,
                "rate_period_ms": queue.rate_period_ms,
                "until_ms": next_at_ms,
            },
        )


def _queue_paused(queue: Queue) -> Reason:
    details: dict[str, Detail] = {"queue": queue.name, "since_ms": queue.paused_at_ms}
    if queue.pause_until_ms:
        details["until_ms"] = queue.pause_until_ms
    if queue.pause_reason:
        details["reason"] = queue.pause_reason
    return Reason("queue_paused", f"its queue, {queue.name}, is paused", details)


# -- who would take it ------------------------------------------------------------------------------------------------


def _unserved(job: Job, workers: Iterable[ServingWorker]) -> list[Reason]:
    serving = [worker for worker in workers if job.queue in worker.queues]
    if not serving:
        return [Reason("no_worker", f"no worker takes jobs of its queue, {job.queue}", {"queue": job.queue})]
    if job.region and not any(worker.region in ("", job.region) for worker in serving):
        details: dict[str, Detail] = {"queue": job.queue, "region": job.region, "worker_count": len(serving)}
        return [Reason("no_worker", f"no worker of its queue is in its region, {job.region}", details)]
    return []
