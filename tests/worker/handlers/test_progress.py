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
from raftsched.worker.handlers.progress import NO_SIGN, Desk, Sign, Telling


class Heard:
    """A telling, and what it told the worker of."""

    def __init__(self, buffer_bytes_max: int = 1000) -> None:
        self.sign_count = 0
        self.line_count = 0
        desk = Desk(
            buffer_bytes_max=buffer_bytes_max,
            on_sign=self._sign,
            on_lines=self._lines,
            read_result=self._read,
        )
        self.telling = Telling(desk, job_id="j", run_id="j.1", fencing_token=1, workflow_id=None, is_async=True)
        self.context = Context(
            job_id="j", run_id="j.1", fencing_token=1, attempt_number=1, name="a", queue="a", voice=self.telling
        )

    def _sign(self) -> None:
        self.sign_count += 1

    def _lines(self, telling: Telling) -> None:
        assert telling is self.telling
        self.line_count += 1

    async def _read(self, telling: Telling, parent: str) -> Any:
        return parent.upper()

    def lines(self) -> list[str]:
        piece = self.telling.take_piece()
        return [] if piece is None else piece.lines


async def test_latest_progress_goes_in_place_of_the_one_before() -> None:
    heard = Heard()
    for done in range(3):
        heard.context.progress({"done": done})
    heard.context.heartbeat()
    assert heard.sign_count == 1
    assert heard.telling.take_sign() == Sign(msgspec.Raw(b'{"done":2}'), alive=True)
    assert not heard.telling.has_sign


async def test_sign_without_answer_waits_again_unless_there_is_a_later_one() -> None:
    heard = Heard()
    heard.context.progress(1)
    lost = heard.telling.take_sign()
    heard.telling.put_back(lost)
    assert heard.telling.take_sign() == lost
    heard.context.progress(2)
    heard.telling.put_back(lost)
    assert heard.telling.take_sign().progress == msgspec.Raw(b"2")


@pytest.mark.parametrize("value", ["x" * limits.PROGRESS_BYTES_MAX, float("nan"), object()])
async def test_progress_that_the_cluster_would_refuse_is_refused_at_once(value: object) -> None:
    heard = Heard()
    with pytest.raises(Invalid) as caught:
        heard.context.progress(value)
    assert caught.value.field == "progress"
    assert not heard.telling.has_sign


async def test_lines_leave_in_order_under_rising_numbers() -> None:
    heard = Heard()
    heard.context.log("one\ntwo")
    heard.context.log("three")
    first = heard.telling.take_piece()
    heard.context.log("")
    second = heard.telling.take_piece()
    assert (first, second) == ((["one", "two", "three"], 1), ([""], 2))
    assert heard.line_count == 2
    assert heard.telling.take_piece() is None


async def test_log_takes_what_print_takes() -> None:
    heard = Heard()
    for value in (5, None, ["a"], ValueError("broken")):
        heard.context.log(value)
    assert heard.lines() == ["5", "None", "['a']", "broken"]


async def test_full_buffer_leaves_new_lines_out_and_says_how_many() -> None:
    heard = Heard(buffer_bytes_max=20)
    for number in range(10):
        heard.context.log(f"line {number}")
    lines = heard.lines()
    assert lines[:2] == ["line 0", "line 1"]
    assert lines[2:] == ["… 8 lines were left out here: they came faster than they could be sent"]
    heard.context.log("again")
    assert heard.lines() == ["again"]


async def test_piece_and_line_fit_what_the_api_takes() -> None:
    heard = Heard(buffer_bytes_max=1_000_000)
    heard.context.log("\ud800 \0 " + "ü" * 100_000)
    for _ in range(40):
        heard.context.log("x" * 4_000)
    pieces = [heard.lines() for _ in range(4)]
    assert pieces[-1] == []
    assert all(sum(len(line.encode()) + 1 for line in lines) <= limits.LOG_PIECE_BYTES_MAX for lines in pieces)
    assert pieces[0][0].startswith("\\ud800 \\0 üü")
    assert pieces[0][0].endswith("… (cut)")
    assert sum(map(len, pieces)) == 41


async def test_closed_telling_keeps_nothing() -> None:
    heard = Heard()
    heard.context.log("before")
    heard.context.progress(1)
    heard.telling.close()
    heard.context.log("after")
    heard.context.progress(2)
    heard.context.heartbeat()
    heard.telling.put_back(Sign(msgspec.Raw(b"3"), alive=True))
    assert (heard.lines(), heard.telling.take_sign()) == ([], NO_SIGN)


async def test_end_of_the_log_leaves_signs_of_life() -> None:
    heard = Heard()
    heard.telling.end_log()
    heard.context.log("more")
    heard.context.heartbeat()
    assert (heard.lines(), heard.telling.take_sign().alive) == ([], True)


async def test_logger_writes_to_the_log_and_to_the_programs_own(caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard()
    heard.context.logger.debug("not wanted")
    heard.context.logger.info("sent %d", 3)
    heard.context.logger.error("broken", exc_info=LookupError("here"))
    lines = heard.lines()
    assert lines[0].endswith("INFO sent 3")
    assert lines[1].endswith("ERROR broken")
    assert lines[-1] == "LookupError: here"
    assert [record.name for record in caplog.records] == ["raftsched.job.a"] * 2
    assert "raftsched.job.a" not in logging.Logger.manager.loggerDict


async def test_async_handler_awaits_a_result_and_a_plain_one_has_it() -> None:
    heard = Heard()
    assert await heard.context.result_of("up") == "UP"
    heard.telling.is_async = False
    assert await asyncio.to_thread(heard.context.result_of, "up") == "UP"


async def test_context_outside_a_worker_can_say_all_and_nobody_hears() -> None:
    context = Context(job_id="j", run_id="j.1", fencing_token=1, attempt_number=1, name="a", queue="a")
    context.progress(1)
    context.log("a")
    context.heartbeat()
    context.logger.info("a")
    with pytest.raises(RuntimeError, match="within a worker"):
        context.result_of("up")
