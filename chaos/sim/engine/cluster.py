"""A cluster in one process and virtual time: the real engine, the real journal, a disk that forgets, links that fail.

Each node is the pump of `raftsched.consensus.replica` step for step, but driven by the timeline: a sync takes time, during
which the engine rests, and a crash may come at any moment. Everything is drawn from one seed, so a run can be repeated.

`chaos.sim.engine.checker` looks at every node from outside.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Self

from chaos.sim.engine.checker import Checker, Violation
from chaos.sim.engine.machine import HistoryMachine, MachineDisk
from chaos.sim.engine.ports import Running
from chaos.sim.machine.clock import NodeClock, Timeline, WrongWall
from chaos.sim.machine.disk import SimulatedDisk
from chaos.sim.network.links import Network, SimulatedTransport
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.register import JournalLost, VolatileRegister
from raftsched.consensus.net.address import Address
from raftsched.consensus.ports import NodeId, Sizes, Timing
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.raft.clocks.step_clock import StepClock
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.membership.members import Member, Membership
from raftsched.consensus.raft.replication.snapshots import Work
from raftsched.errors import Unavailable

TIMING = Timing(
    heartbeat_seconds=0.05,
    election_min_seconds=0.3,
    election_max_seconds=0.6,
    proposal_seconds=4.0,
    lost_proposal_seconds=1.0,
)
SIZES = Sizes(
    tail_bytes=1_500, hold_bytes=6_000, append_bytes=400, appends_in_flight=4, chunk_bytes=300, window_chunks=3
)
CHECKPOINT_SECONDS = 0.2


class SimulatedNode:
    """One node; `running` is None while it is down."""

    def __init__(self, cluster: SimulatedCluster, node_id: NodeId, members: Membership) -> None:
        self.cluster = cluster
        self.id = node_id
        self.members = members
        """The members of its config file."""
        self.disk_number = 1
        self.registers: dict[int, VolatileRegister] = {}
        """The newest segment by the node.json of each of its disks."""
        self.refusal = ""
        """The reason why it refused to start the last time."""
        self.is_retired = False
        """It was removed, and never starts again."""
        self.directory = cluster.directory / node_id
        self.disk = SimulatedDisk(cluster.random)
        self.machine_disk = MachineDisk()
        self.running: Running | None = None
        self.wall = WrongWall(cluster.timeline)
        self.life = 0
        self.paused_until = 0.0
        self.durable_terms: dict[int, int] = {}
        """While down: index -> term of what was durable in its journal."""
        self.lost_terms: dict[int, int] = {}
        """The same of a disk that it had before."""

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.running is not None or self.is_retired:
            return
        cluster = self.cluster
        journal = self._open_journal()
        if journal is None:
            return
        self.life += 1
        random = cluster.random
        clock = NodeClock(
            cluster.timeline,
            origin=random.uniform(0, 1e5),
            rate=random.uniform(0.97, 1.03),
            wall_offset_ms=random.randint(-200, 200),
            wrong=self.wall,
        )
        cluster.checker.on_restart(self, journal)
        machine = HistoryMachine(self.machine_disk, partial(cluster.checker.on_apply, self))
        peers = [other for other in self.members.ids if other != self.id]
        transport = SimulatedTransport(
            cluster.network,
            self.id,
            partial(self._wake, self.life),
            address=_address(self.id),
            peers={peer: _address(peer) for peer in peers},
        )
        cluster.network.attach(transport)
        engine = RaftEngine(
            EnginePorts(
                node_id=self.id,
                log=journal,
                machine=machine,
                transport=transport,
                clock=StepClock(clock),
                randomness=random,
                timing=TIMING,
                sizes=SIZES,
            ),
            self.members,
            incarnation=self.incarnation,
            snapshot_directory=self.directory,
            cluster_clock=ClusterClock(clock, floor_ms=lambda: cluster.stamped_ms),
            on_members=partial(_tell_addresses, transport),
        )
        self.clock = clock
        self.running = Running(engine, journal, machine, transport)
        self._wake(self.life)

    def _open_journal(self) -> Journal | None:
        """Open it, or return None if the node refuses to start: `refusal` says why."""
        register = self.registers.setdefault(self.disk_number, VolatileRegister())
        self.refusal = ""
        try:
            return Journal(self.disk, segment_bytes=4_000, cache_bytes=2_000, register=register)
        except JournalLost as error:
            self.refusal = str(error)
            return None

    @property
    def incarnation(self) -> str:
        return f"{self.id}'s disk {self.disk_number}"

    def wipe(self, *, keeps_name: bool = False) -> None:
        """Crash, and come back some day under the same id with an empty disk, or with nothing on it but node.json."""
        self.crash(power_loss=True)
        self.cluster.count("wiped")
        history = {index: term for index, (term, _) in enumerate(self.machine_disk.history, start=1)}
        self.lost_terms |= self.durable_terms | history
        self.disk_number += 0 if keeps_name else 1
        self.disk = SimulatedDisk(self.cluster.random)
        self.machine_disk = MachineDisk()
        self.durable_terms = {}
        shutil.rmtree(self.directory, ignore_errors=True)

    def retire(self) -> None:
        """Stop for good."""
        self.crash(power_loss=False)
        self.is_retired = True

    def crash(self, *, power_loss: bool) -> None:
        """Lose all that is in memory, and with the power whatever was not synced."""
        running = self.running
        if running is None:
            return
        engine = running.engine
        self.durable_terms = durable_terms(running)
        self.running = None
        self.cluster.network.detach(self.id)
        self.cluster.count("crash")
        engine.refuse_all()
        if power_loss:
            self.disk.power_loss()
        else:
            self.disk.kill()

    def pause(self, seconds: float) -> None:
        """Pause, as after SIGSTOP; the clock runs."""
        now = self.cluster.timeline.now
        self.paused_until = max(self.paused_until, now + seconds)
        self.cluster.timeline.after(self.paused_until - now, partial(self._wake, self.life))

    def resume(self) -> None:
        """Resume now."""
        self.paused_until = 0.0
        self._wake(self.life)

    @property
    def is_paused(self) -> bool:
        return self.paused_until > self.cluster.timeline.now

    # -- the pump -----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Run a cycle now."""
        self._wake(self.life)

    def _wake(self, life: int) -> None:
        """Run a cycle now, if this life still lasts and nothing is in the way."""
        self._wake_in(0.0, life)

    def _wake_in(self, seconds: float, life: int) -> None:
        running = self.running
        moment = self.cluster.timeline.now + seconds
        if life != self.life or running is None or running.wake_at <= moment:
            return
        running.wake_at = moment
        self.cluster.timeline.after(seconds, partial(self._cycle, life, moment))

    def _is_current(self, life: int) -> bool:
        return life == self.life and self.running is not None

    def _cycle(self, life: int, moment: float) -> None:
        running = self.running
        if running is None or life != self.life or running.wake_at != moment:
            return
        running.wake_at = inf
        if running.syncing:
            return
        if self.is_paused:
            self._wake_in(self.paused_until - self.cluster.timeline.now, life)
            return
        engine, journal = running.engine, running.journal
        self._finish_work(running)
        running.transport.dispatch()
        self.cluster.checker.on_step(self)
        if engine.is_due:
            engine.step()
        self.cluster.checker.on_step(self)
        running.transport.flush(early=True)
        if not journal.dirty:
            self._end_cycle(running)
            return
        journal.write()
        engine.written()
        running.syncing = True
        self.cluster.timeline.after(self.cluster.sync_seconds(), partial(self._sync_ended, life))

    def _sync_ended(self, life: int) -> None:
        running = self.running
        if not self._is_current(life) or running is None:
            return
        if self.is_paused:
            self.cluster.timeline.after(self.paused_until - self.cluster.timeline.now, partial(self._sync_ended, life))
            return
        running.journal.datasync()
        running.journal.synced()
        running.engine.synced()
        running.syncing = False
        self._end_cycle(running)

    def _end_cycle(self, running: Running) -> None:
        running.transport.flush(early=False)
        self._start_work(running)
        self._checkpoint_if_due(running)
        deadline = min(running.engine.next_deadline(), running.checkpoint_at)
        if running.transport.has_news or deadline == -inf:
            self._wake_in(0.0, self.life)
        elif deadline < inf:
            # Never quite no time: by rounding, a deadline can stay ahead of the clock by less than that.
            self._wake_in(max(1e-6, self.clock.moment(deadline) - self.cluster.timeline.now), self.life)

    def _start_work(self, running: Running) -> None:
        work = running.engine.take_work()
        if work is not None:
            seconds = self.cluster.random.uniform(0, 0.1)
            self.cluster.timeline.after(seconds, partial(self._work_ended, self.life, work))

    def _work_ended(self, life: int, work: Work) -> None:
        running = self.running
        if self._is_current(life) and running is not None:
            running.finished_work.append((work, _failure_of(work)))
            self._wake(life)

    def _finish_work(self, running: Running) -> None:
        for work, error in running.finished_work:
            running.engine.expect_step()
            if error is None:
                work.finish(self.clock.monotonic())
            else:
                work.fail(error, self.clock.monotonic())
        running.finished_work.clear()

    def _checkpoint_if_due(self, running: Running) -> None:
        machine, now = running.machine, self.clock.monotonic()
        if machine.applied_index == machine.durable_index:
            running.checkpoint_at = inf
            return
        running.checkpoint_at = min(running.checkpoint_at, now + CHECKPOINT_SECONDS)
        if now >= running.checkpoint_at:
            machine.checkpoint()
            running.engine.checkpointed()
            running.checkpoint_at = inf

    # -- clients ------------------------------------------------------------------------------------------------------

    def propose(self, command: bytes) -> None:
        running = self.running
        if running is not None and running.engine.takes_proposals and not self.is_paused:
            self.cluster.count("proposed")
            running.engine.propose(command, partial(self.cluster.checker.on_answer, command))
            self._wake(self.life)

    def read(self) -> None:
        """A client reads here; served only if `check_fresh` says so."""
        running = self.running
        if running is None or self.is_paused:
            return
        try:
            running.engine.check_fresh()
        except Unavailable:
            return
        self.cluster.checker.on_read(self, running.machine)


def _failure_of(work: Work) -> Exception | None:
    """Run it; return what it raised, as a thread's future would."""
    try:
        work.run()
    except Exception as error:  # noqa: BLE001  # whatever it is, the node gets it through `fail`
        return error
    return None


def durable_terms(running: Running) -> dict[int, int]:
    """Index -> term of what is durable in a node's journal."""
    journal = running.journal
    last = min(running.engine.commit.durable_index, journal.last_index)
    return {index: journal.term_at(index) for index in range(max(1, journal.first_index), last + 1)}


def _address(node_id: NodeId) -> Address:
    return Address.parse(simulated_member(node_id).raft)


def _tell_addresses(transport: SimulatedTransport, membership: Membership) -> None:
    """As `Replica` does before the engine links to a node."""
    for member in membership.members:
        transport.set_address(member.id, Address.parse(member.raft))


def simulated_member(node_id: NodeId) -> Member:
    return Member(node_id, raft=f"{node_id}:8401", api=f"{node_id}:8400")


class SimulatedCluster:
    """`count` nodes named n1, n2, …; used as a context, so that its files go away."""

    def __init__(self, count: int, *, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.timeline = Timeline()
        self.network = Network(self.timeline, self.random)
        self.statistics: Counter[str] = Counter()
        self.stamped_ms = 0
        """Cluster time, as if every stamp that a test asked for were applied everywhere."""
        self.directory = Path(tempfile.mkdtemp(prefix="raftsched-simulated-"))
        self.ids = [f"n{number}" for number in range(1, count + 1)]
        self.founders = Membership.of(map(simulated_member, self.ids))
        self.nodes: dict[NodeId, SimulatedNode] = {}
        self.checker = Checker(self.nodes, self.founders, self.count)
        self.nodes.update((node_id, SimulatedNode(self, node_id, self.founders)) for node_id in self.ids)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self.directory)

    def count(self, what: str) -> None:
        self.statistics[what] += 1

    def sync_seconds(self) -> float:
        return self.random.uniform(0.0, 0.006)

    def new_node(self, members: Membership, node_id: NodeId = "") -> SimulatedNode:
        """A node with an empty disk and an id of its own, whose config file names `members` and itself; not started."""
        node_id = node_id or f"n{len(self.nodes) + 1}"
        self.ids.append(node_id)
        named = Membership.of([*(simulated_member(each) for each in members.ids), simulated_member(node_id)])
        node = self.nodes[node_id] = SimulatedNode(self, node_id, named)
        return node

    # -- driving ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def run(self, seconds: float) -> None:
        self.timeline.run_until(self.timeline.now + seconds)

    def run_until(self, happened: Callable[[], object], *, seconds: float = 20.0) -> None:
        """Run, in small pieces, until it happened; fails after `seconds`."""
        limit = self.timeline.now + seconds
        while not happened():
            if self.timeline.now >= limit:
                raise Violation(f"did not happen within {seconds} s")
            self.run(0.01)

    @property
    def leader(self) -> SimulatedNode | None:
        """The node that serves as leader with the highest term."""
        leading = [node for node in self.nodes.values() if node.running is not None and node.running.engine.is_leading]
        return max(leading, key=lambda node: node.running.engine.term if node.running else 0, default=None)

    def elect(self) -> SimulatedNode:
        self.run_until(lambda: self.leader is not None)
        leader = self.leader
        assert leader is not None
        return leader

    def heal(self) -> None:
        self.network.heal_all()
        for node in self.nodes.values():
            node.paused_until = 0.0
            node.start()
