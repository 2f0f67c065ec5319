"""Properties of outcomes: each attempt and each run is recorded once, and what ended stays ended (G4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from chaos.checkers.history.events import Change
from chaos.checkers.history.views import ENDS_LEASE, NEW_RUN, Answer, History
from chaos.checkers.model import ENDED, stage_of
from chaos.checkers.report import Violation


def one_outcome_per_token(history: History) -> list[Violation]:
    """For one token, at most one outcome is ever accepted: no two successes differ in anything (I10, G4)."""
    accepted: dict[int, tuple[str, str, str]] = {}
    violations = []
    for answer in history.answers("outcome"):
        call = answer.call
        outcome = (call.job, call.outcome, call.completion_id)
        known = accepted.setdefault(call.token, outcome)
        if known != outcome or (not call.completion_id and known is not outcome):
            violations.append(Violation(f"{answer.operation} succeeds with {outcome}, after {known}", answer.reply.t))
    counts = Counter(change.token for change in history.changes if change.f in ENDS_LEASE and change.token)
    violations.extend(
        Violation(f"the lease of token {token} ends {count} times in the log")
        for token, count in counts.items()
        if count > 1
    )
    return violations


def one_end_per_run(history: History) -> list[Violation]:
    """A run ends once, in one way: clients never see two, and after it the log has a new run, or a purge (I10, G4)."""
    completions: dict[tuple[str, int], set[int]] = defaultdict(set)
    for answer in history.answers("outcome"):
        if answer.call.outcome == "completed":
            completions[answer.call.job, answer.call.run].add(answer.call.token)
    violations = [
        Violation(f"run {job}.{run} is completed with tokens {', '.join(map(str, sorted(tokens)))}")
        for (job, run), tokens in completions.items()
        if len(tokens) > 1
    ]
    for changes in history.changes_of.values():
        for earlier, later in pairwise(changes):
            if earlier.status in ENDED and later.f not in ("purge", "touch", *NEW_RUN):
                what = f"job {later.job} has ended as {earlier.status}, and {later.f} follows at index {later.index}"
                violations.append(Violation(what, later.t))
    return violations


def end_is_absorbing(history: History) -> list[Violation]:
    """Once a client has seen a job ended, nobody who asks later sees anything else (I10), unless it runs again."""
    first_seen: dict[str, tuple[int, str]] = {}
    shown = [answer for f in ("get", "outcome", "cancel", "submit") for answer in history.answers(f) if _shown(answer)]
    shown = [answer for answer in shown if not answer.call.stale and answer.operation.job not in history.requeued]
    for answer in sorted(shown, key=lambda answer: answer.operation.end):
        if _shown(answer) in ENDED:
            first_seen.setdefault(answer.operation.job, (answer.operation.end, _shown(answer)))
    violations = []
    for answer in shown:
        ended_at, status = first_seen.get(answer.operation.job, (answer.operation.end, ""))
        if answer.operation.start > ended_at and _shown(answer) != status:
            what = f"{answer.operation} shows {_shown(answer)}, after {status} was seen"
            violations.append(Violation(what, answer.reply.t))
    return violations


def _shown(answer: Answer) -> str:
    """The stage of the job that an answer proves, "" where it proves none."""
    if answer.call.f == "outcome" and answer.call.outcome == "completed":
        return "completed"
    return stage_of(answer.reply.status)


def attempts_within_limits(history: History) -> list[Violation]:
    """Failures and timeouts never exceed a job's attempts; the last lost worker that it may have ends it (section 3,
    I11).
    """
    limits = {change.job: change.max_attempts for change in history.changes if change.f == "submit"}
    violations = []
    for job, changes in history.changes_of.items():
        for run in _runs(changes):
            ends = Counter(change.outcome for change in run if change.f in ("outcome", "expire"))
            failures = ends["failed"] + ends["timeout"]
            if failures > limits.get(job, failures):
                violations.append(Violation(f"job {job} fails {failures} times of {limits[job]}", run[-1].t))
            lost = [change for change in run if change.f == "expire" and change.outcome == "worker_lost"]
            violations.extend(
                Violation(f"job {job} continues after {losses} lost workers, at index {change.index}", change.t)
                for losses, change in enumerate(lost, start=1)
                if losses >= history.lost_workers_max[change.token] and change.status not in ENDED
            )
    return violations


def _runs(changes: list[Change]) -> list[list[Change]]:
    """The changes of each run."""
    runs: list[list[Change]] = [[]]
    for change in changes:
        if change.f in NEW_RUN:
            runs.append([])
        runs[-1].append(change)
    return [run for run in runs if run]
