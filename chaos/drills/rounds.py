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
from chaos.drills.faults.registry import FAILURES
from chaos.drills.history.recorder import Recorder
from chaos.drills.load.load import Load
from chaos.drills.load.sdk_client import PROCESS as SDK_CLIENT

WRITE_GAP_SECONDS_MAX: Final = 3.0
SDK_WAIT_SECONDS_MAX: Final = 3.0
LATE_SECONDS_MAX: Final = 0.25
WAITING_MAX: Final = 2.0
_TICK_SECONDS: Final = 0.05
_QUIET_SECONDS: Final = 1.0
_US: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The result of one round."""

    asked: tuple[str, ...]
    """The faults that were to strike."""
    faults: tuple[str, ...]
    """Those that did; without any the round says nothing, and is not counted."""
    apart_seconds: float = 0.0
    target: str = ""
    begin: int
    """Microseconds of the history."""
    heal: int
    end: int
    write_gap_seconds: float
    """The longest time without an accepted write of any user, at whichever node."""
    sdk_wait_seconds: float
    """The longest time for which a call of the SDK's client was under way."""
    overload: str = ""
    """The reason if a figure is beyond its bound and yet no violation: the machine was overloaded; else ""."""
    not_made: tuple[str, ...] = ()
    """Faults that could not be made, each with the reason."""
    violations: tuple[str, ...] = ()

    @property
    def fault(self) -> str:
        return " + ".join(self.faults or self.asked)

    def __str__(self) -> str:
        unmade = "".join(f"  (not made, so not counted: {each})" for each in self.not_made)
        verdict = "; ".join(self.violations) or ("ok" if self.faults else "nothing shown")
        note = f"  (slow, but not counted: {self.overload})" if self.overload else ""
        return (
            f"{self.fault:18} {self.target:12} writes back after {self.write_gap_seconds:5.2f} s  "
            f"SDK {self.sdk_wait_seconds:5.2f} s  {verdict}{note}{unmade}"
        )


async def run_round(scene: Scene, fault: Fault, load: Load, recorder: Recorder) -> Round:
    """Let a fault strike, heal it, and wait until all is well again.

    A fault that can't be made is noted with the round, and is no violation; one that can't be healed is.
    """
    violations: list[str] = []
    begin = recorder.t
    metronome = Metronome()
    async with metronome:
        target = await _strike(scene, fault, recorder, violations)
        made = tuple(name for name in fault.parts if name not in scene.not_made)
        heal = recorder.t
        for name in made:
            recorder.add(Nemesis, fault=name, phase="stop", target=target)
        if missing := await scene.cluster.healthy():
            violations.append(f"not healthy in time: {missing}")
        await asyncio.sleep(_QUIET_SECONDS)
    load.check()
    end = recorder.t
    of_processes = load.events_of_processes()
    gap = write_gap_seconds([*recorder.events, *of_processes], begin, end)
    wait = sdk_wait_seconds(of_processes, begin, end)
    slow = []
    if fault.is_single and made:
        slow += [f"TOO SLOW: no write for {gap:.2f} s"] if gap > WRITE_GAP_SECONDS_MAX else []
        slow += [f"TOO SLOW: the SDK waited for {wait:.2f} s"] if wait > SDK_WAIT_SECONDS_MAX else []
    overload = metronome.overload if slow else ""
    return Round(
        asked=fault.parts,
        faults=made,
        apart_seconds=fault.apart_seconds,
        target=target,
        begin=begin,
        heal=heal,
        end=end,
        write_gap_seconds=gap,
        sdk_wait_seconds=wait,
        overload=overload,
        not_made=tuple(f"{name}: {why}" for name, why in scene.not_made.items()),
        violations=(*violations, *([] if overload else slow)),
    )


async def _strike(scene: Scene, fault: Fault, recorder: Recorder, violations: list[str]) -> str:
    """Let a fault strike, last and heal; return its target."""
    scene.not_made = {}
    for node in scene.nodes:
        node.was_full = False
    target, has_struck = "", False
    try:
        async with fault.strike(scene) as target:
            has_struck = True
            made = [name for name in fault.parts if name not in scene.not_made]
            for name in made:
                recorder.add(Nemesis, fault=name, phase="start", target=target)
            await asyncio.sleep(fault.hold_seconds if made else 0.0)
    except FAILURES as error:
        if has_struck:
            violations.append(f"the fault could not be healed: {error}")
        elif isinstance(error, RuntimeError):  # the cluster did not bear it
            violations.append(str(error))
        else:
            scene.not_made[fault.name] = str(error) or type(error).__name__
    if scene.not_made:
        await scene.heal_links()  # whatever it had cut already
    return target


def write_gap_seconds(events: Iterable[AnyEvent], begin: int, end: int) -> float:
    """Return the longest time without an accepted submit between two moments."""
    submits = {event.op for event in events if isinstance(event, Invoke) and event.f == "submit"}
    accepted = [event.t for event in events if isinstance(event, Reply) and event.type == "ok" and event.op in submits]
    moments = [begin, *sorted(t for t in accepted if begin < t < end), end]
    return max(later - earlier for earlier, later in pairwise(moments)) / _US


def sdk_wait_seconds(events: Sequence[AnyEvent], begin: int, end: int) -> float:
    """Return the longest time between two moments for which a call of the SDK's client was under way."""
    ends = {event.op: event.t for event in events if isinstance(event, Reply)}
    calls = [event for event in events if isinstance(event, Invoke) and event.process.startswith(SDK_CLIENT)]
    waits = [min(ends.get(call.op, end), end) - max(call.t, begin) for call in calls if call.t < end]
    return max((wait for wait in waits if wait > 0), default=end - begin) / _US


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
