"""One node, of the stock library or of ours, under the same schedule: messages in by hand, messages out recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, syncobj
from pysyncobj.journal import MemoryJournal
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from chaos.sim.engine.machine import HistoryMachine, MachineDisk
from chaos.sim.machine.disk import SimulatedDisk
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.net.handshake import UnknownCallers
from raftsched.consensus.ports import Sizes, Timing
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.raft.clocks.step_clock import StepClock
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.membership.members import Member, Membership
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.pysyncobj_adapter import ORIGINALS, install_seams

TIMING = Timing(heartbeat_seconds=0.05, election_min_seconds=0.5, election_max_seconds=1.0)
_STAMPS = {"sent_us": 1, "wall_ms": 1}


class HandClock:
    """Time passes when the test says so, and by `drift` with each look at it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.drift = 0.0

    def monotonic(self) -> float:
        self.now += self.drift
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1000)


class Recorder(Transport):  # type: ignore[misc]  # pysyncobj carries no types
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__(None, None, None)
        self.sent: list[tuple[str, Message]] = []
        self.unknown_callers = UnknownCallers()

    def send(self, node: Node, message: Message) -> bool:
        self.sent.append((node.id, message))
        return True


class StockNode(SyncObj):  # type: ignore[misc]  # pysyncobj carries no types
    """pysyncobj as it is, but for what a command does: it is kept, and `on_apply` hears of it first."""

    def _SyncObj__doApplyCommand(self, command: bytes) -> Any:  # noqa: N802  # pysyncobj's name
        if command[:1] == b"\x00":
            self.subject.on_apply(command[1:])
            self.subject.applied.append(command[1:])
        return len(self.subject.applied)


class Subject:
    """A node among others. Log entries are (command, index, term) with the command as it is stored."""

    engine: Any

    def __init__(self, node_id: str, others: str) -> None:
        self.id = node_id
        self.clock = HandClock()
        self.transport = Recorder()
        self.others = list(others)
        self.applied: list[bytes] = []
        self.on_apply: Callable[[bytes], None] = lambda _command: None

    @property
    def is_stock(self) -> bool:
        return isinstance(self, StockSubject)

    def connect(self) -> None:
        for other in self.others:
            self.transport._onNodeConnected(Node(other))

    # -- messages -----------------------------------------------------------------------------------------------------

    def give(self, peer: str, **message: Any) -> None:
        """Deliver a message; stamps are added where ours has them."""
        self.transport._onMessageReceived(Node(peer), {**_STAMPS, **message})

    def give_append(
        self, peer: str, term: int, previous: tuple[int, int], entries: Iterable[Any], commit: int = 1
    ) -> None:
        index, previous_term = previous
        entries = [tuple(entry) for entry in entries]
        position = {"prevLogIdx": index, "prevLogTerm": previous_term, "entries": entries}
        self.give(peer, type="append_entries", term=term, commit_index=commit, **position)

    def give_ack(self, peer: str, index: int, *, term: int | None = None) -> None:
        """`peer` has the log up to `index`; said in `term`, by default the present one."""
        self.give(
            peer,
            type="next_node_idx",
            term=self.term if term is None else term,
            success=True,
            reset=False,
            next_node_idx=index + 1,
            rejected=0,
        )

    def take(self, kind: str, peer: str = "") -> list[Message]:
        """The messages of this type sent since they were last taken."""
        wanted = [item for item in self.transport.sent if item[1]["type"] == kind and peer in ("", item[0])]
        self.transport.sent = [item for item in self.transport.sent if item not in wanted]
        return [message for _, message in wanted]

    # -- driving ------------------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Lend pysyncobj this subject's clock."""
        raise NotImplementedError

    def step(self) -> None:
        """One step, and no sync."""
        raise NotImplementedError

    def tick(self) -> None:
        """One step, and the sync after it."""
        raise NotImplementedError

    def stand(self) -> None:
        """Become candidate, by the shortest way."""
        self.core._SyncObj__raftElectionDeadline = 0.0
        self.tick()

    def lead(self) -> None:
        """Become leader with all votes."""
        self.stand()
        for other in self.others:
            self.give(other, type="response_vote", term=self.term)
        self.tick()
        assert self.leads

    def propose(self, command: bytes, callback: Any = None) -> None:
        """Queue a command; `append_waiting` or a tick puts it into the log."""
        raise NotImplementedError

    def append_waiting(self) -> None:
        raise NotImplementedError

    @property
    def core(self) -> Any:
        """The part that is pysyncobj."""
        raise NotImplementedError

    # -- looking ------------------------------------------------------------------------------------------------------

    @property
    def log(self) -> list[Any]:
        return [tuple(entry) for entry in self.core._SyncObj__raftLog[:]]

    @property
    def last_index(self) -> int:
        return int(self.log[-1][1])

    @property
    def term(self) -> int:
        return int(self.core._SyncObj__raftCurrentTerm)

    @property
    def commit(self) -> int:
        return int(self.core._SyncObj__raftCommitIndex)

    @property
    def leads(self) -> bool:
        return bool(self.core._isLeader())


class StockSubject(Subject):
    """The library as it ships, its module seams put back whenever it runs."""

    def __init__(
        self, others: str, _directory: Path, *, node_id: str = "a", journal: Any = None, **settings: Any
    ) -> None:
        super().__init__(node_id, others)
        conf = SyncObjConf(
            autoTick=False,
            journalFile=MemoryJournal() if journal is None else journal,
            raftMinTimeout=TIMING.election_min_seconds,
            raftMaxTimeout=TIMING.election_max_seconds,
            appendEntriesPeriod=TIMING.heartbeat_seconds,
            **settings,
        )
        self.enter()
        syncobj.createJournal = lambda journal: journal
        self.engine = StockNode(
            Node(node_id), [Node(other) for other in others], conf, transport=self.transport, nodeClass=Node
        )
        self.engine.subject = self
        self.connect()

    def enter(self) -> None:
        syncobj.pickle = ORIGINALS["pickle"]
        syncobj.random = ORIGINALS["random"]
        syncobj.monotonicTime = self.clock.monotonic

    @property
    def core(self) -> Any:
        return self.engine

    def propose(self, command: bytes, callback: Any = None) -> None:
        self.engine._applyCommand(command, callback or (lambda _result, _reason: None), 0)

    def append_waiting(self) -> None:
        self.enter()
        self.engine._checkCommandsToApply()

    def step(self) -> None:
        self.enter()
        self.engine.doTick(0.0)

    def tick(self) -> None:
        self.step()

    def give(self, peer: str, **message: Any) -> None:
        self.enter()
        super().give(peer, **message)


class MendedSubject(Subject):
    """Our engine over the real journal."""

    engine: RaftEngine

    def __init__(
        self,
        others: str,
        directory: Path,
        *,
        node_id: str = "a",
        journal: Any = None,
        sizes: Sizes | None = None,
        incarnation: str = "",
    ) -> None:
        super().__init__(node_id, others)
        install_seams()
        self.disk = SimulatedDisk(Random(1))
        self.journal = Journal(self.disk) if journal is None else journal
        self.machine = HistoryMachine(MachineDisk(), self._hear)
        self.engine = RaftEngine(
            EnginePorts(
                node_id=node_id,
                log=self.journal,
                machine=self.machine,
                transport=self.transport,
                clock=StepClock(self.clock),
                randomness=Random(1),
                timing=TIMING,
                sizes=sizes or Sizes(),
            ),
            Membership.of(map(Member, (node_id, *self.others))),
            snapshot_directory=directory / f"snapshots-{node_id}",
            cluster_clock=ClusterClock(self.clock),
            incarnation=incarnation,
        )
        self.connect()
        self.clock.now += 2 * TIMING.election_max_seconds
        self.sync()

    def _hear(self, _index: int, entry: tuple[int, bytes | None]) -> None:
        if entry[1] is not None:
            self.on_apply(entry[1])
            self.applied.append(entry[1])

    def enter(self) -> None:
        self.engine.core.enter()

    @property
    def core(self) -> Any:
        return self.engine.core

    def propose(self, command: bytes, callback: Any = None) -> None:
        self.engine.propose(command, callback or (lambda _result, _reason: None))

    def append_waiting(self) -> None:
        self.engine.queue.append_waiting()

    def step(self) -> None:
        self.engine.step()

    def sync(self) -> None:
        """What the pump does between two flushes."""
        self.engine.written()
        self.journal.sync()
        self.engine.synced()

    def tick(self) -> None:
        self.engine.step()
        self.sync()
        self.engine.step()


def carry(sender: Subject, receiver: Subject, kind: str) -> None:
    """Deliver the messages of this type that `sender` has for `receiver`."""
    for message in sender.take(kind, receiver.id):
        receiver.give(sender.id, **message)
