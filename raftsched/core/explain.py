"""Explain why a job is not running: all present reasons, so that users can act on them.

It only reads the state. The caller passes what only the leader knows: when workers were seen last. Every reason has a
stable code, a sentence, and the numbers behind it (times in milliseconds of cluster time). A job without any reason is
`ready`, and waits for its turn. The sentences claim only what is known: a dead worker is known only by its silence, so
they say how long it has been silent, and what follows. Long lists are cut, and the text gives their length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from raftsched.core.jobs import rate_limit as bucket
from raftsched.core.jobs.admission import key_concurrency_max
from raftsched.core.records.ids import TimeMs, job_id_text
from raftsched.core.records.job import (
    FINISHED,
    LEASED,
    Condition,
    DeadLetterReason,
    Job,
    JobError,
    Status,
)
from raftsched.core.records.queue import Queue
from raftsched.core.records.queue_patterns import accepts
from raftsched.core.records.texts import span_text
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.view import View

PARENTS_NAMED_MAX: Final = 20
PARENTS_READ_MAX: Final = 1_000
"""Parents examined to find unfinished ones to name: usually the first parents end first, but not always."""
_NAMES_IN_TEXT_MAX: Final = 5
_ERROR_CHARS_MAX: Final = 200
"""Length of an error's message in a sentence; the job shows all of it."""

Detail = str | int | bool | list[str] | list[dict[str, str]]


class ServingWorker(NamedTuple):
    """Describe a worker that was seen lately, and the jobs that it requests."""

    name: str
    queues: tuple[str, ...]
    region: str = ""
    """"" = none: it gets no job that has a region."""
    heartbeat_at_ms: int = 0
    """The cluster time at which it was seen last; 0 = not known."""
    names: Collection[str] | None = None
    """The job names for which it has handlers; None = not known, or any."""
    tenant: str = ""
    """The tenant whose jobs it is given; "" = all."""


class LeaseLiveness(NamedTuple):
    """Carry what the leader knows about a running lease, in cluster time."""

    heartbeat_at_ms: int
    """Its worker's latest heartbeat for it; 0 = none since this leader took over."""
    ends_at_ms: int
    """The time at which it ends unless its worker sends another heartbeat."""
    over_at_ms: int = 0
    """The time at which it ends in any case: its timeout, or after a cancel the end of the grace; 0 = never."""


class Reason(NamedTuple):
    code: str
    """Stable; `Reason.text` is for people and may change."""
    text: str
    details: dict[str, Detail] = {}  # noqa: RUF012  # nobody changes it


def explain(
    view: View, job: Job, now_ms: TimeMs, *, workers: Sequence[ServingWorker], liveness: LeaseLiveness | None = None
) -> list[Reason]:
    """Return the reasons why `job` is not running, most immediate first; for a running or finished job, its state.

    `workers` are those seen lately; `liveness` is that of the job's lease, if the leader answers. Reads the queue, a
    count for each of its limits, the worker that runs it, and at most `PARENTS_READ_MAX` parents.
    """
    if job.status in FINISHED:
        return [_finished(job)]
    if job.status in LEASED:
        return [_leased(view, job, now_ms, liveness)]
    reasons = [*_parked(view, job, now_ms), *_untimely(job, now_ms), *_over_limits(view, job, now_ms)]
    reasons.extend(_unserved(job, workers))
    return reasons or [_ready(job, workers, now_ms)]


# -- finished and running jobs ----------------------------------------------------------------------------------------


_REASON_TEXTS: Final = {
    DeadLetterReason.ATTEMPTS_EXHAUSTED: "its attempts are used up",
    DeadLetterReason.TIMEOUT: "its last attempt ran for too long",
    DeadLetterReason.WORKER_LOST: "its workers were lost while it ran",
    DeadLetterReason.TARGET_REFUSED: "its executor may not connect to that address; allow it with --allow-target",
    DeadLetterReason.REJECTED: "its handler gave up, or the error is not to be tried again",
}
_EXPIRY_TEXTS: Final = {
    "deadline": "it had not ended by its deadline",
    "expires_at": "it had not started by the time at which it expires",
}
_NEXT_STEPS: Final = {
    Status.COMPLETED: "Replay it to have it done again, as a new job",
    Status.DEAD_LETTER: "Requeue it from the dead letters (retry) to run it again, or replay it as a new job",
}


def _finished(job: Job) -> Reason:
    details: dict[str, Detail] = {
        "status": job.status.label,
        "finished_at_ms": job.finished_at_ms,
        "run_number": job.run_number,
        "attempt_count": job.attempt_number,
    }
    text = f"it has ended: {job.status.label}"
    if job.failure_reason:
        details["reason"] = job.failure_reason
        text += f" ({_failure_text(job)})"
    error = _latest_error(job)
    if error is not None and job.status is Status.DEAD_LETTER:
        details["error"] = _error_text(error)
        text += f"; the latest error was {_error_text(error)}"
    next_step = _NEXT_STEPS.get(job.status, "Retry it to run it after all, or replay it as a new job")
    return Reason("finished", f"{text}. {next_step}", details)


def _failure_text(job: Job) -> str:
    reason = job.failure_reason
    told = _REASON_TEXTS.get(reason, "")
    if reason == DeadLetterReason.EXPIRED:
        cause = next((note.detail for note in reversed(job.notes) if note.action == "expired"), "")
        told = _EXPIRY_TEXTS.get(cause, "its time to start or to end had passed")
    return f"{reason}: {told}" if told else reason


def _leased(view: View, job: Job, now_ms: TimeMs, liveness: LeaseLiveness | None) -> Reason:
    lease = job.lease
    assert lease is not None
    mark = view.worker(lease.worker)
    heartbeat_at_ms = max(
        lease.granted_at_ms, mark.seen_at_ms if mark else 0, liveness.heartbeat_at_ms if liveness else 0
    )
    details: dict[str, Detail] = {
        "started_at_ms": job.started_at_ms,
        "attempt_number": job.attempt_number,
        "worker": lease.worker,
        "worker_heard_at_ms": heartbeat_at_ms,
    }
    if liveness is not None:
        details["lease_ends_at_ms"] = liveness.ends_at_ms
    worker = f"its worker, {lease.worker}, was last heard {_ago(now_ms, heartbeat_at_ms)}{_lease_end(liveness, now_ms)}"
    if lease.awaits_callback and job.status is not Status.CANCELLING:
        ends_at_ms = lease.granted_at_ms + job.spec.timeout_ms
        details["lease_ends_at_ms"] = ends_at_ms
        text = (
            f"its target has accepted the request; its report is awaited for {span_text(max(0, ends_at_ms - now_ms))}"
        )
        return Reason("awaiting_callback", text, details)
    if job.status is not Status.CANCELLING:
        return Reason(job.status.label, f"it is {job.status.label}; {worker}", details)
    details["cancel_requested_at_ms"] = job.cancel_requested_at_ms
    is_asked = liveness is not None and liveness.heartbeat_at_ms > job.cancel_requested_at_ms
    notice = "its worker was asked to stop" if is_asked else "its worker is asked to stop at its next heartbeat"
    return Reason("cancelling", f"it was cancelled, and {notice}; {worker}", details)


def _lease_end(liveness: LeaseLiveness | None, now_ms: TimeMs) -> str:
    if liveness is None:
        return ""
    over_in_ms, ends_in_ms = liveness.over_at_ms - now_ms, liveness.ends_at_ms - now_ms
    if ends_in_ms <= 0 or (liveness.over_at_ms and over_in_ms <= 0):
        return "; its lease is over, and is being ended"
    text = f"; its lease ends in {span_text(ends_in_ms)} unless it is heard again"
    return f"{text}, and in {span_text(over_in_ms)} in any case" if liveness.over_at_ms else text


# -- paused jobs, and jobs that wait for parents ----------------------------------------------------------------------


def _parked(view: View, job: Job, now_ms: TimeMs) -> list[Reason]:
    reasons = []
    if job.status is Status.PAUSED and job.pause is not None:
        reasons.append(_paused(job, now_ms))
    if job.pending_count:
        reasons.append(_waits_for_parents(view, job, now_ms))
    return reasons


def _paused(job: Job, now_ms: TimeMs) -> Reason:
    pause = job.pause
    assert pause is not None
    details: dict[str, Detail] = {"since_ms": pause.since_ms}
    if pause.until_ms:
        details["until_ms"] = pause.until_ms
    if pause.reason:
        details["reason"] = pause.reason
    note = next((note for note in reversed(job.notes) if note.action == "paused"), None)
    who = "it was submitted paused" if note is None and pause.since_ms == job.created_at_ms else "it was paused"
    if note is not None and note.actor:
        details["by"] = note.actor
        who = f"{note.actor} paused it"
    if not pause.until_ms:
        return Reason("paused", f"{who}, until somebody resumes it", details)
    return Reason("paused", f"{who}; it resumes in {span_text(max(0, pause.until_ms - now_ms))}", details)


def _waits_for_parents(view: View, job: Job, now_ms: TimeMs) -> Reason:
    workflow_id = job.spec.workflow_id
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
            named.append(_named(parent, dependency.condition, now_ms))
        if len(named) == PARENTS_NAMED_MAX:
            break
    details: dict[str, Detail] = {
        "pending_count": job.pending_count,
        "dependency_count": job.dependency_count,
        "parents": named,
    }
    text = f"{job.pending_count} of the {job.dependency_count} jobs that it depends on have not ended"
    shown = ", ".join(f"{each.get('task') or each['name']} ({each['status']})" for each in named[:_NAMES_IN_TEXT_MAX])
    more = ", …" if job.pending_count > _NAMES_IN_TEXT_MAX else ""
    return Reason("waits_for_parents", f"{text}: {shown}{more}" if shown else text, details)


def _named(parent: Job, condition: Condition, now_ms: TimeMs) -> dict[str, str]:
    """Return a parent's id, name and status, with its task name if it belongs to a workflow."""
    options, name = parent.spec.options, parent.spec.name
    task = {"task": options.task} if options is not None and options.task else {}
    status = parent.status_at(now_ms).label
    return {"id": job_id_text(parent.id), "name": name, **task, "status": status, "condition": condition.label}


# -- jobs that wait for time ------------------------------------------------------------------------------------------


def _untimely(job: Job, now_ms: TimeMs) -> list[Reason]:
    reasons = []
    if job.due_at_ms > now_ms:
        reasons.append(_not_due(job, now_ms))
    if 0 < job.next_deadline_ms <= now_ms and job.pause is None:
        text = "its deadline has passed" if job.is_overdue(now_ms) else "the time by which it had to start has passed"
        reasons.append(Reason("expiring", f"{text}: it is about to be given up", {"at_ms": job.next_deadline_ms}))
    return reasons


def _not_due(job: Job, now_ms: TimeMs) -> Reason:
    details: dict[str, Detail] = {"due_at_ms": job.due_at_ms, "in_ms": job.due_at_ms - now_ms}
    if job.status is not Status.RETRYING:
        return Reason("not_due", f"its time comes in {span_text(job.due_at_ms - now_ms)}", details)
    details |= {
        "failure_count": job.failure_count,
        "max_attempts": job.spec.max_attempts,
        "lost_count": job.lost_count,
        "reason": job.failure_reason,
    }
    error = _latest_error(job)
    why = job.failure_reason if error is None else _error_text(error)
    text = f"its latest attempt failed ({why}); it is tried again in {span_text(job.due_at_ms - now_ms)}"
    return Reason("will_retry", text, details)


# -- limits of the queue ----------------------------------------------------------------------------------------------


def _over_limits(view: View, job: Job, now_ms: TimeMs) -> list[Reason]:
    queue = view.queue(job.spec.queue)
    reasons = [] if queue is None else [*_queue_limits(view, queue, now_ms)]
    key = job.spec.concurrency_key
    if key:
        running_count, limit = view.key_running_count(job.spec.queue, job.key_group), key_concurrency_max(queue)
        if job.blocked or running_count >= limit:
            details: dict[str, Detail] = {
                "concurrency_key": key,
                "running_count": running_count,
                "key_concurrency_max": limit,
                "held": job.blocked,
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
            _rate_text(queue, next_at_ms - now_ms),
            {
                "queue": queue.name,
                "rate_count": queue.rate_count,
                "rate_period_ms": queue.rate_period_ms,
                "rate_burst": bucket.burst(queue),
                "until_ms": next_at_ms,
            },
        )


def _rate_text(queue: Queue, wait_ms: int) -> str:
    """Return the rate limit as a sentence: a bucket that can be emptied at once and fills evenly."""
    count, period, at_once = queue.rate_count, span_text(queue.rate_period_ms), bucket.burst(queue)
    limit = f"its queue's rate is {count} per {period}, evenly spread, and up to {at_once} at once after a rest"
    return f"{limit}; the next may start in {span_text(wait_ms)}"


def _queue_paused(queue: Queue) -> Reason:
    details: dict[str, Detail] = {"queue": queue.name, "since_ms": queue.paused_at_ms}
    if queue.pause_until_ms:
        details["until_ms"] = queue.pause_until_ms
    if queue.pause_reason:
        details["reason"] = queue.pause_reason
    return Reason("queue_paused", f"its queue, {queue.name}, is paused", details)


# -- workers for the job ----------------------------------------------------------------------------------------------


def _ready(job: Job, workers: Sequence[ServingWorker], now_ms: TimeMs) -> Reason:
    """Return the reason of a ready job: it waits for a worker, which may have died since it was seen."""
    takers = _takers(job, workers)
    latest = max(takers, key=lambda worker: worker.heartbeat_at_ms)
    text = "nothing blocks it; it waits for its turn and a free worker"
    details: dict[str, Detail] = {"worker_count": len(takers)}
    if not latest.heartbeat_at_ms:
        return Reason("ready", text, details)
    details["worker_heard_at_ms"] = latest.heartbeat_at_ms
    who = f"the only one, {latest.name}," if len(takers) == 1 else f"the latest of {len(takers)}, {latest.name},"
    return Reason("ready", f"{text}; {who} was last heard {_ago(now_ms, latest.heartbeat_at_ms)}", details)


def _unserved(job: Job, workers: Sequence[ServingWorker]) -> list[Reason]:
    serving = [worker for worker in workers if accepts(worker.queues, job.spec.queue)]
    if not serving:
        text = f"no worker takes jobs of its queue, {job.spec.queue}"
        if (call := _call(job)) is not None:
            text += f"; start an executor: raftsched worker --{call} --queue {job.spec.queue}"
        return [Reason("no_worker", text, {"queue": job.spec.queue})]
    details: dict[str, Detail] = {"queue": job.spec.queue, "worker_count": len(serving)}
    own = [worker for worker in serving if _is_for_tenant(job, worker)]
    if not own:
        details["tenant"] = job.tenant
        return [Reason("no_worker", f"no worker of its queue takes jobs of its tenant, {job.tenant}", details)]
    near = [worker for worker in own if _is_near(job, worker)]
    if not near:
        details["region"] = job.spec.region
        return [Reason("no_worker", f"no worker of its queue is in its region, {job.spec.region}", details)]
    if not any(_has_handler(job, worker) for worker in near):
        details |= {"name": job.spec.name, "worker_count": len(near)}
        needed = f"a handler for {job.spec.name}" if (call := _call(job)) is None else f"an executor of {call} jobs"
        text = f"no worker with {needed}: {len(near)} of its queue, {job.spec.queue}, have none"
        return [Reason("no_handler", text, details)]
    return []


def _call(job: Job) -> str | None:
    """Return the kind of a job that needs no handler; None for others."""
    options = job.spec.options
    return None if options is None or options.call is None else options.call.kind.label


def _takers(job: Job, workers: Sequence[ServingWorker]) -> list[ServingWorker]:
    return [
        worker
        for worker in workers
        if accepts(worker.queues, job.spec.queue)
        and _is_for_tenant(job, worker)
        and _is_near(job, worker)
        and _has_handler(job, worker)
    ]


def _is_near(job: Job, worker: ServingWorker) -> bool:
    return not job.spec.region or worker.region == job.spec.region


def _is_for_tenant(job: Job, worker: ServingWorker) -> bool:
    return worker.tenant in ("", job.tenant)


def _has_handler(job: Job, worker: ServingWorker) -> bool:
    return worker.names is None or job.spec.handler in worker.names


# -- texts ------------------------------------------------------------------------------------------------------------


def _ago(now_ms: int, then_ms: int) -> str:
    return f"{span_text(max(0, now_ms - then_ms))} ago"


def _latest_error(job: Job) -> JobError | None:
    """Return the error of the latest attempt of this run, or None."""
    attempt = job.attempts[-1] if job.attempts else None
    return attempt.error if attempt is not None and attempt.run_number == job.run_number else None


def _error_text(error: JobError) -> str:
    message = error.message[:_ERROR_CHARS_MAX] + ("…" if len(error.message) > _ERROR_CHARS_MAX else "")
    return f"{error.type}: {message}" if error.type and message else error.type or message
