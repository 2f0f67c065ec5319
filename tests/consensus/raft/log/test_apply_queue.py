"""The apply queue alone, over a real journal: each command in the log once, applied once, answered once."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from chaos.sim.engine.machine import HistoryMachine, MachineDisk
from chaos.sim.machine.disk import SimulatedDisk
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.ports import COMMAND, CONFIGURATION, NO_OP, Timing
from raftsched.consensus.raft.clocks.step_clock import StepClock
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.log.apply_queue import ApplyQueue
from raftsched.consensus.raft.log.commit_index import CommitIndex
from raftsched.consensus.raft.log.proposals import NOT_LEADER, QUEUE_FULL, SUCCESS, Proposals
from raftsched.errors import InvariantBroken
from raftsched.limits import PROPOSALS_WAITING_MAX
from tests.consensus.subjects import HandClock, Recorder


@dataclass
class _Node:
    """A queue, and the little that it needs."""

    term: int = 1
    leads: bool = True
    applied: list[int] = field(default_factory=list)
    configured: list[tuple[bytes, int, int]] = field(default_factory=list)
    answers: list[tuple[object, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = Journal(SimulatedDisk(Random(1)))
        self.log.add(NO_OP, 1, 0)
        self.machine = HistoryMachine(MachineDisk(), lambda _index, _entry: None)
        self.machine.apply(1, 0, None)
        self.commit = CommitIndex(applied=1, last=1)
        self.queue = ApplyQueue(
            EnginePorts(
                node_id="n1",
                log=self.log,
                machine=self.machine,
                transport=Recorder(),
                clock=StepClock(HandClock()),
                randomness=Random(1),
            ),
            current=self,
            commit=self.commit,
            proposals=Proposals(Timing()),
            takes_proposals=lambda: self.leads,
            configure=self._configure,
            on_applied=self.applied.append,
        )

    def _configure(self, content: bytes, index: int, term: int) -> object:
        self.configured.append((content, index, term))
        return content

    def propose(self, command: bytes) -> None:
        self.queue.propose(command, lambda result, reason: self.answers.append((result, reason)))

    def commit_all(self) -> None:
        self.commit.written(self.log.last_index)
        self.commit.synced()
        self.commit.raise_to(self.log.last_index)
        self.queue.apply_committed()


def test_a_command_is_appended_committed_applied_and_answered_once() -> None:
    node = _Node()
    node.propose(b"x")
    node.queue.append_waiting()
    assert node.log.entries(2, 100) == [(COMMAND + b"x", 2, 1)]
    node.queue.apply_committed()
    assert not node.answers, "nothing is applied before it is committed"
    for _ in range(2):
        node.commit_all()
    assert node.applied == [2]
    assert [reason for _, reason in node.answers] == [SUCCESS]
    assert node.queue.applied_bytes == len(COMMAND + b"x")


def test_a_node_that_takes_no_proposals_refuses_what_waits() -> None:
    node = _Node(leads=False)
    node.propose(b"x")
    node.queue.append_waiting()
    assert node.answers == [(None, NOT_LEADER)]
    assert node.log.last_index == 1


def test_a_full_queue_refuses_at_once() -> None:
    node = _Node()
    for _ in range(PROPOSALS_WAITING_MAX + 1):
        node.propose(b"x")
    assert node.answers == [(None, QUEUE_FULL)]


def test_a_configuration_is_applied_by_whoever_counts_members() -> None:
    node = _Node()
    node.log.add(CONFIGURATION + b"members", 2, 1)
    node.commit_all()
    assert node.configured == [(b"members", 2, 1)]
    assert node.applied == [2]


def test_an_entry_of_an_unknown_kind_stops_the_node() -> None:
    node = _Node()
    node.log.add(b"\x07", 2, 1)
    with pytest.raises(InvariantBroken, match="unknown kind"):
        node.commit_all()
