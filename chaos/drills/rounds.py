"""One round of a drill: a fault, its heal, and two figures: the longest time without a write, and the SDK's longest call.

Each figure has a bound if a minority alone is struck. A round counts as too slow only if the machine had time for the
drill: the harness itself wakes up every 50 ms, and if it was late by more than `LATE_SECONDS_MAX` in the round, or if more
than `WAITING_MAX` processes a core wanted to run (1-minute load average), the machine was overloaded, and that is printed
in place of a violation. Safety is judged in any case.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from chaos.checkers.history.events import AnyEvent, Invoke, Nemesis, Reply
from chaos.drills.faults import Fault, Scene
from chaos.drills.history.recorder import Recorder
from chaos.drills.load.load import Load
from chaos.drills.load.sdk_client import PROCESS as SDK_CLIENT

WRITE_GAP_SECONDS_MAX: Final = 3.0
SDK_WAIT_SECONDS_MAX: Final = 3.0
LATE_SECONDS_MAX: Final = 0.25
WAITING_MAX: Final = 2.0
_TICK_SECONDS: Final = 0.05
_QUIET_SECONDS: Final = 2.0
_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round."""

    fault: str
    target: str
    begin: int
    """Microseconds of the history."""
    heal: int
    end: int
    write_gap_seconds: float
    """The longest time without an accepted write of a user of raw HTTP, at whichever node."""
    sdk_wait_seconds: float
    """The longest call of the SDK's client; one that has not ended counts up to the end."""
    overload: str
    """The reason if a figure is beyond its bound and yet no violation: the machine was overloaded; else ""."""
    violations: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = "; ".join(self.violations) or "ok"
        note = f"  (slow, but not counted: {self.overload})" if self.overload else ""
        return (
            f"{self.fault:23} {self.target:22} writes back after {self.write_gap_seconds:5.2f} s  "
            f"SDK {self.sdk_wait_seconds:5.2f} s  {verdict}{note}"
        )


async def run_round(scene: Scene, fault: Fault, load: Load, recorder: Recorder) -> Round:
    """Let a fault strike, heal it, and wait until all is well again."""
    violations: list[str] = []
    begin = recorder.add(Nemesis, fault=fault.name, phase="start")
    metronome = Metronome()
    target = ""
    async with metronome:
        try:
            async with fault.strike(scene) as target:
                await asyncio.sleep(fault.hold_seconds)
        except (OSError, RuntimeError) as error:  # TimeoutError is an OSError
            violations.append(f"the fault could not be made, or not be healed: {error}")
        heal = recorder.add(Nemesis, fault=fault.name, phase="stop", target=target)
        if missing := await scene.cluster.healthy():
            violations.append(f"not healthy in time: {missing}")
        await asyncio.sleep(_QUIET_SECONDS)
    load.check()
    end = recorder.t
    gap = write_gap_seconds(recorder.events, begin, end)
    wait = sdk_wait_seconds(load.events_of_processes(), begin, end)
    slow = []
    if fault.is_single and gap > WRITE_GAP_SECONDS_MAX:
        slow.append(f"TOO SLOW: no write for {gap:.2f} s")
    if fault.is_single and wait > SDK_WAIT_SECONDS_MAX:
        slow.append(f"TOO SLOW: the SDK waited for {wait:.2f} s")
    overload = metronome.overload if slow else ""
    if not overload:
        violations += slow
    return Round(fault.name, target, begin, heal, end, gap, wait, overload, tuple(violations))


def write_gap_seconds(events: Iterable[AnyEvent], begin: int, end: int) -> float:
    """Return the longest time without an accepted submit between two moments."""
    submits = {event.op for event in events if isinstance(event, Invoke) and event.f == "submit"}
    accepted = [event.t for event in events if isinstance(event, Reply) and event.type == "ok" and event.op in submits]
    moments = [begin, *(t for t in accepted if begin < t < end), end]
    return max(later - earlier for earlier, later in pairwise(moments)) / _US


def sdk_wait_seconds(events: Sequence[AnyEvent], begin: int, end: int) -> float:
    """Return the longest call of the SDK's client that was under way between two moments."""
    ends = {event.op: event.t for event in events if isinstance(event, Reply)}
    calls = [event for event in events if isinstance(event, Invoke) and event.process.startswith(SDK_CLIENT)]
    waits = [min(ends.get(call.op, end), end) - call.t for call in calls if call.t < end]
    under_way = [wait for call, wait in zip(calls, waits, strict=False) if call.t + wait > begin]
    return max(under_way, default=end - begin) / _US


class Metronome:
    """Measures by how much the harness itself is late, while it is entered."""

    def __init__(self) -> None:
        self._late_seconds = 0.0
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._ticking = asyncio.create_task(self._tick())

    async def __aexit__(self, *_: object) -> None:
        assert self._ticking is not None
        self._ticking.cancel()
        await asyncio.gather(self._ticking, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            due = time.monotonic() + _TICK_SECONDS
            await asyncio.sleep(_TICK_SECONDS)
            self._late_seconds = max(self._late_seconds, time.monotonic() - due)

    @property
    def overload(self) -> str:
        """Return why the machine was overloaded, "" if it was not."""
        waiting, cores = os.getloadavg()[0], os.cpu_count() or 1
        if waiting > WAITING_MAX * cores:
            return f"load {waiting:.1f} on {cores} cores"
        return f"the harness was {self._late_seconds:.2f} s late" if self._late_seconds > LATE_SECONDS_MAX else ""
