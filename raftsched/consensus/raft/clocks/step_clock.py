"""The engine's clock: one moment for a whole step, or for a whole message.

The engine reads the clock when it is entered, and its parts share that moment. It is late by what the step has taken so far,
and that is safe:

    contact     a message is stamped as if it was sent earlier, so the lead that its answer confirms ends earlier
    promise     a message of the leader counts from the moment at which it was taken from its link, behind its arrival
    deadlines   what is due a moment later is met by the next step

`engine.check_fresh`, which is asked outside of steps, reads the clock itself.
"""

from __future__ import annotations

from raftsched.ports import Clock


class StepClock:
    """A `Clock` whose monotonic time moves only when it is read."""

    __slots__ = ("_clock", "now")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now = clock.monotonic()
        """The moment, in seconds of the monotonic clock."""

    def read(self) -> float:
        """Begin a new moment; return it."""
        self.now = now = self._clock.monotonic()
        return now

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return self._clock.wall_ms()
