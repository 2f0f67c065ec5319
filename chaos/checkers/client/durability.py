"""Check the answers to clients: what was acknowledged is there, what was refused isn't, nothing comes from nowhere.

Theory of operation. If the log was read back, each acknowledged operation must have its change in it. Without the
log, the final states replace it, for as much as they show: jobs, their statuses, the count of their attempts.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.checkers.history.events import Change, FinalJob, Invoke
from chaos.checkers.history.views import Answer, History, Operation
from chaos.checkers.report import Violation


def acknowledged_is_kept(history: History) -> list[Violation]:
    """Whatever was answered with success is in the log, and in the state of every node at the end (I4, G1)."""
    violations = list(_missing_in_log(history)) if history.changes else []
    for node, final in history.finals.items():
        violations.extend(
            Violation(f"{operation} is acknowledged, but {node} ends with {what}", operation.end)
            for operation, what in _missing_in_final(history, final.jobs)
        )
    return violations


def _missing_in_log(history: History) -> Iterator[Violation]:
    done = {
        _deed(change) for change in history.changes if change.status != "cancelled" or change.f in ("cancel", "abort")
    }
    for f in ("submit", "outcome", "cancel"):
        for answer in history.answers(f):
            if _acknowledged_deed(answer) not in done:
                yield Violation(f"{answer.operation} is acknowledged, but not in the log", answer.reply.t)
    for answer, grant in history.grants:
        change = history.grant_of.get(grant.token)
        if change is None or (change.job, change.attempt) != (grant.job, grant.attempt):
            what = f"{answer.operation} got token {grant.token} for job {grant.job}, which the log does not know"
            yield Violation(what, answer.reply.t)


def _deed(change: Change) -> tuple[object, ...]:
    if change.f == "outcome":
        return (change.f, change.job, change.token, change.outcome, change.completion_id)
    return ("cancel" if change.f == "abort" else change.f, change.job)


def _acknowledged_deed(answer: Answer) -> tuple[object, ...]:
    call = answer.call
    if call.f == "outcome":
        return (call.f, call.job, call.token, call.outcome, call.completion_id)
    return (call.f, answer.operation.job)


def _missing_in_final(history: History, jobs: dict[str, FinalJob]) -> Iterator[tuple[Operation, str]]:
    for f in ("submit", "outcome", "cancel"):
        for answer in history.answers(f):
            job = answer.operation.job
            if job in history.purged:
                continue
            final = jobs.get(job)
            if final is None:
                yield answer.operation, f"no job {job}"
            elif job not in history.requeued and not _shows(final, answer):
                yield answer.operation, f"job {job} {final.status}"
    for answer, grant in history.grants:
        final = jobs.get(grant.job)
        if final is not None and grant.job not in history.requeued and final.attempt < grant.attempt:
            yield answer.operation, f"job {grant.job} after {final.attempt} attempts"


def _shows(final: FinalJob, answer: Answer) -> bool:
    """Whether a job at the end is what it must be after this answer, whatever else happened to it."""
    match answer.call.f:
        case "outcome" if answer.call.outcome == "completed":
            return final.status == "completed"
        case "cancel":
            return final.status in ("cancelling", "cancelled")
        case _:
            return True


def nothing_from_nowhere(history: History) -> list[Violation]:
    """No change is in the log, and no job in a final state, that no client asked for, or that says other than asked (I5)."""
    violations = [
        Violation(
            f"nobody asked for the {match.change.f} of job {match.change.job} at index {match.change.index}",
            match.change.t,
        )
        for match in history.matches
        if not match.is_internal and not (match.answered or match.unknown or match.refused)
    ]
    violations.extend(_altered(history))
    known = set(history.changes_of) or {answer.reply.job for answer in history.answers("submit")}
    by_key, by_op = _submissions(history)
    for node, final in history.finals.items():
        violations.extend(
            Violation(f"{node} ends with job {job}, which nobody submitted", final.t)
            for job, there in final.jobs.items()
            if job not in known and (there.tenant, there.key) not in by_key and there.op not in by_op
        )
    return violations


def _submissions(history: History) -> tuple[set[tuple[str, str]], set[int]]:
    calls = [operation.call for operation in history.operations if operation.call.f == "submit"]
    return {(call.tenant, call.key) for call in calls if call.key}, {call.op for call in calls}


def _altered(history: History) -> Iterator[Violation]:
    """Submits whose job in the log is not the one that was asked for."""
    for match in history.matches:
        change = match.change
        if change.f != "submit":
            continue
        askers = [operation.call for operation in (*match.answered, *match.unknown)]
        if askers and not any(_is_wanted(change, call) for call in askers):
            yield Violation(f"job {change.job} at index {change.index} is not as it was submitted", change.t)


def _is_wanted(change: Change, call: Invoke) -> bool:
    due_ms = change.due_ms if call.due_ms == -1 else call.due_ms or change.now_ms
    wanted = (call.tenant, call.body, call.max_attempts, call.max_lost_workers, call.timeout_ms, due_ms)
    limits = (change.max_attempts, change.max_lost_workers, change.timeout_ms)
    return wanted == (change.tenant, change.body, *limits, change.due_ms)


def refused_is_not_applied(history: History) -> list[Violation]:
    """An operation that was definitely refused has no effect (I6, G1)."""
    violations = [
        Violation(
            f"{match.refused[0]} is refused ({match.refused[0].error}), but {_told(match.change)}", match.change.t
        )
        for match in history.matches
        if match.refused and not (match.answered or match.unknown)
    ]
    refused = {
        operation.call.op for operation in history.operations if operation.call.f == "submit" and operation.error
    }
    retried = {(operation.call.tenant, operation.call.key) for operation in history.operations if not operation.error}
    for node, final in history.finals.items():
        violations.extend(
            Violation(f"submit op {job.op} is refused, but {node} ends with job {name}", final.t)
            for name, job in final.jobs.items()
            if job.op in refused and not (job.key and (job.tenant, job.key) in retried)
        )
    return violations


def refused_count(history: History) -> int:
    return sum(1 for operation in history.operations if operation.error)


def _told(change: Change) -> str:
    return f"its {change.f} of job {change.job} is at index {change.index}"
