"""Save, read and control schedules, each identified by its name within its tenant.

Saving is safe at every start of an application: a repeated save changes nothing. All calls raise `NotFound` for an
unknown schedule, `Invalid` naming the field, `Rejected` if the change is not legal now (then nothing is changed), and
`Unavailable` or `OutcomeUnknown` once the retries are used up. Calls take a schedule's name or its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

import msgspec
from msgspec import UNSET, UnsetType

from raftsched.client.backfill import PATIENCE_SECONDS, PAUSE_SECONDS, BackfillProgress
from raftsched.client.blocking import Blocking, blocking, blocking_each
from raftsched.client.http.calls import IF_NONE_MATCH, Calls, given, if_match, part
from raftsched.client.records import Applied, Backfill, Firing, Preview, ScheduleInfo
from raftsched.client.specs import JobSpec, Moment, job_text
from raftsched.core.cron.interval import period_text
from raftsched.wire.verbs import SCHEDULE

T = TypeVar("T")
_MILLISECOND: Final = timedelta(milliseconds=1)
Overlap = Literal["skip", "buffer_one", "buffer_all", "allow", "cancel_previous", "terminate_previous"]


class TimingOptions(TypedDict, total=False):
    """A timing: exactly one of `cron`, `every` and `at`, with limits."""

    cron: str | None
    """Five fields, or six with the seconds first; `@daily` and similar; `@every 90s`."""
    every: str | timedelta | None
    """A fixed interval, such as `90s` or `1h30m`, or a `timedelta`, counted from `start_at`."""
    at: Moment | None
    """A single fire time."""
    timezone: str | None
    """IANA name; UTC by default."""
    dst_gap: Literal["shift", "skip"] | None
    """A wall time that a clock change skips fires right after the gap, or not at all."""
    dst_overlap: Literal["first", "both"] | None
    """A wall time that occurs twice fires at the first, or at both."""
    start_at: Moment | None
    end_at: Moment | None
    calendar: Mapping[str, Any] | None
    """`skip_dates`, `only_dates`, `blackouts`, `business_days`, `timezone`."""


class ScheduleOptions(TimingOptions, total=False):
    """The options of a schedule besides its name and job."""

    tenant: str | None
    jitter_seconds: float | None
    """Each run is due at most this long after its fire time."""
    overlap: Overlap | None
    """The action at a fire time if an earlier run is not finished; `skip` by default."""
    misfire: Literal["run_once", "skip", "run_all"] | None
    """The runs for fire times that passed undecided, in an outage or a pause; `run_once` by default."""
    catchup_window_seconds: float | None
    """Misfires older than this are skipped; a day by default."""
    max_firings: int | None
    pause_until: Moment | None
    description: str | None
    """A text for people: the purpose of the schedule."""
    owner: str | None
    """The name or e-mail address of the person or team to ask."""
    labels: Mapping[str, str] | None
    """Names and texts by which schedules are found, as `{"team": "shop"}`."""
    parameters: Sequence[Mapping[str, Any]] | None
    """Values that its runs get: each with `name`, and `type`, `choices`, `default`, `required`, `description`."""
    expect_success_within_seconds: float | None
    """The event `missed` happens if no run succeeds for this long."""
    late_after_seconds: float | None
    """The event `late` happens if a run starts this long after its fire time."""
    notify: Sequence[Mapping[str, Any]] | None
    """Messages about its events: each with `on`, and one of `webhook`, `slack`, `email` and `job`."""


class ScheduleChanges(ScheduleOptions, total=False):
    """Changes of a schedule. None removes a value; omitted fields stay as they are."""

    job: Mapping[str, Any]
    """Changes of the job that it submits."""


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
        """Create or replace the schedule `name`, and return it; omitted options have their defaults.

        It submits `job` at each fire time; `job` has no times of its own. `create_only` rejects the save if the
        schedule exists. `if_revision` rejects it if a user changed the schedule since that revision; runs do not count.
        """
        if create_only and if_revision is not None:
            raise ValueError("create_only and if_revision exclude each other: give one of them")
        if not isinstance(job, JobSpec | Mapping):
            raise TypeError(f'job: expected a JobSpec or a mapping like {{"name": "report"}}, not {type(job).__name__}')
        headers = {IF_NONE_MATCH: "*"} if create_only else if_match(if_revision)
        document = _with_period(given(**options)) | {"name": name, "job": job_text(job)}
        return await self._calls.call(ScheduleInfo, "POST", "/schedules", document, headers=headers)

    async def update(
        self, name: str, *, if_revision: int | None = None, **changes: Unpack[ScheduleChanges]
    ) -> ScheduleInfo:
        """Change parts of a schedule; its running jobs continue unchanged.

        With `if_revision`, only if no user changed it since that revision; else raises `Rejected` with code
        `stale_revision`.
        """
        tenant, document = _split(changes)
        return await self._do("amend", ScheduleInfo, name, document, query=tenant, if_revision=if_revision)

    async def delete(self, name: str, *, tenant: str | None = None) -> None:
        """Delete a schedule and its ledger; the jobs that it submitted continue."""
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
        """Create or replace the tenant's `schedules`, given in the form of the API, and return the changes.

        `prune` deletes the other schedules that were applied from the same `source`; it raises `Invalid` without a
        source. `dry_run` changes nothing.
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
        owner: str | None = None,
        label: str | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[ScheduleInfo]:
        """Yield the schedules that match all filters, by name; `label` is a name and a text, as `team=shop`."""
        query = given(
            tenant=tenant, queue=queue, paused=paused, source=source, owner=owner, label=label, limit=page_size
        )
        return self._calls.each(ScheduleInfo, "/schedules", "schedules", query)

    async def next(self, name: str, *, count: int = 10, tenant: str | None = None) -> Preview:
        """Read the next fire times, undecided ones of the past included."""
        return await self._calls.call(Preview, "GET", f"{_path(name)}/next", query=given(count=count, tenant=tenant))

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
        """Yield the ledger entries, the latest first; `fired` selects only runs (True), or only skips (False).

        The cluster keeps the latest 1,000, and for 30 days those of backfills and of triggers with `instant`.
        """
        query = given(kind=kind, fired=fired, order=order, tenant=tenant, limit=page_size)
        return self._calls.each(Firing, f"{_path(name)}/firings", "firings", query)

    async def preview(
        self, *, after: Moment | None = None, count: int = 10, **timing: Unpack[TimingOptions]
    ) -> Preview:
        """Return the next fire times of a timing; nothing is stored."""
        document = _with_period(given(after=after, count=count, **timing))
        return await self._calls.call(Preview, "POST", "/schedules/preview", document)

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
        """Pause it until a time, or until it is resumed; then the misfire policy handles the fire times that passed."""
        document = given(until=until, for_seconds=for_seconds, reason=reason)
        return await self._do("pause", ScheduleInfo, name, document, query=given(tenant=tenant))

    async def resume(self, name: str, *, tenant: str | None = None) -> ScheduleInfo:
        """End its pause."""
        return await self._do("resume", ScheduleInfo, name, query=given(tenant=tenant))

    async def trigger(
        self,
        name: str,
        *,
        payload: Any = UNSET,
        parameters: Mapping[str, str | float | bool] | None = None,
        overlap: Overlap | None = None,
        instant: Moment | None = None,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> Firing:
        """Run it now, in addition to its fire times; `Firing.job_id` is the run, `Firing.reason` the reason of a skip.

        `parameters` has values by the names of the schedule's parameters; others have their defaults. `Invalid` names
        the one at fault, as `parameters.region`.

        By default it obeys the schedule's overlap policy; `allow` starts it even if other runs are unfinished. Each
        call makes one run; its retries make no other. A call with the `idempotency_key` or the `instant` (the fire time
        of the run) of an earlier one finds that run. It raises `Rejected` with code `idempotency_mismatch` if the two
        calls differ. An instant is kept for 30 days, a key as long as its job.
        """
        document = given(parameters=parameters, overlap=overlap, instant=instant)
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
        """Make runs for the fire times from `start` to `end` (exclusive), independent of the schedule's decisions.

        It sends requests until the end is reached. At most 1,000 of its runs are unfinished at the same time: it waits
        for some to end, and gives up if none ends for `patience_seconds`. Then `Backfill.remaining_count` is not 0, and
        the same call continues from there. A fire time has at most one run; that is kept for 30 days. Runs of calls
        with the same `idempotency_key` (by default, of this call) count as made; runs of other calls count as known.
        """
        document = {"from": start, "to": end, "dry_run": dry_run}
        document |= given(overlap=overlap, order=order, per_minute=per_minute)
        key = idempotency_key or self._calls.keys.next()
        progress = BackfillProgress(document)
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + patience_seconds
        while True:
            has_advanced = progress.add(
                await self._do("backfill", dict[str, Any], name, progress.request, query=given(tenant=tenant), key=key)
            )
            if progress.is_done or (not has_advanced and clock() >= give_up_at):
                return msgspec.convert(progress.total(), Backfill)
            if has_advanced:
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
    """Return the fields, with a `timedelta` converted to the cluster's text form."""
    every = fields.get("every")
    if not isinstance(every, timedelta):
        return fields
    if every <= timedelta(0) or every % _MILLISECOND:
        raise ValueError("every: must be a number of whole milliseconds, and more than none")
    return fields | {"every": period_text(every // _MILLISECOND)}


def _split(changes: ScheduleChanges) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the query with the tenant, and the document of the changes."""
    document = _with_period(dict(changes))
    return given(tenant=document.pop("tenant", None)), document
