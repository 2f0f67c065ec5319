"""Every status against every operation on a job: what becomes of it, or how it is refused.

The table is written from the operations' docstrings. Whatever it says, the step must also be a row of `TRANSITIONS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CancelJob, ExpiredLease, ExpireLeases, LeaseJobs, PurgeJobs, RecordOutcome
from raftsched.core.operations.control import (
    AmendJob,
    AppendLog,
    BlockJobs,
    DeadlineKind,
    HandleDeadlines,
    PauseJob,
    Progress,
    ReportProgress,
    RequeueJob,
    ResumeJob,
    StartRun,
)
from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.core.records.job import AttemptEnd, Dependency, Job, Status
from raftsched.core.records.spec import SpecChanges
from raftsched.core.records.transitions import TRANSITIONS
from raftsched.core.state.results import Refused
from raftsched.core.state.writes import PutJob
from tests.core.control_scene import ControlScene, options
from tests.core.scene import START_MS, TTL_MS, submit_operation

DEADLINE_MS: Final = TimeMs(START_MS + 10**9)
STATUSES: Final = [status for status in Status if status is not Status.FAILED]

# -- one job in each status


def scheduled(scene: ControlScene) -> Job:
    return submitted(scene, due_at_ms=scene.now_ms + 10_000)


def waiting_dependencies(scene: ControlScene) -> Job:
    return submitted(scene, depends_on=(Dependency(scene.submit().id),))


def queued(scene: ControlScene) -> Job:
    return submitted(scene)


def running(scene: ControlScene) -> Job:
    return scene.run(submitted(scene))


def cancelling(scene: ControlScene) -> Job:
    job = running(scene)
    scene.cancel(job)
    return job


def paused(scene: ControlScene) -> Job:
    return submitted(scene, paused=True)


def retrying(scene: ControlScene) -> Job:
    job = running(scene)
    scene.fail(job)
    return job


def completed(scene: ControlScene) -> Job:
    job = running(scene)
    scene.complete(job)
    return job


def dead_letter(scene: ControlScene) -> Job:
    job = running(scene)
    scene.fail(job, retryable=False)
    return job


def cancelled(scene: ControlScene) -> Job:
    job = running(scene)
    scene.force_cancel(job)
    return job


def skipped(scene: ControlScene) -> Job:
    parent = scene.running()
    job = submitted(scene, depends_on=(Dependency(parent.id),))
    scene.fail(parent, retryable=False)
    return job


def submitted(scene: ControlScene, **fields: object) -> Job:
    return scene.submit(timeout_ms=1_000, options=options(deadline_ms=DEADLINE_MS), **fields)


MAKERS: Final = {
    Status.SCHEDULED: scheduled,
    Status.WAITING_DEPENDENCIES: waiting_dependencies,
    Status.QUEUED: queued,
    Status.RUNNING: running,
    Status.CANCELLING: cancelling,
    Status.PAUSED: paused,
    Status.RETRYING: retrying,
    Status.COMPLETED: completed,
    Status.DEAD_LETTER: dead_letter,
    Status.CANCELLED: cancelled,
    Status.SKIPPED: skipped,
}

# -- every operation on it


def token_of(job: Job) -> FencingToken:
    """The token of the job's latest attempt; 0 where it had none."""
    if job.lease is not None:
        return job.lease.token
    return job.attempts[-1].token if job.attempts else FencingToken(0)


def outcome(end: AttemptEnd) -> Callable[[Job], Operation]:
    delay_ms = 0 if end is AttemptEnd.SNOOZED else -1
    return lambda job: RecordOutcome(job.id, 1, token_of(job), end, delay_ms=delay_ms)


def expiry(cause: AttemptEnd) -> Callable[[Job], Operation]:
    return lambda job: ExpireLeases((ExpiredLease(job.id, token_of(job), cause),))


MAKE_OPERATION: Final[dict[str, Callable[[Job], Operation]]] = {
    "submit": lambda job: submit_operation(int.from_bytes(job.id, "big"), name="another", fingerprint=b"other"),
    "lease": lambda job: LeaseJobs("w2", TTL_MS, (job.id,)),
    "complete": outcome(AttemptEnd.COMPLETED),
    "fail": outcome(AttemptEnd.FAILED),
    "snooze": outcome(AttemptEnd.SNOOZED),
    "lost": expiry(AttemptEnd.WORKER_LOST),
    "timeout": expiry(AttemptEnd.TIMEOUT),
    "grace": expiry(AttemptEnd.CANCELLED),
    "cancel": lambda job: CancelJob(job.id, "default"),
    "force": lambda job: CancelJob(job.id, "default", force=True),
    "pause": lambda job: PauseJob(job.id, "default", reason="why"),
    "resume": lambda job: ResumeJob(job.id, "default"),
    "put_off": lambda job: AmendJob(job.id, "default", due_at_ms=START_MS + 10**8),
    "bring_forward": lambda job: AmendJob(job.id, "default", due_at_ms=1),
    "reprioritise": lambda job: AmendJob(job.id, "default", changes=SpecChanges(priority=9)),
    "requeue": lambda job: RequeueJob(job.id, "default"),
    "requeue_later": lambda job: RequeueJob(job.id, "default", due_at_ms=TimeMs(START_MS + 10**8)),
    "start": lambda job: StartRun(job.id, 1, token_of(job)),
    "progress": lambda job: ReportProgress((Progress(job.id, 1, token_of(job), b"1"),)),
    "log": lambda job: AppendLog(job.id, 1, token_of(job), b"x\n"),
    "hold": lambda job: BlockJobs((job.id,)),
    "deadline": lambda job: HandleDeadlines(((DeadlineKind.JOB, bytes(job.id)),)),
    "purge": lambda job: PurgeJobs((job.id,), TimeMs(1 << 47)),
}
WAIT_MS: Final = {"lost": TTL_MS, "timeout": 1_000, "deadline": 10**9}
"""How long is waited before the operation; nothing else happens in that time."""

# -- what comes of it: a status, `-` = as it was, or `!` and the code of the refusal

COLUMNS = (
    "scheduled waiting_dependencies queued running cancelling paused retrying completed dead_letter cancelled skipped"
)
TABLE = """
submit        !invalid   !invalid   !invalid   !invalid  !invalid  !invalid   !invalid  !invalid   !invalid   !invalid   !invalid
lease         -          -          running    -         -         -          -         -          -          -          -
complete      !lease_lost !lease_lost !lease_lost completed !cancelled !lease_lost !already_recorded !already_recorded !already_recorded !cancelled !lease_lost
fail          !lease_lost !lease_lost !lease_lost retrying !cancelled !lease_lost !already_recorded !already_recorded !already_recorded !cancelled !lease_lost
snooze        !lease_lost !lease_lost !lease_lost scheduled !cancelled !lease_lost !already_recorded !already_recorded !already_recorded !cancelled !lease_lost
lost          -          -          -          queued    cancelled -          -         -          -          -          -
timeout       -          -          -          retrying  cancelled -          -         -          -          -          -
grace         -          -          -          -         cancelled -          -         -          -          -          -
cancel        cancelled  cancelled  cancelled  cancelling -        cancelled  cancelled !already_finished !already_finished - !already_finished
force         cancelled  cancelled  cancelled  cancelled cancelled cancelled  cancelled !already_finished !already_finished - !already_finished
pause         paused     paused     paused     !running  !running  -          paused    !already_finished !already_finished !already_finished !already_finished
resume        -          -          -          -         -         queued     -         !already_finished !already_finished !already_finished !already_finished
put_off       -          -          scheduled  !running  !running  -          scheduled !already_finished !already_finished !already_finished !already_finished
bring_forward queued     -          queued     !running  !running  -          queued    !already_finished !already_finished !already_finished !already_finished
reprioritise  -          -          -          !running  !running  -          -         !already_finished !already_finished !already_finished !already_finished
requeue       queued     !waiting_dependencies - !running !running !paused    queued    !completed queued     queued     !dependency_unmet
requeue_later -          !waiting_dependencies scheduled !running !running !paused scheduled !completed scheduled scheduled !dependency_unmet
start         !lease_lost !lease_lost !lease_lost -      !cancelled !lease_lost !lease_lost !lease_lost !lease_lost !cancelled !lease_lost
progress      -          -          -          -         -         -          -         -          -          -          -
log           !lease_lost !lease_lost !lease_lost -      -         !lease_lost !lease_lost !lease_lost !lease_lost !cancelled !lease_lost
hold          -          -          -          -         -         -          -         -          -          -          -
deadline      dead_letter dead_letter dead_letter dead_letter cancelled dead_letter dead_letter - - - -
purge         -          -          -          -         -         -          -         gone       gone       gone       gone
"""
ROWS = {row[0]: dict(zip(COLUMNS.split(), row[1:], strict=True)) for row in map(str.split, TABLE.strip().splitlines())}


def test_table_has_every_operation_and_every_status() -> None:
    assert set(ROWS) == set(MAKE_OPERATION)
    assert set(COLUMNS.split()) == {status.label for status in STATUSES}


@pytest.mark.parametrize("verb", MAKE_OPERATION)
@pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.label)
def test_every_operation_does_in_every_status_what_the_table_says_by_a_row_of_the_transitions(
    status: Status, verb: str
) -> None:
    scene = ControlScene()
    job = scene.now(MAKERS[status](scene))
    assert job.status is status
    scene.wait(WAIT_MS.get(verb, 0))
    result = scene.apply(MAKE_OPERATION[verb](job))
    expected = ROWS[verb][status.label]
    now = scene.state.job(job.id)
    if isinstance(result, Refused):
        found = f"!{result.code.label}"
    elif now is None:
        found = "gone"
    else:
        found = "-" if now.status is status else now.status.label
    assert found == ("-" if expected == status.label else expected)
    legal = {(source, target) for (source, _), target in TRANSITIONS.items()}
    for write in scene.last.writes:
        if isinstance(write, PutJob) and write.old is not None and write.old.status is not write.new.status:
            assert (write.old.status, write.new.status) in legal
