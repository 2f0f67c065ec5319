"""Read the files of observed nodes (`observed_node`): the times at which the log was applied, and who led which term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chaos.checkers.history.events import Leader
from chaos.drills.observed_node import APPLIED, LED


@dataclass(slots=True)
class Observed:
    """The observations of a drill; empty if no node was observed."""

    applied_at: dict[int, int] = field(default_factory=dict)
    """Index -> when the first node had applied it, in microseconds of the history."""
    leaders: list[Leader] = field(default_factory=list)


def read_observed(files: Mapping[str, Path]) -> Observed:
    """Return what is in the files of some nodes, by their ids.

    If a file is not there, no time is known: that node may have been the first to apply an entry.
    """
    found = Observed()
    for node, file in files.items():
        for line in file.read_text().splitlines() if file.exists() else ():
            kind, t, number = line.split()
            if kind == APPLIED:
                found.applied_at[int(number)] = min(int(t), found.applied_at.get(int(number), int(t)))
            elif kind == LED:
                found.leaders.append(Leader(t=int(t), node=node, term=int(number)))
    if not all(file.exists() for file in files.values()):
        found.applied_at.clear()
    return found
