"""Define the invariants of one job's record, one property a rule; `invariants` checks all records.

They follow from the guarantees, not from `apply`. Each rule is a sentence and a predicate that is true for a valid
record.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

from raftsched import limits
from raftsched.core.records.bounds import (
    JOB_ID_BYTES,
    TIME_MS_MAX,
    is_name,
    key_problem,
)
from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.core.records.job import (
    DEAD_LETTER_REASONS,
    FINISHED,
    LEASED,
    WAITING,
    AttemptEnd,
    Job,
    Status,
)
from raftsched.core.records.spec import spec_problem
from raftsched.core.records.transitions import TRANSITIONS

_REACHABLE: Final = frozenset(TRANSITIONS.values())
_CANCELLED: Final = frozenset({Status.CANCELLING, Status.CANCELLED})
_FAILURES: Final = frozenset({AttemptEnd.FAILED, AttemptEnd.TIMEOUT})


class Facts(NamedTuple):
    """Carry what records are compared with: the cluster's time and the last fencing token."""

    now_ms: TimeMs
    fence: FencingToken


class Rule(NamedTuple):
    text: str
    holds: Callable[[Job, Facts], bool]


def _has_sound_specification(job: Job, _: Facts) -> bool:
    return not spec_problem(job.spec)


def _has_sound_numbers(job: Job, _: Facts) -> bool:
    return (
        0 <= job.due_at_ms <= TIME_MS_MAX
        and min(job.run_number, job.revision) >= 1
        and min(job.attempt_number, job.failure_count, job.lost_count) >= 0
    )


def _has_sound_names(job: Job, _: Facts) -> bool:
    return is_name(job.tenant) and not key_problem(job.idempotency_key)


def _has_times_in_order(job: Job, facts: Facts) -> bool:
    latest = max(job.created_at_ms, job.started_at_ms, job.cancel_requested_at_ms, job.finished_at_ms)
    return latest <= job.updated_at_ms <= facts.now_ms


def _has_timer_where_needed(job: Job, _: Facts) -> bool:
    """Return whether only a waiting job is timed, and one without a timer was due at its last change.

    A scheduled one without a timer is blocked: lists find the queues with due jobs by timers and counts (`due_queues`).
    """
    if job.timed:
        return job.status in WAITING and job.status is not Status.QUEUED
    if job.status is Status.SCHEDULED and not job.blocked:
        return False
    return job.status not in WAITING or job.due_at_ms <= job.updated_at_ms


def _has_sound_lease(job: Job, facts: Facts) -> bool:
    lease = job.lease
    return lease is None or (
        1 <= lease.token <= facts.fence
        and is_name(lease.worker)
        and lease.ttl_ms >= 1
        and lease.granted_at_ms == job.started_at_ms
    )


def _has_rising_attempts(job: Job, facts: Facts) -> bool:
    """Return whether each lease began after the end of the one before, with a greater token."""
    spans = [(kept.token, kept.started_at_ms, kept.ended_at_ms) for kept in job.attempts]
    if job.lease is not None:
        spans.append((job.lease.token, job.lease.granted_at_ms, job.updated_at_ms))
    return (
        all(started <= ended for _, started, ended in spans)
        and all(before[0] < after[0] and before[2] <= after[1] for before, after in pairwise(spans))
        and all(1 <= token <= facts.fence for token, _, _ in spans)
    )


def _ended_count(job: Job) -> int:
    """Return the count of ended attempts of the present run, kept or not."""
    return job.attempt_number - (job.lease is not None)


def _keeps_all_attempts(job: Job) -> bool:
    return job.run_number == 1 and _ended_count(job) <= limits.ATTEMPTS_KEPT_MAX


def _has_all_attempts(job: Job, _: Facts) -> bool:
    if _keeps_all_attempts(job):
        numbers = [kept.attempt_number for kept in job.attempts]
        return numbers == list(range(1, _ended_count(job) + 1))
    return len(job.attempts) == limits.ATTEMPTS_KEPT_MAX or job.run_number > 1


def _has_honest_counts(job: Job, _: Facts) -> bool:
    """Return whether the counts agree with the attempts, or exceed those that are still kept."""
    failure_count = sum(kept.end in _FAILURES for kept in job.attempts if kept.run_number == job.run_number)
    lost_count = sum(kept.end is AttemptEnd.WORKER_LOST for kept in job.attempts if kept.run_number == job.run_number)
    if _keeps_all_attempts(job):
        return (job.failure_count, job.lost_count) == (failure_count, lost_count)
    return job.failure_count >= failure_count and job.lost_count >= lost_count


def most_lost_workers(job: Job) -> int:
    """Return the largest possible count of lost workers; without its own limit the queue's setting counts, which changes."""
    return (job.spec.options.lost_workers_max if job.spec.options is not None else 0) or limits.LOST_WORKERS_MAX


def _has_attempts_left_unless_dead(job: Job, _: Facts) -> bool:
    spare = 0 if job.status is Status.DEAD_LETTER else 1
    return job.failure_count + spare <= job.spec.max_attempts and job.lost_count + spare <= most_lost_workers(job)


def _has_one_end(job: Job, _: Facts) -> bool:
    """Return whether a run ends as completed or cancelled at most once, by its last attempt, and the status agrees."""
    ends = [kept.end for kept in job.attempts if kept.run_number == job.run_number]
    if any(end in (AttemptEnd.COMPLETED, AttemptEnd.CANCELLED) for end in ends[:-1]):
        return False
    last = ends[-1] if ends else None
    completed = (last is AttemptEnd.COMPLETED) == (job.status is Status.COMPLETED)
    return completed and (last is not AttemptEnd.CANCELLED or job.status is Status.CANCELLED)


def _has_reason_to_be_blocked(job: Job, _: Facts) -> bool:
    if not job.blocked:
        return True
    has_key = bool(job.spec.concurrency_key)
    return job.status in WAITING and job.due_at_ms <= job.updated_at_ms and has_key


def _waits_for_parents_where_it_should(job: Job, _: Facts) -> bool:
    if job.status is Status.WAITING_DEPENDENCIES:
        return job.pending_count > 0
    return job.pending_count == 0 or job.status is Status.PAUSED or job.status in FINISHED


def _has_sound_parent_counts(job: Job, _: Facts) -> bool:
    """Return whether the counts are possible: one more than its parents can be pending, and an unmet one ends the job."""
    gate = bool(job.spec.workflow_id)
    return (
        0 <= job.dependency_count <= limits.DEPENDENCIES_MAX
        and job.pending_count >= 0
        and job.unmet_count >= 0
        and job.pending_count + job.unmet_count <= job.dependency_count + gate
        and (job.unmet_count == 0 or job.status in FINISHED)
    )


RULES: Final = (
    Rule("an id has 16 bytes", lambda job, _: len(job.id) == JOB_ID_BYTES),
    Rule("the status is one that the table leads to", lambda job, _: job.status in _REACHABLE),
    Rule("its specification is sound", _has_sound_specification),
    Rule("numbers are in range", _has_sound_numbers),
    Rule("names fit into keys", _has_sound_names),
    Rule("times are in order, and none is ahead of the cluster's", _has_times_in_order),
    Rule("a lease is held exactly while leased", lambda job, _: (job.lease is not None) == (job.status in LEASED)),
    Rule(
        "finished_at is set exactly when finished", lambda job, _: bool(job.finished_at_ms) == (job.status in FINISHED)
    ),
    Rule(
        "cancel_requested_at is set exactly when cancelled",
        lambda job, _: bool(job.cancel_requested_at_ms) == (job.status in _CANCELLED),
    ),
    Rule("a job that waits for its time has a timer", _has_timer_where_needed),
    Rule("a lease is sound", _has_sound_lease),
    Rule("leases of a job never overlap", _has_rising_attempts),
    Rule("at most the latest attempts are kept", lambda job, _: len(job.attempts) <= limits.ATTEMPTS_KEPT_MAX),
    Rule("every ended attempt is on record", _has_all_attempts),
    Rule("counts agree with the attempts", _has_honest_counts),
    Rule("only a dead letter has used up its attempts", _has_attempts_left_unless_dead),
    Rule("a run ends once", _has_one_end),
    Rule(
        "a dead letter has a reason",
        lambda job, _: job.status is not Status.DEAD_LETTER or job.reason in DEAD_LETTER_REASONS,
    ),
    Rule(
        "a pause is set exactly while paused", lambda job, _: (job.pause is not None) == (job.status is Status.PAUSED)
    ),
    Rule("only a waiting job that is due, and has a concurrency key, is blocked", _has_reason_to_be_blocked),
    Rule("who waits for parents has some left, who may run has none", _waits_for_parents_where_it_should),
    Rule("counts of parents are in range", _has_sound_parent_counts),
    Rule("at most the latest notes are kept", lambda job, _: len(job.notes) <= limits.NOTES_KEPT_MAX),
    Rule("progress is bounded", lambda job, _: len(job.progress) <= limits.PROGRESS_BYTES_MAX),
)
