"""Count the leased jobs of each queue and of each concurrency key, for their limits.

Theory of operation. The counts follow from the leased jobs alone. So they are kept only in memory, change with each job
written, and are counted again from the index of leased jobs when a state is opened.
"""

from __future__ import annotations

from collections.abc import Iterable

from raftsched.core.records.job import LEASED, Job
from raftsched.errors import InvariantBroken

RunningKey = tuple[str, str]
"""Queue and group of a concurrency key (`Job.key_group`); "" = of the whole queue."""


class RunningCounts:
    """Keep the counts as of the last write, beginning with `leased`, the jobs that are leased now.

    With `beneath` they are the counts of a fork, which does not change `beneath`.
    """

    def __init__(self, leased: Iterable[Job], beneath: RunningCounts | None = None) -> None:
        self._beneath = beneath
        self._counts: dict[RunningKey, int] = {}
        """Each above zero. For a fork: what to add to the counts beneath, or to subtract."""
        for job in leased:
            self._add(job)

    def move(self, old: Job | None, new: Job | None) -> None:
        """Replace `old` by `new` in the counts."""
        was_leased = old is not None and old.status in LEASED
        is_leased = new is not None and new.status in LEASED
        if was_leased is is_leased:  # a leased job keeps its queue and key
            return
        if old is not None and was_leased:
            self._take_away(old)
        elif new is not None:
            self._add(new)

    def of_queue(self, queue: str) -> int:
        return self.at((queue, ""))

    def of_key(self, queue: str, key: str) -> int:
        """Return the count of the queue's jobs with this key; 0 for "", which is no key."""
        return self.at((queue, key)) if key else 0

    def at(self, place: RunningKey) -> int:
        """Return the count of a queue and a concurrency key; "" = the whole queue."""
        count = self._counts.get(place, 0)
        return count if self._beneath is None else count + self._beneath.at(place)

    def all(self) -> dict[RunningKey, int]:
        """Return every count above zero."""
        return dict(self._counts)

    def _add(self, job: Job) -> None:
        counts, place = self._counts, (job.spec.queue, "")
        counts[place] = counts.get(place, 0) + 1
        if group := job.key_group:
            place = (job.spec.queue, group)
            counts[place] = counts.get(place, 0) + 1

    def _take_away(self, job: Job) -> None:
        self._take_one((job.spec.queue, ""))
        if group := job.key_group:
            self._take_one((job.spec.queue, group))

    def _take_one(self, place: RunningKey) -> None:
        count = self._counts.get(place, 0) - 1
        if count < 0 and self.at(place) <= 0:
            raise InvariantBroken(f"the count of running jobs of {place} would fall below zero")
        if count:
            self._counts[place] = count
        else:
            del self._counts[place]
