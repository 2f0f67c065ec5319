"""Virtual time: a queue of what happens when, and clocks of nodes that run at their own rate."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Timeline:
    """Runs scheduled calls in order of time, and of scheduling where times are equal."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Have `call` called in `seconds` of virtual time."""
        self._count += 1
        heappush(self._queue, (self.now + seconds if seconds > 0.0 else self.now, self._count, call))

    def run_until(self, moment: float) -> None:
        queue = self._queue
        while queue and queue[0][0] <= moment:
            self.now, _, call = heappop(queue)
            call()
        self.now = moment


class WrongWall:
    """The error of a node's wall clock, whichever life it is in: none, until a test says so."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._since = timeline.now
        self._ahead_ms = 0.0
        self._drift = 0.0

    def ahead_ms(self) -> int:
        return round(self._ahead_ms + self._drift * (self._timeline.now - self._since) * 1000)

    def set(self, *, ahead_ms: int, drift: float = 0.0) -> None:
        """Be ahead by so much from now on, and by `drift` more for each second that passes."""
        self._since, self._ahead_ms, self._drift = self._timeline.now, ahead_ms, drift


class NodeClock:
    """`raftsched.ports.Clock` of one node: its monotonic clock has its own origin and rate, its wall clock is off."""

    def __init__(
        self,
        timeline: Timeline,
        *,
        origin: float = 0.0,
        rate: float = 1.0,
        wall_offset_ms: int = 0,
        wrong: WrongWall | None = None,
    ) -> None:
        self._timeline = timeline
        self._origin = origin
        self._rate = rate
        self._wall_offset_ms = wall_offset_ms
        self._wrong = wrong or WrongWall(timeline)

    def monotonic(self) -> float:
        return self._origin + self._rate * self._timeline.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + round(self._timeline.now * 1000) + self._wall_offset_ms + self._wrong.ahead_ms()

    def moment(self, monotonic: float) -> float:
        """Return when, on the timeline, this clock shows `monotonic`."""
        return (monotonic - self._origin) / self._rate
