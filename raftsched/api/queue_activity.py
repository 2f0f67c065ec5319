"""Remember what happened in each queue in the last minutes, for the line that people see.

Theory of operation. Every node applies the same changes of jobs, so each counts them, whoever leads: a new leader knows
the minutes before. Counts lie in periods of `PERIOD_MS`, in memory only. A queue without a change in the time kept costs
nothing, and beyond `limits.ACTIVITY_QUEUES_MAX` queues new ones are not counted until others are forgotten. Counts are
kept by tenant, so that nobody sees those of another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from raftsched import limits
from raftsched.core.records.job import FINISHED, Job, Status

PERIOD_MS: Final = 10_000
PERIODS_KEPT: Final = 30
WAIT_BOUNDS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000),
    *(900_000, 3_600_000, 21_600_000, 86_400_000),
)
"""Waits are counted by these bounds: a quantile is the bound below which it lies."""
_SHARE: Final = 0.99


class Period:
    """The changes within one period."""

    __slots__ = ("completed", "failed", "started", "submitted", "waits")

    def __init__(self) -> None:
        self.submitted = 0
        self.started = 0
        self.completed = 0
        self.failed = 0
        """Attempts that failed, and jobs that ended otherwise than completed."""
        self.waits: dict[int, int] = {}
        """Starts by the position of their wait among the bounds."""

    def add(self, other: Period) -> None:
        self.submitted += other.submitted
        self.started += other.started
        self.completed += other.completed
        self.failed += other.failed
        for position, count in other.waits.items():
            self.waits[position] = self.waits.get(position, 0) + count

    def wait_ms(self) -> int | None:
        """Return the bound of the wait below which 99 % of the starts lie; None if none started."""
        left = self.started * (1 - _SHARE)
        for position in sorted(self.waits, reverse=True):
            left -= self.waits[position]
            if left < 0:
                return WAIT_BOUNDS_MS[min(position, len(WAIT_BOUNDS_MS) - 1)]
        return None


class QueueActivity:
    """The latest periods of each queue, on one node."""

    def __init__(self) -> None:
        self._queues: Final[dict[tuple[str, str], dict[int, Period]]] = {}
        """By queue and tenant: periods by their number, the latest last."""
        self._forgotten_at = 0

    def on_changes(self, changes: Sequence[tuple[Job | None, Job | None]], now_ms: int) -> None:
        """Count the changes of jobs of an applied entry."""
        number = now_ms // PERIOD_MS
        for old, new in changes:
            if new is None or (old is not None and old.status is new.status):
                continue
            period = self._period((new.spec.queue, new.tenant), number)
            if period is not None:
                _count(period, old, new)

    def periods(self, queue: str, tenant: str | None, now_ms: int) -> Iterator[tuple[int, Period]]:
        """Yield the start and the counts of each of the latest periods of a queue, of one tenant or of all."""
        tenants = [key for key in self._queues if key[0] == queue] if tenant is None else [(queue, tenant)]
        last = now_ms // PERIOD_MS
        for number in range(last - PERIODS_KEPT + 1, last + 1):
            total = Period()
            for key in tenants:
                if (period := self._queues.get(key, {}).get(number)) is not None:
                    total.add(period)
            yield number * PERIOD_MS, total

    def _period(self, key: tuple[str, str], number: int) -> Period | None:
        """Return the current period of a queue; None if there is no room for one more queue."""
        periods = self._queues.get(key)
        if periods is None:
            if len(self._queues) >= limits.ACTIVITY_QUEUES_MAX and not self._forget(number):
                return None
            periods = self._queues[key] = {}
        period = periods.get(number)
        if period is None:
            period = periods[number] = Period()
            while len(periods) > PERIODS_KEPT:
                del periods[next(iter(periods))]
        return period

    def _forget(self, number: int) -> bool:
        """Forget queues without a change in the time kept, once in a period; return whether there is room now."""
        if self._forgotten_at != number:
            self._forgotten_at = number
            for key in [key for key, periods in self._queues.items() if max(periods) <= number - PERIODS_KEPT]:
                del self._queues[key]
        return len(self._queues) < limits.ACTIVITY_QUEUES_MAX


def _count(period: Period, old: Job | None, new: Job) -> None:
    status = new.status
    if old is None:
        period.submitted += 1
    elif status is Status.RUNNING and new.lease is not None:
        period.started += 1
        position = bisect_left(WAIT_BOUNDS_MS, new.lease.granted_at_ms - old.due_at_ms)
        period.waits[position] = period.waits.get(position, 0) + 1
    elif status is Status.COMPLETED:
        period.completed += 1
    elif status is Status.RETRYING or status in FINISHED:
        period.failed += 1
