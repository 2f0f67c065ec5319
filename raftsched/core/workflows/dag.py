"""Find cycles and unknown names in a graph of dependencies before it is stored.

Cost: one check of each node and edge. Nothing recurses, so a chain can have any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

_N = TypeVar("_N", bound=str | bytes)


def find_cycle(parents: Mapping[_N, Sequence[_N]]) -> list[_N]:
    """Return the nodes of a cycle, each followed by one of its parents, the first one again at the end; [] = none.

    `parents` has each node's parents; parents that are not nodes themselves are ignored. The result is the first cycle in
    the order of `parents`.
    """
    finished: set[_N] = set()
    for start in parents:
        if start not in finished:
            cycle = _cycle_from(start, parents, finished)
            if cycle:
                return cycle
    return []


def unknown_names(parents: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Return (node, parent) for each parent that is not a node, in order."""
    return [(node, parent) for node, named in parents.items() for parent in named if parent not in parents]


def _cycle_from(start: _N, parents: Mapping[_N, Sequence[_N]], finished: set[_N]) -> list[_N]:
    """Search depth first from `start`; nodes without a cycle above them are added to `finished`."""
    way: list[_N] = [start]
    places = {start: 0}
    rest: list[Iterator[_N]] = [iter(parents[start])]
    while way:
        parent = next(rest[-1], None)
        if parent is None:
            node = way.pop()
            rest.pop()
            del places[node]
            finished.add(node)
        elif parent in places:
            return [*way[places[parent] :], parent]
        elif parent in parents and parent not in finished:
            places[parent] = len(way)
            way.append(parent)
            rest.append(iter(parents[parent]))
    return []
