"""Define the base class of recurrences: a rising sequence of times, with a method for the next one."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Recurrence(ABC):
    """A rising sequence of instants in milliseconds since 1970 UTC; every answer depends on the arguments alone.

    Windows are open at the start and closed at the end, so that neighbouring ones share no instant and lose none.
    """

    __slots__ = ()

    @abstractmethod
    def next_after(self, after_ms: int) -> int | None:
        """Return the first instant later than `after_ms`, or None if there will never be one."""

    def between(self, after_ms: int, until_ms: int, limit: int) -> list[int]:
        """Return the first `limit` instants later than `after_ms` and not later than `until_ms`."""
        found: list[int] = []
        at = self.next_after(after_ms)
        while at is not None and at <= until_ms and len(found) < limit:
            found.append(at)
            at = self.next_after(at)
        return found

    def latest(self, after_ms: int, until_ms: int) -> int | None:
        """Return the last instant later than `after_ms` and not later than `until_ms`, or None if there is none.

        Cost: a bisection, some 40 times `next_after`, however many instants lie between.
        """
        found = self.next_after(after_ms)
        if found is None or found > until_ms:
            return None
        low, high = found, until_ms
        while low < high:
            middle = (low + high + 1) // 2
            later = self.next_after(middle - 1)
            if later is not None and later <= until_ms:
                low = found = later
            else:
                high = middle - 1
        return found
