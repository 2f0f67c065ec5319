from __future__ import annotations

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import AmendJob, PauseJob, RequeueJob, ResumeJob
from raftsched.core.records.bounds import TIME_MS_MAX
from raftsched.core.records.ids import JobId, TimeMs, job_id_text
from raftsched.core.records.job import DeadLetterReason, Dependency, Job, JobError, Pause, Status
from raftsched.core.records.spec import NEVER, OnDependencyFailure, SpecChanges
from raftsched.core.records.texts import time_text
from raftsched.core.state.entries import AuditEntry
from raftsched.core.state.results import Changed, Refused
from tests.core.control_scene import ControlScene, changed, last_note, options
from tests.core.scene import START_MS, code_of, job_id

A_DAY_MS = 86_400_000


def dead(scene: ControlScene, **fields: object) -> Job:
    job = scene.running(max_attempts=1, **fields)
    scene.fail(job, error=JobError("ValueError", "boom"))
    return scene.now(job)


# -- pause


def test_pause_keeps_a_due_job_from_being_leased_until_it_is_resumed(scene: ControlScene) -> None:
    job = scene.submit()
    paused = changed(scene.pause(job, reason="maintenance", actor="ann"))
    assert (paused.status, paused.pause) == (Status.PAUSED, Pause(TimeMs(START_MS), TimeMs(0), "maintenance"))
    assert scene.lease(job).missed == (job.id,)
    assert changed(scene.resume(job, actor="ann")).status is Status.QUEUED
    assert scene.run(job).attempt_number == 1


def test_pause_takes_a_later_job_off_the_timers_and_resume_puts_it_back(scene: ControlScene) -> None:
    job = scene.submit(due_at_ms=scene.now_ms + 10)
    assert not changed(scene.pause(job)).timed
    resumed = changed(scene.resume(job))
    assert (resumed.status, resumed.timed, resumed.due_at_ms) == (Status.SCHEDULED, True, scene.now_ms + 10)


def test_pause_of_a_job_that_becomes_due_meanwhile_resumes_it_as_queued(scene: ControlScene) -> None:
    job = scene.submit(due_at_ms=scene.now_ms + 10)
    scene.pause(job)
    scene.wait(10)
    resumed = changed(scene.resume(job))
    assert (resumed.status, resumed.timed) == (Status.QUEUED, False)


def test_pause_twice_takes_over_the_new_end_and_reason_and_keeps_its_begin(scene: ControlScene) -> None:
    job = scene.submit()
    scene.pause(job, reason="a")
    scene.wait(5)
    until_ms = TimeMs(scene.now_ms + 100)
    assert changed(scene.pause(job, reason="b", until_ms=until_ms)).pause == Pause(TimeMs(START_MS), until_ms, "b")
    known = scene.now(job)
    assert scene.pause(job, reason="b", until_ms=until_ms) == Changed(known)
    assert scene.last.writes == ()


def test_pause_and_resume_leave_a_note_and_a_line_of_the_audit_trail(scene: ControlScene) -> None:
    job = scene.submit()
    paused = changed(scene.pause(job, reason="why", actor="ann"))
    note = last_note(paused)
    assert (note.action, note.actor, note.detail, note.revision) == ("paused", "ann", "why", scene.state.index)
    assert scene.audited() == AuditEntry(
        TimeMs(scene.now_ms), "ann", "job.pause", f"job:{job_id_text(job.id)}", "default", "why", scene.state.index
    )
    resumed = changed(scene.resume(job, actor="bob"))
    assert (last_note(resumed).action, last_note(resumed).actor) == ("resumed", "bob")
    assert scene.audited().action == "job.resume"


def test_notes_are_kept_up_to_their_bound_and_the_latest_stay(scene: ControlScene) -> None:
    job = scene.submit()
    for number in range(limits.NOTES_KEPT_MAX + 5):
        scene.pause(job, reason=str(number))
    notes = scene.now(job).notes
    assert [note.detail for note in notes] == [str(number) for number in range(5, limits.NOTES_KEPT_MAX + 5)]


def test_resume_of_a_job_that_is_not_paused_succeeds_and_changes_nothing(scene: ControlScene) -> None:
    for job in (scene.submit(), scene.running(), scene.submit(due_at_ms=scene.now_ms + 9)):
        assert scene.resume(job) == Changed(scene.now(job))
        assert scene.last.writes == ()


def test_submit_can_store_a_job_paused(scene: ControlScene) -> None:
    job = scene.submit(paused=True)
    assert (job.status, job.pause, job.timed) == (Status.PAUSED, Pause(TimeMs(scene.now_ms)), False)
    later = scene.submit(paused=True, due_at_ms=scene.now_ms + 50)
    assert changed(scene.resume(job)).status is Status.QUEUED
    assert changed(scene.resume(later)).status is Status.SCHEDULED


# -- amend


def test_amend_of_nothing_changes_nothing(scene: ControlScene) -> None:
    job = scene.submit()
    same = {"priority": job.spec.priority, "queue": job.spec.queue, "payload": scene.state.payload(job.id)}
    for fields in ({}, same, {"due_at_ms": 0}, {"tags": ()}, {"expires_at_ms": None, "deadline_ms": None}):
        assert scene.amend(job, **fields) == Changed(job)
        assert scene.last.writes == ()


def test_amend_changes_every_field_that_it_names_and_no_other(scene: ControlScene) -> None:
    job = scene.submit()
    result = scene.amend(
        job, priority=9, queue="other", payload=b"[2]", max_attempts=7, timeout_ms=5, tags=("x",),
        expires_at_ms=START_MS + 5, deadline_ms=START_MS + 6, actor="ann",
    )  # fmt: skip
    new = changed(result)
    times = options(expires_at_ms=START_MS + 5, deadline_ms=START_MS + 6)
    assert new.spec == replace(
        job.spec, priority=9, queue="other", max_attempts=7, timeout_ms=5, tags=("x",), options=times
    )
    assert scene.state.payload(job.id) == b"[2]"
    assert (new.due_at_ms, new.status, new.idempotency_key) == (job.due_at_ms, job.status, "")
    assert last_note(new).action == "amended"
    assert scene.audited().detail == (
        "priority: 5 -> 9; queue: send_email -> other; max_attempts: 3 -> 7; timeout_seconds: none -> 0.005; "
        f"tags: none -> x; expires_at: none -> {time_text(START_MS + 5)}; deadline: none -> {time_text(START_MS + 6)}; "
        "payload"
    )


def test_amend_of_the_payload_alone_replaces_it_and_an_empty_one_removes_it(scene: ControlScene) -> None:
    job = scene.submit()
    assert last_note(changed(scene.amend(job, payload=b"[1]"))).detail == "payload"
    scene.amend(job, payload=b"")
    assert scene.state.payload(job.id) == b""


def test_amend_to_a_later_time_reschedules_a_due_job(scene: ControlScene) -> None:
    job = scene.submit()
    new = changed(scene.amend(job, due_at_ms=scene.now_ms + 10))
    assert (new.status, new.timed, last_note(new).action) == (Status.SCHEDULED, True, "rescheduled")
    assert scene.lease(job).missed == (job.id,)
    scene.wait(10)
    assert scene.run(job).attempt_number == 1


def test_amend_to_now_makes_a_later_job_due_and_a_due_one_keeps_its_place(scene: ControlScene) -> None:
    due, later = scene.submit(), scene.submit(due_at_ms=scene.now_ms + A_DAY_MS)
    scene.wait(5)
    new = changed(scene.amend(later, due_at_ms=0))
    assert (new.status, new.due_at_ms, new.timed) == (Status.QUEUED, scene.now_ms, False)
    assert last_note(new).detail == f"run_at: {time_text(later.due_at_ms)} -> {time_text(scene.now_ms)}"
    assert scene.amend(due, due_at_ms=0) == Changed(due)


def test_amend_of_a_retrying_job_to_a_time_in_the_past_makes_it_due(scene: ControlScene) -> None:
    job = scene.running()
    scene.fail(job)
    new = changed(scene.amend(job, due_at_ms=7))
    assert (new.status, new.due_at_ms, new.timed) == (Status.QUEUED, 7, False)


def test_amend_of_the_time_of_a_paused_job_counts_when_it_is_resumed(scene: ControlScene) -> None:
    job = scene.submit(paused=True)
    assert changed(scene.amend(job, due_at_ms=scene.now_ms + 10)).status is Status.PAUSED
    assert changed(scene.resume(job)).status is Status.SCHEDULED


def test_amend_of_times_keeps_the_other_options_and_leaves_none_where_none_is_asked_for(scene: ControlScene) -> None:
    job = scene.submit(options=options(concurrency_key="k", expires_at_ms=START_MS + 9))
    new = changed(scene.amend(job, deadline_ms=START_MS + 5))
    assert new.spec.options == options(concurrency_key="k", expires_at_ms=START_MS + 9, deadline_ms=START_MS + 5)
    timed = scene.submit(options=options(expires_at_ms=START_MS + 9))
    assert changed(scene.amend(timed, expires_at_ms=NEVER)).spec.options is None


def test_amend_with_a_revision_changes_that_one_only(scene: ControlScene) -> None:
    job = scene.submit()
    amended = changed(scene.amend(job, priority=1, if_revision=job.revision))
    assert (amended.spec.priority, last_note(amended).action) == (1, "reprioritised")
    assert code_of(scene.amend(job, priority=2, if_revision=job.revision)) is RejectCode.STALE_REVISION


def test_amend_refuses_fewer_attempts_than_have_failed(scene: ControlScene) -> None:
    job = scene.running()
    scene.fail(job)
    assert code_of(scene.amend(job, max_attempts=1)) is RejectCode.INVALID
    assert changed(scene.amend(job, max_attempts=2)).spec.max_attempts == 2


# -- requeue


@pytest.mark.parametrize("end", [Status.DEAD_LETTER, Status.CANCELLED])
def test_requeue_begins_a_new_run_with_counts_of_zero(scene: ControlScene, end: Status) -> None:
    job = dead(scene)
    if end is Status.CANCELLED:
        job = scene.submit()
        scene.cancel(job)
    job = scene.now(job)
    assert job.status is end
    scene.wait(5)
    new = changed(scene.requeue(job, actor="ann"))
    assert (new.status, new.due_at_ms, new.timed) == (Status.QUEUED, scene.now_ms, False)
    assert (new.run_number, new.attempt_number, new.failure_count, new.lost_count) == (2, 0, 0, 0)
    assert (new.finished_at_ms, new.cancel_requested_at_ms, new.failure_reason) == (0, 0, "")
    assert new.attempts == job.attempts
    assert last_note(new).detail == ("dead_letter: attempts_exhausted" if end is Status.DEAD_LETTER else "cancelled")
    assert scene.audited().action == "job.requeue"
    scene.complete(scene.run(job))
    assert scene.status(job) is Status.COMPLETED


def test_a_new_run_has_not_started(scene: ControlScene) -> None:
    """The start of the run before stays with its attempts."""
    ended = scene.now(dead(scene))
    assert ended.started_at_ms > 0
    again = changed(scene.requeue(ended))
    assert again.started_at_ms == 0
    assert again.attempts[-1].started_at_ms == ended.started_at_ms


def test_requeue_makes_a_job_that_waits_for_its_next_attempt_due_now(scene: ControlScene) -> None:
    job = scene.running()
    scene.fail(job, delay_ms=A_DAY_MS)
    next_ms = scene.now(job).due_at_ms
    new = changed(scene.requeue(job))
    assert (new.status, new.due_at_ms, new.run_number, new.failure_count) == (Status.QUEUED, scene.now_ms, 1, 1)
    assert last_note(new).action == "rescheduled"
    assert last_note(new).detail == f"run_at: {time_text(next_ms)} -> {time_text(scene.now_ms)}"
    assert scene.requeue(job) == Changed(new)
    assert scene.last.writes == ()


def test_requeue_of_what_ended_and_of_what_waits_can_put_it_off(scene: ControlScene) -> None:
    for job in (dead(scene), scene.submit()):
        new = changed(scene.requeue(job, due_at_ms=TimeMs(scene.now_ms + 10)))
        assert (new.status, new.timed, new.due_at_ms) == (Status.SCHEDULED, True, scene.now_ms + 10)


def test_requeue_by_reason_takes_only_dead_letters_of_that_reason(scene: ControlScene) -> None:
    job, other = dead(scene), scene.submit()
    scene.cancel(other)
    for one in (job, other):
        assert code_of(scene.requeue(one, reason=DeadLetterReason.TIMEOUT)) is RejectCode.STALE_DECISION
    assert changed(scene.requeue(job, reason=DeadLetterReason.ATTEMPTS_EXHAUSTED)).run_number == 2


def test_requeue_by_reason_takes_dead_letters_whatever_parent_they_ended_for(scene: ControlScene) -> None:
    parent = scene.running()
    fails = options(on_dependency_failure=OnDependencyFailure.FAIL)
    child = scene.submit(depends_on=(Dependency(parent.id),), options=fails)
    scene.fail(parent, retryable=False)
    assert scene.now(child).failure_reason == f"dependency_failed: {job_id_text(parent.id)}"
    assert code_of(scene.requeue(child, reason=DeadLetterReason.TIMEOUT)) is RejectCode.STALE_DECISION
    assert code_of(scene.requeue(child, reason=DeadLetterReason.DEPENDENCY_FAILED)) is RejectCode.DEPENDENCY_UNMET


def test_requeue_of_what_waits_for_its_parents_is_refused_and_says_so(scene: ControlScene) -> None:
    child = scene.submit(depends_on=(Dependency(scene.submit().id),))
    result = scene.requeue(child)
    assert isinstance(result, Refused)
    assert (result.code, "1 of 1 parents" in result.message) == (RejectCode.WAITING_DEPENDENCIES, True)
    assert scene.now(child) == child


def test_resume_of_a_job_whose_parents_have_not_ended_waits_for_them(scene: ControlScene) -> None:
    parent = scene.running()
    child = scene.submit(depends_on=(Dependency(parent.id),))
    scene.pause(child)
    assert changed(scene.resume(child)).status is Status.WAITING_DEPENDENCIES
    scene.pause(child)
    scene.complete(parent)
    assert (scene.status(child), scene.now(child).pending_count) == (Status.PAUSED, 0)
    assert changed(scene.resume(child)).status is Status.QUEUED


def test_requeue_leaves_times_that_have_passed_behind(scene: ControlScene) -> None:
    """An expired job that somebody wants to run would expire again before it began."""
    job = scene.submit(options=options(expires_at_ms=START_MS + 5, deadline_ms=START_MS + 50))
    scene.wait(5)
    scene.ring(job)
    assert scene.now(job).failure_reason == DeadLetterReason.EXPIRED
    new = changed(scene.requeue(job))
    assert new.spec.options == options(deadline_ms=START_MS + 50)
    assert scene.run(job).run_number == 2


def test_report_of_an_earlier_run_does_not_count_after_a_requeue(scene: ControlScene) -> None:
    first = scene.running(max_attempts=1)
    scene.fail(first, completion_id="c")
    scene.requeue(first)
    second = scene.run(first)
    assert code_of(scene.complete(first)) is RejectCode.ALREADY_RECORDED
    assert scene.now(second) == second


def test_requeue_again_and_again_keeps_every_invariant(scene: ControlScene) -> None:
    job = scene.submit(max_attempts=2)
    for number in range(1, 15):
        scene.fail(scene.run(job), delay_ms=0)
        scene.fail(scene.run(job), delay_ms=0)
        assert (scene.now(job).status, scene.now(job).run_number) == (Status.DEAD_LETTER, number)
        scene.requeue(job)


# -- what all of them refuse

CONTROLS = [PauseJob, ResumeJob, AmendJob, RequeueJob]


@pytest.mark.parametrize("control", CONTROLS)
def test_control_of_an_unknown_job_or_of_another_tenants_is_refused_as_not_found(
    scene: ControlScene, control: type[PauseJob]
) -> None:
    job = scene.submit()
    for about, tenant in ((job_id(404), "default"), (JobId(b""), "default"), (job.id, "other")):
        assert code_of(scene.apply(control(about, tenant))) is RejectCode.NOT_FOUND


@pytest.mark.parametrize("control", [PauseJob, ResumeJob, AmendJob])
def test_control_of_a_finished_job_is_refused(scene: ControlScene, control: type[PauseJob]) -> None:
    job = dead(scene)
    result = scene.apply(control(job.id, "default"))
    assert code_of(result) is RejectCode.ALREADY_FINISHED
    assert isinstance(result, Refused)
    assert "dead_letter" in result.message


X = job_id(1)
LONG_ACTOR = "a" * (limits.ACTOR_CHARS_MAX + 1)
LONG_REASON = "é" * limits.PAUSE_REASON_CHARS_MAX


@pytest.mark.parametrize(
    ("operation", "field"),
    [
        (PauseJob(X, "default", until_ms=TimeMs(-1)), "until_ms"),
        (PauseJob(X, "default", until_ms=TimeMs(TIME_MS_MAX + 1)), "until_ms"),
        (PauseJob(X, "default", reason=LONG_REASON), "reason"),
        (PauseJob(X, "default", actor=LONG_ACTOR), "actor"),
        (ResumeJob(X, "default", actor=LONG_ACTOR), "actor"),
        (AmendJob(X, "default", due_at_ms=-2), "due_at_ms"),
        (AmendJob(X, "default", due_at_ms=TIME_MS_MAX + 1), "due_at_ms"),
        (AmendJob(X, "default", changes=SpecChanges(priority=10)), "priority"),
        (AmendJob(X, "default", changes=SpecChanges(priority=-2)), "priority"),
        (AmendJob(X, "default", changes=SpecChanges(queue="a\0b")), "queue"),
        (AmendJob(X, "default", changes=SpecChanges(max_attempts=0)), "max_attempts"),
        (AmendJob(X, "default", changes=SpecChanges(max_attempts=limits.ATTEMPTS_MAX + 1)), "max_attempts"),
        (AmendJob(X, "default", changes=SpecChanges(timeout_ms=limits.TIMEOUT_MS_MAX + 1)), "timeout_ms"),
        (AmendJob(X, "default", changes=SpecChanges(expires_at_ms=-2)), "expires_at_ms"),
        (AmendJob(X, "default", changes=SpecChanges(deadline_ms=TIME_MS_MAX + 1)), "deadline_ms"),
        (AmendJob(X, "default", payload=b"x" * (limits.PAYLOAD_BYTES_MAX + 1)), "payload"),
        (AmendJob(X, "default", changes=SpecChanges(tags=("",))), "tag"),
        (AmendJob(X, "default", changes=SpecChanges(tags=("t",) * (limits.TAGS_MAX + 1))), "tags"),
        (AmendJob(X, "default", actor=LONG_ACTOR), "actor"),
        (RequeueJob(X, "default", due_at_ms=TimeMs(-1)), "due_at_ms"),
        (RequeueJob(X, "default", reason=LONG_REASON), "reason"),
        (RequeueJob(X, "default", actor=LONG_ACTOR), "actor"),
    ],
)
def test_control_refuses_what_the_state_cannot_hold_and_names_the_field(
    scene: ControlScene, operation: Operation, field: str
) -> None:
    scene.submit()
    result = scene.apply(operation)
    assert isinstance(result, Refused)
    assert result.code is RejectCode.INVALID
    assert result.message.startswith(field)
