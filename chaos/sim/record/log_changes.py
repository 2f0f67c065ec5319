"""Effects of an operation of the log, in the words of the history: to jobs (`Change`), and to whatever else there is.

It is derived from the operation and from the records that it wrote, before and after, so that a checker knows the log
without believing the code that applies it. What the operation was not about, but follows from it, has its cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from chaos.checkers.history.events import FinalJob
from chaos.sim.record.log_records import other_events
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CancelJob, ExpireLeases, LeaseJobs, RecordOutcome, SubmitJob, SubmitWorkflow
from raftsched.core.operations.control import (
    AmendJob,
    AwaitCallback,
    BlockJobs,
    DoBackgroundStep,
    HandleDeadlines,
    PauseJob,
    RequeueJob,
    ResumeJob,
    StartRun,
)
from raftsched.core.operations.queues import CancelWorkflow
from raftsched.core.operations.schedules import FireSchedule, RunSchedule
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import FINISHED, LEASED, WAITING, Dependency, Job, Status
from raftsched.core.records.spec import Options
from raftsched.core.state.results import Applied
from raftsched.core.state.writes import PutDependencies, PutJob, RemoveJob

OP_TAG = "op:"
"""A submit's tag that carries the number of its operation."""
_NO_OPTIONS = Options()


class Deed(NamedTuple):
    """An operation of the log, and its results."""

    operation: Operation
    applied: Applied


def job_name(job_id: JobId | bytes) -> str:
    return job_id.hex()


def events_of(deed: Deed) -> Iterator[tuple[str, dict[str, Any]]]:
    """(kind of event, its fields) of all that a deed did, in order; `Change` is the kind of what happened to jobs."""
    operation, (_, writes) = deed
    parents = {write.child: write.dependencies for write in writes if isinstance(write, PutDependencies)}
    for write in writes:
        if isinstance(write, PutJob):
            yield "Change", _changed(operation, write, parents)
        elif isinstance(write, RemoveJob):
            yield "Change", {"f": "purge", "job": job_name(write.old.id), "status": "purged"}
        else:
            yield from other_events(operation, write)


# -- jobs -------------------------------------------------------------------------------------------------------------


def _changed(operation: Operation, write: PutJob, parents: dict[JobId, tuple[Dependency, ...]]) -> dict[str, Any]:
    old, new = write.old, write.new
    options = new.spec.options or _NO_OPTIONS
    fields: dict[str, Any] = {
        "job": job_name(new.id),
        "status": new.status.label,
        "attempt": new.attempt_number,
        "run": new.run_number,
        "due_ms": new.due_at_ms if new.status not in FINISHED and new.lease is None else 0,
        "queue": new.spec.queue,
        "concurrency_key": options.concurrency_key,
        "blocked": new.blocked,
        "unique": options.unique_key.hex() if not options.unique_until_ms else "",
        "tenant": new.tenant,
        "region": new.spec.region,
        "name": new.spec.handler,
        "priority": new.spec.priority,
    }
    if old is None:
        return fields | _submitted(operation, write, options, parents.get(new.id, ()))
    return fields | _done(operation, old, new)


def _submitted(
    operation: Operation, write: PutJob, options: Options, depends_on: tuple[Dependency, ...]
) -> dict[str, Any]:
    new, payload = write.new, write.payload or b""
    match operation:
        case _ if options.is_message:
            cause = "hook"
        case SubmitJob():
            cause = ""
        case SubmitWorkflow():
            cause = "workflow"
        case _:
            cause = "schedule"
    return {
        "f": "submit",
        "cause": cause,
        "due_ms": new.due_at_ms,
        "key": new.idempotency_key,
        "body": new.fingerprint.hex(),
        "max_attempts": new.spec.max_attempts,
        "timeout_ms": new.spec.timeout_ms,
        "op": _op(new),
        "once": options.at_most_once,
        "max_lost_workers": options.lost_workers_max,
        "schedule": options.schedule_id.hex(),
        "fire_time_ms": options.fire_time_ms or 0,
        "workflow": options.workflow_id.hex(),
        "depends_on": tuple((job_name(each.parent), each.condition.label) for each in depends_on),
        "on_failure": options.on_dependency_failure.label if depends_on else "",
        "hooks": tuple(name for name in ("on_failure", "on_success") if getattr(options, name) is not None),
        "hook_of": options.hook_of.hex(),
        **(_notice(options, payload) if options.notice_of else {}),
    }


def _notice(options: Options, payload: bytes) -> dict[str, Any]:
    """Return what a notice tells, as this simulator has its content (`users.intents`)."""
    told = msgspec.json.decode(payload)
    return {
        "notice_of": options.notice_of.hex(),
        "notice_number": told["number"],
        "notice_event": told["event"],
        "notice_job": told["job"].replace("-", ""),
    }


def _done(operation: Operation, old: Job, new: Job) -> dict[str, Any]:
    """Name what happened to a job that was there: by the operation itself if it was about this job, else by its cause."""
    if old.lease is None and new.lease is not None:
        lease = new.lease
        region, tenant = (operation.region, operation.tenant) if isinstance(operation, LeaseJobs) else ("", "")
        return {
            "f": "lease",
            "token": lease.token,
            "worker": lease.worker,
            "ttl_ms": lease.ttl_ms,
            "worker_region": region,
            "worker_tenant": tenant,
        }
    if old.lease is not None and new.lease is None:
        return _freed(operation, old, new)
    if isinstance(operation, StartRun | AwaitCallback):
        return _told_of_lease(operation)
    if getattr(operation, "job_id", None) == new.id and (f := _asked(operation, old, new)):
        return {"f": f, "max_lost_workers": (new.spec.options or _NO_OPTIONS).lost_workers_max if f == "amend" else 0}
    f = _by_status(old, new)
    return {"f": f, "cause": _cause(operation, f)}


def _told_of_lease(operation: StartRun | AwaitCallback) -> dict[str, Any]:
    """A worker said something of its attempt that the lease keeps."""
    if isinstance(operation, AwaitCallback):
        return {"f": "await", "token": operation.token}
    return {"f": "start", "token": operation.token, "callback_digest": operation.callback_digest.hex()}


def _freed(operation: Operation, old: Job, new: Job) -> dict[str, Any]:
    """A lease ended."""
    assert old.lease is not None
    fields = {"token": old.lease.token, "worker": old.lease.worker, "due_ms": new.due_at_ms}
    match operation:
        case RecordOutcome():
            return fields | {
                "f": "outcome",
                "token": operation.token,
                "outcome": operation.end.label,
                "completion_id": operation.completion_id,
                "retryable": operation.retryable,
            }
        case ExpireLeases():
            causes = {suspect.job_id: suspect.cause.label for suspect in operation.leases}
            return fields | {"f": "expire", "outcome": causes[new.id]}
        case HandleDeadlines():
            return fields | {"f": "lapse", "cause": "time"}
        case CancelJob() if operation.job_id == new.id:
            return fields | {"f": "abort"}
        case _:
            return fields | {"f": "abort", "cause": _cause(operation, "abort")}


def _asked(operation: Operation, old: Job, new: Job) -> str:
    """Name what the operation was about, if it was about this job."""
    match operation:
        case CancelJob() if new.cancel_requested_at_ms != old.cancel_requested_at_ms:
            return "cancel"
        case PauseJob() if new.status is Status.PAUSED:
            return "pause"
        case ResumeJob() if old.status is Status.PAUSED:
            return "resume"
        case AmendJob():
            return "amend"
        case RequeueJob():
            return "requeue" if old.status in FINISHED else "amend"
        case _:
            return ""


def _by_status(old: Job, new: Job) -> str:
    """Name what must have happened to the job that nobody asked for by name; "" = nothing that can happen."""
    if new.status is old.status:
        return "touch"
    if old.status in FINISHED:
        return "revive"
    if new.status is Status.CANCELLED or new.status is Status.CANCELLING:
        return "cancel"
    if new.status is Status.SKIPPED or new.failure_reason.startswith("dependency_failed"):
        return "skip"
    if new.status is Status.DEAD_LETTER:
        return "lapse"
    if old.status is Status.PAUSED:
        return "resume"
    return "release" if new.status in WAITING and old.status not in LEASED else "nothing known"


def _cause(operation: Operation, f: str) -> str:
    if f == "cancel":
        return "workflow"  # nobody asked for this job by name, though it may be a parent's end that reached it first
    match operation:
        case FireSchedule() | RunSchedule():
            return "schedule"
        case HandleDeadlines():
            return "time"
        case LeaseJobs() | BlockJobs():
            return "leader"
        case CancelWorkflow() | DoBackgroundStep() if f == "abort":
            return "workflow"
        case _:
            return "parent"


def final_job(job: Job) -> FinalJob:
    """A job as a node holds it at the end."""
    return FinalJob(
        status=job.status.label,
        attempt=job.attempt_number,
        token=job.lease.token if job.lease is not None else 0,
        revision=job.revision,
        tenant=job.tenant,
        key=job.idempotency_key,
        body=job.fingerprint.hex(),
        op=_op(job),
        run=job.run_number,
    )


def _op(job: Job) -> int:
    return next((int(tag[len(OP_TAG) :]) for tag in job.spec.tags if tag.startswith(OP_TAG)), 0)
