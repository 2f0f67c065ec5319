"""Properties of what there is at most one of: runs that begin at most once, unique jobs, and what users were promised
to stay as they left it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from chaos.checkers.history.events import Invoke, QueueChanged, ScheduleChanged, WorkflowChanged
from chaos.checkers.history.views import NEVER, NEW_RUN, Answer, History, Operation
from chaos.checkers.model import ENDED, PURGED
from chaos.checkers.report import Violation

# -- at most once -----------------------------------------------------------------------------------------------------


def begins_at_most_once(history: History) -> list[Violation]:
    """A job that begins at most once starts under one token in each run, runs once, and is not leased again (I11, G5)."""
    once = {change.job for change in history.changes if change.f == "submit" and change.once}
    if not once:
        return []
    return [*_leased_again(history, once), *_started_twice(history, once), *_ran_twice(history, once)]


def _leased_again(history: History, once: set[str]) -> Iterator[Violation]:
    started: set[str] = set()
    for change in history.changes:
        if change.job not in once:
            continue
        if change.f in NEW_RUN:
            started.discard(change.job)
        elif change.f == "start":
            started.add(change.job)
        elif change.f == "lease" and change.job in started:
            yield Violation(f"job {change.job} is leased at index {change.index}, after it was started", change.t)


def _started_twice(history: History, once: set[str]) -> Iterator[Violation]:
    tokens: dict[tuple[str, int], int] = {}
    for answer in history.answers("start"):
        call = answer.call
        if call.job in once and tokens.setdefault((call.job, call.run), call.token) != call.token:
            yield Violation(f"{answer.operation} starts run {call.job}.{call.run} again", answer.reply.t)


def _ran_twice(history: History, once: set[str]) -> Iterator[Violation]:
    begun: set[tuple[str, int]] = set()
    allowed = {(answer.call.job, answer.call.run, answer.call.token) for answer in history.answers("start")}
    for effects in history.effects_of.values():
        for effect in effects:
            if effect.phase != "begin" or effect.job not in once:
                continue
            if (effect.job, effect.run) in begun:
                yield Violation(f"run {effect.job}.{effect.run} begins twice", effect.t)
            if (effect.job, effect.run, effect.token) not in allowed:
                yield Violation(f"run {effect.job}.{effect.run} begins, and its start is not committed", effect.t)
            begun.add((effect.job, effect.run))


def once_count(history: History) -> int:
    return sum(1 for answer in history.answers("start") if not answer.call.callback_token)


# -- unique -----------------------------------------------------------------------------------------------------------

Key = tuple[str, str]
"""(tenant, unique key)."""


def _claims(history: History) -> dict[Key, list[tuple[int, int, str]]]:
    """For each key the spans of time in which a job that has it was there, unfinished, by the log."""
    spans: dict[Key, list[tuple[int, int, str]]] = defaultdict(list)
    since: dict[str, tuple[int, Key]] = {}
    # A cluster that encrypts its data stores another digest than the client has sent.
    sent = {call.op: call.unique for call in history.of(Invoke) if call.f == "submit" and call.unique}
    asked = {change.job: sent[change.op] for change in history.changes if change.f == "submit" and change.op in sent}
    for change in history.changes:
        is_over = change.status in ENDED or change.status == PURGED or not change.unique
        if change.job in since and is_over:
            began, key = since.pop(change.job)
            spans[key].append((began, change.t, change.job))
        elif not is_over and change.job not in since:
            since[change.job] = (change.t, (change.tenant, asked.get(change.job, change.unique)))
    for job, (began, key) in since.items():
        spans[key].append((began, NEVER, job))
    return spans


def one_unfinished_job_per_unique_key(history: History) -> list[Violation]:
    """At no index of the log are two jobs with the same unique key unfinished (D21)."""
    holders: dict[Key, str] = {}
    held: dict[str, Key] = {}
    violations = []
    for change in history.changes:
        if change.job in held and (change.status in ENDED or change.status == PURGED or not change.unique):
            holders.pop(held.pop(change.job), None)
        elif change.unique and change.status not in ENDED and change.job not in held:
            key = (change.tenant, change.unique)
            if key in holders:
                what = (
                    f"jobs {holders[key]} and {change.job} are both there for {change.unique} at index {change.index}"
                )
                violations.append(Violation(what, change.t))
                continue
            holders[key], held[change.job] = change.job, key
    return violations


def unique_refusals_have_a_cause(history: History) -> list[Violation]:
    """A submit is refused for its unique key only while another job with it is there, unfinished (D21)."""
    refused = [operation for operation in history.operations if operation.error == "unique_conflict"]
    if not refused or not history.changes:
        return []
    claims = _claims(history)
    violations = []
    for operation in refused:
        spans = claims.get((operation.call.tenant, operation.call.unique), [])
        if operation.call.f == "submit" and not any(
            began <= operation.end and operation.start <= ended for began, ended, _ in spans
        ):
            violations.append(Violation(f"{operation} is refused, and no other job is there for it", operation.end))
    return violations


def unique_count(history: History) -> int:
    return sum(1 for change in history.changes if change.f == "submit" and change.unique)


# -- what was acknowledged --------------------------------------------------------------------------------------------


def acknowledged_control_is_kept(history: History) -> list[Violation]:
    """A pause, a deletion, a cancellation of a whole that was acknowledged is in the log by then (I4, G1)."""
    if not history.changes:
        return []
    schedules, queues = _History(history, ScheduleChanged), _History(history, QueueChanged)
    violations = []
    for answer in (*history.answers("control_schedule"), *history.answers("pause_queue")):
        call = answer.call
        if call.f == "pause_queue":
            is_kept = queues.was(answer, lambda event: event.paused)
        elif call.action == "delete":
            is_kept = schedules.was(answer, lambda event: event.f == "delete")
        elif call.action == "pause":
            is_kept = schedules.was(answer, lambda event: event.paused)
        else:
            continue
        if not is_kept:
            what = f"{answer.operation} ({call.action} of {call.subject}) is acknowledged, but not in the log"
            violations.append(Violation(what, answer.reply.t))
    cancelled = {event.workflow: event.index for event in reversed(history.of(WorkflowChanged)) if event.f == "cancel"}
    violations.extend(
        Violation(f"{answer.operation} of workflow {answer.call.subject} is acknowledged, but not in the log")
        for answer in history.answers("cancel_workflow")
        if cancelled.get(answer.call.subject, NEVER) > (answer.reply.applied or NEVER)
    )
    return violations


def refused_deletion_is_not_applied(history: History) -> list[Violation]:
    """A deletion of a schedule that was definitely refused did not happen (I6)."""
    wanted: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if operation.call.f == "control_schedule" and operation.call.action == "delete":
            wanted[operation.call.subject].append(operation)
    violations = []
    for event in history.of(ScheduleChanged):
        asked = [each for each in wanted.get(event.schedule, ()) if event.f == "delete" and each.start <= event.t]
        if asked and all(operation.error for operation in asked):
            what = f"{asked[-1]} is refused ({asked[-1].error}), but schedule {event.schedule} is deleted"
            violations.append(Violation(f"{what} at index {event.index}", event.t))
    return violations


def deletion_count(history: History) -> int:
    return sum(1 for each in history.operations if each.call.f == "control_schedule" and each.call.action == "delete")


class _History:
    """The events of one kind, by what they are about, in the order of the log."""

    def __init__(self, history: History, kind: type[ScheduleChanged | QueueChanged]) -> None:
        self._events: dict[str, list[ScheduleChanged | QueueChanged]] = defaultdict(list)
        for event in history.log_of(kind):
            assert isinstance(event, ScheduleChanged | QueueChanged)
            name = event.schedule if isinstance(event, ScheduleChanged) else event.queue
            self._events[name].append(event)

    def was(self, answer: Answer, condition: Callable[[Any], bool]) -> bool:
        """Whether the condition held at some index between those that were in force at the call and at the answer."""
        events = self._events.get(answer.call.subject, [])
        known = bisect_left([event.t for event in events], answer.operation.start)
        until = bisect_left([event.index for event in events], (answer.reply.applied or NEVER) + 1)
        return any(map(condition, events[max(0, known - 1) : until]))


def control_count(history: History) -> int:
    return sum(len(history.answers(f)) for f in ("control_schedule", "pause_queue", "cancel_workflow"))
