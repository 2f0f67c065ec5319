"""Which jobs a list or a bulk request is about, and the walk over them in a stable order.

Theory of operation. A walk goes through one or more parts, each an index that is read on from a key: all jobs by id, or
those of each status that was asked for, or those of a workflow or a schedule. What else was asked for is looked at in the records. So
each step is bounded by the rows that it examines, and whoever walks decides how many steps a request may take.

Jobs submitted after the walk began are left out (`newest`), so a walk ends however fast new ones come (by status: unless
they come faster than it reads). A job that changes its status while it is walked past may be seen in two parts, or in
none.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import msgspec

from raftsched.api.parsing import job_id_at
from raftsched.api.requests import JobFilter, ListQuery
from raftsched.api.times import moment_ms
from raftsched.core.job import Job, Options, Status
from raftsched.core.schedule import ScheduleId
from raftsched.core.workflow import WorkflowId
from raftsched.storage.reader import StateReader

ID_BYTES: Final = 16
_DIGEST_BYTES: Final = 8
_TIME_BITS_BELOW: Final = 80
_SLACK_MS: Final = 60_000
"""A job's id is made before the job is: by less than a request may take."""
_NO_OPTIONS: Final = Options()


class Selection(msgspec.Struct, frozen=True, array_like=True):
    """Jobs for which all of this holds; what is empty or 0 says nothing."""

    statuses: tuple[Status, ...] = ()
    queue: str = ""
    name: str = ""
    tag: str = ""
    tenant: str = ""
    schedule_id: bytes = b""
    workflow_id: bytes = b""
    reason: str = ""
    created_from_ms: int = 0
    created_until_ms: int = 0
    by_age: bool = False
    """Walk by id, also where statuses are named: for what changes the order in which a status is kept."""

    @property
    def looks_at_records(self) -> bool:
        """Whether rows of the index that is walked may not be meant."""
        return self != Selection(statuses=self.statuses)

    def matches(self, job: Job) -> bool:
        options = job.options or _NO_OPTIONS
        return (
            (not self.queue or job.queue == self.queue)
            and (not self.name or job.name == self.name)
            and (not self.tag or self.tag in job.tags)
            and (not self.tenant or job.tenant == self.tenant)
            and (not self.schedule_id or options.schedule_id == self.schedule_id)
            and (not self.workflow_id or options.workflow_id == self.workflow_id)
            and (not self.reason or job.failure_reason.partition(":")[0] == self.reason)
            and job.created_at_ms >= self.created_from_ms
            and (not self.created_until_ms or job.created_at_ms < self.created_until_ms)
        )

    def digest(self, *more: object) -> bytes:
        """Return what tells this selection, and what belongs to it, from others."""
        return hashlib.blake2b(msgspec.msgpack.encode((self, more)), digest_size=_DIGEST_BYTES).digest()


class Place(NamedTuple):
    """Where a walk stands: in which part, and behind which key of it."""

    part: int = 0
    after: bytes = b""


class Step(NamedTuple):
    """Jobs in order, each with the place behind it, and where the walk goes on; None at its end."""

    jobs: list[tuple[Place, Job]]
    following: Place | None


def selection_of(wanted: ListQuery | JobFilter, now_ms: int, prefix: str = "") -> Selection:
    """Return what a list or a filter asks for; raises `Malformed` naming an id or a time that is none."""
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
        created_from_ms=moment_ms(wanted.created_after, f"{prefix}created_after", now_ms)
        if wanted.created_after
        else 0,
        created_until_ms=(
            moment_ms(wanted.created_before, f"{prefix}created_before", now_ms) if wanted.created_before else 0
        ),
    )


def newest_id(state: StateReader) -> bytes:
    """Return the id of the newest job, which bounds a walk that begins now."""
    newest = state.list_jobs(limit=1, descending=True)
    return newest[0].id if newest else bytes(ID_BYTES)


def part_count(selection: Selection) -> int:
    """Return how many parts a walk over `selection` has."""
    is_one = selection.workflow_id or selection.schedule_id or selection.by_age
    return 1 if is_one else max(1, len(selection.statuses))


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
    """Return what matches among the next `limit` rows at `place`, and where the walk goes on."""
    if selection.workflow_id or selection.schedule_id:
        rows, more = _of_owner(state, selection, place.after, limit, descending=descending)
        rows = _of_statuses(rows, selection, now_ms)
    elif selection.statuses and not selection.by_age:
        status = selection.statuses[place.part]
        page = state.list_jobs_by_status(
            status,
            now_ms=now_ms,
            queue=selection.queue,
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
    """The next jobs by id, within the time in which those that match were submitted."""
    low = _id_floor(selection.created_from_ms - _SLACK_MS)
    high = _id_floor(selection.created_until_ms + _SLACK_MS) if selection.created_until_ms else newest
    if not after:
        after = high if descending and selection.created_until_ms else b"" if descending else low
    found = state.list_jobs(after=after or None, limit=limit, descending=descending)
    jobs = [job for job in found if low <= job.id <= min(high, newest)]
    more = jobs[-1].id if len(jobs) == limit else b""
    return [(job.id, job) for job in jobs], more


def _id_floor(ms: int) -> bytes:
    """The lowest id of that time."""
    return (max(ms, 0) << _TIME_BITS_BELOW).to_bytes(ID_BYTES, "big") if ms > 0 else b""


def _of_owner(
    state: StateReader, selection: Selection, after: bytes, limit: int, *, descending: bool
) -> tuple[list[tuple[bytes, Job]], bytes]:
    """The next jobs of a workflow, or of a schedule, by id."""
    if selection.workflow_id:
        workflow_id = WorkflowId(selection.workflow_id)
        page = state.list_workflow_jobs(workflow_id, after=after, limit=limit, descending=descending)
    else:
        schedule_id = ScheduleId(selection.schedule_id)
        page = state.list_schedule_jobs(schedule_id, after=after, limit=limit, descending=descending)
    return page.items, page.next_cursor


def _of_statuses(rows: list[tuple[bytes, Job]], selection: Selection, now_ms: int) -> list[tuple[bytes, Job]]:
    statuses = selection.statuses
    return [(key, job) for key, job in rows if job.status_at(now_ms) in statuses] if statuses else rows
