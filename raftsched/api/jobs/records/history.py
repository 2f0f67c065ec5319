"""Build the runs and the history of a job from its record.

The record keeps the latest attempts and notes (`limits.ATTEMPTS_KEPT_MAX`, `limits.NOTES_KEPT_MAX`), and the running
attempt. `truncated` is true if older ones may have been dropped.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raftsched import limits
from raftsched.api.http.json_reply import time_or_none, time_text
from raftsched.api.jobs.reply import error_reply
from raftsched.core.records.ids import FencingToken, TimeMs, job_id_text, run_id_text
from raftsched.core.records.job import CREATED, Attempt, Job
from raftsched.storage.reader import StateReader
from raftsched.wire.runs import AttemptDocument, EventDocument, HistoryReply, RunDocument, RunsReply


class _AttemptRecord(NamedTuple):
    """An attempt, ended or not."""

    run_number: int
    attempt_number: int
    token: FencingToken
    worker: str
    started_at_ms: TimeMs
    ended: Attempt | None


def runs_reply(state: StateReader, job: Job, now_ms: int) -> RunsReply:
    """Return the job's attempts by run, oldest first."""
    sizes = {(run, attempt): size.byte_count for run, attempt, size in state.logs(job.id)}
    runs: dict[int, list[AttemptDocument[str]]] = {}
    for each in _attempts(job):
        size = sizes.get((each.run_number, each.attempt_number), 0)
        runs.setdefault(each.run_number, []).append(_attempt_reply(each, size))
    runs.setdefault(job.run_number, [])
    return RunsReply(
        id=job_id_text(job.id),
        status=job.status_at(now_ms).label,
        runs=[
            RunDocument(run_id=run_id_text(job.id, number), run_number=number, attempts=attempts)
            for number, attempts in runs.items()
        ],
        truncated=len(job.attempts) == limits.ATTEMPTS_KEPT_MAX,
        revision=job.revision,
    )


def history_reply(job: Job, now_ms: int) -> HistoryReply:
    """Return the history of the job, in order."""
    return HistoryReply(
        id=job_id_text(job.id),
        status=job.status_at(now_ms).label,
        events=[_event_reply(event) for event in sorted(_events(job), key=_order)],
        truncated=len(job.attempts) == limits.ATTEMPTS_KEPT_MAX or len(job.notes) == limits.NOTES_KEPT_MAX,
        revision=job.revision,
    )


def _attempts(job: Job) -> list[_AttemptRecord]:
    records = [
        _AttemptRecord(each.run_number, each.attempt_number, each.token, each.worker, each.started_at_ms, each)
        for each in job.attempts
    ]
    if job.lease is not None:
        lease = job.lease
        records.append(
            _AttemptRecord(job.run_number, job.attempt_number, lease.token, lease.worker, lease.granted_at_ms, None)
        )
    return records


def _attempt_reply(each: _AttemptRecord, log_bytes: int) -> AttemptDocument[str]:
    ended = each.ended
    return AttemptDocument(
        attempt_number=each.attempt_number,
        worker=each.worker,
        fencing_token=each.token,
        started_at=time_text(each.started_at_ms),
        ended_at=time_or_none(ended.ended_at_ms) if ended else None,
        execution_time_ms=ended.ended_at_ms - each.started_at_ms if ended else None,
        end=ended.end.label if ended else None,
        error=error_reply(ended.error) if ended else None,
        log_bytes=log_bytes,
    )


class _Event(NamedTuple):
    at_ms: int
    rank: int
    """Order of events in the same millisecond."""
    event: str
    actor: str = ""
    detail: str = ""
    attempt: _AttemptRecord | None = None


_CREATED: Final = 0
_NOTED: Final = 1
_STARTED: Final = 2
_ENDED: Final = 3
_FINISHED: Final = 4


def _order(event: _Event) -> tuple[int, int]:
    return event.at_ms, event.rank


def _events(job: Job) -> list[_Event]:
    events = [] if job.notes and job.notes[0].action == CREATED else [_Event(job.created_at_ms, _CREATED, CREATED)]
    for note in job.notes:
        rank = _CREATED if note.action == CREATED else _NOTED
        events.append(_Event(note.at_ms, rank, note.action, note.actor, note.detail))
    for each in _attempts(job):
        events.append(_Event(each.started_at_ms, _STARTED, "attempt_started", attempt=each))
        if each.ended is not None:
            events.append(
                _Event(each.ended.ended_at_ms, _ENDED, "attempt_ended", detail=_end(each.ended), attempt=each)
            )
    if job.finished_at_ms:
        reason = f"{job.status.label}: {job.failure_reason}" if job.failure_reason else job.status.label
        events.append(_Event(job.finished_at_ms, _FINISHED, "finished", detail=reason))
    return events


def _end(attempt: Attempt) -> str:
    return f"{attempt.end.label}: {attempt.error.type}" if attempt.error and attempt.error.type else attempt.end.label


def _event_reply(event: _Event) -> EventDocument[str]:
    attempt = event.attempt
    return EventDocument(
        at=time_text(event.at_ms),
        event=event.event,
        actor=event.actor or None,
        detail=event.detail or None,
        run_number=attempt.run_number if attempt else None,
        attempt_number=attempt.attempt_number if attempt else None,
        worker=attempt.worker if attempt else None,
    )
