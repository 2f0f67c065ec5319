"""Apply files of schedules: create, change and prune the schedules of a tenant, and report the changes.

The whole file is read before anything is proposed, so a mistake in one schedule leaves all unchanged. Each schedule is
then saved by its own operation: if a fault interrupts that, the file is sent again, and the rest is saved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from aiohttp import web
from msgspec.structs import replace

from raftsched import limits
from raftsched.api.access.principal import Principal, principal_of
from raftsched.api.access.requests import within
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.json_reply import json_response, time_text
from raftsched.api.http.proposals import answers_of, granted
from raftsched.api.http.routes import Route, change
from raftsched.api.json.decode import StructDecoder
from raftsched.api.schedules.amend import changes_between
from raftsched.api.schedules.documents import named_schedule, save_operation, schedule_document
from raftsched.api.schedules.save import MOVED, Condition, ScheduleSaver
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.schedules import ControlSchedule, SaveSchedule, ScheduleAction
from raftsched.core.records.ids import TENANT_DEFAULT, TimeMs
from raftsched.core.records.schedule import Schedule
from raftsched.core.state.results import Refused, ScheduleSaved
from raftsched.errors import Invalid
from raftsched.storage.reader import StateReader
from raftsched.wire.schedules import (
    SOURCE_DEFAULT,
    ApplyReply,
    ApplyRequest,
    ChangedDocument,
    ChangeDocument,
    ScheduleRequest,
)

_SLICE: Final = 20
"""Schedules examined before other tasks run: some milliseconds."""
_NO_SOURCE: Final = (
    f"source: prune deletes the schedules of the same source, and all files without one share {SOURCE_DEFAULT!r}; "
    "name your own source, such as your repository, and apply once without prune to move your schedules to it"
)


class _Save(NamedTuple):
    """A schedule of the file that is new or changed."""

    wanted: ScheduleRequest
    at: str
    operation: SaveSchedule


@dataclass(slots=True)
class _Plan:
    """The changes by a file."""

    source: str
    saves: list[_Save] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    changed: list[ChangedDocument[msgspec.Raw]] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    pruned: list[Schedule] = field(default_factory=list)

    def reply(self, *, dry_run: bool) -> ApplyReply:
        return ApplyReply(
            created=self.created,
            changed=self.changed,
            unchanged=self.unchanged,
            pruned=[schedule.name for schedule in self.pruned],
            dry_run=dry_run,
        )


class ScheduleFiles:
    """The route of files."""

    def __init__(self, backend: Backend, bodies: Bodies, saver: ScheduleSaver) -> None:
        self._backend = backend
        self._bodies = bodies
        self._saver = saver
        self._file = StructDecoder(ApplyRequest)
        self._schedule = StructDecoder(ScheduleRequest)

    def routes(self) -> tuple[Route, ...]:
        return (change(Access.SUBMIT, "PUT", "/schedules", self.apply_schedules, ApplyReply, body=ApplyRequest),)

    async def apply_schedules(self, request: web.Request) -> web.Response:
        """Create, change and prune a tenant's schedules by a file, or only report the changes (dry run)."""
        read_body, _ = self._file.read(await self._bodies.read_json(request))
        caller = principal_of(request)
        wanted = within(caller, read_body)
        plan = await self._planned(wanted, caller)
        if not wanted.dry_run:
            await self._carry_out(plan, caller)
        return json_response(plan.reply(dry_run=wanted.dry_run))

    async def _planned(self, wanted: ApplyRequest, caller: Principal) -> _Plan:
        tenant = wanted.tenant or TENANT_DEFAULT
        if wanted.prune and not wanted.schedules:
            raise Invalid("prune: a file without schedules would delete them all; delete them by name", field="prune")
        if wanted.prune and wanted.source is None:
            raise Invalid(_NO_SOURCE, field="source")
        plan = _Plan(wanted.source or SOURCE_DEFAULT)
        names: set[str] = set()
        for position, raw in enumerate(wanted.schedules):
            schedule = self._decoded(raw, tenant, names, f"schedules[{position}]")
            names.add(schedule.name)
            self._compare(schedule, caller, plan, f"schedules[{position}]")
            if position % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        if wanted.prune:
            plan.pruned = await self._others(tenant, plan.source, names)
            for other in plan.pruned:
                caller.require_within_queues(other.template.spec.queue, "prune")
        return plan

    def _decoded(self, raw: msgspec.Raw, tenant: str, names: set[str], at: str) -> ScheduleRequest:
        schedule = self._schedule.decode(raw, at=at)
        if schedule.tenant not in (None, tenant):
            raise Invalid(f"{at}.tenant: is not the tenant of the file, {tenant}", field=f"{at}.tenant")
        if schedule.name in names:
            raise Invalid(f"{at}.name: {schedule.name!a} is in the file twice", field=f"{at}.name")
        return replace(schedule, tenant=tenant)

    def _compare(self, wanted: ScheduleRequest, caller: Principal, plan: _Plan, at: str) -> None:
        state = self._backend.fresh_state()
        known = named_schedule(state, wanted.tenant or TENANT_DEFAULT, wanted.name)
        context = self._saver.context(caller, known)._replace(source=plan.source)
        operation = save_operation(state, wanted, context, at=at)
        if known is None:
            plan.created.append(operation.name)
        else:
            changes = list(_changes(state, known, operation))
            if not changes:
                plan.unchanged.append(known.name)
                return
            plan.changed.append(ChangedDocument(name=known.name, changes=changes))
        plan.saves.append(_Save(wanted, at, operation))

    async def _others(self, tenant: str, source: str, names: set[str]) -> list[Schedule]:
        """Return the other schedules of the same source, without `names`; raises `Invalid` if they are far too many."""
        others: list[Schedule] = []
        after = b""
        while True:
            state = self._backend.fresh_state()
            page = state.list_schedule_names(tenant, after=after, limit=_SLICE)
            schedules = (state.schedule(schedule_id) for _, schedule_id in page.items)
            others += [
                schedule
                for schedule in schedules
                if schedule is not None and schedule.source == source and schedule.name not in names
            ]
            if len(others) > limits.APPLY_SCHEDULES_MAX:
                fault = f"would delete more than {limits.APPLY_SCHEDULES_MAX} schedules"
                raise Invalid(f"prune: {fault}; is this the right tenant and source?", field="prune")
            if not page.next_cursor:
                return others
            after = page.next_cursor
            await asyncio.sleep(0)

    async def _carry_out(self, plan: _Plan, caller: Principal) -> None:
        """Propose all changes together; raises the first fault, after which some changes may be done."""
        propose = self._backend.propose
        saved = [propose(save.operation) for save in plan.saves]
        deleted = [
            propose(
                ControlSchedule(
                    schedule.id, schedule.tenant, ScheduleAction.DELETE, actor=caller.name, source=plan.source
                )
            )
            for schedule in plan.pruned
        ]
        answers = await answers_of([*saved, *deleted])
        for schedule, answer in zip(tuple(plan.pruned), answers[len(saved) :], strict=True):
            code = answer.code if isinstance(answer, Refused) else None
            if code is RejectCode.STALE_REVISION:  # another source has taken it over meanwhile
                plan.pruned.remove(schedule)
            elif code is not RejectCode.NOT_FOUND:
                granted(answer, ScheduleSaved)
        for save, answer in zip(plan.saves, answers, strict=False):
            if isinstance(answer, Refused) and answer.code in MOVED:
                await self._save_again(save, caller, plan.source)
            else:
                granted(answer, ScheduleSaved)

    async def _save_again(self, save: _Save, caller: Principal, source: str) -> None:
        """Save a schedule again that ran or was changed since it was read."""
        tenant, wanted = save.operation.tenant, save.wanted
        await self._saver.save(
            lambda state: (named_schedule(state, tenant, wanted.name), wanted),
            subject=(tenant, wanted.name),
            condition=Condition(),
            caller=caller,
            at=save.at,
            source=source,
        )


def _changes(state: StateReader, known: Schedule, operation: SaveSchedule) -> Iterator[ChangeDocument[msgspec.Raw]]:
    """Yield the changes of `known` by `operation`, including its pause and its source."""
    if known.fingerprint != operation.fingerprint:
        before = schedule_document(known, state.payload(known.id))
        yield from changes_between(before, schedule_document(operation, operation.payload))
    if known.source != operation.source:
        yield from changes_between({"source": known.source or None}, {"source": operation.source})
    paused_until_ms = known.pause_until_ms if known.paused else 0
    if operation.pause_until_ms and operation.pause_until_ms != paused_until_ms:
        before, after = {"pause_until": _time(paused_until_ms)}, {"pause_until": _time(operation.pause_until_ms)}
        yield from changes_between(before, after)


def _time(at_ms: int) -> str | None:
    return time_text(TimeMs(at_ms)) if at_ms else None
