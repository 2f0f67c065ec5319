"""Backfill a schedule: make runs for past fire times, in few operations; a repeated request has no second effect.

Each fire time has one ledger entry for all backfills, so decisions of earlier requests are kept. The entry names its
request by the idempotency key. So a request repeated after a lost reply counts its first runs as its own, and
concurrent requests each count their own. A request stops if too many runs of the schedule's backfills are unfinished,
or if its time is over; it reports how much remains, and continues when it is sent again. Runs are proposed in their
order: a sequential one waits for the one before, and the others have rising ids, by which jobs with equal due times are
dispatched.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from aiohttp import web

from raftsched import limits
from raftsched.api.access.requests import query_in
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.idempotency_key import key_of
from raftsched.api.http.json_reply import id_text, json_response, time_or_none, time_text
from raftsched.api.http.proposals import propose
from raftsched.api.http.routes import Route, verb_route
from raftsched.api.jobs.convert import digest_of
from raftsched.api.json.decode import StructDecoder
from raftsched.api.json.times import moment_ms
from raftsched.api.schedules.reply import changed_schedule
from raftsched.core.operations.schedules import Decision, RunSchedule
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.schedule import Firing, FiringKind, Overlap, Schedule
from raftsched.core.schedules.fire import UNDECIDED
from raftsched.core.state.results import Fired
from raftsched.errors import Invalid
from raftsched.leader.schedules.fire_times import TimingFireTimes, fire_times_of, grid_period_ms
from raftsched.wire.firings import BackfillItemDocument, BackfillReply, BackfillRequest
from raftsched.wire.schedules import TenantQuery
from raftsched.wire.verbs import SCHEDULE

_SLICE: Final = 200
"""Fire times examined before other tasks run."""
_SECONDS_MAX: Final = 4.0
"""Time for one request; a node that forwarded it gives up after some 10 s."""
_NO_TIME: Final = TimeMs(0)
_NO_JOB: Final = JobId(b"")
_OVERLAPS: Final = {"sequential": Overlap.BUFFER_ALL, "allow": Overlap.ALLOW}


@dataclass(slots=True)
class _Item:
    """A fire time, and the decision for it."""

    fire_time_ms: TimeMs
    action: Literal["run", "skip", "known"] = "run"
    reason: str = ""
    due_at_ms: TimeMs = _NO_TIME
    job_id: JobId = _NO_JOB
    planned: Literal["fired", "skipped"] | None = None
    decided: bool = False

    def reply(self) -> BackfillItemDocument[str]:
        return BackfillItemDocument(
            instant=time_text(self.fire_time_ms),
            action=self.action,
            run_at=time_or_none(self.due_at_ms),
            job_id=id_text(self.job_id),
            reason=self.reason or None,
            planned=self.planned,
        )


class _Ledger:
    """The decisions for a schedule's fire times that are still kept."""

    def __init__(self, call: bytes) -> None:
        self._call: Final = call
        self._planned: Final[list[Firing]] = []
        self._backfilled: Final[dict[TimeMs, Firing]] = {}

    def add(self, lines: Sequence[Firing]) -> None:
        """Add entries, in the order of their fire times."""
        for line in lines:
            if line.kind is FiringKind.PLANNED:
                self._planned.append(line)
            elif line.kind is FiringKind.BACKFILL and line.reason not in UNDECIDED:
                self._backfilled[line.fire_time_ms] = line

    def judge(self, item: _Item, fire_times: TimingFireTimes) -> None:
        """Set the action on a fire time, and the schedule's former decision for it."""
        behind = bisect_right(self._planned, item.fire_time_ms, key=lambda line: line.fire_time_ms)
        line = self._planned[behind - 1] if behind else None
        if line is not None and item.fire_time_ms <= max(line.fire_time_ms, line.last_fire_time_ms):
            item.planned = "fired" if line.job_id else "skipped"
        known = self._backfilled.get(item.fire_time_ms)
        if known is not None:
            _settle(item, known, self._call)
        elif reason := fire_times.skipped_by_calendar(item.fire_time_ms):
            item.action, item.reason = "skip", reason


class Backfills:
    """The route of backfills."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._request = StructDecoder(BackfillRequest)

    def routes(self) -> tuple[Route, ...]:
        return (verb_route(Access.OPERATE, SCHEDULE["backfill"], self.backfill_schedule),)

    async def backfill_schedule(self, request: web.Request) -> web.Response:
        """Make runs for past fire times, or only report them (dry run); a repeated request continues."""
        wanted, _ = self._request.read(await self._bodies.read_json(request))
        tenant = query_in(request, TenantQuery).tenant
        schedule = changed_schedule(self._backend.fresh_state(), request, tenant)
        key = key_of(request, wanted.idempotency_key)
        call = digest_of(key) if key and not wanted.dry_run else self._backend.new_job_id()
        items = await self._planned(schedule, wanted, call)
        if not wanted.dry_run:
            await self._carry_out(schedule, wanted, items, call, actor_of(request))
        return json_response(_reply(wanted, items, room=limits.SCHEDULE_ACTIVE_MAX - len(schedule.backfilling)))

    async def _planned(self, schedule: Schedule, wanted: BackfillRequest, call: bytes) -> list[_Item]:
        """Return every fire time of the range with its action, in the order of the runs."""
        now_ms = self._backend.now_ms()
        from_ms, to_ms = moment_ms(wanted.from_, "from"), moment_ms(wanted.to, "to")
        if not from_ms < to_ms <= now_ms:
            fault = "must be later than from" if to_ms <= now_ms else "must not be later than now"
            raise Invalid(f"to: {fault}", field="to")
        _check_range(schedule, from_ms, to_ms)
        fire_times = fire_times_of(schedule.timing, from_ms=schedule.created_at_ms)
        items = [_Item(at_ms) async for at_ms in _between(fire_times, from_ms, to_ms)]
        if wanted.order == "desc":
            items.reverse()
        ledger = await self._ledger(schedule, to_ms, call)
        first_ms = self._first_due_ms(schedule, wanted, now_ms)
        run_count = 0
        for number, item in enumerate(items):
            ledger.judge(item, fire_times)
            if item.action == "run" and not item.decided:
                item.due_at_ms = _due_at_ms(wanted, first_ms, run_count)
                run_count += 1
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        return items

    def _first_due_ms(self, schedule: Schedule, wanted: BackfillRequest, now_ms: int) -> int:
        """Return the due time of the first run; spread runs follow those of an earlier part of the backfill."""
        if not (wanted.per_minute and schedule.backfilling):
            return now_ms
        state, _ = self._backend.stale_state()
        last = state.job(schedule.backfilling[-1])
        return now_ms if last is None else max(now_ms, last.run_at_ms + 60_000 // wanted.per_minute)

    async def _ledger(self, schedule: Schedule, to_ms: TimeMs, call: bytes) -> _Ledger:
        """Read the decisions up to a time, page by page."""
        ledger = _Ledger(call)
        last: Firing | None = None
        while True:
            state, _ = self._backend.stale_state()
            lines = state.firings(schedule.id, after=last, until_ms=to_ms, limit=limits.SCAN_ROWS_MAX)
            ledger.add(lines)
            if len(lines) < limits.SCAN_ROWS_MAX:
                return ledger
            last = lines[-1]
            await asyncio.sleep(0)

    async def _carry_out(
        self, schedule: Schedule, wanted: BackfillRequest, items: list[_Item], call: bytes, actor: str
    ) -> None:
        """Propose the open decisions, part by part, until a limit of runs or time is reached."""
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + _SECONDS_MAX
        for part in _parts([item for item in items if not item.decided]):
            decisions = tuple(self._decision(item) for item in part)
            operation = RunSchedule(
                schedule.id,
                schedule.tenant,
                FiringKind.BACKFILL,
                decisions,
                _OVERLAPS[wanted.overlap],
                actor=actor,
                call=call,
            )
            fired = await propose(self._backend, operation, Fired)
            for item, firing in zip(part, fired.firings, strict=True):
                _settle(item, firing, call)
            if any(not item.decided for item in part) or clock() > give_up_at:
                return

    def _decision(self, item: _Item) -> Decision:
        if item.action == "skip":
            return Decision(item.fire_time_ms, reason=item.reason)
        return Decision(item.fire_time_ms, self._backend.new_job_id(), item.due_at_ms)


def _check_range(schedule: Schedule, from_ms: TimeMs, to_ms: TimeMs) -> None:
    """Raise `Invalid` for a range outside the limits of the schedule, which has no fire times there."""
    timing = schedule.timing
    begins_ms = timing.begins_ms(schedule.created_at_ms if grid_period_ms(timing) else 0)
    if to_ms <= begins_ms:
        origin = "its start_at" if timing.start_at_ms is not None else "as it has no start_at"
        start = f"starts at {time_text(begins_ms)}, {origin}"
        raise Invalid(f"to: the range ends before the schedule {start}; it has no fire times there", field="to")
    if timing.end_at_ms is not None and from_ms > timing.end_at_ms:
        end = f"{time_text(timing.end_at_ms)}, its end_at"
        raise Invalid(
            f"from: the range starts after the schedule ends at {end}; it has no fire times there", field="from"
        )


async def _between(fire_times: TimingFireTimes, from_ms: int, to_ms: int) -> AsyncIterator[TimeMs]:
    """Yield the fire times from `from_ms` to `to_ms` (exclusive); raises `Invalid` if they are too many."""
    count = 0
    at_ms = fire_times.next_after(from_ms - 1)
    while at_ms is not None and at_ms < to_ms:
        if count == limits.BACKFILL_RUNS_MAX:
            raise Invalid(f"to: the range has more than {limits.BACKFILL_RUNS_MAX} fire times; split it", field="to")
        yield TimeMs(at_ms)
        count += 1
        if count % _SLICE == 0:
            await asyncio.sleep(0)
        at_ms = fire_times.next_after(at_ms)


def _due_at_ms(wanted: BackfillRequest, first_ms: int, run_count: int) -> TimeMs:
    """Return the due time of the run with `run_count` others before it."""
    return TimeMs(first_ms + (run_count * 60_000 // wanted.per_minute if wanted.per_minute else 0))


def _parts(items: list[_Item]) -> Iterator[list[_Item]]:
    for start in range(0, len(items), limits.DECISIONS_MAX):
        yield items[start : start + limits.DECISIONS_MAX]


def _settle(item: _Item, firing: Firing, call: bytes) -> None:
    """Take over a decision of `call` or of another one; a fire time that hit a limit or quota stays undecided."""
    item.decided = firing.reason not in UNDECIDED
    if not item.decided:
        return
    item.job_id, item.reason = firing.job_id, firing.reason
    if firing.call != call:
        item.action, item.due_at_ms = "known", _NO_TIME
    elif not firing.job_id:
        item.action, item.due_at_ms = "skip", _NO_TIME


def _reply(wanted: BackfillRequest, items: list[_Item], *, room: int) -> BackfillReply:
    runs = [item for item in items if item.action == "run"]
    made = min(len(runs), max(0, room)) if wanted.dry_run else sum(item.decided for item in runs)
    skips = [item for item in items if item.action == "skip"]
    skipped = len(skips) if wanted.dry_run else sum(item.decided for item in skips)
    return BackfillReply(
        dry_run=wanted.dry_run,
        run_count=made,
        skipped_count=skipped,
        known_count=sum(item.action == "known" for item in items),
        remaining_count=len(runs) - made + len(skips) - skipped,
        next_instant=None
        if wanted.dry_run
        else next((time_text(each.fire_time_ms) for each in items if not each.decided), None),
        instants=[item.reply() for item in items],
    )
