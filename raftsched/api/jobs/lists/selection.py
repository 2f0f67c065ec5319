"""Select the jobs of a list or a bulk request, and walk over them in a stable order.

Theory of operation. A walk has one or more parts, each an index that is read from a key on:

    a queue, name, tag, tenant, workflow or schedule    the ids that all of them have in common (`storage.facets`)
    a queue, and only statuses that wait for time       that queue's lanes, a status after the other (`storage.pages`)
    only statuses                                       the index of each status, one after the other
    none of these                                       all jobs by id

The default tenant has no list of its own. It and all other conditions are checked on the records: the reason in lists
that are not of dead letters alone, the time of submission, and the distinction of `queued`, `scheduled` and `retrying`
for a name, tag or tenant. So each step is bounded by the rows that it examines, and the caller decides how many steps a
request may take.

Jobs submitted after the walk began are left out (`newest`). So a walk ends at any rate of new jobs; by status, only if
they arrive more slowly than it reads. A job that changes its status during the walk may be seen in two parts, or in
none.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import msgspec

from raftsched import limits
from raftsched.api.json.decode import job_id_at
from raftsched.api.json.times import moment_ms_or_none
from raftsched.core.records.ids import TENANT_DEFAULT
from raftsched.core.records.job import WAITING, Job, Status
from raftsched.core.records.spec import Options
from raftsched.storage.reader import StateReader
from raftsched.storage.tables.facets import ID_BYTES, LOWEST_ID, Facets
from raftsched.wire.bulk import JobFilter
from raftsched.wire.jobs import ListQuery

_DIGEST_BYTES: Final = 8
_TIME_BITS_BELOW: Final = 80
_SLACK_MS: Final = 60_000
"""Longest time between the creation of a job's id and that of the job; a request takes less."""
_NO_OPTIONS: Final = Options()


class Selection(msgspec.Struct, frozen=True, array_like=True):
    """A filter of jobs; all conditions must hold, except those that are empty or None."""

    statuses: tuple[Status, ...] = ()
    queue: str = ""
    name: str = ""
    tag: str = ""
    tenant: str = ""
    schedule_id: bytes = b""
    workflow_id: bytes = b""
    reason: str = ""
    created_from_ms: int | None = None
    created_until_ms: int | None = None
    by_age: bool = False
    """Walk by id even if statuses are named: for actions that change the order within a status."""

    @property
    def listed_tenant(self) -> str:
        """Return the tenant, if its jobs have a list."""
        return "" if self.tenant == TENANT_DEFAULT else self.tenant

    @property
    def is_by_lane(self) -> bool:
        """Return whether it selects only jobs of one queue that wait for time, which are kept in dispatch order."""
        others = self.name or self.tag or self.listed_tenant or self.schedule_id or self.workflow_id or self.by_age
        return bool(self.queue and self.statuses and not others and WAITING.issuperset(self.statuses))

    @property
    def is_by_facets(self) -> bool:
        """Return whether the walk reads the ids of a queue, name, tag, tenant, workflow or schedule."""
        named = self.queue or self.name or self.tag or self.listed_tenant or self.schedule_id or self.workflow_id
        return bool(named) and not self.is_by_lane

    def matches(self, job: Job) -> bool:
        options = job.spec.options or _NO_OPTIONS
        return (
            (not self.queue or job.spec.queue == self.queue)
            and (not self.name or job.spec.name == self.name)
            and (not self.tag or self.tag in job.spec.tags)
            and (not self.tenant or job.tenant == self.tenant)
            and (not self.schedule_id or options.schedule_id == self.schedule_id)
            and (not self.workflow_id or options.workflow_id == self.workflow_id)
            and (not self.reason or job.reason == self.reason)
            and (self.created_from_ms is None or job.created_at_ms >= self.created_from_ms)
            and (self.created_until_ms is None or job.created_at_ms < self.created_until_ms)
        )

    def digest(self, *more: object) -> bytes:
        """Return a digest that identifies this selection together with `more`."""
        return hashlib.blake2b(msgspec.msgpack.encode((self, more)), digest_size=_DIGEST_BYTES).digest()


class Place(NamedTuple):
    """A position of a walk: the part, and the key after which to continue in it."""

    part: int = 0
    after: bytes = b""


class Step(NamedTuple):
    """Jobs in order, each with the place after it, and the place at which the walk continues; None at its end."""

    jobs: list[tuple[Place, Job]]
    following: Place | None


def selection_of(wanted: ListQuery | JobFilter, prefix: str = "") -> Selection:
    """Return the selection of a list or a filter; raises `Malformed` naming an invalid id or time."""
    labels = [wanted.status] if isinstance(wanted.status, str) else wanted.status or []
    statuses = tuple(dict.fromkeys(Status[label.upper()] for label in labels))
    return Selection(
        statuses=statuses or ((Status.DEAD_LETTER,) if wanted.reason else ()),
        queue=wanted.queue or "",
        name=wanted.name or "",
        tag=wanted.tag or "",
        tenant=wanted.tenant or "",
        schedule_id=job_id_at(wanted.schedule, f"{prefix}schedule") if wanted.schedule else b"",
        workflow_id=job_id_at(wanted.workflow, f"{prefix}workflow") if wanted.workflow else b"",
        reason=wanted.reason or "",
        created_from_ms=moment_ms_or_none(wanted.created_after, f"{prefix}created_after"),
        created_until_ms=moment_ms_or_none(wanted.created_before, f"{prefix}created_before"),
    )


def newest_id(state: StateReader) -> bytes:
    """Return the id of the newest job, which bounds a walk that begins now."""
    newest = state.list_jobs(limit=1, descending=True)
    return newest[0].id if newest else bytes(ID_BYTES)


def more_rows(wanted_count: int, before: int) -> int:
    """Return the number of rows for the next step: at least `wanted_count`, and twice those of the step before."""
    return min(max(wanted_count, 2 * before), limits.SCAN_ROWS_MAX)


def part_count(selection: Selection) -> int:
    """Return the number of parts of a walk over `selection`."""
    return 1 if selection.is_by_facets or selection.by_age else max(1, len(selection.statuses))


def next_jobs(
    state: StateReader,
    selection: Selection,
    place: Place,
    *,
    newest: bytes,
    now_ms: int,
    limit: int,
    descending: bool = False,
) -> Step:
    """Return the matching jobs among the next `limit` rows at `place`, and the place at which the walk continues."""
    if selection.is_by_facets:
        rows, more = _of_facets(state, selection, place.after, limit, newest, descending=descending)
        rows = _of_statuses(rows, selection, now_ms)
    elif selection.statuses and not selection.by_age:
        status = selection.statuses[place.part]
        page = state.list_jobs_by_status(
            status,
            now_ms=now_ms,
            queue=selection.queue,
            due_queues=state.due_queues(now_ms) if status is Status.QUEUED and not selection.queue else None,
            reason=selection.reason,
            after=place.after or None,
            limit=limit,
            descending=descending,
        )
        rows, more = page.items, page.next_cursor
    else:
        rows, more = _by_age(state, selection, place.after, limit, newest, descending=descending)
        rows = _of_statuses(rows, selection, now_ms)
    jobs = [(Place(place.part, key), job) for key, job in rows if job.id <= newest and selection.matches(job)]
    if more:
        return Step(jobs, Place(place.part, more))
    is_last = place.part + 1 >= part_count(selection)
    return Step(jobs, None if is_last else Place(place.part + 1))


def _by_age(
    state: StateReader, selection: Selection, after: bytes, limit: int, newest: bytes, *, descending: bool
) -> tuple[list[tuple[bytes, Job]], bytes]:
    """Return the next jobs by id."""
    low, high = _ids_between(selection, newest)
    if not after and not (descending and high == newest):
        after = high if descending else low
    found = state.list_jobs(after=after or None, limit=limit, descending=descending)
    jobs = [job for job in found if low <= job.id <= high]
    more = jobs[-1].id if len(jobs) == limit else b""
    return [(job.id, job) for job in jobs], more


def _ids_between(selection: Selection, newest: bytes) -> tuple[bytes, bytes]:
    """Return the lowest and the highest possible id (inclusive) of jobs with this time of submission."""
    low = LOWEST_ID if selection.created_from_ms is None else _id_floor(selection.created_from_ms - _SLACK_MS)
    if selection.created_until_ms is None:
        return low, newest
    return low, min(newest, _id_floor(selection.created_until_ms + _SLACK_MS))


def _id_floor(ms: int) -> bytes:
    """Return the lowest id of that time."""
    return (max(ms, 0) << _TIME_BITS_BELOW).to_bytes(ID_BYTES, "big")


def _of_facets(
    state: StateReader, selection: Selection, after: bytes, limit: int, newest: bytes, *, descending: bool
) -> tuple[list[tuple[bytes, Job]], bytes]:
    """Return the next jobs of what `selection` names, by id."""
    low, high = _ids_between(selection, newest)
    facets = Facets(
        queue=selection.queue,
        name=selection.name,
        tag=selection.tag,
        tenant=selection.listed_tenant,
        workflow_id=selection.workflow_id,
        schedule_id=selection.schedule_id,
        statuses=selection.statuses,
    )
    page = state.list_jobs_of(facets, low=low, high=high, after=after, limit=limit, descending=descending)
    return page.items, page.next_cursor


def _of_statuses(rows: list[tuple[bytes, Job]], selection: Selection, now_ms: int) -> list[tuple[bytes, Job]]:
    statuses = selection.statuses
    return [(key, job) for key, job in rows if job.status_at(now_ms) in statuses] if statuses else rows
