"""The cluster under `histories`: virtual time, a log on three disks, crashes and elections, and the leader's duties.

There is one state, which is that of the leader; the others follow its log, each at its own pace. An entry is on two
disks before it is applied. So nothing here can break a promise, but by a mistake in these lines.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from msgspec.structs import replace

from chaos.checkers.history.events import (
    AnyEvent,
    Applied,
    Durable,
    FinalJob,
    FinalState,
    Installed,
    Leader,
    Nemesis,
    Setup,
    Started,
    StateDigest,
)
from tests.chaos.histories_rules import LOST_MAX, TTL_MS, Fields, Job, Refused, State

TTL_US = TTL_MS * 1_000
GRACE_MS = 1_500
RETENTION_MS = 900
EPOCH_MS = 1_800_000_000_000
NODES = ("n1", "n2", "n3")


def digest_of(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()


@dataclass(slots=True)
class Node:
    name: str
    is_up: bool = True
    durable: int = 0
    applied: int = 0
    life: int = 0


@dataclass(slots=True)
class Waiting:
    """An operation on its way into the log."""

    run: Callable[[], Fields]
    deliver: Callable[[Fields], None]


class Cluster:
    """Nodes, log, time. What clients do is its heirs' business."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.fault_rate = self.random.choice((0.0, 0.03, 0.08))
        self.now = 0
        self.events: list[AnyEvent] = []
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.count = 0
        self.state = State()
        self.log: list[tuple[int, str]] = []
        """(term, digest) of each entry."""
        self.digests: list[str] = [""]
        """Of the state after so many entries."""
        self.nodes = {name: Node(name) for name in NODES}
        self.leader: Node | None = None
        self.term = 0
        self.clock_offset_ms = 0
        self.queue: list[Waiting] = []
        self.deadlines: dict[int, int] = {}
        """Token -> when its worker has been silent for too long, by the leader's memory."""
        self.expiring: set[int] = set()
        self.is_healed = False
        self.emit(
            Setup(
                nodes=NODES,
                seed=seed,
                lease_ttl_ms=TTL_MS,
                cancel_grace_ms=GRACE_MS,
                lost_attempts_max=LOST_MAX,
                epoch_ms=EPOCH_MS,
                workers_keep_time=True,
            )
        )

    def start(self) -> None:
        for name in NODES:
            self.emit(Started(node=name, index=0))
        self.elect()
        self.every(30_000, self.keep_leases)
        self.after(400_000, self.fault)

    # -- time ----------------------------------------------------------------------------------------------------------

    def emit(self, event: AnyEvent) -> None:
        self.events.append(event)

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (self.now + max(delay_us, 1), self.count, call))

    def every(self, period_us: int, call: Callable[[], None]) -> None:
        def again() -> None:
            call()
            self.after(period_us, again)

        self.after(period_us, again)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def is_faulty(self, share: float = 1.0) -> bool:
        return not self.is_healed and self.chance(self.fault_rate * share)

    def is_quiet(self) -> bool:
        caught_up = all(node.is_up and node.applied == len(self.log) for node in self.nodes.values())
        leased = any(job.token for job in self.state.jobs.values())
        return caught_up and not leased and not self.queue

    def finish(self) -> None:
        for name, node in self.nodes.items():
            jobs = {
                job_name: FinalJob(
                    status=job.status,
                    attempt=job.attempt,
                    token=job.token,
                    revision=job.revision,
                    tenant=job.call.tenant,
                    key=job.call.key,
                    body=job.call.body,
                    op=job.call.op,
                )
                for job_name, job in self.state.jobs.items()
            }
            self.emit(
                FinalState(t=self.now, node=name, index=node.applied, state=self.digests[node.applied], jobs=jobs)
            )

    # -- consensus -----------------------------------------------------------------------------------------------------

    def elect(self) -> None:
        able = [node for node in self.nodes.values() if node.is_up]
        best = max(node.durable for node in able)
        self.leader = self.random.choice([node for node in able if node.durable == best])
        self.term += 1
        self.clock_offset_ms = self.random.randint(-200, 200)
        self.emit(Leader(t=self.now, node=self.leader.name, term=self.term))
        self.follow(self.leader, self.leader.life)
        self.commit([])
        self.deadlines = {job.token: self.now + TTL_US for job in self.state.jobs.values() if job.token}
        self.expiring.clear()

    def propose(self, run: Callable[[], Fields], deliver: Callable[[Fields], None]) -> None:
        self.queue.append(Waiting(run, deliver))
        if len(self.queue) == 1:
            self.after(2_000, self.flush)

    def flush(self) -> None:
        batch, self.queue = self.queue, []
        if batch and self.leader is not None:
            self.commit(batch)

    def commit(self, batch: list[Waiting]) -> None:
        """Put an entry on most disks, apply it at the leader, answer."""
        leader = self.leader
        assert leader is not None
        index = len(self.log) + 1
        self.log.append((self.term, digest_of(index, self.term, len(batch))))
        self.digests.append(digest_of(self.digests[-1], self.log[-1][1]))
        other = self.random.choice([node for node in self.nodes.values() if node.is_up and node is not leader])
        for node in (leader, other):
            self.write(node, index)
        state = self.state
        state.index, state.position = index, -1
        state.now_ms = max(state.now_ms, EPOCH_MS + self.now // 1_000 + self.clock_offset_ms)
        results = []
        for waiting in batch:
            state.position += 1
            try:
                results.append(waiting.run())
            except Refused as refused:
                results.append({"error": str(refused)})
        self.apply(leader, index)
        for change in state.changes:
            self.emit(replace(change, t=self.now))
            if change.f == "lease":
                self.deadlines[change.token] = self.now + TTL_US
        state.changes.clear()
        for waiting, result in zip(batch, results, strict=True):
            waiting.deliver(result)
        for node in self.nodes.values():
            if node is not leader:
                self.after(self.random.randint(500, 20_000), partial(self.follow, node, node.life))

    def write(self, node: Node, index: int) -> None:
        for each in range(node.durable + 1, index + 1):
            term, digest = self.log[each - 1]
            self.emit(Durable(t=self.now, node=node.name, index=each, term=term, digest=digest))
        node.durable = max(node.durable, index)

    def apply(self, node: Node, index: int) -> None:
        for each in range(node.applied + 1, index + 1):
            term, digest = self.log[each - 1]
            self.emit(Applied(t=self.now, node=node.name, index=each, term=term, digest=digest))
            if self.chance(0.2):
                self.emit(StateDigest(t=self.now, node=node.name, index=each, state=self.digests[each]))
        node.applied = index

    def follow(self, node: Node, life: int) -> None:
        if node.is_up and node.life == life:
            self.write(node, len(self.log))
            self.apply(node, len(self.log))

    # -- faults --------------------------------------------------------------------------------------------------------

    def fault(self) -> None:
        if self.is_healed:
            return
        if self.fault_rate and all(node.is_up for node in self.nodes.values()) and self.leader is not None:
            self.crash(self.random.choice([self.leader, *self.nodes.values()]))
        self.after(self.random.randint(200_000, 700_000), self.fault)

    def crash(self, node: Node) -> None:
        self.emit(Nemesis(t=self.now, fault="crash", target=node.name))
        node.is_up = False
        node.life += 1
        if node is self.leader:
            if self.chance(0.5) and node.durable == len(self.log):
                # An entry that nobody else has; whoever leads next writes another one in its place.
                tail = Durable(t=self.now, node=node.name, index=node.durable + 1, term=self.term, digest="tail")
                self.emit(tail)
            self.leader = None
            self.queue.clear()
            self.after(self.random.randint(50_000, 250_000), self.elect)
        self.after(self.random.randint(100_000, 600_000), partial(self.restart, node))

    def restart(self, node: Node) -> None:
        node.is_up = True
        node.applied = self.random.randint(max(0, node.applied - 5), node.applied)
        self.emit(Started(t=self.now, node=node.name, index=node.applied))
        if self.leader is not None and len(self.log) - node.applied > 3 and self.chance(0.5):
            index = len(self.log)
            state, term = self.digests[index], self.log[index - 1][0]
            self.emit(Installed(t=self.now, node=node.name, index=index, term=term, state=state))
            node.durable, node.applied = max(node.durable, index), index
        self.after(self.random.randint(500, 30_000), partial(self.follow, node, node.life))

    # -- the leader's duties -------------------------------------------------------------------------------------------

    def keep_leases(self) -> None:
        if self.leader is None:
            return
        now_ms = max(self.state.now_ms, EPOCH_MS + self.now // 1_000 + self.clock_offset_ms)
        for name, job in list(self.state.jobs.items()):
            if job.token and job.token not in self.expiring:
                cause = self.cause_of_end(job, now_ms)
                if cause:
                    self.expiring.add(job.token)
                    self.propose(partial(self.state.expire, name, job.token, cause), ignore)
            elif job.ended_ms and now_ms > job.ended_ms + RETENTION_MS and self.chance(0.004):
                self.propose(partial(self.state.purge, name), ignore)

    def cause_of_end(self, job: Job, now_ms: int) -> str:
        lasted_ms = now_ms - job.granted_ms
        if job.status == "cancelling" and now_ms > job.cancelled_ms + GRACE_MS:
            return "cancelled"
        if 0 < job.call.timeout_ms <= lasted_ms:
            return "timeout"
        return "worker_lost" if self.deadlines[job.token] < self.now and lasted_ms >= TTL_MS else ""


def ignore(_: object) -> None:
    """For whom the answer doesn't matter."""
