"""Clients: they submit, cancel and read, and submit again what they never heard of."""

from __future__ import annotations

from asyncio import sleep
from hashlib import blake2b
from typing import Any

from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.record.log_changes import OP_TAG, job_name
from chaos.sim.users.callers import PATIENCE_SECONDS, Caller, Refusal, Unknown, or_refuse, propose
from chaos.sim.users.workload import Workload
from chaos.sim.world.world import World
from raftsched.api.http.actor import signed
from raftsched.core.operations.codec import CancelJob, SubmitJob
from raftsched.core.records.bounds import ANONYMOUS
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.retry import Backoff, RetryPolicy
from raftsched.core.records.spec import JobSpec, Options, normalized
from raftsched.core.state.results import Cancelled, Result, Submitted
from raftsched.errors import NotFound

QUEUES = ("red", "blue")
_SHORT_PATIENCE_SECONDS = 0.3


_LOST_WORKERS_MAX = (0, 0, 0, 1, 2, 5)
"""Lost workers that end a job; 0 = as its queue says. The number of the operation chooses, and no draw: worlds stay as
they were."""


class Submission:
    """A job that a client wants to run; its tries are equal, so they all carry the number of the first."""

    actor = ANONYMOUS
    """The client that submits."""

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
        self.region = world.rates.features.job_region(random)
        self.name = world.rates.features.job_name(random)
        self.tenant = world.rates.features.job_tenant(random)
        self.max_lost_workers = _LOST_WORKERS_MAX[op % len(_LOST_WORKERS_MAX)]

    def operation(self, node: SimulatedNode) -> SubmitJob:
        now_ms = node.backend.now_ms()
        return SubmitJob(
            id=node.backend.new_job_id(),
            tenant=self.tenant,
            spec=JobSpec(
                name=self.name,
                queue=self.queue,
                priority=self.priority,
                max_attempts=self.max_attempts,
                timeout_ms=self.timeout_ms,
                retry=RetryPolicy(backoff=Backoff.FIXED, base_ms=200),
                tags=(f"{OP_TAG}{self.op}",),
                region=self.region,
                options=normalized(Options(lost_workers_max=self.max_lost_workers)),
            ),
            due_at_ms=TimeMs(now_ms + self.delay_ms if self.delay_ms else 0),
            payload=self.payload,
            idempotency_key=self.key,
            fingerprint=self.body,
        )

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "tenant": self.tenant,
            "key": self.key,
            "body": self.body.hex(),
            "due_ms": -1 if self.delay_ms else 0,
            "max_attempts": self.max_attempts,
            "max_lost_workers": self.max_lost_workers,
            "timeout_ms": self.timeout_ms,
            "region": self.region,
        }


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
        """One try, at the client's own node, with short timeouts."""
        op = self._world.recorder.new_op()
        await self._try(Submission(self._world, op, ""), op, seconds=_SHORT_PATIENCE_SECONDS)

    async def _repeat(self) -> None:
        """The same submission once more, as after a crash of the client."""
        if self._kept:
            await self._try(self._world.random.choice(self._kept), 0)

    async def submit(self, submission: Submission, op: int) -> JobId:
        """One try of what somebody else wants; `op` is the number of its first try, 0 for a later one."""
        return await self._try(submission, op)

    async def _try(self, submission: Submission, op: int, *, seconds: float = PATIENCE_SECONDS) -> JobId:
        async def handler(node: SimulatedNode) -> tuple[Result, int]:
            return await propose(node, signed(submission.operation(node), submission.actor))

        def answer(found: tuple[Result, int]) -> dict[str, Any]:
            result = or_refuse(found[0])
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

        result, _ = await self._caller.ask(
            "submit", handler, answer, op=op, node=self._node, seconds=seconds, **submission.fields
        )
        assert isinstance(result, Submitted)
        return result.job.id

    async def _cancel(self) -> None:
        if not self._workload.jobs:
            return
        await self.cancel(self._world.random.choice(self._workload.jobs[-8:]))

    async def cancel(self, job_id: JobId, *, force: bool = False) -> None:
        """Cancel a job of one's tenant; here each client has all tenants in turn, and often it is another's."""
        tenant = self._world.rates.features.job_tenant(self._world.random)

        async def handler(node: SimulatedNode) -> tuple[Result, int]:
            return await propose(node, CancelJob(job_id, tenant, force=force))

        def answer(found: tuple[Result, int]) -> dict[str, Any]:
            result = or_refuse(found[0])
            assert isinstance(result, Cancelled)
            return {
                "status": result.job.status.label,
                "attempt": result.job.attempt_number,
                "revision": result.job.revision,
                "applied": found[1],
            }

        await self._caller.ask("cancel", handler, answer, tenant=tenant, job=job_name(job_id), force=force)

    async def _get(self) -> None:
        await self._read(stale=False)

    async def _get_stale(self) -> None:
        await self._read(stale=True)

    async def _read(self, *, stale: bool) -> None:
        if not self._workload.jobs:
            return
        random = self._world.random
        job_id = random.choice(self._workload.jobs)
        tenant = self._world.rates.features.job_tenant(random)
        # Anybody may believe that it leads, so anybody is asked.
        node_id = random.choice(self._world.ids) if stale or random.random() < 0.5 else self._caller.node

        async def handler(node: SimulatedNode) -> dict[str, Any]:
            state = node.backend.stale_state()[0] if stale else node.backend.fresh_state()
            job = state.job(job_id)
            if job is None or job.tenant != tenant:
                raise NotFound("there is no such job")
            return {
                "status": job.status_at(node.backend.now_ms()).label,
                "attempt": job.attempt_number,
                "revision": job.revision,
                "applied": state.applied_index,
            }

        await self._caller.ask(
            "get", handler, lambda shown: shown, node=node_id, tenant=tenant, job=job_name(job_id), stale=stale
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
