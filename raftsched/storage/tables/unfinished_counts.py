"""Count the unfinished jobs of each tenant, for its quota: one look-up, however many queues it uses.

Theory of operation. The counts follow from the counters of jobs alone. So they are kept only in memory, change with each
job written, and are summed again when a state is opened.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftsched.core.records.job import FINISHED, Job
from raftsched.core.state.entries import CounterKey


class UnfinishedCounts:
    """Keep the counts as of the last write, beginning with those of `counters`, the counts of all jobs.

    With `beneath` they are the counts of a fork, which does not change `beneath`.
    """

    def __init__(self, counters: Mapping[CounterKey, int], beneath: UnfinishedCounts | None = None) -> None:
        self._beneath = beneath
        self._counts: dict[str, int] = {}
        """Each above zero. For a fork: what to add to the counts beneath, or to subtract."""
        for key, count in counters.items():
            if key.status not in FINISHED:
                self._add(key.tenant, count)

    def move(self, old: Job | None, new: Job | None) -> None:
        """Replace `old` by `new` in the counts; `Counters` has checked that the former is counted."""
        was_unfinished = old is not None and old.status not in FINISHED
        is_unfinished = new is not None and new.status not in FINISHED
        if was_unfinished is is_unfinished:  # a job keeps its tenant
            return
        if old is not None and was_unfinished:
            self._add(old.tenant, -1)
        elif new is not None:
            self._add(new.tenant, 1)

    def of(self, tenant: str) -> int:
        """Return the count of the tenant's unfinished jobs."""
        count = self._counts.get(tenant, 0)
        return count if self._beneath is None else count + self._beneath.of(tenant)

    def all(self) -> dict[str, int]:
        """Return every count above zero."""
        return dict(self._counts)

    def _add(self, tenant: str, change: int) -> None:
        count = self._counts.get(tenant, 0) + change
        if count:
            self._counts[tenant] = count
        else:
            del self._counts[tenant]
