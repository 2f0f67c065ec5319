"""Watch from outside what a cluster must hold: `Checker` raises `Violation`.

One property each:

    one leader a term        no two nodes ever lead the same term
    agreement                no index is applied with two different entries
    durability               what is applied first is, at that moment, durable on a majority
    completeness             whoever leads a later term has every entry committed before
    acknowledgement          a proposal answered with success is the entry applied at that index
    single changes           committed configurations that follow one another differ by one voter at most
    refusal                  a proposal answered with a definite failure is never applied
    fresh reads              a node whose `check_fresh` passes has applied all that was ever acknowledged
    kept promises            a restarted node has every entry that was durable when it stopped
    and at the end, after everything is healed: one leader, equal machines, nothing acknowledged lost or doubled
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from chaos.sim.engine.machine import Applied, HistoryMachine
from chaos.sim.engine.ports import Running, Watched
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.ports import CONFIGURATION, NodeId
from raftsched.consensus.raft.log.proposals import SUCCESS, UNKNOWN_OUTCOME
from raftsched.consensus.raft.membership.members import Membership, decode_membership


class Violation(AssertionError):
    """A property of `Checker` does not hold."""


class Checker:
    """Watches the nodes of a cluster; raises `Violation`. `count` is called with what happens."""

    def __init__(self, nodes: Mapping[NodeId, Watched], founders: Membership, count: Callable[[str], None]) -> None:
        self._nodes = nodes
        self._count = count
        self.leaders: dict[int, NodeId] = {}
        self.committed: dict[int, Applied] = {}
        self._committed_in: dict[int, int] = {}
        self.acknowledged: dict[bytes, int] = {}
        self._refused: set[bytes] = set()
        self._acknowledged_index = 0
        self.membership = founders
        """The last configuration that was applied anywhere."""

    def on_step(self, node: Watched) -> None:
        running = node.running
        if running is None or not running.engine.leads:
            return
        term = running.engine.term
        if term not in self.leaders:
            self.leaders[term] = node.id
            self._count("election")
            self._check_complete(node, running, term)
        elif self.leaders[term] != node.id:
            raise Violation(f"{self.leaders[term]} and {node.id} both lead term {term}")

    def _check_complete(self, node: Watched, running: Running, term: int) -> None:
        journal = running.journal
        for index in range(journal.first_index, max(self.committed, default=0) + 1):
            entry = self.committed.get(index)
            if entry is None or self._committed_in[index] >= term:
                continue
            if index > journal.last_index or journal.term_at(index) != entry[0]:
                raise Violation(f"{node.id} leads term {term} without entry {index} of term {entry[0]}")

    def on_apply(self, node: Watched, index: int, entry: Applied) -> None:
        known = self.committed.get(index)
        if known is None:
            self._check_durable(index, entry[0])
            self.committed[index] = entry
            self._check_change(index, entry)
            running = node.running
            self._committed_in[index] = running.engine.term if running is not None else 0
        elif known != entry:
            raise Violation(f"{node.id} applies {entry} at index {index}, but {known} was applied before")

    def _check_durable(self, index: int, term: int) -> None:
        if index == 1:
            return  # every log begins with the same entry
        holders = [node.id for node in self._nodes.values() if self._holds(node, index, term)]
        if not any(membership.is_majority(holders) for membership in self._in_effect(index)):
            raise Violation(f"entry {index} of term {term} is applied, and durable on {holders} only")

    def _in_effect(self, index: int) -> Iterator[Membership]:
        """The configuration as of an entry, and those that a leader of it may have gone by since."""
        yield self.membership
        for node in self._nodes.values():
            if node.running is not None:
                for command, _, _ in (
                    node.running.journal.entries(index, 1_000_000) if self._reaches(node, index) else ()
                ):
                    if command[:1] == CONFIGURATION:
                        yield decode_membership(command[1:])

    @staticmethod
    def _reaches(node: Watched, index: int) -> bool:
        journal = node.running.journal if node.running is not None else None
        return journal is not None and journal.first_index <= index

    def _check_change(self, index: int, entry: Applied) -> None:
        command = entry[1]
        if command is None or command[:1] != CONFIGURATION:
            return
        membership = decode_membership(command[1:])
        if len(membership.voters ^ self.membership.voters) > 1:
            raise Violation(
                f"entry {index} changes {set(self.membership.voters)} into {set(membership.voters)} at once"
            )
        self._count("changed_voters" if membership.voters != self.membership.voters else "changed_members")
        self.membership = membership

    @staticmethod
    def _holds(node: Watched, index: int, term: int) -> bool:
        if node.lost_terms.get(index) == term:
            return True  # it was, when the majority had it
        history = node.machine_disk.history
        if index <= len(history):
            return history[index - 1][0] == term
        running = node.running
        if running is None:
            return node.durable_terms.get(index) == term
        journal = running.journal
        is_there = journal.first_index <= index <= min(running.engine.commit.durable_index, journal.last_index)
        return is_there and journal.term_at(index) == term

    def on_answer(self, command: bytes, result: object, reason: int) -> None:
        self._count(f"answer {reason}")
        if reason == SUCCESS:
            assert isinstance(result, int)
            if self.committed[result][1] != command:
                raise Violation(f"{command!r} is acknowledged at {result}, but {self.committed[result]} is there")
            self.acknowledged[command] = result
            self._acknowledged_index = max(self._acknowledged_index, result)
        elif reason != UNKNOWN_OUTCOME:
            self._refused.add(command)

    def on_read(self, node: Watched, machine: HistoryMachine) -> None:
        self._count("read")
        if machine.applied_index < self._acknowledged_index:
            raise Violation(f"{node.id} serves a read at {machine.applied_index}, {self._acknowledged_index} is known")

    def on_restart(self, node: Watched, journal: Journal) -> None:
        kept = len(node.machine_disk.history)  # an installed snapshot is durable in the machine before it is in the log
        for index, term in node.durable_terms.items():
            if (
                index > max(kept, 1)  # every log begins with the same entry
                and index >= journal.first_index
                and (index > journal.last_index or journal.term_at(index) != term)
            ):
                raise Violation(f"{node.id} restarts without the durable entry {index} of term {term}")

    def on_end(self) -> None:
        """Everything is healed, and some time has passed."""
        running = {node_id: self._nodes[node_id].running for node_id in self.membership.ids}
        if self.membership.joining or None in running.values():
            raise Violation(f"at the end, {self.membership.joining} still join, or a member does not run")
        leaders = [node_id for node_id, each in running.items() if each is not None and each.engine.is_leading]
        if len(leaders) != 1:
            raise Violation(f"leaders at the end: {leaders}")
        applied = {node_id: each.machine.applied_index for node_id, each in running.items() if each is not None}
        histories = [each.machine.history for each in running.values() if each is not None]
        if any(history != histories[0] for history in histories):
            raise Violation(f"the machines differ at the end: {applied}")
        counts = Counter(command for _, command in histories[0] if command is not None)
        if lost := [command for command in self.acknowledged if counts[command] != 1]:
            raise Violation(f"acknowledged, but not applied exactly once: {lost}")
        if ghosts := [command for command in self._refused if counts[command]]:
            raise Violation(f"refused, but applied: {ghosts}")
