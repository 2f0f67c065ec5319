"""The graph of what depends on what, before any of it is stored: circles, and names that nobody has.

Cost: a look at each node and edge. Nothing recurses, so a chain may be as long as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

_N = TypeVar("_N", bound=str | bytes)


def find_cycle(parents: Mapping[_N, Sequence[_N]]) -> list[_N]:
    """Return the nodes of a circle, each followed by one of its parents, the first one again at the end; [] = none.

    `parents` names each node's parents; a parent that is no node itself ends the way. Of several circles the one found
    first is returned, which depends on the order of `parents` alone.
    """
    finished: set[_N] = set()
    for start in parents:
        if start not in finished:
            cycle = _cycle_from(start, parents, finished)
            if cycle:
                return cycle
    return []


def unknown_names(parents: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Return (node, parent) for each parent that is no node, in order."""
    return [(node, parent) for node, named in parents.items() for parent in named if parent not in parents]


def _cycle_from(start: _N, parents: Mapping[_N, Sequence[_N]], finished: set[_N]) -> list[_N]:
    """Walk depth first from `start`; nodes all of whose ways end go into `finished`."""
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
