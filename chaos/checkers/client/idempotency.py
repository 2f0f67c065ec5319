"""Properties of submission under an idempotency key (G7, I7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.history.views import Answer, History, Operation
from chaos.checkers.report import Violation

Key = tuple[str, str]
"""(tenant, idempotency key)."""


def one_job_per_key(history: History) -> list[Violation]:
    """Equal submits under one key create one job and get the same answer, for as long as that job exists (I7)."""
    violations = [*_doubled_in_log(history), *_doubled_at_end(history)]
    key_of = {change.job: (change.tenant, change.key) for change in history.changes if change.f == "submit"}
    for key, answers in _answers_by_key(history).items():
        jobs = dict.fromkeys(answer.reply.job for answer in answers)
        strangers = [job for job in jobs if key_of.get(job, key) != key]
        if strangers or len(jobs) > 1 + len(history.purged.intersection(jobs)):
            violations.append(Violation(f"the submits under key {key} were answered with jobs {', '.join(jobs)}"))
    return violations


def _doubled_in_log(history: History) -> Iterator[Violation]:
    """Submits that made a second job while the first one was there."""
    holders: dict[Key, str] = {}
    keys: dict[str, Key] = {}
    for change in history.changes:
        if change.f == "purge":
            holders.pop(keys.get(change.job, ("", "")), None)
        if change.f != "submit" or not change.key:
            continue
        key = (change.tenant, change.key)
        if key in holders:
            what = f"jobs {holders[key]} and {change.job} both hold key {key} at index {change.index}"
            yield Violation(what, change.t)
        holders[key] = change.job
        keys[change.job] = key


def _doubled_at_end(history: History) -> Iterator[Violation]:
    for node, final in history.finals.items():
        holders: dict[Key, str] = {}
        for name, job in final.jobs.items():
            if job.key and holders.setdefault((job.tenant, job.key), name) != name:
                what = f"{node} ends with jobs {holders[job.tenant, job.key]} and {name} under key {job.key}"
                yield Violation(what, final.t)


def one_body_per_key(history: History) -> list[Violation]:
    """A submit is answered with a job of the very same body, or refused (I7)."""
    bodies = {change.job: change.body for change in history.changes if change.f == "submit"}
    violations = []
    for key, answers in _answers_by_key(history).items():
        for answer in answers:
            body = bodies.setdefault(answer.reply.job, answer.call.body)
            if body != answer.call.body:
                what = f"{answer.operation} under key {key} has body {answer.call.body}, its job has {body}"
                violations.append(Violation(what, answer.reply.t))
    return violations


def mismatch_has_a_cause(history: History) -> list[Violation]:
    """A key is refused as used only where another body was sent under it before (I7)."""
    sent: dict[Key, list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if operation.call.f == "submit":
            sent[operation.call.tenant, operation.call.key].append(operation)
    return [
        Violation(f"{refused} is refused, but no other body was sent under its key", refused.end)
        for refused in _mismatches(history)
        if not any(
            other.call.body != refused.call.body and other.start <= refused.end
            for other in sent[refused.call.tenant, refused.call.key]
        )
    ]


def _mismatches(history: History) -> Iterator[Operation]:
    return (operation for operation in history.operations if operation.error == "idempotency_mismatch")


def mismatch_count(history: History) -> int:
    return sum(1 for _ in _mismatches(history))


def _answers_by_key(history: History) -> dict[Key, list[Answer]]:
    answers: dict[Key, list[Answer]] = defaultdict(list)
    for answer in history.answers("submit"):
        if answer.call.key:
            answers[answer.call.tenant, answer.call.key].append(answer)
    return answers


def keyed_count(history: History) -> int:
    return sum(map(len, _answers_by_key(history).values()))
