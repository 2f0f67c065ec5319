"""Properties of callbacks: the target of a request reports its outcome, with the token that was made for that attempt.

Theory of operation. A worker commits the digest of a token with the start of an attempt. The target's report is an outcome
that has the token, and in the log a completion id with its digest. So the log says for itself which token a
report was recorded for, and of which attempt that token was.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from chaos.checkers.history.events import Change
from chaos.checkers.history.views import Answer, History
from chaos.checkers.report import Violation

_PREFIX = "callback-"
_DIGEST_BYTES = 16
_BY_WORKER = ("worker_lost", "outage")


def callbacks_count_with_their_token(history: History) -> list[Violation]:
    """A callback counts once, and only with the token that was made for the run's current attempt (DESIGN 12)."""
    digests = {change.token: change.callback_digest for change in history.changes if change.f == "start"}
    recorded: set[str] = set()
    violations = []
    for change in _recorded(history):
        digest = change.completion_id.removeprefix(_PREFIX)
        if digests.get(change.token) != digest:
            what = f"job {change.job} ends at index {change.index} by a token that is not of attempt {change.token}"
            violations.append(Violation(what, change.t))
        if digest in recorded:
            violations.append(Violation(f"{change.completion_id} is recorded again at index {change.index}", change.t))
        recorded.add(digest)
    violations.extend(
        Violation(f"{answer.operation} by a callback succeeds {problem}", answer.reply.t)
        for answer in _accepted(history)
        if history.changes and (problem := _problem(history, answer))
    )
    return violations


def _problem(history: History, answer: Answer) -> str:
    """Return why a callback must not have been accepted; "" = it is right."""
    call = answer.call
    digest = blake2b(call.callback_token.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    starts = [change for change in history.changes_of.get(call.job, ()) if change.f == "start"]
    start = next((each for each in starts if (each.run, each.callback_digest) == (call.run, digest)), None)
    if start is None:
        return "with a token that was not made for its run"
    end = history.end_of.get(start.token)
    if end is None or end.f != "outcome" or end.completion_id != _PREFIX + digest:
        how = "has not ended" if end is None else f"ended by {end.f} {end.outcome} at index {end.index}"
        return f"although its attempt {how}"
    return "" if end.outcome == call.outcome else f"although {end.outcome} is recorded"


def awaited_runs_end_by_themselves(history: History) -> list[Violation]:
    """A run that awaits a callback is not ended as that of a lost worker, and that it awaits one is kept (DESIGN 12)."""
    if not history.changes:
        return []
    awaited = {change.token: change for change in history.changes if change.f == "await"}
    violations = []
    for token, change in awaited.items():
        end = history.end_of.get(token)
        if end is not None and end.f == "expire" and end.outcome in _BY_WORKER:
            what = f"job {change.job} awaits a callback, and ends at index {end.index} by {end.outcome}"
            violations.append(Violation(what, end.t))
    reported = {change.token for change in _recorded(history)}
    violations.extend(
        Violation(f"{answer.operation} is acknowledged, but not in the log", answer.reply.t)
        for answer in history.answers("await")
        if answer.call.token not in awaited.keys() | reported
    )
    return violations


def callback_count(history: History) -> int:
    return sum(1 for _ in _accepted(history))


def awaited_count(history: History) -> int:
    return sum(1 for change in history.changes if change.f == "await")


def _recorded(history: History) -> Iterator[Change]:
    """Yield the ends of attempts that callbacks caused."""
    return (change for change in history.changes if change.f == "outcome" and change.completion_id.startswith(_PREFIX))


def _accepted(history: History) -> Iterator[Answer]:
    return (answer for answer in history.answers("outcome") if answer.call.callback_token)
