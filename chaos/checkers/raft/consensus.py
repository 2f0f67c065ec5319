"""Properties of the replicated log, from what nodes led and applied; `disks` has those that speak of what they kept.

The events of a node come in its own order, and all of them in the order of the harness's clock.
"""

from __future__ import annotations

from chaos.checkers.history.events import Applied, Installed, Leader, Started
from chaos.checkers.history.views import History
from chaos.checkers.report import Violation


def one_leader_per_term(history: History) -> list[Violation]:
    """No two nodes ever lead the same term (I2; Raft paper, Election Safety)."""
    leaders: dict[int, str] = {}
    return [
        Violation(f"{leaders[event.term]} and {event.node} both lead term {event.term}", event.t)
        for event in history.of(Leader)
        if leaders.setdefault(event.term, event.node) != event.node
    ]


def committed_never_changes(history: History) -> list[Violation]:
    """An index is applied with the same term and command on every node, in every life (I1, State Machine Safety)."""
    known: dict[int, Applied] = {}
    violations = []
    for event in history.of(Applied):
        first = known.setdefault(event.index, event)
        if (first.term, first.digest) != (event.term, event.digest):
            what = f"{_named(event)} is applied where {_named(first)} was applied before"
            violations.append(Violation(what, event.t))
    return violations


def applied_in_order(history: History) -> list[Violation]:
    """A node applies every index once a life, without gaps, from where its life or its snapshot began (I1)."""
    positions: dict[str, int] = {}
    violations = []
    for event in history.events:
        match event:
            case Started():
                positions[event.node] = event.index
            case Installed():
                before = positions.get(event.node, 0)
                if event.index < before:
                    what = f"{event.node} goes back from index {before} to a snapshot of {event.index}"
                    violations.append(Violation(what, event.t))
                positions[event.node] = event.index
            case Applied():
                before = positions.get(event.node, event.index - 1)
                if event.index != before + 1:
                    what = f"{event.node} applies index {event.index} right after {before}"
                    violations.append(Violation(what, event.t))
                positions[event.node] = event.index
    return violations


def terms_never_fall(history: History) -> list[Violation]:
    """Along the log, terms never fall (I1; Raft paper, section 5.3)."""
    terms = {event.index: event.term for event in history.of(Applied)}
    violations = []
    highest = 0
    for index in sorted(terms):
        if terms[index] < highest:
            violations.append(Violation(f"index {index} is of term {terms[index]}, after an entry of term {highest}"))
        highest = max(highest, terms[index])
    return violations


def _named(event: Applied) -> str:
    return f"index {event.index} = {event.digest} of term {event.term} on {event.node}"
