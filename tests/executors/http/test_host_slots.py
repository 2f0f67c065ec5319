from __future__ import annotations

import asyncio

import pytest

from raftsched.executors.http.host_slots import HostSlots
from raftsched.worker import Snooze

ORIGIN = ("http", "a.example", 80)


async def test_host_is_stuck_from_the_first_wait_that_was_too_long_until_it_answers() -> None:
    slots = HostSlots(per_host=1)

    async def hold(answered: asyncio.Event, *, can_snooze: bool = True) -> None:
        async with slots.turn(ORIGIN, can_snooze=can_snooze):
            await answered.wait()

    first, second, third = asyncio.Event(), asyncio.Event(), asyncio.Event()
    runs = [asyncio.create_task(hold(first)), asyncio.create_task(hold(second, can_snooze=False))]
    await asyncio.sleep(0)
    with pytest.raises(Snooze):
        await hold(third)  # after its wait
    with pytest.raises(Snooze):
        async with asyncio.timeout(0.5):
            await hold(third)  # at once
    first.set()
    await runs[0]
    runs.append(asyncio.create_task(hold(third)))
    await asyncio.sleep(0)
    assert not runs[1].done()
    assert not runs[2].done(), "it is no longer stuck, so a run waits for its turn"
    second.set()
    third.set()
    await asyncio.gather(*runs)
