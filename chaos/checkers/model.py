"""A job as the specification has it, without time: RELIABILITY section 2, written again and apart from the server.

`after` says what a change of the log does to a job, `explains` what a client's answer proves about it. Both are total
functions of small values, so that the search for a linearization can try them in any order. Cluster time and due times
are other properties' business: to the model, a waiting job is a waiting job.

A job waits, is kept back by a parent or a user, runs under one token, or has ended. Failures and timeouts use up its
attempts, lost workers their own allowance, snoozes nothing. A cancelled job ends with whatever ends its lease first.
Nothing leaves an end but a purge and, unless the job is completed, a new run, which counts from zero. What begins at
most once has no second lease in its run once it was started.
"""

from __future__ import annotations

from typing import NamedTuple

ABSENT = "absent"
WAITING = "waiting"
WAITING_DEPENDENCIES = "waiting_dependencies"
PAUSED = "paused"
RUNNING = "running"
CANCELLING = "cancelling"
COMPLETED = "completed"
DEAD_LETTER = "dead_letter"
CANCELLED = "cancelled"
SKIPPED = "skipped"
PURGED = "purged"

ENDED = frozenset({COMPLETED, DEAD_LETTER, CANCELLED, SKIPPED})
LEASED = frozenset({RUNNING, CANCELLING})
UNLEASED = frozenset({WAITING, WAITING_DEPENDENCIES, PAUSED})
_NEW = frozenset({*UNLEASED, SKIPPED, DEAD_LETTER})
"""A job that depends on what has ended already may end at once."""
_WAITS = frozenset({WAITING, WAITING_DEPENDENCIES})


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
    stopped: tuple[int, ...] = ()
    """The leases that ended because the job was cancelled."""
    run: int = 1
    is_once: bool = False
    """It begins at most once."""
    is_started: bool = False
    """Under the current lease, it has begun for good."""
    is_awaited: bool = False
    """Its worker is done, and somebody else reports the outcome: a cancel ends the lease at once."""


class Move(NamedTuple):
    """Something asked of a job, or done to it, and what the client heard."""

    f: str
    """As in `history`."""
    tenant: str = ""
    """The tenant that asks; "" = not by the name of a tenant."""
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
    """The stage that the reply shows, or the log says; "" = none."""
    is_once: bool = False
    is_forced: bool = False
    """Of a cancel: the lease ends with it."""


def stage_of(status: str) -> str:
    """The stage of a status as the API calls it: which kind of waiting it is, time alone decides."""
    return WAITING if status in ("scheduled", "queued", "retrying") else status


# -- changes of the log -----------------------------------------------------------------------------------------------


def after(state: JobState, move: Move) -> JobState | None:
    """Return the job after an effect, or None if that effect is not legal."""
    match move.f:
        case "submit":
            return _submitted(state, move)
        case "lease":
            return _leased(state, move)
        case "outcome" | "expire":
            return _ended(state, move) if state.stage in LEASED and state.token == move.token else None
        case "cancel" | "abort":
            return _cancelled(state, is_forced=move.is_forced or move.f == "abort")
        case "purge":
            return JobState(PURGED) if state.stage in ENDED else None
        case "touch":
            return state
        case "start" | "await":
            return _told(state, move)
        case "lapse":
            return _lapsed(state)
        case "requeue" | "revive":
            return _begun_anew(state, move)
        case _:
            return _moved(state, move)


def _submitted(state: JobState, move: Move) -> JobState | None:
    stage = move.stage or WAITING
    if state.stage != ABSENT or stage not in _NEW:
        return None
    return JobState(stage, move.tenant, attempts_max=move.attempts_max, is_once=move.is_once)


def _told(state: JobState, move: Move) -> JobState | None:
    """Apply what the worker of a lease says of it: the job has begun, or somebody else reports its outcome."""
    if state.stage != RUNNING:
        return None
    if move.f == "start":
        return state._replace(is_started=True)
    return state._replace(is_awaited=True) if state.token == move.token else None


def _moved(state: JobState, move: Move) -> JobState | None:
    """Apply the move of a user or a parent to a job that nobody holds."""
    if state.stage not in UNLEASED:
        return None
    match move.f:
        case "pause":
            return state._replace(stage=PAUSED)
        case "resume" if state.stage == PAUSED and move.stage in _WAITS:
            return state._replace(stage=move.stage)
        case "amend":
            return state
        case "release" if state.stage == WAITING_DEPENDENCIES:
            return state._replace(stage=WAITING)
        case "skip" if move.stage in (SKIPPED, DEAD_LETTER):
            return state._replace(stage=move.stage)
        case _:
            return None


def _lapsed(state: JobState) -> JobState | None:
    """Its time to start, or to be finished, has passed."""
    if state.stage == CANCELLING:
        return _cancelled(state, is_forced=True)
    if state.stage in UNLEASED or state.stage == RUNNING:
        return state._replace(stage=DEAD_LETTER, token=0, worker="", is_started=False, is_awaited=False)
    return None


def _begun_anew(state: JobState, move: Move) -> JobState | None:
    """A new run: by a user after any end but completion, by a parent after an end that it caused."""
    legal = (DEAD_LETTER, CANCELLED, SKIPPED) if move.f == "requeue" else (DEAD_LETTER, SKIPPED)
    if state.stage not in legal or move.stage not in _WAITS:
        return None
    return state._replace(stage=move.stage, run=state.run + 1, attempt=0, failures=0, losses=0)


def _leased(state: JobState, move: Move) -> JobState | None:
    if state.stage != WAITING or move.attempt != state.attempt + 1 or move.token <= 0:
        return None
    return state._replace(stage=RUNNING, attempt=move.attempt, token=move.token, worker=move.worker)


def _ended(state: JobState, move: Move) -> JobState | None:
    """The lease ends, by its worker's report or by an expiry."""
    free = state._replace(token=0, worker="", is_started=False, is_awaited=False)
    if state.stage == CANCELLING:
        return free._replace(stage=CANCELLED, stopped=(*state.stopped, state.token))
    if move.f == "outcome":
        if state.is_once and not state.is_started and move.outcome != "snoozed":
            return None
        free = free._replace(reports=(*state.reports, (move.token, move.outcome, move.completion_id)))
    has_begun = state.is_once and state.is_started
    match move.f, move.outcome:
        case "outcome", "completed":
            return free._replace(stage=COMPLETED)
        case "outcome", "snoozed":
            return free._replace(stage=DEAD_LETTER if has_begun else WAITING)
        case ("outcome", "failed") | ("expire", "timeout"):
            failures = state.failures + 1
            is_over = has_begun or not move.retryable or failures >= state.attempts_max
            return free._replace(stage=DEAD_LETTER if is_over else WAITING, failures=failures)
        case "expire", "outage" if not has_begun:
            return free._replace(stage=WAITING)
        case "expire", "worker_lost" | "outage":
            losses = state.losses + 1
            is_over = has_begun or losses >= move.losses_max
            return free._replace(stage=DEAD_LETTER if is_over else WAITING, losses=losses)
        case _:
            return None


def _cancelled(state: JobState, *, is_forced: bool) -> JobState | None:
    if state.stage in UNLEASED:
        return state._replace(stage=CANCELLED)
    if state.stage in LEASED and (is_forced or state.is_awaited):
        free = state._replace(token=0, worker="", is_started=False, is_awaited=False)
        return free._replace(stage=CANCELLED, stopped=(*state.stopped, state.token))
    return state._replace(stage=CANCELLING) if state.stage == RUNNING else None


# -- answers to clients -----------------------------------------------------------------------------------------------


def explains(state: JobState, move: Move) -> JobState | None:
    """Return the job after an answered operation, or None if a job in this state would have answered otherwise."""
    new = _refused(state, move) if move.error else _accepted(state, move)
    if new is None or (move.stage and move.stage != new.stage):
        return None
    return None if move.f != "lease" and move.attempt >= 0 and move.attempt != new.attempt else new


def happens(state: JobState, move: Move) -> JobState | None:
    """Return the job after a change of the log that several operations may have asked for.

    If one of them did it before, nothing is left to do.
    """
    new = after(state, move)
    if new is not None:
        return new
    match move.f:
        case "submit":
            return state if state.stage != ABSENT else None
        case "outcome":
            return state if _is_reported(state, move) or move.token in state.stopped else None
        case "skip":
            return state if state.stage in (SKIPPED, DEAD_LETTER) else None
        case "abort":
            return state if state.stage in (CANCELLED, PURGED) else None
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
        case "cancel" if state.stage == CANCELLED or (state.stage == CANCELLING and not move.is_forced):
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
            if state.stage == CANCELLING and move.token == state.token:
                return after(state, move)
            return state if move.token in state.stopped else None
        case _:
            return None


def _is_there(state: JobState, move: Move) -> bool:
    """Whether the asker's tenant has such a job: to others, it does not exist."""
    is_his = not move.tenant or move.tenant == state.tenant
    return is_his and state.stage not in (ABSENT, PURGED)


def _is_reported(state: JobState, move: Move) -> bool:
    return (move.token, move.outcome, move.completion_id) in state.reports
