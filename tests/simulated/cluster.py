"""A cluster in one process and virtual time: the real engine, the real journal, a disk that forgets, links that fail.

Each node is the pump of `raftsched.consensus.replica` step for step, but driven by the timeline: a sync takes time, during
which the engine rests, and a crash may come at any moment. Everything is drawn from one seed, so a run can be repeated.

`Checker` looks at every node from outside, one property each:

    one leader a term        no two nodes ever lead the same term
    agreement                no index is applied with two different entries
    durability               what is applied first is, at that moment, durable on a majority
    completeness             whoever leads a later term has every entry committed before
    acknowledgement          a proposal answered with success is the entry applied at that index
    refusal                  a proposal answered with a definite failure is never applied
    fresh reads              a node whose `check_fresh` passes has applied all that was ever acknowledged
    kept promises            a restarted node has every entry that was durable when it stopped
    and at the end, after everything is healed: one leader, equal machines, nothing acknowledged lost or doubled
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from random import Random

from raftsched.consensus.engine import RaftEngine
from raftsched.consensus.journal import Journal
from raftsched.consensus.ports import NodeId, Sizes, Timing
from raftsched.consensus.snapshots import Work
from raftsched.consensus.stock import SUCCESS, UNKNOWN_OUTCOME
from raftsched.errors import Unavailable
from tests.simulated.clock import NodeClock, Timeline
from tests.simulated.disk import SimulatedDisk
from tests.simulated.machine import Applied, HistoryMachine, MachineDisk
from tests.simulated.network import Network, SimulatedTransport

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


class Violation(AssertionError):
    """A property of `Checker` does not hold."""


@dataclass(slots=True)
class _Running:
    """What a crash takes away."""

    engine: RaftEngine
    journal: Journal
    machine: HistoryMachine
    transport: SimulatedTransport
    syncing: bool = False
    finished_work: list[tuple[Work, Exception | None]] = field(default_factory=list)
    checkpoint_at: float = inf
    wake_at: float = inf


class SimulatedNode:
    """One node; `running` is None while it is down."""

    def __init__(self, cluster: SimulatedCluster, node_id: NodeId) -> None:
        self.cluster = cluster
        self.id = node_id
        self.directory = cluster.directory / node_id
        self.disk = SimulatedDisk(cluster.random)
        self.machine_disk = MachineDisk()
        self.running: _Running | None = None
        self.life = 0
        self.paused_until = 0.0
        self.durable_terms: dict[int, int] = {}
        """While down: index -> term of what was durable in its journal."""

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.running is not None:
            return
        cluster = self.cluster
        self.life += 1
        random = cluster.random
        clock = NodeClock(
            cluster.timeline,
            origin=random.uniform(0, 1e5),
            rate=random.uniform(0.97, 1.03),
            wall_offset_ms=random.randint(-200, 200),
        )
        journal = Journal(self.disk, segment_bytes=4_000, cache_bytes=2_000)
        cluster.checker.on_restart(self, journal)
        machine = HistoryMachine(self.machine_disk, partial(cluster.checker.on_apply, self))
        transport = cluster.network.attach(self.id, partial(self._wake, self.life))
        engine = RaftEngine(
            self.id,
            [other for other in cluster.ids if other != self.id],
            log=journal,
            machine=machine,
            transport=transport,
            clock=clock,
            randomness=random,
            snapshot_directory=self.directory,
            timing=TIMING,
            sizes=SIZES,
        )
        self.clock = clock
        self.running = _Running(engine, journal, machine, transport)
        self._wake(self.life)

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
        """Stand still, as after SIGSTOP; the clock goes on."""
        now = self.cluster.timeline.now
        self.paused_until = max(self.paused_until, now + seconds)
        self.cluster.timeline.after(self.paused_until - now, partial(self._wake, self.life))

    def resume(self) -> None:
        """Go on now."""
        self.paused_until = 0.0
        self._wake(self.life)

    @property
    def is_paused(self) -> bool:
        return self.paused_until > self.cluster.timeline.now

    # -- the pump -----------------------------------------------------------------------------------------------------

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

    def _end_cycle(self, running: _Running) -> None:
        running.transport.flush(early=False)
        self._start_work(running)
        self._checkpoint_if_due(running)
        deadline = min(running.engine.next_deadline(), running.checkpoint_at)
        if running.transport.has_news or deadline == -inf:
            self._wake_in(0.0, self.life)
        elif deadline < inf:
            # Never quite no time: by rounding, a deadline can stay ahead of the clock by less than that.
            self._wake_in(max(1e-6, self.clock.moment(deadline) - self.cluster.timeline.now), self.life)

    def _start_work(self, running: _Running) -> None:
        work = running.engine.take_work()
        if work is not None:
            seconds = self.cluster.random.uniform(0, 0.1)
            self.cluster.timeline.after(seconds, partial(self._work_ended, self.life, work))

    def _work_ended(self, life: int, work: Work) -> None:
        running = self.running
        if self._is_current(life) and running is not None:
            running.finished_work.append((work, _failure_of(work)))
            self._wake(life)

    def _finish_work(self, running: _Running) -> None:
        for work, error in running.finished_work:
            if error is None:
                work.finish(self.clock.monotonic())
            else:
                work.fail(error, self.clock.monotonic())
        running.finished_work.clear()

    def _checkpoint_if_due(self, running: _Running) -> None:
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
    except Exception as error:
        return error
    return None


def durable_terms(running: _Running) -> dict[int, int]:
    """index -> term of what is durable in a node's journal."""
    journal = running.journal
    last = min(running.engine.durable_index, journal.last_index)
    return {index: journal.term_at(index) for index in range(max(1, journal.first_index), last + 1)}


class Checker:
    """Watches a cluster; raises `Violation`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.leaders: dict[int, NodeId] = {}
        self.committed: dict[int, Applied] = {}
        self._committed_in: dict[int, int] = {}
        self.acknowledged: dict[bytes, int] = {}
        self._refused: set[bytes] = set()
        self._acknowledged_index = 0

    def on_step(self, node: SimulatedNode) -> None:
        running = node.running
        if running is None or not running.engine.leads:
            return
        term = running.engine.term
        if term not in self.leaders:
            self.leaders[term] = node.id
            self._cluster.count("election")
            self._check_complete(node, running, term)
        elif self.leaders[term] != node.id:
            raise Violation(f"{self.leaders[term]} and {node.id} both lead term {term}")

    def _check_complete(self, node: SimulatedNode, running: _Running, term: int) -> None:
        journal = running.journal
        for index in range(journal.first_index, max(self.committed, default=0) + 1):
            entry = self.committed.get(index)
            if entry is None or self._committed_in[index] >= term:
                continue
            if index > journal.last_index or journal.term_at(index) != entry[0]:
                raise Violation(f"{node.id} leads term {term} without entry {index} of term {entry[0]}")

    def on_apply(self, node: SimulatedNode, index: int, entry: Applied) -> None:
        known = self.committed.get(index)
        if known is None:
            self._check_durable(index, entry[0])
            self.committed[index] = entry
            running = node.running
            self._committed_in[index] = running.engine.term if running is not None else 0
        elif known != entry:
            raise Violation(f"{node.id} applies {entry} at index {index}, where {known} was applied before")

    def _check_durable(self, index: int, term: int) -> None:
        if index == 1:
            return  # every log begins with the same entry
        holders = [node.id for node in self._cluster.nodes.values() if self._holds(node, index, term)]
        if len(holders) * 2 <= len(self._cluster.nodes):
            raise Violation(f"entry {index} of term {term} is applied, and durable on {holders} only")

    @staticmethod
    def _holds(node: SimulatedNode, index: int, term: int) -> bool:
        history = node.machine_disk.history
        if index <= len(history):
            return history[index - 1][0] == term
        running = node.running
        if running is None:
            return node.durable_terms.get(index) == term
        journal = running.journal
        is_there = journal.first_index <= index <= min(running.engine.durable_index, journal.last_index)
        return is_there and journal.term_at(index) == term

    def on_answer(self, command: bytes, result: object, reason: int) -> None:
        self._cluster.count(f"answer {reason}")
        if reason == SUCCESS:
            assert isinstance(result, int)
            if self.committed[result][1] != command:
                raise Violation(f"{command!r} is acknowledged at {result}, where {self.committed[result]} is")
            self.acknowledged[command] = result
            self._acknowledged_index = max(self._acknowledged_index, result)
        elif reason != UNKNOWN_OUTCOME:
            self._refused.add(command)

    def on_read(self, node: SimulatedNode, machine: HistoryMachine) -> None:
        self._cluster.count("read")
        if machine.applied_index < self._acknowledged_index:
            raise Violation(f"{node.id} serves a read at {machine.applied_index}, {self._acknowledged_index} is known")

    def on_restart(self, node: SimulatedNode, journal: Journal) -> None:
        for index, term in node.durable_terms.items():
            if index >= journal.first_index and (index > journal.last_index or journal.term_at(index) != term):
                raise Violation(f"{node.id} restarts without the durable entry {index} of term {term}")

    def on_end(self) -> None:
        """Everything is healed, and some time has passed."""
        running = {node.id: node.running for node in self._cluster.nodes.values()}
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


class SimulatedCluster:
    """`count` nodes named n1, n2, …; used as a context, so that its files go away."""

    def __init__(self, count: int, *, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.timeline = Timeline()
        self.network = Network(self.timeline, self.random)
        self.statistics: Counter[str] = Counter()
        self.checker = Checker(self)
        self.directory = Path(tempfile.mkdtemp(prefix="raftsched-simulated-"))
        self.ids = [f"n{number}" for number in range(1, count + 1)]
        self.nodes = {node_id: SimulatedNode(self, node_id) for node_id in self.ids}

    def __enter__(self) -> SimulatedCluster:
        return self

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self.directory)

    def count(self, what: str) -> None:
        self.statistics[what] += 1

    def sync_seconds(self) -> float:
        return self.random.uniform(0.0, 0.006)

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
