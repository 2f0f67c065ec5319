"""Properties of leases in the log: tokens, intervals, authority and due times. `terms` has those of real time."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.checkers.history.events import Change
from chaos.checkers.history.views import ENDS_LEASE, Answer, History
from chaos.checkers.report import Violation


def tokens_rise(history: History) -> list[Violation]:
    """Along the log, every lease has a greater token than all before it, whichever job it is for (I8, G3a)."""
    violations = []
    highest = 0
    for change in history.changes:
        if change.f != "lease":
            continue
        if change.token <= highest:
            what = f"job {change.job} is leased with token {change.token} at index {change.index}, after {highest}"
            violations.append(Violation(what, change.t))
        highest = max(highest, change.token)
    return violations


def lease_intervals_disjoint(history: History) -> list[Violation]:
    """In the order of the log, a run has at most one current lease, and only that one is ended (I8, G3a)."""
    return [violation for changes in history.changes_of.values() for violation in _overlaps(changes)]


def _overlaps(changes: list[Change]) -> Iterator[Violation]:
    current = 0
    for change in changes:
        if change.f == "lease":
            if current:
                what = f"token {change.token} is granted at index {change.index} while {current} is current"
                yield Violation(f"job {change.job}: {what}", change.t)
            current = change.token
        elif change.f in ENDS_LEASE and (change.token or current):
            if change.token != current:
                what = f"the lease of token {change.token} ends at index {change.index}, while {current} is current"
                yield Violation(f"job {change.job}: {what}", change.t)
            current = 0


def one_holder_per_token(history: History) -> list[Violation]:
    """Whoever was answered with success for a token is the one worker, with the one attempt, it was granted to (I8)."""
    holders: dict[int, tuple[str, str, int, int]] = {}
    violations = []
    for answer, grant in history.grants:
        holder = (answer.call.worker, grant.job, grant.run, grant.attempt)
        if holders.setdefault(grant.token, holder) != holder:
            what = f"token {grant.token} is granted to {holder} and to {holders[grant.token]}"
            violations.append(Violation(what, answer.reply.t))
    for answer in _token_holders(history):
        call = answer.call
        known = holders.get(call.token)
        if known is not None and known[:3] != (call.worker, call.job, call.run):
            violations.append(
                Violation(f"{answer.operation} succeeds, but the token is held by {known}", answer.reply.t)
            )
    return violations


def _token_holders(history: History) -> Iterator[Answer]:
    """Answers that prove their caller to be the holder of its token."""
    yield from (answer for answer in history.answers("heartbeat") if answer.reply.valid)
    yield from history.answers("outcome")


def authority(history: History) -> list[Violation]:
    """A heartbeat or an outcome succeeds only with the token that is current at its revision (I9, G3a).

    An outcome may succeed again, once it was recorded.
    """
    if not history.changes:
        return []
    return [
        Violation(f"{answer.operation} succeeds {problem}", answer.reply.t)
        for answer in _token_holders(history)
        if (problem := _heartbeat_problem(answer, history) if answer.reply.valid else _outcome_problem(answer, history))
    ]


def _heartbeat_problem(answer: Answer, history: History) -> str:
    token, index = answer.call.token, answer.reply.applied
    granted, ended = history.grant_of.get(token), history.end_of.get(token)
    if granted is None or granted.job != answer.call.job:
        return "with a token that was never granted for its job"
    if index and granted.index > index:
        return f"at index {index}, before its token is granted at {granted.index}"
    if index and ended is not None and ended.index <= index:
        return f"at index {index}, after its lease ended at {ended.index}"
    return ""


def _outcome_problem(answer: Answer, history: History) -> str:
    call, index = answer.call, answer.operation.shown
    ended = history.end_of.get(call.token)
    if ended is None or ended.f != "outcome" or ended.job != call.job or ended.status == "cancelled":
        return "though its lease did not end by a report"
    if (ended.outcome, ended.completion_id) != (call.outcome, call.completion_id):
        return f"though {ended.outcome} was recorded for its token, under completion id {ended.completion_id!r}"
    return f"at index {index}, but is recorded at {ended.index} only" if index and index < ended.index else ""


# -- due times --------------------------------------------------------------------------------------------------------


def never_before_due(history: History) -> list[Violation]:
    """A job is leased once the cluster's time has reached its due time, not earlier (I16, G8)."""
    return [violation for changes in history.changes_of.values() for violation in _early(changes)]


def _early(changes: list[Change]) -> Iterator[Violation]:
    due_ms = 0
    for change in changes:
        if change.f == "lease" and change.now_ms < due_ms:
            early_ms = due_ms - change.now_ms
            yield Violation(f"job {change.job} is leased at index {change.index}, {early_ms} ms early", change.t)
        elif change.f != "lease":
            due_ms = change.due_ms


def never_before_true_time(history: History) -> list[Violation]:
    """No lease reaches a worker before the due time by a true clock, but for the error of the cluster's clocks (I16).

    Says nothing in runs whose wall clocks are off by more (`Setup.epoch_ms` is 0 there).
    """
    setup = history.setup
    if not setup.epoch_ms:
        return []
    due_of = {answer.reply.job: answer.call.due_ms for answer in history.answers("submit")}
    violations = []
    for answer, grant in history.grants:
        true_ms = setup.epoch_ms + answer.reply.t // 1_000
        early_ms = due_of.get(grant.job, 0) - true_ms
        if early_ms > setup.clock_error_ms:
            what = f"job {grant.job} reaches worker {answer.call.worker} {early_ms} ms before it is due"
            violations.append(Violation(what, answer.reply.t))
    return violations


def true_time_count(history: History) -> int:
    return len(history.grants) if history.setup.epoch_ms else 0


def cluster_time_never_falls(history: History) -> list[Violation]:
    """Along the log, the cluster's time never runs backward, whoever leads (G8)."""
    violations = []
    latest = history.changes[0] if history.changes else None
    for change in history.changes:
        assert latest is not None
        if change.now_ms < latest.now_ms:
            what = (
                f"cluster time falls from {latest.now_ms} at index {latest.index} to {change.now_ms} at {change.index}"
            )
            violations.append(Violation(what, change.t))
        latest = change
    return violations
