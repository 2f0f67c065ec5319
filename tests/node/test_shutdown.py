"""A process ends in order and in a bounded time, whoever asks for it and whatever hangs."""

from __future__ import annotations

import asyncio
import threading

import pytest
from structlog.testing import capture_logs

from raftsched.node.shutdown import EXIT_FAULT, Shutdown, StopIncomplete

WAIT_SECONDS = 20.0


class Leaving:
    """Takes the place of the end of the process."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.left = threading.Event()

    def __call__(self, code: int) -> None:
        self.codes.append(code)
        self.left.set()


async def test_everybody_who_waits_hears_that_the_process_is_to_stop_from_any_thread() -> None:
    shutdown = Shutdown(leave=Leaving())
    waiting = [asyncio.create_task(shutdown.asked()) for _ in range(2)]
    await asyncio.sleep(0)
    threading.Thread(target=shutdown.ask, args=("SIGTERM",)).start()
    async with asyncio.timeout(WAIT_SECONDS):
        assert await asyncio.gather(*waiting, shutdown.asked()) == [None] * 3


async def test_a_step_that_hangs_or_fails_is_logged_and_the_stop_goes_on() -> None:
    shutdown = Shutdown(leave=Leaving())

    async def fails() -> None:
        raise OSError("no route")

    async def hangs() -> None:
        await asyncio.Event().wait()

    async def is_done() -> str:
        return "done"

    with capture_logs() as logs:
        assert not await shutdown.step("links", fails(), seconds=WAIT_SECONDS)
        assert not await shutdown.step("pump", hangs(), seconds=0.01)
        assert await shutdown.step("API", is_done(), seconds=WAIT_SECONDS)
    assert [(line["event"], line["step"]) for line in logs] == [
        ("stop_step_failed", "links"),
        ("stop_step_given_up", "pump"),
    ]
    with pytest.raises(StopIncomplete, match="links, pump"):
        shutdown.check()


async def test_a_step_that_hangs_though_it_is_cancelled_does_not_hold_the_stop_up() -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        try:
            await release.wait()
        except asyncio.CancelledError:
            await release.wait()

    async with asyncio.timeout(WAIT_SECONDS):
        assert not await Shutdown(leave=Leaving()).step("duties", stubborn(), seconds=0.01)
    release.set()


def test_a_stop_that_takes_too_long_ends_by_force_though_the_loop_stands_still() -> None:
    leaving = Leaving()
    shutdown = Shutdown(seconds=0.05, leave=leaving)

    def library(depth: int) -> bool:
        return library(depth - 1) if depth else leaving.left.wait(WAIT_SECONDS)

    async def blocked() -> None:
        shutdown.begin("SIGTERM")
        assert library(depth=5), "nobody ended the process"

    with capture_logs() as logs:
        asyncio.run(blocked())
    assert leaving.codes == [EXIT_FAULT]
    [line] = [line for line in logs if line["event"] == "node_ended_by_force"]
    assert (line["reason"], line["code"]) == ("SIGTERM", "stop_incomplete")
    assert "in blocked" in line["stack"], "which of our functions hangs, below those of the library that it calls"


def test_a_stop_in_time_is_not_forced() -> None:
    leaving = Leaving()
    shutdown = Shutdown(seconds=0.05, leave=leaving)
    shutdown.begin("SIGTERM")
    with pytest.raises(SystemExit) as ended:
        shutdown.end(0)
    assert ended.value.code == 0
    assert leaving.codes == [0]
