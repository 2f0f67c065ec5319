"""Good histories by a tiny reference scheduler: everything a run can show, and nothing that breaks a promise.

Theory of operation. One object holds the state and the log, and a heap of callbacks is the time. Three nodes follow the
log at their own pace, crash, come back, install snapshots; leaders change, with an uncommitted entry left behind now and
then. Clients submit, ask, cancel, and try again; workers lease, work, beat, report, stall, and die. Requests and replies
are lost or late, so that their clients never learn the outcome. All is drawn from one seed.

The rules are in `histories_rules`.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from chaos.checkers.history import (
    AnyEvent,
    Applied,
    Downstream,
    Durable,
    Effect,
    FinalJob,
    FinalState,
    Granted,
    Healed,
    Installed,
    Invoke,
    Leader,
    Nemesis,
    Reply,
    Setup,
    Started,
    StateDigest,
)
from tests.chaos.histories_rules import LOST_MAX, TTL_MS, Fields, Job, Refused, State

TTL_US = TTL_MS * 1_000
GRACE_MS = 1_500
EPOCH_MS = 1_800_000_000_000
TIMEOUT_US = 150_000
NODES = ("n1", "n2", "n3")
TENANTS = ("red", "blue")

Then = Callable[[Reply], None]


def digest_of(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()


def replay(log: Sequence[Applied]) -> Iterator[str]:
    """The digest of the state after each entry."""
    state = ""
    for entry in log:
        state = digest_of(state, entry.digest)
        yield state


def good_history(seed: int, *, jobs: int = 14, workers: int = 3) -> list[AnyEvent]:
    return _Run(seed, jobs=jobs, workers=workers).run()


# -- the cluster ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    name: str
    is_up: bool = True
    durable: int = 0
    applied: int = 0
    life: int = 0


@dataclass(slots=True)
class _Waiting:
    """An operation on its way into the log."""

    run: Callable[[], Fields]
    deliver: Callable[[Fields], None]


class _Run:
    def __init__(self, seed: int, *, jobs: int, workers: int) -> None:
        self.random = Random(seed)
        self.jobs_left = jobs
        self.workers = workers
        self.fault_rate = self.random.choice((0.0, 0.03, 0.08))
        self.now = 0
        self.events: list[AnyEvent] = []
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.count = 0
        self.state = State()
        self.log: list[tuple[int, str]] = []
        self.digests: list[str] = [""]
        self.nodes = {name: _Node(name) for name in NODES}
        self.leader: _Node | None = None
        self.term = 0
        self.clock_offset_ms = 0
        self.queue: list[_Waiting] = []
        self.deadlines: dict[int, int] = {}
        self.expiring: set[int] = set()
        self.waiting: dict[int, Then] = {}
        self.submitted: list[Invoke] = []
        self.known: list[Invoke] = []
        self.received: dict[str, int] = {}
        self.is_healed = False
        self.served: set[str] = set()
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

    def run(self) -> list[AnyEvent]:
        for name in NODES:
            self.emit(Started(node=name, index=0))
        self.elect()
        self.every(30_000, self.keep_leases)
        self.after(400_000, self.fault)
        for number in range(4):
            self.after(5_000 * number, partial(self.client, f"c{number}"))
        for number in range(self.workers):
            self.after(7_000 * number, partial(self.work, f"w{number}"))
        while not (len(self.served) == len(NODES) and self.is_quiet()):
            self.now, _, call = heapq.heappop(self.heap)
            call()
        self.finish()
        return self.events

    # -- time -------------------------------------------------------------------------------------------------------

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
        return caught_up and not leased and not self.queue and not self.waiting

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

    # -- consensus --------------------------------------------------------------------------------------------------

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
        self.queue.append(_Waiting(run, deliver))
        if len(self.queue) == 1:
            self.after(2_000, self.flush)

    def flush(self) -> None:
        batch, self.queue = self.queue, []
        if batch and self.leader is not None:
            self.commit(batch)

    def commit(self, batch: list[_Waiting]) -> None:
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

    def write(self, node: _Node, index: int) -> None:
        for each in range(node.durable + 1, index + 1):
            term, digest = self.log[each - 1]
            self.emit(Durable(t=self.now, node=node.name, index=each, term=term, digest=digest))
        node.durable = max(node.durable, index)

    def apply(self, node: _Node, index: int) -> None:
        for each in range(node.applied + 1, index + 1):
            term, digest = self.log[each - 1]
            self.emit(Applied(t=self.now, node=node.name, index=each, term=term, digest=digest))
            if self.chance(0.2):
                self.emit(StateDigest(t=self.now, node=node.name, index=each, state=self.digests[each]))
        node.applied = index

    def follow(self, node: _Node, life: int) -> None:
        if node.is_up and node.life == life:
            self.write(node, len(self.log))
            self.apply(node, len(self.log))

    # -- faults -----------------------------------------------------------------------------------------------------

    def fault(self) -> None:
        if self.is_healed:
            return
        if self.fault_rate and all(node.is_up for node in self.nodes.values()) and self.leader is not None:
            self.crash(self.random.choice([self.leader, *self.nodes.values()]))
        self.after(self.random.randint(200_000, 700_000), self.fault)

    def crash(self, node: _Node) -> None:
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

    def restart(self, node: _Node) -> None:
        node.is_up = True
        node.applied = self.random.randint(max(0, node.applied - 5), node.applied)
        self.emit(Started(t=self.now, node=node.name, index=node.applied))
        if self.leader is not None and len(self.log) - node.applied > 3 and self.chance(0.5):
            index = len(self.log)
            state, term = self.digests[index], self.log[index - 1][0]
            self.emit(Installed(t=self.now, node=node.name, index=index, term=term, state=state))
            node.durable, node.applied = max(node.durable, index), index
        self.after(self.random.randint(500, 30_000), partial(self.follow, node, node.life))

    # -- the leader's duties ----------------------------------------------------------------------------------------

    def keep_leases(self) -> None:
        if self.leader is None:
            return
        now_ms = max(self.state.now_ms, EPOCH_MS + self.now // 1_000 + self.clock_offset_ms)
        for name, job in list(self.state.jobs.items()):
            if job.token and job.token not in self.expiring:
                cause = self.cause_of_end(job, now_ms)
                if cause:
                    self.expiring.add(job.token)
                    self.propose(partial(self.state.expire, name, job.token, cause), _ignore)
            elif job.ended_ms and now_ms > job.ended_ms + 900 and self.chance(0.004):
                self.propose(partial(self.state.purge, name), _ignore)

    def cause_of_end(self, job: Job, now_ms: int) -> str:
        lasted_ms = now_ms - job.granted_ms
        if job.status == "cancelling" and now_ms > job.cancelled_ms + GRACE_MS:
            return "cancelled"
        if 0 < job.call.timeout_ms <= lasted_ms:
            return "timeout"
        return "worker_lost" if self.deadlines[job.token] < self.now and lasted_ms >= TTL_MS else ""

    # -- requests ---------------------------------------------------------------------------------------------------

    def ask(self, process: str, f: str, then: Then, *, node: str = "", **fields: Any) -> Invoke:
        self.count += 1
        node = node or self.random.choice(NODES)
        call = Invoke(t=self.now, process=process, op=self.count, f=f, node=node, **fields)
        self.emit(call)
        self.waiting[call.op] = then
        self.after(TIMEOUT_US, partial(self.reply, call, "info", {}))
        if not self.is_faulty():
            slow = self.is_faulty()
            self.after(self.random.randint(200, 3_000) + 200_000 * slow, partial(self.arrive, call))
        return call

    def arrive(self, call: Invoke) -> None:
        def deliver(result: Fields) -> None:
            shown = {"applied": len(self.log)} | result
            if not self.is_faulty():
                kind = "fail" if "error" in result else "ok"
                self.after(self.random.randint(200, 3_000), partial(self.reply, call, kind, shown))

        if self.leader is None or not self.nodes[call.node].is_up:
            self.after(500, partial(self.reply, call, "fail", {"error": "not_leader"}))
            return
        state = self.state
        match call.f:
            case "get":
                deliver(self.read(call))
            case "heartbeat":
                deliver(self.beat(call))
            case "lease":
                capacity = self.random.randint(1, 3)
                self.propose(partial(state.lease, call, capacity), deliver)
            case _:
                run = {"submit": state.submit, "outcome": state.outcome, "cancel": state.cancel}[call.f]
                self.propose(partial(run, call), deliver)

    def read(self, call: Invoke) -> Fields:
        try:
            job = self.state.find(call)
        except Refused as refused:
            return {"error": str(refused)}
        return {"revision": job.revision} | self.state.shown(call.job)

    def beat(self, call: Invoke) -> Fields:
        job = self.state.jobs.get(call.job)
        if job is None or job.token != call.token or call.token in self.expiring:
            return {"valid": False}
        self.deadlines[call.token] = self.now + TTL_US
        return {"valid": True, "cancel_requested": job.status == "cancelling"}

    def reply(self, call: Invoke, kind: Any, fields: Fields) -> None:
        then = self.waiting.pop(call.op, None)
        if then is None:
            return
        if kind == "fail":
            fields = {name: fields[name] for name in ("error", "applied") if name in fields}
        reply = Reply(t=self.now, process=call.process, op=call.op, type=kind, **fields)
        self.emit(reply)
        then(reply)

    # -- clients ----------------------------------------------------------------------------------------------------

    def client(self, process: str) -> None:
        if self.jobs_left <= 0:
            if not self.is_healed:
                self.heal()
            return

        def then(reply: Reply) -> None:
            again = process if reply.type != "info" else f"{process}'"
            self.after(self.random.randint(5_000, 150_000), partial(self.client, again))

        choice = self.random.random()
        if choice < 0.4 or not self.known:
            self.submit(process, then)
        elif choice < 0.85:
            call = self.random.choice(self.known)
            tenant = self.random.choice(TENANTS) if self.chance(0.1) else call.tenant
            self.ask(process, "get", then, tenant=tenant, job=call.job)
        else:
            call = self.random.choice(self.known)
            self.ask(process, "cancel", then, tenant=call.tenant, job=call.job)

    def submit(self, process: str, then: Then, *, node: str = "") -> None:
        def known(reply: Reply) -> None:
            if reply.type == "ok":
                self.known.append(replace(call, job=reply.job))
            then(reply)

        random = self.random
        if self.submitted and not node and self.chance(0.25):
            old = random.choice(self.submitted)
            body = old.body if self.chance(0.8) else "other"
            fields = {"tenant": old.tenant, "key": old.key, "body": body, "due_ms": old.due_ms}
            fields |= {"max_attempts": old.max_attempts, "timeout_ms": old.timeout_ms}
        else:
            self.jobs_left -= 1
            number = self.count
            due_ms = EPOCH_MS + self.now // 1_000 + random.randint(0, 800) if self.chance(0.3) else 0
            fields = {"tenant": random.choice(TENANTS), "body": f"b{number}", "due_ms": due_ms}
            fields |= {"key": f"k{number}" if self.chance(0.7) else "", "max_attempts": random.randint(1, 3)}
            fields |= {"timeout_ms": 400 if self.chance(0.1) else 0}
        call = self.ask(process, "submit", known, node=node, **fields)
        if call.key:
            self.submitted.append(call)

    def heal(self) -> None:
        """No more faults; when all are back, a probe at every node, and then the end."""
        self.is_healed = True
        if any(not node.is_up for node in self.nodes.values()) or self.leader is None:
            self.after(50_000, self.heal)
            return
        self.emit(Healed(t=self.now))
        for node in NODES:
            self.probe(node)

    def probe(self, node: str) -> None:
        """Submit at a node, and work there, until a job went its whole way through it."""
        if node not in self.served:
            self.submit(f"probe-{node}", _ignore, node=node)
            self.work(f"probe-{node}", node)
            self.after(100_000, partial(self.probe, node))

    # -- workers ----------------------------------------------------------------------------------------------------

    def work(self, worker: str, node: str = "") -> None:
        self.count += 1
        process = f"{worker}.{self.count}"

        def then(reply: Reply) -> None:
            for grant in reply.grants:
                _Attempt(self, worker, grant, call.t, node).begin()
            if not node:
                self.after(self.random.randint(10_000, 40_000 if reply.grants else 160_000), partial(self.work, worker))

        if not self.is_healed or node:
            call = self.ask(process, "lease", then, worker=worker, node=node)


class _Attempt:
    """One lease in the hands of a worker that keeps time."""

    def __init__(self, run: _Run, worker: str, grant: Granted, asked_at: int, node: str) -> None:
        self.run, self.worker, self.grant, self.node = run, worker, grant, node
        self.deadline = asked_at + TTL_US * 98 // 100
        self.is_working = False
        self.count = 0
        random = run.random
        self.stalls = not node and not run.is_healed and run.chance(0.12)
        long = TTL_US * 5 // 2 if run.chance(0.1) else 0
        self.length = random.randint(1_000, 200_000) + long
        outcomes = ("completed", "failed", "snoozed")
        self.outcome = "completed" if node else random.choices(outcomes, (70, 20, 10))[0]
        self.retryable = not (self.outcome == "failed" and run.chance(0.2))

    def begin(self) -> None:
        run = self.run
        if run.now >= self.deadline:
            return
        self.note("begin")
        self.is_working = True
        self.touch()
        self.watch()
        if self.stalls:
            run.after(TTL_US * 3 // 2, self.wake_up)
            return
        run.after(TTL_US // 3, self.beat)
        run.after(self.length, self.end)

    def note(self, phase: Any) -> None:
        grant = self.grant
        self.run.emit(
            Effect(
                t=self.run.now,
                phase=phase,
                job=grant.job,
                run=grant.run,
                attempt=grant.attempt,
                token=grant.token,
                worker=self.worker,
            )
        )

    def touch(self) -> None:
        """Write to something that checks fencing tokens."""
        received = self.run.received
        accepted = self.grant.token >= received.get(self.grant.job, 0)
        self.run.emit(Downstream(t=self.run.now, resource=self.grant.job, token=self.grant.token, accepted=accepted))
        if accepted:
            received[self.grant.job] = self.grant.token

    def stop(self) -> None:
        if self.is_working:
            self.is_working = False
            self.note("end")

    def watch(self) -> None:
        if self.is_working and self.run.now >= self.deadline:
            self.stop()
        elif self.is_working:
            self.run.after(self.deadline - self.run.now, self.watch)

    def wake_up(self) -> None:
        """A worker that stalled writes, and reports, much too late."""
        self.touch()
        self.report()

    def end(self) -> None:
        if self.is_working:
            self.stop()
            self.report()

    def beat(self) -> None:
        if not self.is_working:
            return

        def then(reply: Reply) -> None:
            if reply.type == "ok" and not reply.valid:
                self.stop()
            elif reply.type == "ok" and self.run.now < self.deadline:
                self.deadline = max(self.deadline, call.t + TTL_US * 98 // 100)
                if reply.cancel_requested and self.is_working and self.run.chance(0.5):
                    self.end()
            self.run.after(TTL_US // 3, self.beat)

        call = self.run.ask(
            f"{self.worker}.{self.grant.token}.b{self.next()}",
            "heartbeat",
            then,
            job=self.grant.job,
            run=self.grant.run,
            token=self.grant.token,
            worker=self.worker,
            node=self.node,
        )

    def report(self) -> None:
        def then(reply: Reply) -> None:
            if reply.type == "ok" and self.node:
                self.run.served.add(self.node)
            unsure = reply.type == "info" or reply.error == "not_leader"
            if (unsure or (reply.type == "ok" and self.run.chance(0.05))) and self.count < 8:
                self.run.after(60_000, self.report)

        self.run.ask(
            f"{self.worker}.{self.grant.token}.r{self.next()}",
            "outcome",
            then,
            job=self.grant.job,
            run=self.grant.run,
            token=self.grant.token,
            worker=self.worker,
            outcome=self.outcome,
            completion_id=f"done-{self.grant.token}",
            retryable=self.retryable,
            node=self.node,
        )

    def next(self) -> int:
        self.count += 1
        return self.count


def _ignore(_: object) -> None:
    pass
