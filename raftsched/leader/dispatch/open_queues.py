"""Which queues may have ready jobs, for workers that ask by pattern.

Theory of operation. The names are read from the index at the first request by pattern for a region, and then kept: a
queue whose job becomes due is added, one that was looked at and has nothing is taken out. So a request looks only at
queues that have jobs, or had some when they were last looked at, however many there are in all. Nothing is kept where
nobody asks by pattern. Kept by region: what one region has nothing of, another may have.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from raftsched.core.records.wanted import fits, is_pattern
from raftsched.leader.dispatch.lanes import ReadyQueue
from raftsched.leader.view import LeaderView


class OpenQueues:
    """Queues that may have ready jobs, by region."""

    def __init__(self, view: LeaderView) -> None:
        self._view: Final = view
        self.patterns: Collection[str] = ()
        """By which workers wait."""
        self._names: Final[dict[str, dict[str, None]]] = {}
        """By region; only of regions that were asked for by pattern."""

    def names(self, queues: Sequence[str], region: str) -> Sequence[str]:
        """Return what to look at for a worker that asks for `queues`: those very queues where no pattern is among them."""
        patterns = [queue for queue in queues if is_pattern(queue)]
        if not patterns:
            return queues
        names = {queue: None for queue in queues if not is_pattern(queue)}
        for open_names in {region: self._of(region), "": self._of("")}.values():
            for pattern in patterns:
                names.update((name, None) for name in open_names if fits(pattern, name))
        return [*names]

    def is_asked_by_pattern(self, queue: str) -> bool:
        """Whether a worker waits for the queue by a pattern."""
        return any(fits(pattern, queue) for pattern in self.patterns)

    def filled(self, queue: str, region: str) -> None:
        """A job of the queue became ready."""
        names = self._names.get(region)
        if names is not None:
            names[queue] = None

    def looked_at(self, queue: ReadyQueue, region: str) -> None:
        """A worker of `region` took what it could; take the queue out where nothing is left."""
        for each in (region, "") if region else ("",):
            part = queue.parts.get(each)
            if part is not None and part.is_empty:
                self._names.get(each, {}).pop(queue.name, None)

    def doubt(self) -> None:
        """Jobs may have become ready unnoticed: read the names anew when they are needed."""
        self._names.clear()

    def _of(self, region: str) -> dict[str, None]:
        names = self._names.get(region)
        if names is None:
            names = self._names[region] = dict.fromkeys(self._view.waiting_queues())
        return names
