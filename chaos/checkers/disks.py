"""Properties of the log on disk: what a majority keeps is what was promised.

Theory of operation. A node's disk is replayed from `Durable` and `Truncated` events; a snapshot that was installed
stands for everything up to its index, and compaction takes nothing away, so it has no event. "Before" and "at that
moment" are the order of the history. Left out: entries that are in memory only, which nobody may rely on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chaos.checkers.history import AnyEvent, Applied, Durable, Installed, Members, Truncated
from chaos.checkers.report import Violation
from chaos.checkers.views import History

Place = tuple[int, int]
"""(index, term) of an entry."""


@dataclass(slots=True)
class Disk:
    """The log on one node's disk: terms by index, and a snapshot of everything up to `base`."""

    base: int
    last: int = 0
    terms: dict[int, int] = field(default_factory=dict)

    def holds(self, index: int, term: int) -> bool:
        return index <= self.base or self.terms.get(index) == term

    def put(self, index: int, term: int) -> list[Place]:
        """Write an entry; return what it cut off."""
        if self.terms.get(index) == term:
            return []
        lost = self.cut(index)
        self.terms[index] = term
        self.last = index
        return lost

    def cut(self, index: int) -> list[Place]:
        """Drop the entries from `index` on; return them."""
        lost = [(each, self.terms.pop(each)) for each in range(index, self.last + 1) if each in self.terms]
        self.last = min(self.last, index - 1)
        return lost

    def install(self, index: int, term: int) -> None:
        """A snapshot takes the place of everything up to `index`; a log that goes on from just there is kept."""
        if self.terms.get(index) != term:
            self.cut(index)
        self.base = max(self.base, index)
        self.terms = {index: term} | {each: known for each, known in self.terms.items() if each > index}
        self.last = max(self.terms)


class Disks:
    """The disks of all nodes as they were after the events seen so far."""

    def __init__(self, history: History) -> None:
        self._born_with = history.setup.first_index - 1
        self._disks: dict[str, Disk] = {node: Disk(self._born_with) for node in history.setup.nodes}

    def of(self, node: str) -> Disk:
        return self._disks.setdefault(node, Disk(self._born_with))

    def see(self, event: AnyEvent) -> list[Place]:
        """Take the next event; return the entries that a node itself gave up by it."""
        match event:
            case Durable():
                return self.of(event.node).put(event.index, event.term)
            case Truncated() if event.wiped:
                self._disks[event.node] = Disk(self._born_with)
            case Truncated():
                return self.of(event.node).cut(event.index)
            case Installed():
                self.of(event.node).install(event.index, event.term)
        return []


def log_matching(history: History) -> list[Violation]:
    """Where two logs hold an entry of the same index and term, it is the same entry, and so is the one before it.

    By induction, so are all before it (I1; Raft paper, Log Matching Property).
    """
    disks = Disks(history)
    before_of: dict[Place, tuple[int, str]] = {}
    digest_of: dict[Place, tuple[str, str]] = {}
    violations = []
    for event in history.events:
        disks.see(event)
        if not isinstance(event, Durable):
            continue
        place = (event.index, event.term)
        digest, node = digest_of.setdefault(place, (event.digest, event.node))
        if digest != event.digest:
            violations.append(Violation(f"{event.node} and {node} hold different entries {_named(place)}", event.t))
        before = disks.of(event.node).terms.get(event.index - 1)
        if before is None:
            continue
        term, node = before_of.setdefault(place, (before, event.node))
        if term != before:
            what = f"entry {_named(place)} follows one of term {before} on {event.node}, one of term {term} on {node}"
            violations.append(Violation(what, event.t))
    return violations


def on_most_disks_when_applied(history: History) -> list[Violation]:
    """An entry that is applied anywhere is, at that moment, on the disks of a majority of the voters (G1)."""
    if not history.of(Durable):
        return []
    voters = history.setup.nodes
    disks = Disks(history)
    highest = history.setup.first_index - 1
    violations = []
    for event in history.events:
        disks.see(event)
        if isinstance(event, Members):
            voters = event.nodes
        if not isinstance(event, Applied) or event.index <= highest:
            continue
        highest = event.index
        place = (event.index, event.term)
        holders = [node for node in voters if disks.of(node).holds(*place)]
        if len(holders) * 2 <= len(voters):
            where = ", ".join(holders) or "nobody"
            what = f"{event.node} applies entry {_named(place)}, which is on the disks of {where} only"
            violations.append(Violation(what, event.t))
    return violations


def committed_stays_on_disk(history: History) -> list[Violation]:
    """A node that holds a committed entry on disk never gives it up, unless the harness takes the disk away (G1)."""
    disks = Disks(history)
    committed: dict[int, int] = {}
    violations = []
    for event in history.events:
        lost = disks.see(event)
        if isinstance(event, Applied):
            committed.setdefault(event.index, event.term)
        if broken := [place for place in lost if committed.get(place[0]) == place[1]]:
            assert isinstance(event, Durable | Truncated)
            what = f"{event.node} gives up the committed entry {_named(broken[0])}, {len(broken)} in all"
            violations.append(Violation(what, event.t))
    return violations


def _named(place: Place) -> str:
    return f"{place[0]} of term {place[1]}"
