"""Those who use the cluster: clients that submit, cancel and read, workers that run jobs, a receiver that checks tokens.

They are coroutines on a loop of their own, outside of the faults, and speak to nodes as the API's handlers do. Each
request is one operation of the history. What a client hears decides what is written down: a refusal that the system calls
definite is `fail`, an answer is `ok`, and everything else is `info`, after which the client is somebody else.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Awaitable, Callable, Coroutine
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

from chaos.checkers.history import Granted
from chaos.sim.node import Reset, SimulatedNode, Unreachable
from chaos.sim.recorder import OP_TAG, job_name
from raftsched.core.ids import FencingToken, JobId, TimeMs
from raftsched.core.job import AttemptEnd, Backoff, RetryPolicy
from raftsched.core.operations import CancelJob, Operation, RecordOutcome, SubmitJob
from raftsched.core.view import Cancelled, Grant, OutcomeRecorded, Refused, Result, Submitted
from raftsched.errors import InvariantBroken, NotFound, NotLeader, OutcomeUnknown, RaftschedError, Unavailable

if TYPE_CHECKING:
    from chaos.sim.world import World

T = TypeVar("T")
TENANT = "default"
QUEUES = ("red", "blue")
_PATIENCE_SECONDS = 1.5
_SHORT_PATIENCE_SECONDS = 0.3
_WAIT_SECONDS = 0.5


class Unknown(Exception):
    """Nobody knows what became of the request."""


class Refusal(Exception):
    """The request was definitely refused; `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class _PassedOn(Exception):
    """The endpoint knows of a leader elsewhere, who is asked instead."""

    def __init__(self, leader: str) -> None:
        super().__init__(leader)
        self.leader = leader


class Caller:
    """A client's identity in the history, and its way to the nodes."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self._name = name
        self._lives = 0
        self.node = world.random.choice(world.ids)
        """Where it asks; it follows hints to the leader."""

    @property
    def process(self) -> str:
        return f"{self._name}.{self._lives}"

    async def ask(
        self,
        f: str,
        handler: Callable[[SimulatedNode], Awaitable[T]],
        answer: Callable[[T], dict[str, Any]],
        *,
        op: int = 0,
        seconds: float = _PATIENCE_SECONDS,
        node: str = "",
        **fields: Any,
    ) -> T:
        """One operation: asked, answered, written down. Raises `Refusal` or `Unknown`."""
        recorder = self.world.recorder
        op = op or recorder.new_op()
        process, node = self.process, node or self._choose(f)
        recorder.invoke(process, op, f, node=node, **fields)
        try:
            if fields.get("stale"):
                result = await self.world.call(node, handler, seconds=seconds)
            else:
                result = await self._forwarded(node, handler, seconds)
            shown = answer(result)
        except (Unreachable, RaftschedError) as error:
            self.world.trace.say(process, f"op {op}: {error}")
            if isinstance(error, (OutcomeUnknown, InvariantBroken)):
                raise self._lost(op) from error
            code = error.code if isinstance(error, RaftschedError) else "unreachable"
            self._look_elsewhere(error)
            recorder.reply(process, op, "fail", error=code)
            raise Refusal(code) from error
        except Refusal as refusal:
            recorder.reply(process, op, "fail", error=refusal.code)
            raise
        except (Reset, TimeoutError) as error:
            self._look_elsewhere(error)
            raise self._lost(op) from error
        recorder.reply(process, op, "ok", **shown)
        if self.world.is_healed and shown.get("grants", True):
            self.world.served.setdefault(f, set()).add(node)
        return result

    async def _forwarded(self, node: str, handler: Callable[[SimulatedNode], Awaitable[T]], seconds: float) -> T:
        """Ask a node; where it knows of another leader, it passes the request on, once, as `api.forwarding` does."""

        async def at_endpoint(asked: SimulatedNode) -> T:
            leader = asked.leader_elsewhere
            if leader:
                raise _PassedOn(leader)
            return await handler(asked)

        async def at_leader(asked: SimulatedNode) -> T:
            if asked.leader_elsewhere:
                raise NotLeader(asked.leader_elsewhere)
            return await handler(asked)

        try:
            return await self.world.call(node, at_endpoint, seconds=seconds)
        except _PassedOn as passed:
            return await self.world.call(passed.leader, at_leader, seconds=seconds)

    def _choose(self, f: str) -> str:
        """The node it knows; once all is healed, one that has not served this yet: every node must, so each is asked.

        A node whose disk is lost for good stays down, and is asked no more often than any other.
        """
        world = self.world
        if not world.is_healed:
            return self.node
        served = world.served.get(f, set())
        waiting = [node for node in world.ids if node not in served and not world.hosts[node].is_lost]
        return world.random.choice(waiting or world.ids)

    def _lost(self, op: int) -> Unknown:
        self.world.recorder.reply(self.process, op, "info")
        self._lives += 1
        return Unknown()

    def _look_elsewhere(self, error: BaseException) -> None:
        if isinstance(error, NotLeader) and error.leader:
            self.node = error.leader
        elif not isinstance(error, RaftschedError) or isinstance(error, Unavailable):
            self.node = self.world.random.choice(self.world.ids)


def _or_refuse(result: Result) -> Result:
    if isinstance(result, Refused):
        raise Refusal(result.code.label)
    return result


class Workload:
    """Everybody who uses the cluster until `stop`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_calm = False
        self.is_over = False
        self.jobs: list[JobId] = []
        """The latest ones that somebody heard of."""
        self.receiver = Receiver(world)
        rates = world.rates
        for number in range(rates.client_count):
            self._begin(Client(self, f"c{number}").live(), number)
        for number in range(rates.worker_count):
            self._begin(WorkerProcess(self, f"w{number}").live(), number)
        for number, node in enumerate(world.ids):
            self._begin(Prober(self, f"p{number}", node).live(), number)

    def _begin(self, life: Coroutine[Any, Any, None], number: int) -> None:
        self.world.timeline.after(0.3 + 0.01 * number, lambda: self._start(life))

    def _start(self, life: Coroutine[Any, Any, None]) -> None:
        self.world.loop.create_task(life)

    def calm_down(self) -> None:
        """Nobody stalls or dies from now on."""
        self.is_calm = True

    def stop(self) -> None:
        self.is_over = True

    def met(self, job_id: JobId) -> None:
        self.jobs.append(job_id)
        if len(self.jobs) > 30:
            del self.jobs[:10]


class Submission:
    """What a client wants to run; its tries are equal, so they all carry the number of the first."""

    def __init__(self, world: World, op: int, key: str) -> None:
        random = world.random
        self.op = op
        self.key = key
        self.queue = random.choice(QUEUES)
        self.delay_ms = random.choice((0, 0, 0, 300, 1_500))
        self.max_attempts = random.choice((1, 3, 3, 5))
        self.timeout_ms = random.choice((0, 0, 0, 700))
        self.priority = random.choice((0, 5, 5, 9))
        self.payload = b'{"n":%d}' % op
        self.body = blake2b(b"%d" % op, digest_size=8).digest()

    def operation(self, node: SimulatedNode) -> SubmitJob:
        now_ms = node.now_ms()
        return SubmitJob(
            id=node.new_job_id(),
            tenant=TENANT,
            name="work",
            queue=self.queue,
            priority=self.priority,
            due_at_ms=TimeMs(now_ms + self.delay_ms if self.delay_ms else 0),
            payload=self.payload,
            max_attempts=self.max_attempts,
            timeout_ms=self.timeout_ms,
            retry=RetryPolicy(backoff=Backoff.FIXED, base_ms=200),
            idempotency_key=self.key,
            fingerprint=self.body,
            tags=(f"{OP_TAG}{self.op}",),
        )

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "tenant": TENANT,
            "key": self.key,
            "body": self.body.hex(),
            "due_ms": -1 if self.delay_ms else 0,
            "max_attempts": self.max_attempts,
            "timeout_ms": self.timeout_ms,
        }


async def _propose(node: SimulatedNode, operation: Operation) -> tuple[Result, int]:
    """Propose, as the API's handlers do; return the result and the index of the state that answers."""
    result = await node.propose(operation)
    return result, node.state.applied_index


class Client:
    """Submits, retries what is unknown under the same key, cancels, and reads anywhere."""

    def __init__(self, workload: Workload, name: str, *, node: str = "") -> None:
        self._workload = workload
        self._world = workload.world
        self._caller = Caller(workload.world, name)
        self._node = node
        self._name = name
        self._kept: list[Submission] = []

    async def live(self) -> None:
        random = self._world.random
        while not self._workload.is_over:
            await sleep(random.expovariate(1 / self._world.rates.think))
            step = random.choices(
                (self._submit, self._repeat, self._cancel, self._get, self._get_stale), (5, 1, 1, 2, 1)
            )
            try:
                await step[0]()
            except (Refusal, Unknown):
                continue

    async def _submit(self) -> None:
        op = self._world.recorder.new_op()
        if self._world.random.random() < 0.3:
            await self._try(Submission(self._world, op, ""), op)  # without a key a second try would be another job
            return
        submission = Submission(self._world, op, f"{self._name}-{op}")
        self._kept = [*self._kept[-5:], submission]
        for attempt in range(6):
            try:
                await self._try(submission, op if attempt == 0 else 0)
            except (Refusal, Unknown):
                continue
            return

    async def submit_once(self) -> None:
        """One try, at the client's own node, with little patience."""
        op = self._world.recorder.new_op()
        await self._try(Submission(self._world, op, ""), op, seconds=_SHORT_PATIENCE_SECONDS)

    async def _repeat(self) -> None:
        """The same submission once more, as after a crash of the client."""
        if self._kept:
            await self._try(self._world.random.choice(self._kept), 0)

    async def _try(self, submission: Submission, op: int, *, seconds: float = _PATIENCE_SECONDS) -> None:
        async def handler(node: SimulatedNode) -> tuple[Result, int]:
            return await _propose(node, submission.operation(node))

        def answer(found: tuple[Result, int]) -> dict[str, Any]:
            result = _or_refuse(found[0])
            assert isinstance(result, Submitted)
            self._workload.met(result.job.id)
            return {
                "job": job_name(result.job.id),
                "status": result.job.status.label,
                "attempt": result.job.attempt_number,
                "revision": result.job.revision,
                "applied": found[1],
                "duplicate": result.duplicate,
            }

        await self._caller.ask("submit", handler, answer, op=op, node=self._node, seconds=seconds, **submission.fields)

    async def _cancel(self) -> None:
        if not self._workload.jobs:
            return
        job_id = self._world.random.choice(self._workload.jobs[-8:])

        async def handler(node: SimulatedNode) -> tuple[Result, int]:
            return await _propose(node, CancelJob(job_id, TENANT))

        def answer(found: tuple[Result, int]) -> dict[str, Any]:
            result = _or_refuse(found[0])
            assert isinstance(result, Cancelled)
            return {
                "status": result.job.status.label,
                "attempt": result.job.attempt_number,
                "revision": result.job.revision,
                "applied": found[1],
            }

        await self._caller.ask("cancel", handler, answer, tenant=TENANT, job=job_name(job_id))

    async def _get(self) -> None:
        await self._read(stale=False)

    async def _get_stale(self) -> None:
        await self._read(stale=True)

    async def _read(self, *, stale: bool) -> None:
        if not self._workload.jobs:
            return
        random = self._world.random
        job_id = random.choice(self._workload.jobs)
        # Anybody may believe that it leads, so anybody is asked.
        node_id = random.choice(self._world.ids) if stale or random.random() < 0.5 else self._caller.node

        async def handler(node: SimulatedNode) -> dict[str, Any]:
            state = node.stale_state()[0] if stale else node.fresh_state()
            job = state.job(job_id)
            if job is None:
                raise NotFound("there is no such job")
            return {
                "status": job.status_at(node.now_ms()).label,
                "attempt": job.attempt_number,
                "revision": job.revision,
                "applied": state.applied_index,
            }

        await self._caller.ask(
            "get", handler, lambda shown: shown, node=node_id, tenant=TENANT, job=job_name(job_id), stale=stale
        )


class Prober:
    """Submits at its own node all the time: whoever else is down, some node can be asked, and in the end all must serve."""

    def __init__(self, workload: Workload, name: str, node: str) -> None:
        self._client = Client(workload, name, node=node)
        self._workload = workload

    async def live(self) -> None:
        rates = self._workload.world.rates
        while not self._workload.is_over:
            await sleep(0.4 if self._workload.is_calm else rates.probe)
            try:
                await self._client.submit_once()
            except (Refusal, Unknown):
                continue


class Receiver:
    """What jobs act on: it keeps the highest token of each resource, and refuses lower ones (G6)."""

    def __init__(self, world: World) -> None:
        self._recorder = world.recorder
        self._highest: dict[str, int] = {}

    def take(self, resource: str, token: int) -> None:
        accepted = token >= self._highest.get(resource, 0)
        if accepted:
            self._highest[resource] = token
        self._recorder.downstream(resource, token, accepted=accepted)


class WorkerProcess:
    """Leases jobs, keeps them by heartbeats, does them, reports; sometimes it stalls past its lease, or dies."""

    def __init__(self, workload: Workload, name: str) -> None:
        self._workload = workload
        self._world = workload.world
        self._number = 0
        self._base = name
        self._caller = Caller(workload.world, name)
        self._beats = Caller(workload.world, f"{name}-beat")

    @property
    def _name(self) -> str:
        return f"{self._base}-{self._number}"

    async def live(self) -> None:
        while not self._workload.is_over:
            try:
                grants = await self._lease()
            except (Refusal, Unknown):
                await sleep(0.05 + 0.1 * self._world.random.random())
                continue
            for granted in grants:
                if not await self._run(granted):
                    break

    async def _lease(self) -> list[tuple[JobId, Granted]]:
        random, worker = self._world.random, self._name
        queues = random.choice((QUEUES, QUEUES, ("red",), ("blue",)))
        capacity = random.choice((1, 1, 2, 4))

        async def handler(node: SimulatedNode) -> tuple[list[Grant], int]:
            grants = await node.leadership().lease(worker, queues, capacity, _WAIT_SECONDS)
            return grants, node.state.applied_index

        def answer(found: tuple[list[Grant], int]) -> dict[str, Any]:
            return {"grants": tuple(_granted(grant) for grant in found[0]), "applied": found[1]}

        grants, _ = await self._caller.ask("lease", handler, answer, worker=worker)
        for grant in grants:
            self._workload.met(grant.job.id)
        return [(grant.job.id, _granted(grant)) for grant in grants]

    async def _run(self, granted: tuple[JobId, Granted]) -> bool:
        """Do a job; False where the worker died of it, and with it all that it held."""
        job_id, grant = granted
        world, random, rates = self._world, self._world.random, self._world.rates
        worker = self._name
        world.recorder.effect("begin", grant, worker)
        is_calm = self._workload.is_calm
        if not is_calm and random.random() < rates.worker_death:
            await sleep(0.2 * random.random())
            world.recorder.effect("end", grant, worker)
            self._number += 1
            return False
        if not is_calm and random.random() < rates.worker_stall:
            await sleep(rates.lease * (1 + random.random()))
        keeps = True
        for _ in range(random.choice((0, 0, 1, 4))):
            await sleep(0.2 * rates.lease * random.random())
            keeps = await self._heartbeat(job_id, grant)
            if not keeps:
                break
        self._workload.receiver.take(grant.job, grant.token)
        world.recorder.effect("end", grant, worker)
        if keeps or random.random() < 0.3:
            await self._report(job_id, grant, worker)
        return True

    async def _heartbeat(self, job_id: JobId, grant: Granted) -> bool:
        """Whether the lease is still held, as far as anybody says."""
        worker = self._name

        async def handler(node: SimulatedNode) -> tuple[bool, bool, int]:
            runs = ((job_id, grant.run, FencingToken(grant.token)),)
            answer = node.leadership().heartbeat(worker, runs)[0]
            return answer.valid, answer.cancel_requested, node.state.applied_index

        def answer(found: tuple[bool, bool, int]) -> dict[str, Any]:
            return {"valid": found[0], "cancel_requested": found[1], "applied": found[2]}

        try:
            valid, cancelled, _ = await self._beats.ask(
                "heartbeat", handler, answer, job=grant.job, run=grant.run, token=grant.token, worker=worker
            )
        except (Refusal, Unknown):
            return True
        return valid and not cancelled

    async def _report(self, job_id: JobId, grant: Granted, worker: str) -> None:
        random = self._world.random
        outcome = random.choices(("completed", "failed", "snoozed"), (7, 2, 1))[0]
        operation = RecordOutcome(
            job_id=job_id,
            run_number=grant.run,
            token=FencingToken(grant.token),
            end=AttemptEnd[outcome.upper()],
            completion_id=f"{worker}-{grant.token}" if random.random() < 0.8 else "",
            result=b"{}" if outcome == "completed" else b"",
            retryable=random.random() < 0.8 if outcome == "failed" else True,
            delay_ms=random.choice((0, 200)) if outcome == "snoozed" else -1,
        )

        async def handler(node: SimulatedNode) -> tuple[Result, int]:
            return await _propose(node, operation)

        def answer(found: tuple[Result, int]) -> dict[str, Any]:
            result = _or_refuse(found[0])
            assert isinstance(result, OutcomeRecorded)
            return {
                "status": result.job.status.label,
                "attempt": result.job.attempt_number,
                "revision": result.job.revision,
                "applied": found[1],
            }

        fields: dict[str, Any] = {
            "job": grant.job,
            "run": grant.run,
            "token": grant.token,
            "worker": worker,
            "outcome": outcome,
            "completion_id": operation.completion_id,
            "retryable": operation.retryable,
        }
        for _ in range(5):
            try:
                await self._caller.ask("outcome", handler, answer, **fields)
            except Refusal as refusal:
                if refusal.code not in ("not_leader", "unavailable", "unreachable"):
                    return
            except Unknown:
                pass
            else:
                return
            await sleep(0.1 * random.random())


def _granted(grant: Grant) -> Granted:
    job = grant.job
    assert job.lease is not None
    return Granted(job_name(job.id), job.run_number, job.attempt_number, job.lease.token)
