"""Properties of the log as it was read back: each change legal by the model, and the end what they add up to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from chaos.checkers.history.events import Change, FinalJob
from chaos.checkers.history.views import History
from chaos.checkers.model import LEASED, PURGED, JobState, Move, after, stage_of
from chaos.checkers.report import Violation

_LEADING = frozenset({"submit", "resume", "skip", "requeue", "revive"})
"""Changes that lead to one of several stages: which, the log says."""


def move_of(change: Change, history: History) -> Move:
    """The change as the model knows it."""
    return Move(
        change.f,
        tenant=change.tenant,
        token=change.token,
        attempt=change.attempt,
        worker=change.worker,
        outcome=change.outcome,
        completion_id=change.completion_id,
        retryable=change.retryable,
        attempts_max=change.max_attempts,
        losses_max=history.lost_workers_max.get(change.token, 0),
        stage=stage_of(change.status) if change.f in _LEADING else "",
        is_once=change.once,
    )


def legal_transitions(history: History) -> list[Violation]:
    """Every change of the log is one that the specification allows, and leads where it says (I17)."""
    return [violation for changes in history.changes_of.values() for violation in _illegal(changes, history)]


def _illegal(changes: list[Change], history: History) -> Iterator[Violation]:
    state = JobState()
    for change in changes:
        new = after(state, move_of(change, history))
        what = f"{change.f} {change.outcome}".rstrip() + f" at index {change.index}"
        if new is None:
            yield Violation(f"job {change.job} is {_told(state)}: {what} is not legal", change.t)
            return
        if _place(new) != (
            stage_of(change.status),
            *((change.attempt, change.run or new.run) if new.stage != PURGED else (0, 0)),
        ):
            yield Violation(
                f"job {change.job} was {_told(state)}: {what} makes it {_told(new)}, not {change.status} "
                f"after {change.attempt} attempts",
                change.t,
            )
            return
        state = new


def _place(state: JobState) -> tuple[str, int, int]:
    return (state.stage, state.attempt, state.run) if state.stage != PURGED else (PURGED, 0, 0)


def one_change_at_a_place(history: History) -> list[Violation]:
    """A place in the log holds one change of a job, and the log's order is that of time (I17)."""
    violations = []
    places: set[tuple[int, int, str]] = set()
    latest = 0
    for change in history.changes:
        place = (change.index, change.position, change.job)
        if place in places:
            what = f"two changes of job {change.job} are at index {change.index}, position {change.position}"
            violations.append(Violation(what, change.t))
        places.add(place)
        if 0 <= change.t < latest:
            what = f"index {change.index} is first applied before an earlier one"
            violations.append(Violation(what, change.t))
        latest = max(latest, change.t)
    return violations


def finals_follow_the_log(history: History) -> list[Violation]:
    """At the end each node holds just the jobs that the log makes up to its index, each as the log left it (I3, G1)."""
    if not history.changes:
        return []

    @lru_cache(maxsize=1)
    def expected(index: int) -> dict[str, FinalJob]:
        return _jobs_at(index, history)

    violations = []
    for final in history.finals.values():
        for job, message in _differences(expected(final.index), final.jobs):
            violations.append(Violation(f"{final.node} at index {final.index}: job {job} {message}", final.t))
    return violations


def _jobs_at(index: int, history: History) -> dict[str, FinalJob]:
    """Return every job after the log up to `index`; a job whose changes are illegal stays as it was then."""
    jobs = {}
    for job, changes in history.changes_of.items():
        state, revision = JobState(), 0
        for change in changes:
            new = after(state, move_of(change, history)) if change.index <= index else None
            if new is None:
                break
            state, revision = new, change.index
        if revision and state.stage != PURGED:
            jobs[job] = FinalJob(
                status=state.stage, attempt=state.attempt, token=state.token, revision=revision, run=state.run
            )
    return jobs


def _differences(expected: Mapping[str, FinalJob], found: Mapping[str, FinalJob]) -> Iterator[tuple[str, str]]:
    for job in sorted(expected.keys() | found.keys()):
        wanted, there = expected.get(job), found.get(job)
        if wanted is None:
            yield job, "is there, against the log"
            continue
        if there is None:
            yield job, f"is not there, by the log it is {wanted.status}"
            continue
        shapes = [_shape(each, has_runs=there.run > 0) for each in (there, wanted)]
        if shapes[0] != shapes[1]:
            yield job, f"is {shapes[0]}, by the log {shapes[1]}"


def _shape(job: FinalJob, *, has_runs: bool) -> tuple[str, int, int, int, int]:
    """(stage, attempt, token, revision, run)."""
    stage = stage_of(job.status)
    return stage, job.attempt, job.token if stage in LEASED else 0, job.revision, job.run if has_runs else 0


def _told(state: JobState) -> str:
    token = f" with token {state.token}" if state.token else ""
    return f"{state.stage}{token} after {state.attempt} attempts"
