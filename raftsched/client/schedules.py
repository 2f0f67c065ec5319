"""Schedules: jobs that are submitted again and again, each known by its name within its tenant.

Saving is safe at every start of an application: sent again it changes nothing. All calls raise `NotFound` where there
is no such schedule, `Invalid` naming the field, `Rejected` where it is not legal now (nothing is changed then), and
`Unavailable` or `OutcomeUnknown` once the retries are used up. A schedule is named by its name or its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

import msgspec
from msgspec import UNSET, UnsetType

from raftsched.client.backfill import PATIENCE_SECONDS, PAUSE_SECONDS, BackfillWalk
from raftsched.client.blocking import Blocking, blocking, blocking_each
from raftsched.client.http.calls import IF_NONE_MATCH, Calls, given, if_match, part
from raftsched.client.records import Applied, Backfill, Firing, Outlook, ScheduleInfo
from raftsched.client.specs import JobSpec, Moment, job_text
from raftsched.core.cron.interval import period_text
from raftsched.wire.verbs import SCHEDULE

T = TypeVar("T")
_MILLISECOND: Final = timedelta(milliseconds=1)
Overlap = Literal["skip", "buffer_one", "buffer_all", "allow", "cancel_previous", "terminate_previous"]


class TimingOptions(TypedDict, total=False):
    """When: exactly one of `cron`, `every` and `at`, within limits."""

    cron: str | None
    """Five fields, or six with the seconds first; `@daily` and the like; `@every 90s`."""
    every: str | timedelta | None
    """A fixed grid, such as `90s` or `1h30m`, or a `timedelta`, from `start_at` on."""
    at: Moment | None
    """Once."""
    timezone: str | None
    """IANA name; UTC by default."""
    dst_gap: Literal["shift", "skip"] | None
    """A wall time that a clock change leaps over fires right after the gap, or not at all."""
    dst_overlap: Literal["first", "both"] | None
    """A wall time that is shown twice fires at the first, or at both."""
    start_at: Moment | None
    end_at: Moment | None
    calendar: Mapping[str, Any] | None
    """`skip_dates`, `only_dates`, `blackouts`, `business_days`, `timezone`."""


class ScheduleOptions(TimingOptions, total=False):
    """How it fires."""

    tenant: str | None
    jitter_seconds: float | None
    """Each run is due up to this much after its instant."""
    overlap: Overlap | None
    """What happens at an instant at which an earlier run is not finished; `skip` by default."""
    misfire: Literal["run_once", "skip", "run_all"] | None
    """What happens to instants that passed undecided, in an outage or a pause; `run_once` by default."""
    catchup_window_seconds: float | None
    """Missed instants older than this are skipped; a day by default."""
    max_firings: int | None
    pause_until: Moment | None


class ScheduleChanges(ScheduleOptions, total=False):
    """What to change of a schedule; None takes away what it had, what is left out stays as it is."""

    job: Mapping[str, Any]
    """What to change of the job that firings submit."""


class Schedules:
    """The schedules of a cluster."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    # -- saving -------------------------------------------------------------------------------------------------------

    async def save(
        self,
        name: str,
        job: JobSpec | Mapping[str, Any],
        *,
        create_only: bool = False,
        if_revision: int | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """Create the schedule `name`, or make the one of this name so, and return it; what is left out is the default.

        Each firing submits `job`, which has no times of its own. `create_only` refuses to change one that is there;
        `if_revision` to change one that somebody changed since that was read; that it ran in between does not count.
        """
        if create_only and if_revision is not None:
            raise ValueError("create_only wants that there is none, if_revision that there is one: give one of them")
        if not isinstance(job, JobSpec | Mapping):
            raise TypeError(f'job: expected a JobSpec or a mapping like {{"name": "report"}}, not {type(job).__name__}')
        headers = {IF_NONE_MATCH: "*"} if create_only else if_match(if_revision)
        document = _with_period(given(**options)) | {"name": name, "job": job_text(job)}
        return await self._calls.call(ScheduleInfo, "POST", "/schedules", document, headers=headers)

    async def update(
        self, name: str, *, if_revision: int | None = None, **changes: Unpack[ScheduleChanges]
    ) -> ScheduleInfo:
        """Change some of a schedule; a run that is under way goes on as it was.

        With `if_revision`, only if nobody changed it since that was read; raises `Rejected` with code `stale_revision`.
        """
        tenant, document = _split(changes)
        return await self._do("amend", ScheduleInfo, name, document, query=tenant, if_revision=if_revision)

    async def delete(self, name: str, *, tenant: str | None = None) -> None:
        """Delete a schedule and its ledger; jobs that it has made go on."""
        await self._do("delete", dict, name, query=given(tenant=tenant))

    async def apply(
        self,
        schedules: Sequence[Mapping[str, Any]],
        *,
        tenant: str | None = None,
        source: str | None = None,
        prune: bool = False,
        dry_run: bool = False,
    ) -> Applied:
        """Make the tenant's schedules what `schedules` say, in the form of the API, and return what that changed.

        `prune` deletes those that were applied from the same `source` and are not among them, and raises `Invalid` if none
        is given; `dry_run` changes nothing.
        """
        document = given(tenant=tenant, source=source) | {
            "schedules": list(schedules),
            "prune": prune,
            "dry_run": dry_run,
        }
        return await self._calls.call(Applied, "PUT", "/schedules", document)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, name: str, *, tenant: str | None = None) -> ScheduleInfo:
        """Read a schedule."""
        return await self._calls.call(ScheduleInfo, "GET", _path(name), query=given(tenant=tenant))

    def list(
        self,
        *,
        tenant: str | None = None,
        queue: str | None = None,
        paused: bool | None = None,
        source: str | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[ScheduleInfo]:
        """Yield the schedules that match all filters, by name."""
        query = given(tenant=tenant, queue=queue, paused=paused, source=source, limit=page_size)
        return self._calls.each(ScheduleInfo, "/schedules", "schedules", query)

    async def next(self, name: str, *, count: int = 10, tenant: str | None = None) -> Outlook:
        """Read the next instants, undecided ones of the past included."""
        return await self._calls.call(Outlook, "GET", f"{_path(name)}/next", query=given(count=count, tenant=tenant))

    def firings(
        self,
        name: str,
        *,
        kind: Literal["planned", "manual", "backfill"] | None = None,
        fired: bool | None = None,
        order: Literal["asc", "desc"] = "desc",
        tenant: str | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[Firing]:
        """Yield what was decided for each instant, the latest first; `fired`: only runs, or only what was skipped.

        The cluster keeps the latest 1,000, and those of backfills and of triggers for an instant for 30 days.
        """
        query = given(kind=kind, fired=fired, order=order, tenant=tenant, limit=page_size)
        return self._calls.each(Firing, f"{_path(name)}/firings", "firings", query)

    async def preview(
        self, *, after: Moment | None = None, count: int = 10, **timing: Unpack[TimingOptions]
    ) -> Outlook:
        """Show the next instants of a timing; nothing is stored."""
        document = _with_period(given(after=after, count=count, **timing))
        return await self._calls.call(Outlook, "POST", "/schedules/preview", document)

    # -- control ------------------------------------------------------------------------------------------------------

    async def pause(
        self,
        name: str,
        *,
        until: Moment | None = None,
        for_seconds: float | None = None,
        reason: str | None = None,
        tenant: str | None = None,
    ) -> ScheduleInfo:
        """Decide nothing until a time, or until it is resumed; the misfire policy then decides about what passed."""
        document = given(until=until, for_seconds=for_seconds, reason=reason)
        return await self._do("pause", ScheduleInfo, name, document, query=given(tenant=tenant))

    async def resume(self, name: str, *, tenant: str | None = None) -> ScheduleInfo:
        """Let it go on after a pause."""
        return await self._do("resume", ScheduleInfo, name, query=given(tenant=tenant))

    async def trigger(
        self,
        name: str,
        *,
        payload: Any = UNSET,
        overlap: Overlap | None = None,
        instant: Moment | None = None,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> Firing:
        """Run it by hand, beside its instants; `Firing.job_id` is the run, `Firing.reason` why there is none.

        By default it obeys the schedule's overlap policy; `allow` runs it beside whatever runs. Each call is a run of its
        own, however often it has to be sent, unless it gives the `idempotency_key` of an earlier one, or its `instant`,
        which is what it is a run for: it finds that one's run then, and raises `Rejected` with code
        `idempotency_mismatch` if it asks for something else. An instant is known for 30 days, a key as long as its job.
        """
        document = given(overlap=overlap, instant=instant)
        if not isinstance(payload, UnsetType):
            document["payload"] = payload
        return await self._do("trigger", Firing, name, document, query=given(tenant=tenant), key=idempotency_key)

    async def backfill(
        self,
        name: str,
        start: Moment,
        end: Moment,
        *,
        overlap: Literal["sequential", "allow"] | None = None,
        order: Literal["asc", "desc"] | None = None,
        per_minute: int | None = None,
        dry_run: bool = False,
        tenant: str | None = None,
        idempotency_key: str | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> Backfill:
        """Make runs for the instants from `start` up to, not including, `end`, whatever was decided for them then.

        It goes on to the end, by as many requests as that takes. At most 1,000 of its runs are unfinished at once: it
        waits for some to end, and gives up once for `patience_seconds` none has; `Backfill.remaining_count` says what
        is left then. The same call again goes on there: an instant has one run at most, as long as that is known, which
        is 30 days. What calls with the same `idempotency_key` have made, by default this one's requests, counts as made;
        what others have, as known.
        """
        document = {"from": start, "to": end, "dry_run": dry_run}
        document |= given(overlap=overlap, order=order, per_minute=per_minute)
        key = idempotency_key or self._calls.keys.next()
        walk = BackfillWalk(document)
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + patience_seconds
        while True:
            gone_on = walk.take(
                await self._do("backfill", dict[str, Any], name, walk.asked, query=given(tenant=tenant), key=key)
            )
            if walk.is_done or (not gone_on and clock() >= give_up_at):
                return msgspec.convert(walk.total(), Backfill)
            if gone_on:
                give_up_at = clock() + patience_seconds
            else:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _do(
        self, verb: str, kind: type[T], name: str, fields: Mapping[str, Any] | None = None, **options: Any
    ) -> T:
        return await self._calls.do(kind, SCHEDULE[verb], _path(name), fields, **options)


class BlockingSchedules(Blocking[Schedules]):
    """`Schedules` without `await`."""

    save = blocking(Schedules.save)
    update = blocking(Schedules.update)
    delete = blocking(Schedules.delete)
    apply = blocking(Schedules.apply)
    get = blocking(Schedules.get)
    list = blocking_each(Schedules.list)
    next = blocking(Schedules.next)
    firings = blocking_each(Schedules.firings)
    preview = blocking(Schedules.preview)
    pause = blocking(Schedules.pause)
    resume = blocking(Schedules.resume)
    trigger = blocking(Schedules.trigger)
    backfill = blocking(Schedules.backfill)


def _path(name: str) -> str:
    return f"/schedules/{part(name, field='name')}"


def _with_period(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, with a period as the cluster writes it."""
    every = fields.get("every")
    if not isinstance(every, timedelta):
        return fields
    if every <= timedelta(0) or every % _MILLISECOND:
        raise ValueError("every: must be a number of whole milliseconds, and more than none")
    return fields | {"every": period_text(every // _MILLISECOND)}


def _split(changes: ScheduleChanges) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tenant, which names the schedule, and what to change of it."""
    document = _with_period(dict(changes))
    return given(tenant=document.pop("tenant", None)), document
