"""Know which queues may have ready jobs, for workers that ask by pattern.

Theory of operation. The names are read from the index at the first request by pattern for a region, and then kept: a
queue whose job becomes due is added, one that was read and has none is removed. So a request reads only queues that
have jobs, or had some when they were read last, however many there are in all. Nothing is kept unless a worker asks by
pattern. Kept by region: a queue can be empty for one region and not for another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from raftsched.core.records.queue_patterns import is_pattern, matches
from raftsched.leader.dispatch.lanes import ReadyQueue
from raftsched.leader.view import LeaderView


class OpenQueues:
    """Queues that may have ready jobs, by region."""

    def __init__(self, view: LeaderView) -> None:
        self._view: Final = view
        self.patterns: Collection[str] = ()
        """Patterns by which workers wait."""
        self._names: Final[dict[str, dict[str, None]]] = {}
        """Names by region; only of regions that were asked for by pattern."""

    def names(self, queues: Sequence[str], region: str) -> Sequence[str]:
        """Return the queues to read for a worker that asks for `queues`: `queues` itself if it has no pattern."""
        patterns = [queue for queue in queues if is_pattern(queue)]
        if not patterns:
            return queues
        names = {queue: None for queue in queues if not is_pattern(queue)}
        for open_names in {region: self._of(region), "": self._of("")}.values():
            for pattern in patterns:
                names.update((name, None) for name in open_names if matches(pattern, name))
        return [*names]

    def is_asked_by_pattern(self, queue: str) -> bool:
        """Return whether a worker waits for the queue by a pattern."""
        return any(matches(pattern, queue) for pattern in self.patterns)

    def filled(self, queue: str, region: str) -> None:
        """Add the queue: a job of it became ready."""
        names = self._names.get(region)
        if names is not None:
            names[queue] = None

    def looked_at(self, queue: ReadyQueue, region: str) -> None:
        """Remove the queue if a worker of `region` took all of its jobs."""
        for each in (region, "") if region else ("",):
            part = queue.parts.get(each)
            if part is not None and part.is_empty:
                self._names.get(each, {}).pop(queue.name, None)

    def doubt(self) -> None:
        """Read the names again when they are needed: jobs may have become ready unnoticed."""
        self._names.clear()

    def _of(self, region: str) -> dict[str, None]:
        names = self._names.get(region)
        if names is None:
            names = self._names[region] = dict.fromkeys(self._view.waiting_queues())
        return names
