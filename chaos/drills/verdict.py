"""Judge a drill: its history by `chaos.checkers`, and the directories that its nodes left behind by `raftsched check`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from chaos.checkers import History, Report, check_all
from chaos.checkers.history.events import AnyEvent
from chaos.drills.history.disks import ReadBack
from raftsched.errors import RaftschedError
from raftsched.node.check import check_directories

T = TypeVar("T")

UNJUDGED: Final = {
    "shown_is_applied": "nobody saw when an entry was applied",
    "ready_jobs_are_given": "nobody saw when an entry was applied",
    "nobody_is_passed_over": "nobody saw when an entry was applied",
    "nodes_converge": "nodes stop one after the other; while they run, the drill waits until their indexes are equal",
}
"""Properties about which a drill says nothing, and why."""


def judge(events: Iterable[AnyEvent], read_back: ReadBack | None = None) -> Report:
    """Return the verdict of the checkers on a history, which what was read back from the disks completes."""
    found = read_back or ReadBack()
    history = History([*events, *found.events], replay=found.replay if found.is_whole else None)
    return _without_unjudged(check_all(history))


def _without_unjudged(report: Report) -> Report:
    return replace(report, violations=_judged(report.violations), evidence=_judged(report.evidence))


def _judged(of_properties: Mapping[str, T]) -> dict[str, T]:
    return {name: value for name, value in of_properties.items() if name not in UNJUDGED}


def directory_faults(directories: Sequence[Path]) -> list[str]:
    """Return what is wrong with the data directories of stopped nodes, and where they differ."""
    try:
        found = check_directories(directories)
    except RaftschedError as error:
        return [f"check: {error}"]
    own = [f"{each.node_id}: {fault}" for each in found.reports for fault in each.violations]
    return [*own, *found.violations]
