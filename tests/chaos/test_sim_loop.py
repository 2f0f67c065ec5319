"""`chaos.sim.machine.loop`: asyncio in virtual time, for processes that can be stopped and killed."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Iterator
from random import Random

import pytest

from chaos.sim.machine.clock import Timeline
from chaos.sim.machine.disk import PowerCut
from chaos.sim.machine.loop import ProcessClock, ProcessLoop


class Process:
    def __init__(self, *, rate: float = 1.0) -> None:
        self.timeline = Timeline()
        self.clock = ProcessClock(self.timeline, origin=50.0, rate=rate)
        self.errors: list[object] = []
        self.loop = ProcessLoop(
            self.timeline,
            self.clock,
            Random(1),
            work_seconds=lambda _executor: 0.5,
            on_error=lambda context: self.errors.append(context.get("exception")),
        )
        self.seen: list[float] = []

    def run(self, seconds: float) -> None:
        self.timeline.run_until(self.timeline.now + seconds)

    async def tick(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.seen.append(self.timeline.now - 1_000.0)


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.loop.kill()
    process.loop.bury()


def test_sleep_takes_virtual_seconds(process: Process) -> None:
    process.loop.create_task(process.tick())
    process.run(3.5)
    assert process.seen == pytest.approx([1.0, 2.0, 3.0], abs=0.01)


def test_sleep_follows_the_process_clock() -> None:
    process = Process(rate=2.0)
    process.loop.create_task(process.tick())
    process.run(1.7)
    assert process.seen == pytest.approx([0.5, 1.0, 1.5], abs=0.01)


def test_wall_clock_is_off_by_what_was_set_and_then_drifts() -> None:
    process = Process(rate=1.01)
    before = process.clock.wall_ms()
    process.run(100.0)
    assert process.clock.wall_ms() - before == pytest.approx(101_000, abs=2)
    process.clock.wall_offset_ms = -5_000
    assert process.clock.wall_ms() - before == pytest.approx(96_000, abs=2)


def test_a_paused_process_runs_nothing_until_it_goes_on(process: Process) -> None:
    process.loop.create_task(process.tick())
    process.run(0.5)
    process.loop.pause(3.0)
    process.run(2.9)
    assert not process.seen
    process.run(1.3)
    assert process.seen == pytest.approx([3.5, 4.5], abs=0.01)


def test_resume_ends_a_pause(process: Process) -> None:
    process.loop.create_task(process.tick())
    process.loop.pause(60.0)
    process.run(2.0)
    process.loop.resume()
    process.run(0.1)
    assert not process.seen
    process.run(1.0)
    assert process.seen == pytest.approx([3.0], abs=0.01)


def test_a_killed_process_never_runs_again(process: Process) -> None:
    process.loop.create_task(process.tick())
    process.run(1.5)
    process.loop.kill()
    process.loop.call_soon(process.seen.append, -1.0)
    process.run(10.0)
    assert len(process.seen) == 1


def test_a_killed_process_is_buried_without_a_complaint(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: complaints.append(event.exc_value))

    async def stubborn() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(process.tick())
            try:
                await asyncio.sleep(60.0)
            finally:
                process.seen.append(-1.0)
                asyncio.create_task(process.tick())  # noqa: RUF006  # it belongs to a dead loop
                await asyncio.sleep(1.0)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        process.loop.create_task(stubborn())
        process.run(0.5)
        process.loop.create_task(process.tick())
        process.loop.kill()
        process.loop.create_task(process.tick())
        assert not process.seen
        process.loop.bury()
        gc.collect()
    assert process.seen == [-1.0]
    process.run(10.0)
    assert process.seen == [-1.0]
    assert complaints == []
    assert told == []


def test_work_of_a_thread_is_done_when_its_time_is_over(process: Process) -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(await asyncio.get_running_loop().run_in_executor(None, lambda: 7))

    process.loop.create_task(work())
    process.run(0.4)
    assert not done
    process.run(0.2)
    assert done == [7]


def test_what_a_thread_raises_reaches_who_waits(process: Process) -> None:
    def fail() -> None:
        raise OSError

    async def work() -> None:
        with pytest.raises(OSError):
            await asyncio.get_running_loop().run_in_executor(None, fail)
        process.seen.append(1.0)

    process.loop.create_task(work())
    process.run(1.0)
    assert process.seen == [1.0]


def test_a_power_cut_in_a_thread_answers_nobody(process: Process) -> None:
    def cut() -> None:
        process.loop.kill()
        raise PowerCut

    async def work() -> None:
        await asyncio.get_running_loop().run_in_executor(None, cut)
        process.seen.append(1.0)

    process.loop.create_task(work())
    process.run(2.0)
    assert not process.seen


def test_timeouts_and_task_groups_work(process: Process) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(1.0))
            tasks.create_task(asyncio.sleep(2.0))
        process.seen.append(process.timeline.now - 1_000.0)

    process.loop.create_task(main())
    process.run(4.0)
    assert process.seen == pytest.approx([3.0], abs=0.01)


def test_an_error_that_nobody_handles_is_told(process: Process) -> None:
    def fail() -> None:
        raise ValueError

    process.loop.call_soon(fail)
    process.run(0.1)
    assert [type(error) for error in process.errors] == [ValueError]
