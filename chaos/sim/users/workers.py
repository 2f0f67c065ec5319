"""Workers, which run jobs and sometimes stall, die or hang up, and what the jobs act on: a receiver that checks tokens."""

from __future__ import annotations

from asyncio import sleep
from contextlib import suppress
from typing import Any

from chaos.checkers.history.events import Granted
from chaos.sim.features import AMBER, FEATURE_QUEUES
from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.record.log_changes import job_name
from chaos.sim.users.callers import Caller, Refusal, Unknown, or_refuse, propose
from chaos.sim.users.clients import QUEUES
from chaos.sim.users.targets import CallExecutor, SentRequest
from chaos.sim.users.workload import Workload
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import RecordOutcome
from raftsched.core.operations.control import AppendLog, Progress, ReportProgress, StartRun
from raftsched.core.records.ids import FencingToken, JobId
from raftsched.core.records.job import AttemptEnd
from raftsched.core.state.results import Grant, OutcomeRecorded, Result

_WAIT_SECONDS = 0.5
_ASKED = (QUEUES, QUEUES, ("red",), ("blue",))
_ASKED_OF_ALL = ((*QUEUES, *FEATURE_QUEUES), (*FEATURE_QUEUES, "red"), FEATURE_QUEUES, (*QUEUES, AMBER))
_START_TRIES = 3
_ACCEPTED = 0.8
"""Part of the requests whose target answers 202; of the others the executor reports the outcome itself."""
_TALK = 0.1
"""Part of the jobs that say something of themselves."""


class WorkerProcess:
    """Leases jobs, keeps them by heartbeats, does them, reports; sometimes it stalls past its lease, or dies.

    It stays in `region` if it has one; else each of its lives may be in another. One that `knows_all` has a handler
    for every job, and is given jobs of all tenants; the others may know a part of the names only, or be given jobs of
    one tenant, in each of their lives another. One of a `tenant` is given jobs of that one only, one with `names` has
    handlers for those.
    """

    def __init__(
        self,
        workload: Workload,
        name: str,
        *,
        region: str = "",
        knows_all: bool = True,
        tenant: str = "",
        names: tuple[str, ...] = (),
    ) -> None:
        self._workload = workload
        self._world = workload.world
        self._number = 0
        self._base = name
        self._caller = Caller(workload.world, name)
        self._beats = Caller(workload.world, f"{name}-beat")
        self._home = region
        self._region = self._next_region()
        self._knows_all = knows_all
        self._only_names = names
        self._names = self._next_names()
        self._bound = tenant
        self._tenant = self._next_tenant()
        self._executor = CallExecutor(workload, name)

    @property
    def _name(self) -> str:
        return f"{self._base}-{self._number}"

    def _next_region(self) -> str:
        return self._home or self._world.rates.features.worker_region(self._world.random)

    def _next_names(self) -> tuple[str, ...]:
        return self._only_names or self._world.rates.features.worker_names(
            self._world.random, knows_all=self._knows_all
        )

    def _next_tenant(self) -> str:
        if self._bound or self._knows_all:
            return self._bound
        return self._world.rates.features.worker_tenant(self._world.random)

    async def live(self) -> None:
        while not self._workload.is_over:
            try:
                grants = await self._lease()
            except (Refusal, Unknown):
                await sleep(0.05 + 0.1 * self._world.random.random())
                continue
            for granted in grants:
                if not await self._begin(granted):
                    break
        await self._executor.close()

    async def lease_once(self) -> list[Grant]:
        """Ask until something is granted, and do nothing with it."""
        while True:
            with suppress(Refusal, Unknown):
                if grants := await self._lease():
                    return grants
            await sleep(0.05)

    async def _lease(self) -> list[Grant]:
        random, worker, region, names = self._world.random, self._name, self._region, self._names
        tenant = self._tenant
        queues = random.choice(_ASKED_OF_ALL if self._world.rates.features.is_on else _ASKED)
        capacity = random.choice((1, 1, 2, 4))

        async def handler(node: SimulatedNode) -> tuple[list[Grant], int]:
            leadership = node.backend.leadership()
            grants = await leadership.lease(
                worker, queues, capacity, _WAIT_SECONDS, region=region, names=names or None, tenant=tenant or None
            )
            return grants, node.state.applied_index

        def answer(found: tuple[list[Grant], int]) -> dict[str, Any]:
            return {"grants": tuple(granted_of(grant) for grant in found[0]), "applied": found[1]}

        grants, _ = await self._caller.ask(
            "lease", handler, answer, worker=worker, queues=queues, region=region, names=names, tenant=tenant
        )
        for grant in grants:
            self._workload.met(grant.job.id)
        return grants

    async def _begin(self, grant: Grant) -> bool:
        """Do a job, once its start is committed if it begins at most once; False if the worker died of it."""
        options = grant.job.spec.options
        if options is not None and options.call is not None:
            sent = await self._executor.start(grant.job.id, granted_of(grant), self._name)
            return sent is None or await self._run(grant.job.id, granted_of(grant), sent)
        if options is None or not options.at_most_once or await self._start(grant.job.id, granted_of(grant)):
            return await self._run(grant.job.id, granted_of(grant))
        return True

    async def _start(self, job_id: JobId, grant: Granted) -> bool:
        """Whether the job may begin: its start is committed for good."""
        operation = StartRun(job_id, grant.run, FencingToken(grant.token))
        for _ in range(_START_TRIES):
            try:
                await self._tell("start", operation, grant)
            except Refusal as refusal:
                if refusal.code not in ("not_leader", "unavailable", "unreachable"):
                    return False
            except Unknown:
                pass
            else:
                return True
            await sleep(0.1 * self._world.random.random())
        return False

    async def _tell(self, f: str, operation: Operation, grant: Granted) -> None:
        """Say something of a running attempt."""

        async def handler(node: SimulatedNode) -> tuple[Result, int]:
            return await propose(node, operation)

        def answer(found: tuple[Result, int]) -> dict[str, Any]:
            or_refuse(found[0])
            return {"applied": found[1]}

        await self._caller.ask(f, handler, answer, job=grant.job, run=grant.run, token=grant.token, worker=self._name)

    async def _speak(self, job_id: JobId, grant: Granted) -> None:
        """Progress, and a line of the log."""
        token = FencingToken(grant.token)
        report = ReportProgress((Progress(job_id, grant.run, token, b'{"done": 1}'),))
        with suppress(Refusal, Unknown):
            await self._tell("report", report, grant)
            await self._tell("log", AppendLog(job_id, grant.run, token, b"a line\n", sequence=1), grant)

    async def _run(self, job_id: JobId, grant: Granted, sent: SentRequest | None = None) -> bool:
        """Do a job; False if the worker died of it, and with it all that it held. `sent` if it is a request."""
        world, random, rates = self._world, self._world.random, self._world.rates
        worker = self._name
        world.recorder.effect("begin", grant, worker)
        if sent is not None:
            self._workload.sent(sent)
        is_calm = self._workload.is_calm
        if not is_calm and random.random() < rates.worker_death:
            await sleep(0.2 * random.random())
            world.recorder.effect("end", grant, worker)
            self._number += 1
            self._region, self._names, self._tenant = self._next_region(), self._next_names(), self._next_tenant()
            return False
        if not is_calm and random.random() < rates.worker_stall:
            await sleep(rates.lease * (1 + random.random()))
        if rates.features.is_on and random.random() < _TALK:
            await self._speak(job_id, grant)
        keeps = True
        for _ in range(random.choice((0, 0, 1, 4))):
            await sleep(0.2 * rates.lease * random.random())
            keeps = await self._heartbeat(job_id, grant)
            if not keeps:
                break
        self._workload.receiver.take(grant.job, grant.token)
        world.recorder.effect("end", grant, worker)
        if sent is not None and random.random() < _ACCEPTED:
            await self._executor.accepted(sent)
        elif keeps or random.random() < 0.3:
            await self._report(job_id, grant, worker)
        return True

    async def _heartbeat(self, job_id: JobId, grant: Granted) -> bool:
        """Whether the lease is still held, as far as anybody says."""
        worker = self._name

        async def handler(node: SimulatedNode) -> tuple[bool, bool, int]:
            runs = ((job_id, grant.run, FencingToken(grant.token)),)
            answer = (await node.backend.leadership().heartbeat(worker, runs))[0]
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
            return await propose(node, operation)

        def answer(found: tuple[Result, int]) -> dict[str, Any]:
            result = or_refuse(found[0])
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


def granted_of(grant: Grant) -> Granted:
    job = grant.job
    assert job.lease is not None
    return Granted(job_name(job.id), job.run_number, job.attempt_number, job.lease.token)
