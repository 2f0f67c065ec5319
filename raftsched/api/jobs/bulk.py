"""Many jobs at once: which they are, in bounded requests, with honest counts.

Theory of operation. The jobs that are meant are walked over as in a list (`selection`), and each is changed by an
operation of its own, a few hundred at a time; so a bulk request is no transaction, and each job says for itself whether
it was changed. A request ends when it has found as many jobs as it may, or after `_SECONDS_MAX`, and says where to go
on. What is asked for twice is done once, but for a replay, which needs an idempotency key for that.

A job can't run again while a parent has ended otherwise than it should, and that parent may be told to run by the same
request. So parents are told first, whose ids are the lower ones, as far as a step goes; and who was refused for a
parent is asked again at the end of the request.

Where not one job of a step could be proposed, as when the lead is lost, the request ends there, and its cursor leads
back to the beginning of that step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from aiohttp import web
from msgspec.structs import replace

from raftsched import limits
from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.problems import refusal
from raftsched.api.http.proposals import Answer, answers_of, propose
from raftsched.api.http.routes import KEY_HEADER, Route, change
from raftsched.api.jobs.bulk_actions import Action, action_of
from raftsched.api.jobs.control import Asker, Change
from raftsched.api.jobs.routes import key_of
from raftsched.api.jobs.selection import Place, Selection, more_rows, next_jobs, selection_of
from raftsched.api.jobs.walk import WalkCursor, walk_cursor
from raftsched.api.json.cursors import decode_cursor, encode_cursor
from raftsched.api.json.decode import Fitter, job_id_at
from raftsched.core.maintenance.retention import why_kept
from raftsched.core.operations.codec import PurgeJobs, RejectCode
from raftsched.core.records.ids import JobId, TimeMs, job_id_text
from raftsched.core.records.job import FINISHED, Job, Status
from raftsched.core.state.results import Purged, Refused
from raftsched.errors import Invalid, Malformed, NotFound, RaftschedError, Rejected, Unavailable
from raftsched.wire.bulk import BulkFailure, BulkReply, BulkRequest, JobFilter
from raftsched.wire.verbs import JOB


class DeadLetters(NamedTuple):
    """Which dead letters a request may touch."""

    reason: str
    """Those that were given up for it; "" = all."""


_STEP_JOBS: Final = 500
_STEP_REPLAYS: Final = 50
_SECONDS_MAX: Final = 5.0
"""Then a request ends between two steps: followers wait twice as long for the leader's answer."""
_UNMET: Final = RejectCode.DEPENDENCY_UNMET.label
_EXAMINED_MAX: Final = 100 * limits.SCAN_ROWS_MAX
"""Rows that one request looks at, however few of them match."""


class Bulk:
    """The route of bulk requests; `run` serves those of dead letters, too."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._request = Fitter(BulkRequest)

    def routes(self) -> tuple[Route, ...]:
        return (change("POST", "/jobs/bulk", self.change_jobs, BulkReply, body=BulkRequest, headers=(KEY_HEADER,)),)

    async def change_jobs(self, request: web.Request) -> web.Response:
        """Act on up to 10,000 jobs; continue by cursor."""
        wanted, _ = self._request.read(await self._bodies.read_json(request))
        return json_response(await self.run(wanted, actor=actor_of(request), key=key_of(request, None)))

    async def run(
        self, wanted: BulkRequest, *, actor: str, key: str = "", dead_letters: DeadLetters | None = None
    ) -> BulkReply:
        """Do what `wanted` asks for, as far as one request goes; to dead letters only, where that is given.

        Raises `Invalid` where it doesn't say which jobs.
        """
        backend = self._backend
        state = backend.fresh_state()
        reason = dead_letters.reason if dead_letters else ""
        asker = Asker(actor, backend.now_ms(), dead_letter_reason=reason)
        action = action_of(wanted, asker, key=key, backend=backend)
        selection = _selection(wanted)
        ids = tuple(job_id_at(text, f"ids[{at}]") for at, text in enumerate(wanted.ids or ()))
        request = _Request(backend, wanted, action, asker, dead_letters)
        following: WalkCursor | IdsCursor | None
        if wanted.ids is not None:
            ids = tuple(dict.fromkeys(ids))
            digest = selection.digest("ids", wanted.action, ids)
            following = await request.over_ids(ids, _ids_cursor(wanted, digest))
        else:
            cursor = walk_cursor(wanted.cursor, state, selection, selection.digest("bulk", wanted.action))
            following = await request.over_selection(selection, cursor)
        await request.ask_again()
        return request.reply(following)


class IdsCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a request goes on that names its jobs."""

    digest: bytes
    """Of the ids and of what is done to them."""
    position: int


def _ids_cursor(wanted: BulkRequest, digest: bytes) -> IdsCursor:
    if wanted.cursor is None:
        return IdsCursor(digest, 0)
    cursor = decode_cursor(wanted.cursor, IdsCursor)
    if cursor.digest != digest or cursor.position < 0:
        raise Malformed("cursor: it belongs to a request with other ids or another action", field="cursor")
    return cursor


def _selection(wanted: BulkRequest) -> Selection:
    """The jobs that a filter names, or all; raises `Invalid` unless exactly one of ids, filter and all is there."""
    given = [name for name in ("ids", "filter") if getattr(wanted, name) is not None]
    if wanted.all:
        given.append("all")
    if len(given) != 1:
        raise Invalid("ids: give exactly one of ids, filter and all", field=given[1] if len(given) > 1 else "ids")
    selection = selection_of(wanted.filter or JobFilter(), "filter.")
    if not wanted.all and wanted.filter is not None and selection == Selection():
        raise Invalid('filter: is empty; say "all": true for every job that there is', field="filter")
    verb = JOB[wanted.action]
    selection = replace(selection, by_age=verb.reorders)
    if wanted.filter is not None and wanted.filter.status is not None:
        return selection
    return replace(selection, statuses=tuple(Status[status.upper()] for status in verb.meant_for))


class _Request:
    """What one request has found and done so far."""

    def __init__(
        self, backend: Backend, wanted: BulkRequest, action: Action, asker: Asker, dead_letters: DeadLetters | None
    ) -> None:
        self._backend = backend
        self._wanted = wanted
        self._action = action
        self._now_ms = asker.now_ms
        self._actor = asker.actor
        self._dead_letters = dead_letters
        self._matched_count = 0
        self._done_count = 0
        self._failed_count = 0
        self._failed: list[BulkFailure] = []
        self._sample: list[str] = []
        self._unmet: list[tuple[Job, RaftschedError]] = []
        """Refused for a parent, which may have been told to run since."""
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
        """Do it to these jobs, from the cursor on; return where the next request goes on."""
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
        """Do it to what is selected, from the cursor on; return where the next request goes on."""
        place: Place | None = cursor.place
        seen: set[JobId] = set()
        examined_count = rows = 0
        while place is not None:
            count = self._step_count()
            if not count or examined_count >= _EXAMINED_MAX or (self._matched_count and self._is_over()):
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
            # Nothing is awaited where nothing was found; others want their turn, too.
            await asyncio.sleep(0)
        return None

    async def ask_again(self) -> None:
        """Ask for those again that were refused for a parent, for as long as that lets any of them follow."""
        told_count = 0
        while self._unmet and told_count < self._done_count and not self._is_over():
            told_count = self._done_count
            unmet, self._unmet = self._unmet, []
            for first in range(0, len(unmet), _STEP_JOBS):
                part = unmet[first : first + _STEP_JOBS]
                try:
                    self._fail_all(await self._settle([job for job, _ in part]))
                except Unavailable:
                    self._unmet += part
        self._fail_all({job.id: error for job, error in self._unmet})

    def _step_count(self) -> int:
        """How many jobs the next step may take; replays carry payloads, so few are under way together."""
        step_max = _STEP_REPLAYS if self._action.verb.name == "replay" else _STEP_JOBS
        return min(step_max, self._wanted.limit - self._matched_count)

    def _is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self._end

    async def _do(self, found: Sequence[tuple[JobId, Job | None]]) -> None:
        """Change these jobs and count them; raises `Unavailable`, with nothing counted, where nothing is known to be
        done.
        """
        errors = {job_id: self._refusal_of(job) for job_id, job in found}
        jobs = [job for job_id, job in found if job is not None and errors[job_id] is None]
        if jobs and not self._wanted.dry_run:
            errors |= await self._settle(jobs)
        self._matched_count += len(found)
        room = limits.BULK_FAILURES_SHOWN_MAX
        self._sample += [job_id_text(job_id) for job_id, _ in found[: room - len(self._sample)]]
        self._fail_all(errors)

    async def _settle(self, jobs: list[Job]) -> dict[JobId, RaftschedError | None]:
        """Change these jobs and count what is done; return the errors but those that may pass with their parents."""
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
        """Why the request is not about this job."""
        if job is None:
            return NotFound("there is no such job")
        if self._dead_letters is None:
            return None
        reason = self._dead_letters.reason
        if job.status is Status.DEAD_LETTER and reason in ("", job.failure_reason.partition(":")[0]):
            return None
        told = f"it is not in the dead letters for {reason}" if reason else "it is not in the dead letters"
        return Rejected("stale_decision", told)

    async def _propose(self, jobs: list[Job], make: Change) -> dict[JobId, RaftschedError | None]:
        answers = await answers_of([self._backend.propose(make(job)) for job in jobs])
        return {job.id: _error(answer) for job, answer in zip(jobs, answers, strict=True)}

    async def _retry(self, jobs: list[Job], make: Change) -> dict[JobId, RaftschedError | None]:
        errors = await self._propose(sorted(jobs, key=lambda job: job.id), make)
        state, _ = self._backend.stale_state()
        for job in jobs:
            now = state.job(job.id)
            if now is not None and now.run_number > job.run_number:
                errors[job.id] = None  # a parent's new run took it along before its own turn came
        return errors

    async def _delete(self, jobs: list[Job]) -> dict[JobId, RaftschedError | None]:
        left = [job for job in jobs if job.status in FINISHED]
        while left:
            # What finished again since it was looked at is not what was meant.
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
                told = f"the job is {job.status.label}: cancel it before it is deleted"
                errors[job.id] = Rejected("running", told)
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
