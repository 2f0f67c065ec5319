"""Read the logs of a job, attempt by attempt: lines of two attempts are never mixed (case W16).

A reader that names no attempt reads the latest; when it has ended, the cursor leads to the next one, until the job has
finished. A reader that names an attempt reads that alone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from raftsched import limits
from raftsched.api.json.cursors import decode_cursor, encode_cursor, raise_foreign
from raftsched.core.records.ids import job_id_text, run_id_text
from raftsched.core.records.job import FINISHED, Job
from raftsched.errors import Invalid, NotFound
from raftsched.storage.reader import StateReader
from raftsched.wire.runs import LogQuery, LogReply

_NUMBER_MAX: Final = (1 << 31) - 1
"""Largest number of an attempt in an earlier run, whose number of attempts is not kept."""


class LogPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A reader's position, which is its cursor."""

    run_number: int
    attempt_number: int
    offset: int
    pinned: bool
    """Whether to read this attempt only."""


def log_place(job: Job, query: LogQuery) -> LogPlace:
    """Return the start of `query`; raises `NotFound` for an attempt that has not started, `Malformed` for an invalid
    cursor.
    """
    if query.cursor is not None:
        place = decode_cursor(query.cursor, LogPlace)
        if not (0 < place.run_number <= job.run_number and 0 <= place.attempt_number <= _NUMBER_MAX):
            raise_foreign()
        if not 0 <= place.offset <= limits.LOG_BYTES_MAX:
            raise_foreign()
        return place
    if query.run is not None and query.attempt is None:
        raise Invalid("attempt: is required beside run", field="attempt")
    if query.attempt is None:
        return LogPlace(job.run_number, job.attempt_number, 0, pinned=False)
    run_number = query.run or job.run_number
    begun_count = job.attempt_number if run_number == job.run_number else _NUMBER_MAX
    if run_number > job.run_number or query.attempt > begun_count:
        raise NotFound("there is no such attempt of this job")
    return LogPlace(run_number, query.attempt, 0, pinned=True)


def log_reply(state: StateReader, job: Job, place: LogPlace, max_bytes: int) -> LogReply:
    """Return the log from `place` on, and the cursor of the next part."""
    lines, next_offset = b"", place.offset
    if place.attempt_number:
        part = state.log(job.id, place.run_number, place.attempt_number, offset=place.offset, bytes_max=max_bytes)
        lines, next_offset = part.lines, part.next_offset
    attempt_ended = not _is_running(job, place)
    following: LogPlace | None = msgspec.structs.replace(place, offset=next_offset)
    if not lines and attempt_ended:
        following = _next_attempt(job, place)
    return LogReply(
        id=job_id_text(job.id),
        run_id=run_id_text(job.id, place.run_number),
        run_number=place.run_number,
        attempt_number=place.attempt_number,
        text=lines.decode(errors="replace"),
        attempt_ended=attempt_ended,
        next_cursor=None if following is None else encode_cursor(following),
    )


def behind(reply: LogReply) -> LogPlace | None:
    """Return the start of the next part of the log."""
    return None if reply.next_cursor is None else decode_cursor(reply.next_cursor, LogPlace)


def _is_running(job: Job, place: LogPlace) -> bool:
    return job.lease is not None and (place.run_number, place.attempt_number) == (job.run_number, job.attempt_number)


def _next_attempt(job: Job, place: LogPlace) -> LogPlace | None:
    """Return the place to continue at after the whole log of an ended attempt; None if nothing can follow."""
    if place.pinned:
        return None
    here = (place.run_number, place.attempt_number)
    begun = [(each.run_number, each.attempt_number) for each in job.attempts]
    if job.lease is not None:
        begun.append((job.run_number, job.attempt_number))
    later = min((each for each in begun if each > here), default=None)
    if later is not None:
        return LogPlace(*later, 0, pinned=False)
    return None if job.status in FINISHED else place
