"""Those who use schedules, workflows and limits of queues, and who meddle with jobs.

Once all is healed they leave everything as it should work: nothing of theirs stays paused, and limits are such that
queues make headway.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

from chaos.sim.features import FEATURE_QUEUES, TENANT
from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.users.callers import Caller, Refusal, Unknown, or_refuse, propose
from chaos.sim.users.intents import (
    ScheduleIntent,
    WorkflowIntent,
    by_hand,
    draw_limits,
    generous,
    named_schedule,
)
from chaos.sim.users.workload import Workload
from raftsched.core.operations.base import Operation
from raftsched.core.operations.queues import CancelWorkflow, PauseQueue
from raftsched.core.operations.schedules import ControlSchedule, ScheduleAction
from raftsched.core.operations.tenants import SaveTenant
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.schedule import FiringKind, Overlap, ScheduleId
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.results import Fired, Refused, Result, ScheduleSaved, WorkflowSaved
from raftsched.errors import NotFound

Step = Callable[[], Awaitable[None]]
_TIDY_TRIES = 40
_SAME_CALLS = 2
"""The number of requests for one run by hand, as by one who can't be sure: the second time finds what the first has made."""


class FeatureUser:
    """Does one step after another, and puts things in order once all is healed."""

    def __init__(self, workload: Workload, name: str) -> None:
        self._workload = workload
        self._world = workload.world
        self._random = workload.world.random
        self._caller = Caller(workload.world, name)
        self._name = name

    async def live(self) -> None:
        think = self._world.rates.features.think
        while not self._workload.is_over and not self._workload.is_calm:
            await sleep(self._random.expovariate(1 / think))
            steps, weights = zip(*self._steps(), strict=True)
            await self._try(self._random.choices(steps, weights)[0])
        for step in self._tidy_steps():
            for _ in range(_TIDY_TRIES):
                if self._workload.is_over or await self._try(step):
                    break
                await sleep(0.1)

    async def _try(self, step: Step) -> bool:
        """Whether it was answered, or is void."""
        try:
            await step()
        except Unknown:
            return False
        except Refusal as refusal:
            return refusal.code not in ("not_leader", "unavailable", "unreachable", "outcome_unknown")
        return True

    def _steps(self) -> Sequence[tuple[Step, int]]:
        raise NotImplementedError

    def _tidy_steps(self) -> Sequence[Step]:
        return ()

    async def _propose(self, f: str, make: Callable[[SimulatedNode], Operation], **fields: Any) -> Result:
        """Ask for one operation that is made at the node."""

        async def handler(node: SimulatedNode) -> tuple[Result, int]:
            return await propose(node, make(node))

        def answer(found: tuple[Result, int]) -> dict[str, Any]:
            or_refuse(found[0])
            return {"applied": found[1]}

        result, _ = await self._caller.ask(f, handler, answer, tenant=TENANT, **fields)
        return result


class ScheduleUser(FeatureUser):
    """Saves schedules and changes them, pauses, resumes and deletes them, and runs them by hand."""

    def __init__(self, workload: Workload, name: str) -> None:
        super().__init__(workload, name)
        count = self._world.rates.features.schedule_count
        self._names = [f"{name}-{number}" for number in range(count)]
        self._ids: dict[str, ScheduleId] = {}
        """Of those that it has heard of."""

    def _steps(self) -> Sequence[tuple[Step, int]]:
        if len(self._ids) < len(self._names):
            return ((self._save, 3), (self._pause, 1))
        return (
            (self._save, 2),
            (self._pause, 3),
            (self._resume, 4),
            (self._delete, 1),
            (self._trigger, 1),
            (self._backfill, 1),
        )

    def _tidy_steps(self) -> Sequence[Step]:
        return [self._resuming(schedule_id) for schedule_id in self._ids.values()]

    async def _save(self) -> None:
        name = self._random.choice([name for name in self._names if name not in self._ids] or self._names)
        intent = ScheduleIntent.draw(self._random, name, self._world.rates.features)
        result = await self._propose("save_schedule", intent.operation, subject=name)
        assert isinstance(result, ScheduleSaved)
        self._ids[name] = result.schedule.id

    async def _control(self, schedule_id: ScheduleId, action: ScheduleAction, *, until_ms: int = 0) -> None:
        operation = ControlSchedule(schedule_id, TENANT, action, until_ms=TimeMs(until_ms), actor="simulator")
        await self._propose(
            "control_schedule",
            lambda _: operation,
            subject=schedule_id.hex(),
            action=action.name.lower(),
            until_ms=until_ms,
        )

    async def _pause(self) -> None:
        if self._ids:
            until_ms = self._world.wall_ms + 1_500 if self._random.random() < 0.3 else 0
            await self._control(self._any_id(), ScheduleAction.PAUSE, until_ms=until_ms)

    async def _resume(self) -> None:
        await self._control(self._any_id(), ScheduleAction.RESUME)

    def _resuming(self, schedule_id: ScheduleId) -> Step:
        return lambda: self._control(schedule_id, ScheduleAction.RESUME)

    async def _delete(self) -> None:
        name = self._random.choice(list(self._ids))
        await self._control(self._ids[name], ScheduleAction.DELETE)
        del self._ids[name]

    async def _trigger(self) -> None:
        await self._run(FiringKind.MANUAL)

    async def _backfill(self) -> None:
        await self._run(FiringKind.BACKFILL)

    async def _run(self, kind: FiringKind) -> None:
        name = self._random.choice(list(self._ids))
        overlap = self._random.choice((Overlap.ALLOW, Overlap.BUFFER_ALL))
        call = self._random.randbytes(16)

        def make(node: SimulatedNode) -> Operation:
            schedule = named_schedule(node, name)
            if schedule is None:
                raise NotFound("there is no such schedule")
            return by_hand(node, schedule, kind, overlap, call)

        for _ in range(_SAME_CALLS):
            with suppress(Unknown):
                result = await self._propose("run_schedule", make, subject=self._ids[name].hex())
                assert isinstance(result, Fired)

    def _any_id(self) -> ScheduleId:
        return self._random.choice(list(self._ids.values()))


class WorkflowUser(FeatureUser):
    """Submits workflows, again where nobody knows, and cancels some."""

    def __init__(self, workload: Workload, name: str) -> None:
        super().__init__(workload, name)
        self._latest: list[WorkflowId] = []
        self._count = 0

    def _steps(self) -> Sequence[tuple[Step, int]]:
        return ((self._submit, 2), (self._cancel, 1), (self._rest, 3))

    def _tidy_steps(self) -> Sequence[Step]:
        return (self._submit,)

    async def _rest(self) -> None:
        """Else there were more jobs than workers can do."""

    async def _submit(self) -> None:
        self._count += 1
        intent = WorkflowIntent.draw(self._random, f"{self._name}-{self._count}", self._world.rates.features)
        for _ in range(3):
            try:
                await self._submit_once(intent)
            except (Unknown, Refusal):
                continue
            return

    async def _submit_once(self, intent: WorkflowIntent) -> None:
        async def handler(node: SimulatedNode) -> tuple[Result, list[JobId], int]:
            result: Result | None = None
            parts = intent.operations(node)
            for part in parts:
                result = await node.backend.propose(part)
                if isinstance(result, Refused) or (isinstance(result, WorkflowSaved) and result.duplicate):
                    break
            assert result is not None
            return result, [job.id for part in parts for job in part.jobs], node.state.applied_index

        def answer(found: tuple[Result, list[JobId], int]) -> dict[str, Any]:
            result = or_refuse(found[0])
            assert isinstance(result, WorkflowSaved)
            self._latest = [*self._latest[-3:], result.workflow.id]
            if not result.duplicate:
                self._workload.met_tied(found[1])
            return {"applied": found[2], "job": result.workflow.id.hex()}

        await self._caller.ask("submit_workflow", handler, answer, tenant=TENANT, key=intent.key)

    async def _cancel(self) -> None:
        if self._latest:
            workflow_id = self._random.choice(self._latest)
            operation = CancelWorkflow(workflow_id, TENANT, actor="simulator")
            await self._propose("cancel_workflow", lambda _: operation, subject=workflow_id.hex())


class Tuner(FeatureUser):
    """Changes the limits of queues, pauses and resumes them; and the quotas and weights of tenants other than `TENANT`."""

    def _steps(self) -> Sequence[tuple[Step, int]]:
        steps = ((self._configure, 2), (self._pause, 2), (self._resume, 3))
        return (*steps, (self._save_tenant, 2)) if self._world.rates.features.bound_workers else steps

    def _tidy_steps(self) -> Sequence[Step]:
        steps = [step for queue in FEATURE_QUEUES for step in (self._resuming(queue), self._easing(queue))]
        return [*steps, *map(self._saving, map(SaveTenant, self._world.rates.features.bound_workers, repeat(0)))]

    async def _save_tenant(self) -> None:
        name = self._random.choice(self._world.rates.features.bound_workers)
        quota, weight = self._random.choice((0, 2, 10)), self._random.choice((0, 1, 5))
        await self._saving(SaveTenant(name, unfinished_jobs_max=quota, weight=weight, actor="simulator"))()

    def _saving(self, operation: SaveTenant) -> Step:
        async def step() -> None:
            await self._propose("save_tenant", lambda _: operation, subject=operation.name)

        return step

    async def _configure(self) -> None:
        operation = draw_limits(self._random, self._any_queue())
        await self._propose("configure_queue", lambda _: operation, subject=operation.name)

    def _easing(self, queue: str) -> Step:
        async def step() -> None:
            await self._propose("configure_queue", lambda _: generous(queue), subject=queue)

        return step

    async def _pause(self) -> None:
        queue = self._any_queue()
        until_ms = TimeMs(self._world.wall_ms + 800 if self._random.random() < 0.4 else 0)
        operation = PauseQueue(queue, paused=True, until_ms=until_ms, actor="simulator")
        await self._propose("pause_queue", lambda _: operation, subject=queue, until_ms=until_ms)

    async def _resume(self) -> None:
        await self._resuming(self._any_queue())()

    def _resuming(self, queue: str) -> Step:
        async def step() -> None:
            operation = PauseQueue(queue, paused=False, actor="simulator")
            await self._propose("resume_queue", lambda _: operation, subject=queue)

        return step

    def _any_queue(self) -> str:
        return self._random.choice(FEATURE_QUEUES)
