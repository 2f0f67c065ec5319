"""Know which queues may have ready jobs, for workers that ask by pattern.

Theory of operation. The names are read from the index at the first request by pattern for a region, and then kept: a
queue whose job becomes due is added, one that was read and has none is removed. So a request reads only queues that
have jobs, or had some when they were read last, however many there are in all. Nothing is kept unless a worker asks by
pattern. Kept by region and tenant, one or all: a queue can be empty for one of them and not for another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from raftsched.core.records.queue_patterns import is_pattern, matches
from raftsched.leader.dispatch.lanes import Line, ReadyQueue
from raftsched.leader.view import LeaderView

GROUPS_MAX: Final = 1_000
"""Regions and tenants of workers that asked by pattern; workers can ask for any region, so their number needs a bound:
beyond it, all are read again."""
_Group = tuple[str, str | None]
"""Region and tenant; None = all tenants."""


class OpenQueues:
    """Queues that may have ready jobs, by region and tenant."""

    def __init__(self, view: LeaderView) -> None:
        self._view: Final = view
        self.patterns: Collection[str] = ()
        """Patterns by which workers wait."""
        self._names: Final[dict[_Group, dict[str, None]]] = {}
        """Names by group; only of groups that were asked for by pattern."""

    def names(self, queues: Sequence[str], line: Line) -> Sequence[str]:
        """Return the queues to read for a worker that asks for `queues`: `queues` itself if it has no pattern."""
        patterns = [queue for queue in queues if is_pattern(queue)]
        if not patterns:
            return queues
        names = {queue: None for queue in queues if not is_pattern(queue)}
        for open_names in [self._of((region, line.tenant)) for region in _regions(line)]:
            for pattern in patterns:
                names.update((name, None) for name in open_names if matches(pattern, name))
        return [*names]

    def is_asked_by_pattern(self, queue: str) -> bool:
        """Return whether a worker waits for the queue by a pattern."""
        return any(matches(pattern, queue) for pattern in self.patterns)

    def filled(self, queue: str, region: str, tenant: str) -> None:
        """Add the queue: a job of it became ready."""
        if not self._names:
            return
        for group in ((region, None), (region, tenant)):
            names = self._names.get(group)
            if names is not None:
                names[queue] = None

    def looked_at(self, queue: ReadyQueue, line: Line) -> None:
        """Remove the queue if a worker of `line` took all of its jobs."""
        for region in _regions(line):
            part = queue.parts.get(region)
            if part is not None and part.is_empty_for(line.tenant):
                self._names.get((region, line.tenant), {}).pop(queue.name, None)

    def doubt(self) -> None:
        """Read the names again when they are needed: jobs may have become ready unnoticed."""
        self._names.clear()

    def _of(self, group: _Group) -> dict[str, None]:
        names = self._names.get(group)
        if names is None:
            if len(self._names) >= GROUPS_MAX:
                self._names.clear()
            names = self._names[group] = dict.fromkeys(self._waiting(group[1]))
        return names

    def _waiting(self, tenant: str | None) -> list[str]:
        queues = self._view.waiting_queues()
        return queues if tenant is None else [name for name in queues if tenant in self._view.waiting_tenants(name)]


def _regions(line: Line) -> tuple[str, ...]:
    """Return the regions whose jobs a worker of `line` can have; "" = the jobs of no region."""
    return (line.region, "") if line.region else ("",)
