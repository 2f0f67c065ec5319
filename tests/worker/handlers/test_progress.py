"""What waits between a handler and the cluster, and how much of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from raftsched import limits
from raftsched.errors import Invalid
from raftsched.worker import Context
from raftsched.worker.handlers.progress import NO_SIGN, AttemptReports, ReportHooks, Sign


class ReportScene:
    """The reports of one attempt, and the calls of its hooks."""

    def __init__(self, buffer_bytes_max: int = 1000) -> None:
        self.sign_count = 0
        self.line_count = 0
        hooks = ReportHooks(
            buffer_bytes_max=buffer_bytes_max,
            on_sign=self._sign,
            on_lines=self._lines,
            read_result=self._read,
        )
        self.reports = AttemptReports(hooks, job_id="j", run_id="j.1", fencing_token=1, workflow_id=None, is_async=True)
        self.context = Context(
            job_id="j", run_id="j.1", fencing_token=1, attempt_number=1, name="a", queue="a", sink=self.reports
        )

    def _sign(self) -> None:
        self.sign_count += 1

    def _lines(self, reports: AttemptReports) -> None:
        assert reports is self.reports
        self.line_count += 1

    async def _read(self, reports: AttemptReports, parent: str) -> Any:
        return parent.upper()

    def lines(self) -> list[str]:
        piece = self.reports.take_piece()
        return [] if piece is None else piece.lines


async def test_latest_progress_goes_in_place_of_the_one_before() -> None:
    scene = ReportScene()
    for done in range(3):
        scene.context.progress({"done": done})
    scene.context.heartbeat()
    assert scene.sign_count == 1
    assert scene.reports.take_sign() == Sign(msgspec.Raw(b'{"done":2}'), alive=True)
    assert not scene.reports.has_sign


async def test_sign_without_answer_waits_again_unless_there_is_a_later_one() -> None:
    scene = ReportScene()
    scene.context.progress(1)
    lost = scene.reports.take_sign()
    scene.reports.put_back(lost)
    assert scene.reports.take_sign() == lost
    scene.context.progress(2)
    scene.reports.put_back(lost)
    assert scene.reports.take_sign().progress == msgspec.Raw(b"2")


@pytest.mark.parametrize("value", ["x" * limits.PROGRESS_BYTES_MAX, float("nan"), object()])
async def test_progress_that_the_cluster_would_refuse_is_refused_at_once(value: object) -> None:
    scene = ReportScene()
    with pytest.raises(Invalid) as caught:
        scene.context.progress(value)
    assert caught.value.field == "progress"
    assert not scene.reports.has_sign


async def test_lines_leave_in_order_under_rising_numbers() -> None:
    scene = ReportScene()
    scene.context.log("one\ntwo")
    scene.context.log("three")
    first = scene.reports.take_piece()
    scene.context.log("")
    second = scene.reports.take_piece()
    assert (first, second) == ((["one", "two", "three"], 1), ([""], 2))
    assert scene.line_count == 2
    assert scene.reports.take_piece() is None


async def test_log_takes_what_print_takes() -> None:
    scene = ReportScene()
    for value in (5, None, ["a"], ValueError("broken")):
        scene.context.log(value)
    assert scene.lines() == ["5", "None", "['a']", "broken"]


async def test_full_buffer_leaves_new_lines_out_and_says_how_many() -> None:
    scene = ReportScene(buffer_bytes_max=20)
    for number in range(10):
        scene.context.log(f"line {number}")
    lines = scene.lines()
    assert lines[:2] == ["line 0", "line 1"]
    assert lines[2:] == ["… 8 lines were left out here: they came faster than they could be sent"]
    scene.context.log("again")
    assert scene.lines() == ["again"]


async def test_piece_and_line_fit_what_the_api_takes() -> None:
    scene = ReportScene(buffer_bytes_max=1_000_000)
    scene.context.log("\ud800 \0 " + "ü" * 100_000)
    for _ in range(40):
        scene.context.log("x" * 4_000)
    pieces = [scene.lines() for _ in range(4)]
    assert pieces[-1] == []
    assert all(sum(len(line.encode()) + 1 for line in lines) <= limits.LOG_PIECE_BYTES_MAX for lines in pieces)
    assert pieces[0][0].startswith("\\ud800 \\0 üü")
    assert pieces[0][0].endswith("… (cut)")
    assert sum(map(len, pieces)) == 41


async def test_lines_are_noted_again_when_they_fill_half_a_piece() -> None:
    scene = ReportScene(buffer_bytes_max=1_000_000)
    for _ in range(10):
        scene.context.log("x" * (limits.LOG_PIECE_BYTES_MAX // 8))
    assert (scene.line_count, scene.reports.is_filling) == (2, True)


async def test_handler_sees_that_its_log_is_behind_while_half_of_the_buffer_is_used() -> None:
    scene = ReportScene(buffer_bytes_max=20)
    seen = []
    for _ in range(2):
        scene.context.log("4444")
        seen.append(scene.context.is_log_behind)
    scene.lines()
    assert [*seen, scene.context.is_log_behind] == [False, True, False]


async def test_log_of_as_many_pieces_as_the_api_takes_says_that_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_PIECES_MAX", 3)
    scene = ReportScene()
    pieces = []
    for number in range(5):
        scene.context.log(f"line {number}")
        pieces.append(scene.lines())
    assert pieces[:2] == [["line 0"], ["line 1"]]
    assert pieces[2][0].startswith("… the log ends here")
    assert pieces[3:] == [[], []]


async def test_closed_reports_keep_nothing() -> None:
    scene = ReportScene()
    scene.context.log("before")
    scene.context.progress(1)
    scene.reports.close()
    scene.context.log("after")
    scene.context.progress(2)
    scene.context.heartbeat()
    scene.reports.put_back(Sign(msgspec.Raw(b"3"), alive=True))
    assert (scene.lines(), scene.reports.take_sign()) == ([], NO_SIGN)


async def test_end_of_the_log_leaves_signs_of_life() -> None:
    scene = ReportScene()
    scene.reports.end_log()
    scene.context.log("more")
    scene.context.heartbeat()
    assert (scene.lines(), scene.reports.take_sign().alive) == ([], True)


async def test_logger_writes_to_the_log_and_to_the_programs_own(caplog: pytest.LogCaptureFixture) -> None:
    scene = ReportScene()
    scene.context.logger.debug("not wanted")
    scene.context.logger.info("sent %d", 3)
    scene.context.logger.error("broken", exc_info=LookupError("here"))
    lines = scene.lines()
    assert lines[0].endswith("INFO sent 3")
    assert lines[1].endswith("ERROR broken")
    assert lines[-1] == "LookupError: here"
    assert [record.name for record in caplog.records] == ["raftsched.job.a"] * 2
    assert "raftsched.job.a" not in logging.Logger.manager.loggerDict


async def test_async_handler_awaits_a_result_and_a_plain_one_has_it() -> None:
    scene = ReportScene()
    assert await scene.context.result_of("up") == "UP"
    scene.reports.is_async = False
    assert await asyncio.to_thread(scene.context.result_of, "up") == "UP"


async def test_context_outside_a_worker_can_say_all_and_nobody_hears() -> None:
    context = Context(job_id="j", run_id="j.1", fencing_token=1, attempt_number=1, name="a", queue="a")
    context.progress(1)
    context.log("a")
    context.heartbeat()
    context.logger.info("a")
    with pytest.raises(RuntimeError, match="within a worker"):
        context.result_of("up")
