from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import AppendLog, BackgroundKind, Progress, ReportProgress, StartRun
from raftsched.core.records.ids import FencingToken
from raftsched.core.records.job import AttemptEnd, Job, Status
from raftsched.core.state.results import Changed, Counted, Logged, Refused
from raftsched.core.state.writes import PutBackgroundWork, PutJob
from tests.core.control_scene import ControlScene, changed, options
from tests.core.scene import code_of, job_id, token_of, with_fields


def lines_of(scene: ControlScene, job: Job) -> bytes:
    return b"".join(lines for _, lines in scene.state.logs.get((job.id, job.run_number, job.attempt_number), []))


# -- start


def test_start_is_kept_in_the_lease_and_repeated_it_succeeds_without_a_write(scene: ControlScene) -> None:
    job = scene.running(options=options(at_most_once=True))
    started = changed(scene.start(job))
    assert started.lease is not None
    assert (started.status, started.lease.started, started.lease.token) == (Status.RUNNING, True, token_of(job))
    assert scene.start(job) == Changed(started)
    assert scene.last.writes == ()


def test_start_is_refused_once_the_job_is_cancelled(scene: ControlScene) -> None:
    """RELIABILITY G10: after a cancel no later start of that run succeeds."""
    job = scene.running()
    scene.cancel(job)
    assert code_of(scene.start(job)) is RejectCode.CANCELLED
    forced = scene.running()
    scene.force_cancel(forced)
    assert code_of(scene.start(forced)) is RejectCode.CANCELLED


def test_start_is_refused_once_the_workflow_is_cancelled_before_the_background_step_has_come_to_the_job(
    scene: ControlScene,
) -> None:
    job = scene.running(options=options(at_most_once=True))
    of_workflow = with_fields(job, options=options(at_most_once=True, workflow_id=b"w" * 16))
    scene.state.execute([PutJob(job, of_workflow), PutBackgroundWork(BackgroundKind.CANCEL_WORKFLOW, b"w" * 16)])
    start = StartRun(job.id, job.run_number, token_of(job))
    assert code_of(scene.state.step(start, scene.now_ms).result) is RejectCode.CANCELLED


def test_start_with_an_old_token_is_refused(scene: ControlScene) -> None:
    job = scene.running()
    scene.lose_worker(job)
    assert code_of(scene.start(job)) is RejectCode.LEASE_LOST
    again = scene.run(job)
    assert code_of(scene.start(job)) is RejectCode.LEASE_LOST
    assert changed(scene.start(again)).lease is not None


def test_start_and_log_of_another_run_or_of_no_job_are_refused(scene: ControlScene) -> None:
    job = scene.running()
    assert code_of(scene.apply(StartRun(job.id, 2, token_of(job)))) is RejectCode.LEASE_LOST
    for unknown in (StartRun(job_id(404), 1, FencingToken(1)), AppendLog(job_id(404), 1, FencingToken(1), b"x\n")):
        assert code_of(scene.apply(unknown)) is RejectCode.NOT_FOUND


# -- progress


def test_progress_is_kept_while_the_attempt_runs_and_after_it(scene: ControlScene) -> None:
    job = scene.running()
    scene.wait(5)
    assert scene.progress(job, b'{"done":1}') == Counted(1)
    assert (scene.now(job).progress, scene.now(job).updated_at_ms) == (b'{"done":1}', scene.now_ms)
    scene.complete(job)
    assert scene.now(job).progress == b'{"done":1}'


def test_progress_of_the_attempt_before_is_gone_when_the_next_begins(scene: ControlScene) -> None:
    """Case W16."""
    job = scene.running()
    scene.progress(job, b"1")
    scene.lose_worker(job)
    assert scene.run(job).progress == b""


def test_progress_with_an_old_token_is_left_out_and_the_others_count(scene: ControlScene) -> None:
    old, other = scene.running(), scene.running()
    scene.lose_worker(old)
    new = scene.run(old)
    reports = tuple(Progress(job.id, 1, token_of(job), text) for job, text in ((old, b"1"), (other, b"2"), (new, b"3")))
    unknown = Progress(job_id(404), 1, FencingToken(1), b"4")
    assert scene.apply(ReportProgress((*reports, unknown))) == Counted(2)
    assert (scene.now(other).progress, scene.now(new).progress) == (b"2", b"3")


def test_progress_reported_twice_at_once_keeps_the_last(scene: ControlScene) -> None:
    job = scene.running()
    reports = tuple(Progress(job.id, 1, token_of(job), text) for text in (b"1", b"2"))
    assert scene.apply(ReportProgress(reports)) == Counted(2)
    assert scene.now(job).progress == b"2"
    assert len(scene.written_jobs()) == 1


def test_progress_beyond_its_bounds_is_refused(scene: ControlScene) -> None:
    job = scene.running()
    long = Progress(job.id, 1, token_of(job), b"x" * (limits.PROGRESS_BYTES_MAX + 1))
    short = Progress(job.id, 1, token_of(job), b"x")
    assert code_of(scene.apply(ReportProgress((short, long)))) is RejectCode.INVALID
    many = ReportProgress((short,) * (limits.PROGRESS_REPORTS_MAX + 1))
    assert code_of(scene.apply(many)) is RejectCode.INVALID


# -- logs


def test_lines_of_two_attempts_never_mix(scene: ControlScene) -> None:
    """Case W16: A1 to A5, then the worker dies; B1 to B5; A6 comes late."""
    first = scene.running()
    for number in range(1, 6):
        scene.log(first, b"A%d\n" % number, number)
    scene.lose_worker(first)
    second = scene.run(first)
    for number in range(1, 6):
        scene.log(second, b"B%d\n" % number, number)
    assert code_of(scene.log(first, b"A6\n", 6)) is RejectCode.LEASE_LOST
    assert lines_of(scene, first) == b"A1\nA2\nA3\nA4\nA5\n"
    assert lines_of(scene, second) == b"B1\nB2\nB3\nB4\nB5\n"


def test_lines_of_two_runs_never_mix(scene: ControlScene) -> None:
    first = scene.running(max_attempts=1)
    scene.log(first, b"A\n")
    scene.fail(first)
    assert code_of(scene.log(first, b"A\n")) is RejectCode.LEASE_LOST
    scene.requeue(first)
    second = scene.run(first)
    scene.log(second, b"B\n")
    assert (lines_of(scene, first), lines_of(scene, second)) == (b"A\n", b"B\n")


def test_piece_of_a_log_sent_again_is_stored_once(scene: ControlScene) -> None:
    job = scene.running()
    assert scene.log(job, b"one\n", 1) == Logged(4, repeated=False)
    assert scene.log(job, b"two\n", 2) == Logged(8, repeated=False)
    for sequence in (1, 2):
        assert scene.log(job, b"again\n", sequence) == Logged(8, repeated=True)
        assert scene.last.writes == ()
    assert lines_of(scene, job) == b"one\ntwo\n"


def test_pieces_without_a_number_are_stored_as_they_come(scene: ControlScene) -> None:
    job = scene.running()
    assert [scene.log(job, b"x\n") for _ in range(2)] == [Logged(2, repeated=False), Logged(4, repeated=False)]


def test_log_is_full_at_its_bounds_and_says_so(scene: ControlScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_BYTES_MAX", 6)
    monkeypatch.setattr(limits, "LOG_PIECES_MAX", 2)
    job, other = scene.running(), scene.running()
    scene.log(job, b"abcd\n")
    assert code_of(scene.log(job, b"e\n")) is RejectCode.LOG_FULL
    assert scene.log(job, b"\n") == Logged(6, repeated=False)
    assert [scene.log(other, b"x\n", number) for number in (1, 2)] == [Logged(2, False), Logged(4, False)]
    assert code_of(scene.log(other, b"x\n", 3)) is RejectCode.LOG_FULL
    assert scene.log(other, b"x\n", 2) == Logged(4, repeated=True)


def test_lines_still_count_while_the_job_is_cancelling(scene: ControlScene) -> None:
    job = scene.running()
    scene.cancel(job)
    assert scene.log(job, b"cleaning up\n") == Logged(12, repeated=False)
    scene.expire(job, AttemptEnd.CANCELLED)
    assert code_of(scene.log(job, b"late\n")) is RejectCode.CANCELLED


@pytest.mark.parametrize(
    ("lines", "sequence", "field"),
    [
        (b"", 0, "lines"),
        (b"open", 0, "lines"),
        (b"\xff\n", 0, "lines"),
        (b"x" * limits.LOG_PIECE_BYTES_MAX + b"\n", 0, "lines"),
        (b"x\n", -1, "sequence"),
        (b"x\n", 1 << 60, "sequence"),
    ],
)
def test_lines_that_are_none_are_refused(scene: ControlScene, lines: bytes, sequence: int, field: str) -> None:
    result = scene.log(scene.running(), lines, sequence)
    assert isinstance(result, Refused)
    assert (result.code, result.message.split()[0].rstrip(":")) == (RejectCode.INVALID, field)
