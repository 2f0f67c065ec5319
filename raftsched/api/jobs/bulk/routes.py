"""Change many jobs by bounded requests, with exact counts.

Theory of operation. The selected jobs are walked over as in a list (`lists.selection`), and each is changed by its own
operation, a few hundred at a time. So a bulk request is not a transaction: each job is changed or not on its own. A
request ends at its limit of jobs, or after `_SECONDS_MAX`, and returns a cursor to continue with. Repeating an action
has no second effect; only a replay needs an idempotency key for that.

A job cannot run again while a parent's end does not meet its condition, and the same request may requeue that parent.
So within a step parents, which have the lower ids, are changed first. Jobs that are rejected because of a parent are
tried again at the end of the request.

If not one job of a step could be proposed, for example after the loss of leadership, the request ends, and its cursor
leads to the start of that step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from aiohttp import web
from msgspec.structs import replace

from raftsched import limits
from raftsched.api.access.principal import Principal, principal_of
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.idempotency_key import key_of
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.problems import refusal
from raftsched.api.http.proposals import Answer, answers_of, propose
from raftsched.api.http.routes import KEY_HEADER, Route, change
from raftsched.api.jobs.bulk.actions import Action, action_of
from raftsched.api.jobs.control.routes import Change, ChangeContext
from raftsched.api.jobs.lists.cursor import WalkCursor, walk_cursor
from raftsched.api.jobs.lists.selection import Place, Selection, more_rows, next_jobs, selection_of
from raftsched.api.json.cursors import decode_cursor, encode_cursor
from raftsched.api.json.decode import StructDecoder, job_id_at
from raftsched.core.maintenance.retention import why_kept
from raftsched.core.operations.codec import PurgeJobs, RejectCode
from raftsched.core.records.ids import JobId, TimeMs, job_id_text
from raftsched.core.records.job import FINISHED, Job, Status
from raftsched.core.state.results import Purged, Refused
from raftsched.errors import Forbidden, Invalid, Malformed, NotFound, RaftschedError, Rejected, Unavailable
from raftsched.wire.bulk import BulkFailure, BulkReply, BulkRequest, JobFilter
from raftsched.wire.verbs import JOB


class DeadLetterScope(NamedTuple):
    """A restriction to jobs of the dead-letter queue."""

    reason: str
    """The reason for which they were given up; "" = any."""


_STEP_JOBS: Final = 500
_STEP_REPLAYS: Final = 50
_SECONDS_MAX: Final = 5.0
"""Time after which a request ends between two steps. Followers wait twice as long for the leader's answer."""
_UNMET: Final = RejectCode.DEPENDENCY_UNMET.label
_EXAMINED_MAX: Final = 100 * limits.SCAN_ROWS_MAX
"""Rows that one request examines, even if few of them match; a dry run examines `limits.PAGE_ROWS_MAX`, as a list does."""


class Bulk:
    """The route of bulk requests; `run` serves the dead-letter queue, too."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._request = StructDecoder(BulkRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            change(
                Access.OPERATE,
                "POST",
                "/jobs/bulk",
                self.change_jobs,
                BulkReply,
                body=BulkRequest,
                headers=(KEY_HEADER,),
            ),
        )

    async def change_jobs(self, request: web.Request) -> web.Response:
        """Act on up to 10,000 jobs, or search up to 5,000 in a dry run; continue by cursor."""
        wanted, _ = self._request.read(await self._bodies.read_json(request))
        return json_response(await self.run(wanted, caller=principal_of(request), key=key_of(request, None)))

    async def run(
        self, wanted: BulkRequest, *, caller: Principal, key: str = "", dead_letters: DeadLetterScope | None = None
    ) -> BulkReply:
        """Apply the action of `wanted` to its jobs, within the limits of one request.

        `dead_letters` restricts it to the dead-letter queue. Raises `Invalid` if no jobs are selected.
        """
        backend = self._backend
        state = backend.fresh_state()
        reason = dead_letters.reason if dead_letters else ""
        context = ChangeContext(caller.name, backend.now_ms(), dead_letter_reason=reason)
        action = action_of(wanted, context, key=key, backend=backend)
        selection = _selection(wanted, caller)
        ids = tuple(job_id_at(text, f"ids[{at}]") for at, text in enumerate(wanted.ids or ()))
        request = _Request(backend, wanted, action, context, caller=caller, dead_letters=dead_letters)
        following: WalkCursor | IdsCursor | None
        if wanted.ids is not None:
            ids = tuple(dict.fromkeys(ids))
            digest = selection.digest("ids", wanted.action, ids)
            following = await request.over_ids(ids, _ids_cursor(wanted, digest))
        else:
            cursor = walk_cursor(wanted.cursor, state, selection, selection.digest("bulk", wanted.action))
            following = await request.over_selection(selection, cursor)
        await request.retry_unmet()
        return request.reply(following)


class IdsCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The position at which a request with ids continues."""

    digest: bytes
    """Digest of the ids and the action."""
    position: int


def _ids_cursor(wanted: BulkRequest, digest: bytes) -> IdsCursor:
    if wanted.cursor is None:
        return IdsCursor(digest, 0)
    cursor = decode_cursor(wanted.cursor, IdsCursor)
    if cursor.digest != digest or cursor.position < 0:
        raise Malformed("cursor: it belongs to a request with other ids or another action", field="cursor")
    return cursor


def _selection(wanted: BulkRequest, caller: Principal) -> Selection:
    """Return the selection of a filter, or of all jobs; raises `Invalid` unless exactly one of ids, filter and all is
    given.
    """
    given = [name for name in ("ids", "filter") if getattr(wanted, name) is not None]
    if wanted.all:
        given.append("all")
    if len(given) != 1:
        raise Invalid("ids: give exactly one of ids, filter and all", field=given[1] if len(given) > 1 else "ids")
    selection = selection_of(wanted.filter or JobFilter(), "filter.")
    if not wanted.all and wanted.filter is not None and selection == Selection():
        raise Invalid('filter: is empty; give "all": true for all jobs', field="filter")
    selection = replace(selection, tenant=caller.seen_tenant(selection.tenant or None, "filter.tenant") or "")
    verb = JOB[wanted.action]
    selection = replace(selection, by_age=verb.reorders)
    if wanted.filter is not None and wanted.filter.status is not None:
        return selection
    return replace(selection, statuses=tuple(Status[status.upper()] for status in verb.meant_for))


class _Request:
    """The jobs that one request has found and changed so far."""

    def __init__(
        self,
        backend: Backend,
        wanted: BulkRequest,
        action: Action,
        context: ChangeContext,
        *,
        caller: Principal,
        dead_letters: DeadLetterScope | None,
    ) -> None:
        self._backend = backend
        self._wanted = wanted
        self._action = action
        self._now_ms = context.now_ms
        self._actor = context.actor
        self._caller = caller
        self._dead_letters = dead_letters
        self._matched_count = 0
        self._done_count = 0
        self._failed_count = 0
        self._failed: list[BulkFailure] = []
        self._sample: list[str] = []
        self._unmet: list[tuple[Job, RaftschedError]] = []
        """Jobs rejected because of a parent, which may have been requeued since."""
        self._end = asyncio.get_running_loop().time() + _SECONDS_MAX

    def reply(self, next_cursor: WalkCursor | IdsCursor | None) -> BulkReply:
        return BulkReply(
            action=self._action.verb.name,
            dry_run=self._wanted.dry_run,
            matched=self._matched_count,
            done=self._done_count,
            failed_count=self._failed_count,
            failed=self._failed,
            sample=self._sample,
            next_cursor=None if next_cursor is None else encode_cursor(next_cursor),
        )

    async def over_ids(self, ids: Sequence[JobId], cursor: IdsCursor) -> IdsCursor | None:
        """Change the jobs `ids`, from the cursor on; return the cursor of the next request."""
        position = cursor.position
        while position < len(ids):
            count = self._step_count()
            if not count or (position > cursor.position and self._is_over()):
                return replace(cursor, position=position)
            part = ids[position : position + count]
            try:
                state = self._backend.fresh_state()
                await self._do([(job_id, state.job(job_id)) for job_id in part])
            except Unavailable:
                if not self._matched_count:
                    raise
                return replace(cursor, position=position)
            position += len(part)
        return None

    async def over_selection(self, selection: Selection, cursor: WalkCursor) -> WalkCursor | None:
        """Change the selected jobs, from the cursor on; return the cursor of the next request."""
        place: Place | None = cursor.place
        seen: set[JobId] = set()
        examined_count = rows = 0
        examined_max = limits.PAGE_ROWS_MAX if self._wanted.dry_run else _EXAMINED_MAX
        while place is not None:
            count = self._step_count()
            if not count or examined_count >= examined_max or (self._matched_count and self._is_over()):
                return cursor.at(place)
            rows = more_rows(count, rows)
            try:
                state = self._backend.fresh_state()
                step = next_jobs(state, selection, place, newest=cursor.newest, now_ms=self._now_ms, limit=rows)
                taken = step.jobs[:count]
                await self._do([(job.id, job) for _, job in taken if job.id not in seen])
            except Unavailable:
                if not self._matched_count:
                    raise
                return cursor.at(place)
            seen.update(job.id for _, job in taken)
            examined_count += rows
            place = step.following if len(step.jobs) <= count else taken[-1][0]
            # A step without matches awaits nothing else, so let other tasks run.
            await asyncio.sleep(0)
        return None

    async def retry_unmet(self) -> None:
        """Try jobs again that were rejected because of a parent, while any attempt succeeds."""
        count_before = 0
        while self._unmet and count_before < self._done_count and not self._is_over():
            count_before = self._done_count
            unmet, self._unmet = self._unmet, []
            for first in range(0, len(unmet), _STEP_JOBS):
                part = unmet[first : first + _STEP_JOBS]
                try:
                    self._fail_all(await self._settle([job for job, _ in part]))
                except Unavailable:
                    self._unmet += part
        self._fail_all({job.id: error for job, error in self._unmet})

    def _step_count(self) -> int:
        """Return the number of jobs for the next step; few for replays, since they carry payloads."""
        step_max = _STEP_REPLAYS if self._action.verb.name == "replay" else _STEP_JOBS
        return min(step_max, self._wanted.limit - self._matched_count)

    def _is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self._end

    async def _do(self, found: Sequence[tuple[JobId, Job | None]]) -> None:
        """Change these jobs and count them; raises `Unavailable`, with nothing counted, if none was changed for
        certain.
        """
        errors = {job_id: self._refusal_of(job) for job_id, job in found}
        jobs = [job for job_id, job in found if job is not None and errors[job_id] is None]
        if jobs and not self._wanted.dry_run:
            errors |= await self._settle(jobs)
        self._matched_count += len(found)
        sample_max = limits.BULK_FAILURES_SHOWN_MAX
        self._sample += [job_id_text(job_id) for job_id, _ in found[: sample_max - len(self._sample)]]
        self._fail_all(errors)

    async def _settle(self, jobs: list[Job]) -> dict[JobId, RaftschedError | None]:
        """Change these jobs and count successes; return the errors, except those that a parent's change may resolve."""
        make = self._action.operation
        if make is None:
            errors = await self._delete(jobs)
        elif self._action.verb.name == "retry":
            errors = await self._retry(jobs, make)
        else:
            errors = await self._propose(jobs, make)
        self._done_count += sum(1 for job in jobs if errors[job.id] is None)
        self._unmet += [(job, error) for job in jobs if (error := errors[job.id]) is not None and error.code == _UNMET]
        return {
            job_id: None if error is not None and error.code == _UNMET else error for job_id, error in errors.items()
        }

    def _refusal_of(self, job: Job | None) -> RaftschedError | None:
        """Return the error if the request does not apply to this job."""
        if job is None or not self._caller.sees(job.tenant):
            return NotFound("there is no such job")
        if not self._caller.is_within_queues(job.spec.queue):
            return Forbidden(f"this token is not for the queue {job.spec.queue}")
        if self._dead_letters is None:
            return None
        reason = self._dead_letters.reason
        if job.status is Status.DEAD_LETTER and reason in ("", job.reason):
            return None
        suffix = f" for {reason}" if reason else ""
        return Rejected("stale_decision", f"it is not in the dead-letter queue{suffix}")

    async def _propose(self, jobs: list[Job], make: Change) -> dict[JobId, RaftschedError | None]:
        answers = await answers_of([self._backend.propose(make(job)) for job in jobs])
        return {job.id: _error(answer) for job, answer in zip(jobs, answers, strict=True)}

    async def _retry(self, jobs: list[Job], make: Change) -> dict[JobId, RaftschedError | None]:
        errors = await self._propose(sorted(jobs, key=lambda job: job.id), make)
        state, _ = self._backend.stale_state()
        for job in jobs:
            now = state.job(job.id)
            if now is not None and now.run_number > job.run_number:
                errors[job.id] = None  # a parent's new run has restarted it already
        return errors

    async def _delete(self, jobs: list[Job]) -> dict[JobId, RaftschedError | None]:
        left = [job for job in jobs if job.status in FINISHED]
        while left:
            # A job that has finished again since it was selected must not be deleted.
            before_ms = TimeMs(max(job.finished_at_ms for job in left) + 1)
            operation = PurgeJobs(tuple(job.id for job in left), before_ms, self._actor)
            purged = await propose(self._backend, operation, Purged)
            state, _ = self._backend.stale_state()
            left = [job for job in left if state.job(job.id) is not None]
            if not purged.count:
                break
        errors: dict[JobId, RaftschedError | None] = dict.fromkeys(job.id for job in jobs)
        for job in left:
            needed = why_kept(state, job, self._now_ms)
            errors[job.id] = Rejected("needed", needed) if needed else Rejected("stale_decision", "it runs again")
        for job in jobs:
            if job.status not in FINISHED:
                detail = f"the job is {job.status.label}: cancel it before it is deleted"
                errors[job.id] = Rejected("running", detail)
        return errors

    def _fail_all(self, errors: Mapping[JobId, RaftschedError | None]) -> None:
        for job_id, error in errors.items():
            if error is not None:
                self._fail(job_id, error)

    def _fail(self, job_id: JobId, error: RaftschedError) -> None:
        self._failed_count += 1
        if len(self._failed) < limits.BULK_FAILURES_SHOWN_MAX:
            self._failed.append(
                BulkFailure(id=job_id_text(job_id), code=error.code, detail=str(error), retryable=error.retryable)
            )


def _error(answer: Answer) -> RaftschedError | None:
    if isinstance(answer, Refused):
        return refusal(answer)
    return answer if isinstance(answer, RaftschedError) else None
