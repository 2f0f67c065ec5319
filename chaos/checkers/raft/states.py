"""Properties of the replicated state: equal everywhere, equal to a replay of the log. `log` has what it should be."""

from __future__ import annotations

from typing import cast

from chaos.checkers.history.events import Applied, FinalState, Installed, StateDigest
from chaos.checkers.history.views import History
from chaos.checkers.report import Violation

Digest = StateDigest | Installed | FinalState


def equal_state_digests(history: History) -> list[Violation]:
    """All nodes have the same state at the same applied index, however they came there (I3)."""
    known: dict[int, Digest] = {}
    violations = []
    for event in digests(history):
        first = known.setdefault(event.index, event)
        if first.state != event.state:
            what = f"at index {event.index} the state of {event.node} is {event.state}, of {first.node} {first.state}"
            violations.append(Violation(what, event.t))
    return violations


def snapshot_and_tail_equal_replay(history: History) -> list[Violation]:
    """A state that came from a snapshot and a tail of the log is what a replay of the whole log gives (I3).

    Needs `History.replay`, and the log from its first entry on; says nothing without them.
    """
    log = _whole_log(history)
    if history.replay is None or not log:
        return []
    replayed = dict(zip((entry.index for entry in log), history.replay(log), strict=True))
    return [
        Violation(
            f"at index {event.index} the state of {event.node} is {event.state}, a replay of the log gives "
            f"{replayed[event.index]}",
            event.t,
        )
        for event in digests(history)
        if replayed.get(event.index, event.state) != event.state
    ]


def replayed_count(history: History) -> int:
    """Return the number of digests that a replay can be held against."""
    return len(digests(history)) if history.replay is not None and _whole_log(history) else 0


def digests(history: History) -> list[Digest]:
    return cast("list[Digest]", history.ordered(StateDigest, Installed, FinalState))


def _whole_log(history: History) -> list[Applied]:
    """The entries from the first one on, as far as they go without a gap."""
    entries: dict[int, Applied] = {}
    for event in history.of(Applied):
        entries.setdefault(event.index, event)
    index = history.setup.first_index
    log = []
    while index in entries:
        log.append(entries[index])
        index += 1
    return log
