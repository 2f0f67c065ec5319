"""Properties of the log on disk: what a majority keeps is what was promised.

Theory of operation. A node's disk is replayed from `Durable` and `Truncated` events; a snapshot that was installed
covers everything up to its index, and compaction takes nothing away, so it has no event. "Before" and "at that
moment" are the order of the history.

Whose disks count is said by the log itself: an entry needs a majority of the last configuration up to it. A leader that
holds a newer one goes by that instead, so a majority of a configuration behind the entry, which some node goes by, will do
as well; one of an older configuration never does. A node whose disk was taken away counts for what it held until then.

Left out: entries that are in memory only, which nobody may rely on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chaos.checkers.history.events import AnyEvent, Applied, Configured, Durable, Installed, Members, Truncated
from chaos.checkers.history.views import History
from chaos.checkers.report import Violation

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
        """Write an entry; return what it cut off.

        One that a snapshot covers was under way when that was installed: it goes with the old log, and is of no account.
        """
        if index <= self.base or self.terms.get(index) == term:
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
        """A snapshot takes the place of everything up to `index`; a log that continues from just there is kept."""
        if self.terms.get(index) != term:
            self.cut(index)
        self.base = max(self.base, index)
        self.terms = {index: term} | {each: known for each, known in self.terms.items() if each > index}
        self.last = max(self.terms)


class Disks:
    """The disks of all nodes as they were after the events seen so far."""

    def __init__(self, history: History) -> None:
        self._born_with = history.setup.first_index - 1
        self._lost: dict[str, list[Disk]] = {}
        self._disks: dict[str, Disk] = {node: Disk(self._born_with) for node in history.setup.nodes}

    def of(self, node: str) -> Disk:
        return self._disks.setdefault(node, Disk(self._born_with))

    def held(self, node: str, place: Place) -> bool:
        """Whether a node has an entry, or had it on a disk that was taken away."""
        return any(disk.holds(*place) for disk in (self.of(node), *self._lost.get(node, ())))

    def see(self, event: AnyEvent) -> list[Place]:
        """Take the next event; return the entries that a node itself gave up by it."""
        match event:
            case Durable():
                return self.of(event.node).put(event.index, event.term)
            case Truncated() if event.wiped:
                self._lost.setdefault(event.node, []).append(self.of(event.node))
                self._disks[event.node] = Disk(self._born_with)
            case Truncated():
                disk = self.of(event.node)
                return [place for place in disk.cut(event.index) if place[0] > disk.base]
            case Installed():
                self.of(event.node).install(event.index, event.term)
        return []


class Configurations:
    """The voters that count, as of the events seen so far."""

    def __init__(self, history: History) -> None:
        self._committed = (0, history.setup.nodes)
        self._voters_at: dict[Place, tuple[str, ...]] = {}
        self._in_effect: dict[str, tuple[int, tuple[str, ...]]] = {}

    def see(self, event: AnyEvent) -> None:
        match event:
            case Members():
                self._committed = (self._committed[0], event.nodes)
            case Configured():
                self._voters_at[event.index, event.term] = event.voters
                self._in_effect[event.node] = (event.index, event.voters)

    def commits(self, place: Place) -> None:
        """An entry is committed; it counts for itself already."""
        if place in self._voters_at:
            self._committed = (place[0], self._voters_at[place])

    def choices(self) -> list[tuple[str, ...]]:
        """The last committed configuration, and the later ones that nodes go by; a majority of one must hold an entry."""
        index, voters = self._committed
        return [voters, *(later for at, later in self._in_effect.values() if at > index)]


def log_matching(history: History) -> list[Violation]:
    """If two logs hold an entry of the same index and term, it is the same entry, and so is the one before it.

    By induction, so are all before it (I1; Raft paper, Log Matching Property).
    """
    disks = Disks(history)
    before_of: dict[Place, tuple[int, str]] = {}
    digest_of: dict[Place, tuple[str, str]] = {}
    violations = []
    for event in history.ordered(Durable, Truncated, Installed):
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
    configurations = Configurations(history)
    disks = Disks(history)
    highest = history.setup.first_index - 1
    violations = []
    for event in history.ordered(Durable, Truncated, Installed, Members, Configured, Applied):
        disks.see(event)
        configurations.see(event)
        if not isinstance(event, Applied) or event.index <= highest:
            continue
        highest = event.index
        place = (event.index, event.term)
        configurations.commits(place)
        choices = configurations.choices()
        if not any(_is_majority(voters, disks, place) for voters in choices):
            voters = choices[0]
            where = ", ".join(node for node in voters if disks.held(node, place)) or "nobody"
            what = f"{event.node} applies entry {_named(place)}, on the disks of {where} only, of {', '.join(voters)}"
            violations.append(Violation(what, event.t))
    return violations


def _is_majority(voters: tuple[str, ...], disks: Disks, place: Place) -> bool:
    return 2 * sum(disks.held(node, place) for node in voters) > len(voters)


def committed_stays_on_disk(history: History) -> list[Violation]:
    """A node that holds a committed entry on disk never gives it up, unless the harness takes the disk away (G1)."""
    disks = Disks(history)
    committed: dict[int, int] = {}
    violations = []
    for event in history.ordered(Durable, Truncated, Installed, Applied):
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
