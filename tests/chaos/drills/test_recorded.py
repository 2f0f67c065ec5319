"""A history that a drill has recorded, with one promise broken: the verdict must name it.

`recorded.jsonl.xz` is `history.jsonl` of one round of kill_leader over 3 processes, with the whole load. So what requests,
disks and nodes are written down as is tested with the checkers, which have histories of their own.
"""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

from chaos.checkers import History, read_history
from chaos.checkers.history.events import AnyEvent, FinalState, Healed
from chaos.drills.verdict import Together, judge
from tests.chaos import histories_broken_jobs, histories_broken_nodes, histories_broken_runs
from tests.chaos.drills.mutations import DRILL_MUTATIONS
from tests.chaos.histories_broken import MUTATIONS, NoPlace

RECORDED = Path(__file__).with_name("recorded.jsonl.xz")
REGISTERED_BY = (histories_broken_jobs, histories_broken_nodes, histories_broken_runs)
FLAGGED_MIN = 95
EXERCISED_MIN = 70
_NOT_HERE = {
    "snapshot_and_tail_equal_replay": "the log is replayed from disks, which are gone",
    "well_formed": "a drill puts its events in order itself; `merged` refuses files whose times fall",
    "nodes_converge": "it is asked of nodes that run; below",
}
"""Properties that this history can't show, and why."""
_UNSEEN = {
    "attempts_overlap": "it takes a worker of raw HTTP, who overstays its lease on purpose",
    "job_is_stored_with_another_due_time": "it takes a job with a delay, which the server counts from when it asks",
    "log_cancels_what_nobody_cancelled": "it takes a job of a workflow, and the workflow for the cause",
    "entry_of_equal_term_has_another_content": "it takes an entry that was on one disk alone when the nodes stopped",
}
"""Mutations that take a place here at which nothing is promised."""


@cache
def _recorded(directory: Path) -> History:
    path = directory / "history.jsonl"
    path.write_bytes(lzma.decompress(RECORDED.read_bytes()))
    return History(read_history(path))


def _together(events: list[AnyEvent], lag: int = 0) -> Together:
    """All nodes at the last index, but one that is behind by `lag`."""
    finals = [event for event in events if isinstance(event, FinalState)]
    last = max(final.index for final in finals)
    healed = next(event.t for event in events if isinstance(event, Healed))
    indexes = {final.node: last for final in finals}
    return Together(healed, healed + 1, {**indexes, finals[0].node: last - lag})


def test_a_recorded_history_is_clean_and_exercises_most_properties(tmp_path: Path) -> None:
    events = list(_recorded(tmp_path).events)
    report = judge(events, together=_together(events))
    assert report.violations == {}
    assert sum(count > 0 for count in report.evidence.values()) >= EXERCISED_MIN
    assert list(judge(events, together=_together(events, lag=1)).violations) == ["nodes_converge"]


def test_whatever_is_broken_in_a_recorded_history_is_named(tmp_path: Path) -> None:
    history = _recorded(tmp_path)
    flagged, missed, placeless = 0, [], []
    for mutation in (*DRILL_MUTATIONS, *(each for each in MUTATIONS if each.name not in _UNSEEN)):
        try:
            events = mutation.mutate(history)
        except NoPlace:
            placeless.append(mutation.name)
            continue
        found = judge(events, together=_together(events)).violations
        missing = set(mutation.flagged_by) - found.keys() - _NOT_HERE.keys()
        missed += [f"{mutation.name}: not flagged by {name}" for name in missing]
        flagged += not missing
    assert missed == []
    assert flagged >= FLAGGED_MIN
    assert set(placeless).isdisjoint(mutation.name for mutation in DRILL_MUTATIONS)
