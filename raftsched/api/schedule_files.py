"""Files of schedules: make the schedules of a tenant what the file says, and say what that changes.

The whole file is read before anything is proposed, so a mistake in one schedule leaves all as they are. Each schedule is
then saved by an operation of its own: a file that is cut short by a fault is sent again, and goes on.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import msgspec
from aiohttp import web
from msgspec.structs import replace

from raftsched import limits
from raftsched.api.backend import TENANT_DEFAULT, Backend
from raftsched.api.bodies import Bodies
from raftsched.api.callers import ACTOR_HEADER, actor_of
from raftsched.api.parsing import Fitter
from raftsched.api.proposing import answers_of, granted
from raftsched.api.rendering import json_response
from raftsched.api.replies.schedules import ApplyReply, ChangedReply
from raftsched.api.requests.schedules import ApplyRequest, ScheduleRequest
from raftsched.api.routes import BASE_PATH, Answered, Route
from raftsched.api.schedule_amending import changes_between
from raftsched.api.schedule_saving import Asked, named_schedule, save_operation, schedule_document
from raftsched.core.operations import Operation, RejectCode
from raftsched.core.schedule import Schedule, ScheduleId
from raftsched.core.schedule_operations import ControlSchedule, SaveSchedule, ScheduleAction
from raftsched.core.view import Refused, ScheduleSaved
from raftsched.errors import Invalid

_SLICE: Final = 20
"""Schedules read before other work gets its turn: some milliseconds."""


@dataclass(slots=True)
class _Plan:
    """What a file changes."""

    created: list[SaveSchedule] = field(default_factory=list)
    changed: list[tuple[SaveSchedule, ChangedReply]] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    pruned: list[Schedule] = field(default_factory=list)

    def reply(self, *, dry_run: bool) -> ApplyReply:
        return ApplyReply(
            created=[operation.name for operation in self.created],
            changed=[told for _, told in self.changed],
            unchanged=self.unchanged,
            pruned=[schedule.name for schedule in self.pruned],
            dry_run=dry_run,
        )


class ScheduleFiles:
    """The route of files."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._file = Fitter(ApplyRequest)
        self._schedule = Fitter(ScheduleRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="PUT",
                path=f"{BASE_PATH}/schedules",
                handler=self.apply_schedules,
                answered=Answered.BY_LEADER,
                body=ApplyRequest,
                headers=(ACTOR_HEADER,),
                reply=ApplyReply,
            ),
        )

    async def apply_schedules(self, request: web.Request) -> web.Response:
        """Make a tenant's schedules what the file says, or only say what that would change."""
        wanted, _ = self._file.read(await self._bodies.read_json(request))
        actor = actor_of(request)
        plan = await self._planned(wanted, actor)
        if not wanted.dry_run:
            await self._carry_out(plan, actor)
        return json_response(plan.reply(dry_run=wanted.dry_run))

    async def _planned(self, wanted: ApplyRequest, actor: str) -> _Plan:
        tenant = wanted.tenant or TENANT_DEFAULT
        if wanted.prune and not wanted.schedules:
            raise Invalid("prune: a file without schedules would delete them all; delete them by name", field="prune")
        plan = _Plan()
        names: set[str] = set()
        for position, raw in enumerate(wanted.schedules):
            schedule = self._fitted(raw, tenant, names, f"schedules[{position}]")
            names.add(schedule.name)
            self._compare(schedule, actor, plan, f"schedules[{position}]")
            if position % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        if wanted.prune:
            plan.pruned = await self._others(tenant, names)
        return plan

    def _fitted(self, raw: msgspec.Raw, tenant: str, names: set[str], at: str) -> ScheduleRequest:
        schedule = self._schedule.fit(raw, at=at)
        if schedule.tenant not in (None, tenant):
            raise Invalid(f"{at}.tenant: is not the tenant of the file, {tenant}", field=f"{at}.tenant")
        if schedule.name in names:
            raise Invalid(f"{at}.name: {schedule.name!a} stands in the file twice", field=f"{at}.name")
        return replace(schedule, tenant=tenant)

    def _compare(self, schedule: ScheduleRequest, actor: str, plan: _Plan, at: str) -> None:
        backend = self._backend
        state = backend.fresh_state()
        asked = Asked(new_id=ScheduleId(backend.new_job_id()), now_ms=backend.now_ms(), actor=actor)
        operation = save_operation(state, schedule, asked, at=at)
        known = named_schedule(state, operation.tenant, operation.name)
        if known is None:
            plan.created.append(operation)
        elif known.fingerprint == operation.fingerprint:
            plan.unchanged.append(known.name)
        else:
            before = schedule_document(known, state.payload(known.id))
            after = schedule_document(operation, operation.payload)
            changes = list(changes_between(before, after))
            plan.changed.append((operation, ChangedReply(name=known.name, changes=changes)))

    async def _others(self, tenant: str, names: set[str]) -> list[Schedule]:
        """Return the schedules of the tenant that are not among `names`; raises `Invalid` for far too many."""
        others: list[Schedule] = []
        after = b""
        while True:
            state = self._backend.fresh_state()
            page = state.list_schedule_names(tenant, after=after, limit=_SLICE)
            schedules = (state.schedule(schedule_id) for _, schedule_id in page.items)
            others += [schedule for schedule in schedules if schedule is not None and schedule.name not in names]
            if len(others) > limits.APPLY_SCHEDULES_MAX:
                told = f"would delete more than {limits.APPLY_SCHEDULES_MAX} schedules; is this the right tenant?"
                raise Invalid(f"prune: {told}", field="prune")
            if not page.next_cursor:
                return others
            after = page.next_cursor
            await asyncio.sleep(0)

    async def _carry_out(self, plan: _Plan, actor: str) -> None:
        """Propose all changes at once; raises the first fault, behind which some may be done."""
        saves: list[Operation] = [*plan.created, *(operation for operation, _ in plan.changed)]
        deletes: list[Operation] = [
            ControlSchedule(schedule.id, schedule.tenant, ScheduleAction.DELETE, actor=actor)
            for schedule in plan.pruned
        ]
        propose = self._backend.propose
        for answer in await answers_of([propose(operation) for operation in (*saves, *deletes)]):
            gone = isinstance(answer, Refused) and answer.code is RejectCode.NOT_FOUND
            if not gone:
                granted(answer, ScheduleSaved)
