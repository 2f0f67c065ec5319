"""Properties of leases in real time: how long a worker may trust one, and that nobody else has it meanwhile (G3b).

Theory of operation. Real time is the harness's clock; monotonic clocks of nodes and workers may differ from it by rho
(`Setup.rate_error_thousandths`), so a term of T lasts at least T(1 - rho). A worker counts it from before it asked.
Timeouts of jobs are counted in cluster time, which may be off; they are held against cluster time only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from chaos.checkers.history.events import Change
from chaos.checkers.history.views import Answer, History
from chaos.checkers.report import Violation


def kept_for_its_term(history: History) -> list[Violation]:
    """A lease is not taken from its worker before a full term of silence, nor for a timeout before that (G3b).

    Silence counts from the grant and from every heartbeat that was answered as valid, whoever leads by then.
    """
    beats = _valid_beats(history)
    violations = []
    for change in _expiries(history):
        granted = history.grant_of.get(change.token)
        if granted is None:
            continue
        lasted_ms = change.now_ms - granted.now_ms
        limit_ms = history.timeouts.get(change.job, 0) if change.outcome == "timeout" else granted.ttl_ms
        if change.outcome != "cancelled" and (lasted_ms < limit_ms or not limit_ms):
            what = f"token {change.token} expires ({change.outcome}) after {lasted_ms} of {limit_ms} ms"
            violations.append(Violation(what, change.t))
        if change.outcome in ("worker_lost", "outage") and change.t >= 0:
            renewed = max((beat.operation.start for beat in beats[change.token]), default=0)
            silent_us = change.t - max(renewed, granted.t)
            if silent_us < _term_us(history):
                what = f"token {change.token} expires after {silent_us} µs of silence"
                violations.append(Violation(what, change.t))
    return violations


def _expiries(history: History) -> Iterator[Change]:
    return (change for change in history.changes if change.f == "expire")


def expiry_count(history: History) -> int:
    return sum(1 for _ in _expiries(history))


def _valid_beats(history: History) -> dict[int, list[Answer]]:
    """Token -> the heartbeats that kept it, in the order of their calls."""
    beats: dict[int, list[Answer]] = defaultdict(list)
    for answer in history.answers("heartbeat"):
        if answer.reply.valid:
            beats[answer.call.token].append(answer)
    return beats


def _term_us(history: History) -> int:
    """The shortest that a term can last by the harness's clock."""
    return history.setup.lease_ttl_ms * (1_000 - history.setup.rate_error_thousandths)


# -- what workers may believe -----------------------------------------------------------------------------------------


class _Belief(NamedTuple):
    """From when to when a worker that keeps time holds its lease for valid."""

    begin: int
    end: int
    token: int
    worker: str


def believed_leases_disjoint(history: History) -> list[Violation]:
    """Two workers that keep time never both believe that they hold the same run (I8b).

    A worker believes in its lease from the reply on, until a term after it last asked successfully, or until it asks to
    record an outcome or to await a callback, since its work is done then, or learns that the lease is over.
    """
    beliefs: dict[tuple[str, int], list[_Belief]] = defaultdict(list)
    for (answer, grant), end in zip(history.grants, ends_of_belief(history), strict=True):
        if answer.reply.t < end:
            belief = _Belief(answer.reply.t, end, grant.token, answer.call.worker)
            beliefs[grant.job, grant.run].append(belief)
    violations = []
    for (job, run), held in beliefs.items():
        held.sort()
        for earlier, later in pairwise(held):
            if later.begin < earlier.end:
                what = (
                    f"run {job}.{run}: {later.worker} gets token {later.token} while {earlier.worker} may trust "
                    f"token {earlier.token} for {earlier.end - later.begin} µs more"
                )
                violations.append(Violation(what, later.begin))
    return violations


def ends_of_belief(history: History) -> Iterator[int]:
    """For each of `history.grants`, when its worker must stop to believe in it."""
    beats: dict[int, list[Answer]] = defaultdict(list)
    for answer in history.answers("heartbeat"):
        beats[answer.call.token].append(answer)
    reported: dict[int, int] = {}
    for operation in history.operations:
        if operation.call.f in ("outcome", "await"):
            reported.setdefault(operation.call.token, operation.start)
    for answer, grant in history.grants:
        end = _end_of_term(answer, beats[grant.token], history)
        end = min(end, reported.get(grant.token, end))
        timeout_ms = history.timeouts.get(grant.job)
        if timeout_ms is None:
            end = 0  # nobody knows how it was submitted; it may have any timeout
        elif timeout_ms and not history.setup.epoch_ms:
            end = 0  # cluster time may leap by any amount, and end the attempt for its timeout
        elif timeout_ms:
            # Cluster time may run ahead by the error of two leaders' clocks.
            end = min(end, answer.operation.start + (timeout_ms - 2 * history.setup.clock_error_ms) * 1_000)
        yield end


def _end_of_term(lease: Answer, beats: list[Answer], history: History) -> int:
    """Return when the worker's deadline passes, or it learns that its lease is over."""
    term_us = _term_us(history)
    deadline = lease.operation.start + term_us
    for beat in sorted(beats, key=lambda beat: beat.operation.end):
        if beat.operation.end > deadline:
            break
        if not beat.reply.valid:
            return beat.operation.end
        deadline = max(deadline, beat.operation.start + term_us)
    return deadline
