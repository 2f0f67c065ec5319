"""Good histories by a tiny reference scheduler: everything a run can show, and nothing that breaks a promise.

Theory of operation. One object holds the state and the log, and a heap of callbacks is the time. Three nodes follow the
log at their own pace, crash, come back, install snapshots; leaders change, with an uncommitted entry left behind now and
then. Clients submit, ask, cancel, and try again; workers lease, work, beat, report, stall, and die. Requests and replies
are lost or late, so that their clients never learn the outcome. All is drawn from one seed.

The rules are in `histories_rules`, nodes and time in `histories_cluster`, workers in `histories_workers`; here are the
clients, and how requests travel.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from chaos.checkers.history.events import AnyEvent, Applied, Healed, Invoke, Reply
from tests.chaos.histories_cluster import EPOCH_MS, NODES, TTL_US, Cluster, digest_of, ignore
from tests.chaos.histories_rules import Fields, Refused
from tests.chaos.histories_workers import Attempt

TIMEOUT_US = 150_000
"""After this, a client gives up to wait, and never learns the outcome."""
TENANTS = ("red", "blue")

Then = Callable[[Reply], None]

__all__ = ["NODES", "good_history", "replay"]


def good_history(seed: int, *, jobs: int = 14, workers: int = 3) -> list[AnyEvent]:
    return Run(seed, jobs=jobs, workers=workers).run()


def replay(log: Sequence[Applied]) -> Iterator[str]:
    """The digest of the state after each entry."""
    state = ""
    for entry in log:
        state = digest_of(state, entry.digest)
        yield state


class Run(Cluster):
    """A cluster with clients and workers, from its start to a healed end."""

    def __init__(self, seed: int, *, jobs: int, workers: int) -> None:
        super().__init__(seed)
        self.jobs_left = jobs
        self.workers = workers
        self.waiting: dict[int, Then] = {}
        """Operation -> what its client goes on with."""
        self.submitted: list[Invoke] = []
        self.known: list[Invoke] = []
        """Submits with the job that came of them."""
        self.received: dict[str, int] = {}
        """The highest token that each fenced receiver has seen."""
        self.served: set[str] = set()
        """Nodes through which a job went its whole way after the heal."""

    def run(self) -> list[AnyEvent]:
        self.start()
        for number in range(4):
            self.after(5_000 * number, partial(self.client, f"c{number}"))
        for number in range(self.workers):
            self.after(7_000 * number, partial(self.work, f"w{number}"))
        while self.waiting or len(self.served) < len(NODES) or not self.is_quiet():
            self.now, _, call = heapq.heappop(self.heap)
            call()
        self.finish()
        return self.events

    # -- requests ------------------------------------------------------------------------------------------------------

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

    # -- clients -------------------------------------------------------------------------------------------------------

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
            self.submit(f"probe-{node}", ignore, node=node)
            self.work(f"probe-{node}", node)
            self.after(100_000, partial(self.probe, node))

    # -- workers -------------------------------------------------------------------------------------------------------

    def work(self, worker: str, node: str = "") -> None:
        self.count += 1
        process = f"{worker}.{self.count}"

        def then(reply: Reply) -> None:
            for grant in reply.grants:
                Attempt(self, worker, grant, call.t, node).begin()
            if not node:
                self.after(self.random.randint(10_000, 40_000 if reply.grants else 160_000), partial(self.work, worker))

        if not self.is_healed or node:
            call = self.ask(process, "lease", then, worker=worker, node=node)
