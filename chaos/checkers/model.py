"""A job as the specification has it, without time: RELIABILITY section 2, written anew and apart from the server.

`after` says what a change of the log makes of a job, `explains` what a client's answer proves about it. Both are total
functions of small values, so that the search for a linearization can try them in any order. Cluster time and due times
are other properties' business: to the model, a waiting job is a waiting job.

A job waits, runs under one token, or has ended. Failures and timeouts use up its attempts, lost workers their own
allowance, snoozes nothing. A cancelled job ends with whatever ends its lease first; nothing leaves an end but a purge.
"""

from __future__ import annotations

from typing import NamedTuple

ABSENT = "absent"
WAITING = "waiting"
RUNNING = "running"
CANCELLING = "cancelling"
COMPLETED = "completed"
DEAD_LETTER = "dead_letter"
CANCELLED = "cancelled"
PURGED = "purged"

ENDED = frozenset({COMPLETED, DEAD_LETTER, CANCELLED})
LEASED = frozenset({RUNNING, CANCELLING})


class JobState(NamedTuple):
    """All of a job that its future depends on."""

    stage: str = ABSENT
    tenant: str = ""
    attempt: int = 0
    """Leases granted so far."""
    token: int = 0
    """Of the current lease; 0 = none."""
    worker: str = ""
    failures: int = 0
    losses: int = 0
    attempts_max: int = 0
    reports: tuple[tuple[int, str, str], ...] = ()
    """(token, outcome, completion id) of every report that counted."""
    stopped_token: int = 0
    """The lease that ended because the job was cancelled."""


class Move(NamedTuple):
    """Something asked of a job, or done to it, and what the client heard."""

    f: str
    """As in `history`."""
    tenant: str = ""
    """Who asks; "" = not by the name of a tenant."""
    token: int = 0
    attempt: int = -1
    """Of a lease: the granted one. Otherwise the one shown afterwards; -1 = not shown."""
    worker: str = ""
    outcome: str = ""
    completion_id: str = ""
    retryable: bool = True
    attempts_max: int = 0
    losses_max: int = 0
    is_duplicate: bool = False
    cancel_requested: bool = False
    error: str = ""
    """The code of a definite refusal."""
    stage: str = ""
    """The stage that the reply shows; "" = it shows none."""


def stage_of(status: str) -> str:
    """The stage of a status as the API calls it: which kind of waiting it is, time alone decides."""
    return WAITING if status in ("scheduled", "queued", "retrying") else status


# -- changes of the log -----------------------------------------------------------------------------------------------


def after(state: JobState, move: Move) -> JobState | None:
    """Return the job after an effect, or None where that effect is not legal."""
    match move.f:
        case "submit":
            return JobState(WAITING, move.tenant, attempts_max=move.attempts_max) if state.stage == ABSENT else None
        case "lease":
            return _leased(state, move)
        case "outcome" | "expire":
            return _ended(state, move) if state.stage in LEASED and state.token == move.token else None
        case "cancel":
            return _cancelled(state)
        case "purge":
            return JobState(PURGED) if state.stage in ENDED else None
        case _:
            return None


def _leased(state: JobState, move: Move) -> JobState | None:
    if state.stage != WAITING or move.attempt != state.attempt + 1 or move.token <= 0:
        return None
    return state._replace(stage=RUNNING, attempt=move.attempt, token=move.token, worker=move.worker)


def _ended(state: JobState, move: Move) -> JobState | None:
    """The lease ends, by its worker's report or by an expiry."""
    free = state._replace(token=0, worker="")
    if state.stage == CANCELLING:
        return free._replace(stage=CANCELLED, stopped_token=state.token)
    if move.f == "outcome":
        free = free._replace(reports=(*state.reports, (move.token, move.outcome, move.completion_id)))
    match move.f, move.outcome:
        case "outcome", "completed":
            return free._replace(stage=COMPLETED)
        case "outcome", "snoozed":
            return free._replace(stage=WAITING)
        case ("outcome", "failed") | ("expire", "timeout"):
            failures = state.failures + 1
            is_over = not move.retryable or failures >= state.attempts_max
            return free._replace(stage=DEAD_LETTER if is_over else WAITING, failures=failures)
        case "expire", "worker_lost":
            losses = state.losses + 1
            return free._replace(stage=DEAD_LETTER if losses >= move.losses_max else WAITING, losses=losses)
        case _:
            return None


def _cancelled(state: JobState) -> JobState | None:
    if state.stage == WAITING:
        return state._replace(stage=CANCELLED)
    return state._replace(stage=CANCELLING) if state.stage == RUNNING else None


# -- answers to clients -----------------------------------------------------------------------------------------------


def explains(state: JobState, move: Move) -> JobState | None:
    """Return the job after an answered operation, or None where a job in this state would have answered otherwise."""
    new = _refused(state, move) if move.error else _accepted(state, move)
    if new is None or (move.stage and move.stage != new.stage):
        return None
    return None if move.f != "lease" and move.attempt >= 0 and move.attempt != new.attempt else new


def happens(state: JobState, move: Move) -> JobState | None:
    """Return the job after a change of the log that several operations may have asked for.

    Where one of them did it before, nothing is left to do.
    """
    new = after(state, move)
    if new is not None:
        return new
    match move.f:
        case "submit":
            return state if state.stage != ABSENT else None
        case "outcome":
            return state if _is_reported(state, move) or state.stopped_token == move.token else None
        case "cancel":
            return state if state.stage in (CANCELLING, CANCELLED, PURGED) else None
        case _:
            return None


def _accepted(state: JobState, move: Move) -> JobState | None:
    match move.f:
        case "submit" if move.is_duplicate:
            return state if _is_there(state, move) else None
        case "get":
            return state if _is_there(state, move) else None
        case "heartbeat":
            stage = CANCELLING if move.cancel_requested else RUNNING
            is_his = state.token == move.token and state.worker == move.worker
            return state if is_his and state.stage == stage else None
        case "outcome":
            if _is_reported(state, move):
                return state if move.completion_id else None
            return after(state, move) if state.stage == RUNNING else None
        case "cancel" if not _is_there(state, move):
            return None
        case "cancel" if state.stage in (CANCELLING, CANCELLED):
            return state
        case _:
            return after(state, move)


def _refused(state: JobState, move: Move) -> JobState | None:
    match move.f, move.error:
        case _, "not_found":
            return None if _is_there(state, move) else state
        case "cancel", "already_finished":
            return state if state.stage in ENDED and state.stage != CANCELLED else None
        case "outcome", "lease_lost":
            return state if state.token != move.token else None
        case "outcome", "already_recorded":
            return state if any(token == move.token for token, _, _ in state.reports) else None
        case "outcome", "cancelled":
            if state.stage == CANCELLING:
                return after(state, move)
            return state if state.stopped_token == move.token else None
        case _:
            return None


def _is_there(state: JobState, move: Move) -> bool:
    """Whether the asker's tenant has such a job: to others, it does not exist."""
    is_his = not move.tenant or move.tenant == state.tenant
    return is_his and state.stage not in (ABSENT, PURGED)


def _is_reported(state: JobState, move: Move) -> bool:
    return (move.token, move.outcome, move.completion_id) in state.reports
