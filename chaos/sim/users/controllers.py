"""Control jobs: pause, resume, amend, requeue and cancel them, and submit such as few people do."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import Any

from msgspec.structs import replace

from chaos.sim.features import CHORE, FEATURE_QUEUES, TENANT
from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.record.log_changes import job_name
from chaos.sim.users.callers import Refusal, Unknown
from chaos.sim.users.clients import Client, Submission
from chaos.sim.users.feature_users import FeatureUser, Step
from chaos.sim.users.intents import RETRY, options_of
from chaos.sim.users.workload import Workload
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.operations.control import AmendJob, PauseJob, RequeueJob, ResumeJob
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import Condition, Dependency
from raftsched.core.records.spec import Hook, JobSpec, OnDependencyFailure, Options, SpecChanges

_KEYS = ("k1", "k1", "k2")
_UNIQUE = ("u1", "u2", "u3")


class SpecialSubmission(Submission):
    """A job with options: it depends on others, is unique, begins at most once, must start or end in time."""

    actor = "ops"

    def __init__(self, workload: Workload, op: int, key: str) -> None:
        super().__init__(workload.world, op, key)
        random = workload.world.random
        self.queue = random.choice(FEATURE_QUEUES)
        self.paused = random.random() < 0.05
        self.expires_ms = random.choice((0, 0, 0, 700, 2_000))
        self.deadline_ms = random.choice((0, 0, 0, 1_500, 4_000))
        self.unique = random.choice(_UNIQUE) if random.random() < 0.3 else ""
        parents = random.sample(workload.tied_jobs, min(len(workload.tied_jobs), random.choice((0, 0, 0, 1, 2))))
        self.depends_on = tuple(
            Dependency(parent, random.choices(tuple(Condition), (3, 1, 3))[0]) for parent in dict.fromkeys(parents)
        )
        self.options = Options(
            at_most_once=random.random() < 0.3,
            concurrency_key=random.choice(_KEYS) if random.random() < 0.5 else "",
            unique_key=unique_digest(self.unique),
            lost_workers_max=self.max_lost_workers,
            on_dependency_failure=random.choice(tuple(OnDependencyFailure)),
            **_hooks(random),
        )

    def operation(self, node: SimulatedNode) -> SubmitJob:
        now_ms = node.backend.now_ms()
        options = replace(
            self.options,
            expires_at_ms=TimeMs(now_ms + self.expires_ms) if self.expires_ms else None,
            deadline_ms=TimeMs(now_ms + self.deadline_ms) if self.deadline_ms else None,
        )
        plain = super().operation(node)
        spec = replace(plain.spec, options=options_of(options))
        return replace(plain, spec=spec, depends_on=self.depends_on, paused=self.paused)

    @property
    def fields(self) -> dict[str, Any]:
        unique = self.options.unique_key.hex()
        return super().fields | {"unique": unique, "once": self.options.at_most_once}


def _hooks(random: Random) -> dict[str, Any]:
    """The jobs that an end of the job submits: for none, one or both of them."""
    return {
        name: Hook(JobSpec(CHORE, random.choice(FEATURE_QUEUES), 5, random.choice((1, 2)), 0, RETRY))
        for name in ("on_failure", "on_success")
        if random.random() < 0.4
    }


def unique_digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest() if name else b""


class Controller(FeatureUser):
    """Picks jobs that somebody heard of, and changes their fate."""

    def __init__(self, workload: Workload, name: str) -> None:
        super().__init__(workload, name)
        self._client = Client(workload, f"{name}-submit")
        self._paused: dict[JobId, None] = {}
        self._options_share = self._world.rates.features.job_options

    def _steps(self) -> Sequence[tuple[Step, int]]:
        return (
            (self._submit, 8),
            (self._pause, 2),
            (self._resume, 2),
            (self._amend, 2),
            (self._requeue, 4),
            (self._cancel, 1),
        )

    def _tidy_steps(self) -> Sequence[Step]:
        return [self._resuming(job_id) for job_id in list(self._paused)[-5:]]

    async def _submit(self) -> None:
        special = self._random.random() < self._options_share
        op = self._world.recorder.new_op()
        key = f"{self._name}-{op}" if self._random.random() < 0.5 else ""
        if special:
            submission: Submission = SpecialSubmission(self._workload, op, key)
        else:
            submission = Submission(self._world, op, key)
            submission.queue = self._random.choice(FEATURE_QUEUES)
        for attempt in range(3 if key else 1):
            try:
                job_id = await self._client.submit(submission, op if attempt == 0 else 0)
            except Unknown:
                continue
            except Refusal:
                return
            self._workload.met_tied([job_id])
            return

    def _any_job(self) -> JobId:
        jobs = [*self._workload.tied_jobs[-25:], *self._workload.jobs[-4:]]
        if not jobs:
            raise Refusal("nobody has heard of a job")
        return self._random.choice(jobs)

    async def _pause(self) -> None:
        job_id = self._any_job()
        until_ms = TimeMs(self._world.wall_ms + 900 if self._random.random() < 0.5 else 0)
        operation = PauseJob(job_id, TENANT, until_ms=until_ms, actor="simulator")
        await self._propose("pause", lambda _: operation, job=job_name(job_id), until_ms=until_ms)
        self._paused[job_id] = None

    async def _resume(self) -> None:
        if self._paused:
            await self._resuming(self._random.choice(list(self._paused)))()

    def _resuming(self, job_id: JobId) -> Step:
        async def step() -> None:
            await self._propose("resume", lambda _: ResumeJob(job_id, TENANT), job=job_name(job_id))
            self._paused.pop(job_id, None)

        return step

    async def _amend(self) -> None:
        job_id = self._any_job()
        delay_ms = self._random.choice((None, None, 0, 400))
        priority, lost_workers_max = self._random.choice(((None, None), (3, 4)))
        queue = self._random.choice((None, *FEATURE_QUEUES))

        def make(node: SimulatedNode) -> AmendJob:
            due_at_ms = node.backend.now_ms() + delay_ms if delay_ms else delay_ms
            changes = SpecChanges(queue=queue, priority=priority, lost_workers_max=lost_workers_max)
            return AmendJob(job_id, TENANT, changes, due_at_ms, actor="simulator")

        await self._propose("amend", make, job=job_name(job_id))

    async def _requeue(self) -> None:
        job_id = self._any_job()
        await self._propose("requeue", lambda _: RequeueJob(job_id, TENANT, actor="simulator"), job=job_name(job_id))

    async def _cancel(self) -> None:
        await self._client.cancel(self._any_job(), force=self._random.random() < 0.5)
