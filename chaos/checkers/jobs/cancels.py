"""Properties of cancelling: once acknowledged, it is final (I13, G10)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.history.views import NEW_RUN, History
from chaos.checkers.model import CANCELLED, CANCELLING, stage_of
from chaos.checkers.report import Violation


def cancel_is_final(history: History) -> list[Violation]:
    """No lease of a job, and no outcome for it, succeeds when asked for after its cancel was acknowledged (I13).

    A report may be answered again with what was recorded for it before the cancel. And whoever looks sees it cancelled.
    Says nothing of jobs that were to run again.
    """
    cancelled_at = _acknowledged(history)
    if not cancelled_at:
        return []
    violations = [
        Violation(f"{answer.operation} gets token {grant.token} for job {grant.job}, whose cancel is acknowledged")
        for answer, grant in history.grants
        if answer.operation.start > cancelled_at.get(grant.job, answer.operation.start)
    ]
    violations.extend(_late_outcomes(history, cancelled_at))
    violations.extend(
        Violation(f"{answer.operation} shows {answer.reply.status} after its cancel was acknowledged", answer.reply.t)
        for answer in history.answers("get")
        if not answer.call.stale
        and answer.operation.start > cancelled_at.get(answer.call.job, answer.operation.start)
        and stage_of(answer.reply.status) not in (CANCELLED, CANCELLING)
    )
    return violations


def _acknowledged(history: History) -> dict[str, int]:
    """Job -> when its first cancel was acknowledged."""
    cancelled_at: dict[str, int] = {}
    for answer in sorted(history.answers("cancel"), key=lambda answer: answer.operation.end):
        if answer.call.job not in history.requeued:
            cancelled_at.setdefault(answer.call.job, answer.operation.end)
    return cancelled_at


def _late_outcomes(history: History, cancelled_at: dict[str, int]) -> Iterator[Violation]:
    first_try: dict[tuple[int, str, str], int] = defaultdict(int)
    for operation in reversed(history.operations):
        call = operation.call
        if call.f == "outcome":
            first_try[call.token, call.outcome, call.completion_id] = operation.start
    for answer in history.answers("outcome"):
        call = answer.call
        tried_at = first_try[call.token, call.outcome, call.completion_id]
        if tried_at > cancelled_at.get(call.job, tried_at):
            yield Violation(f"{answer.operation} succeeds after the cancel was acknowledged", answer.reply.t)


def nothing_follows_a_cancel(history: History) -> list[Violation]:
    """In the log, nothing happens to a cancelled job but the end of its lease, its purge, or a new run (G10)."""
    violations = []
    for changes in history.changes_of.values():
        is_cancelled = False
        for change in changes:
            if change.f in NEW_RUN:
                is_cancelled = False
            if is_cancelled and change.f not in ("purge", "touch") and change.status != CANCELLED:
                what = f"job {change.job} is cancelled, but {change.f} makes it {change.status} at index {change.index}"
                violations.append(Violation(what, change.t))
            is_cancelled = is_cancelled or change.f in ("cancel", "abort")
    return violations
