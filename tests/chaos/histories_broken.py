"""What mutators of good histories share: the register of them, and the few ways to edit a list of events.

A mutator takes a good history and returns it with one promise broken; it raises `NoPlace` where the history has no place
for that. It names the properties that must flag it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec.structs import replace

from chaos.checkers import History
from chaos.checkers.history.events import AnyEvent, Change, FinalState, Invoke, Reply
from chaos.checkers.history.views import Answer

Events = list[AnyEvent]
Mutator = Callable[[History], Events]
T = TypeVar("T")

FINISHED = ("completed", "dead_letter", "cancelled")


class NoPlace(Exception):
    """The history has nothing that this mutator could break."""


@dataclass(frozen=True)
class Mutation:
    name: str
    mutate: Mutator
    flagged_by: tuple[str, ...]


MUTATIONS: list[Mutation] = []


def breaks(*properties: str) -> Callable[[Mutator], Mutator]:
    """Register a mutator, with the properties that it breaks."""

    def register(mutate: Mutator) -> Mutator:
        MUTATIONS.append(Mutation(mutate.__name__, mutate, properties))
        return mutate

    return register


# -- editing ----------------------------------------------------------------------------------------------------------


def edit(history: History, *changes: tuple[AnyEvent, dict[str, Any]]) -> Events:
    """The events with some of them changed."""
    edits = {id(event): fields for event, fields in changes}
    return [replace(event, **edits[id(event)]) if id(event) in edits else event for event in history.events]


def without(history: History, dropped: Iterable[AnyEvent]) -> Events:
    gone = {id(event) for event in dropped}
    return [event for event in history.events if id(event) not in gone]


def inserted(history: History, before: AnyEvent, *events: AnyEvent) -> Events:
    """The events with others before one of them, at its time."""
    position = next(position for position, event in enumerate(history.events) if event is before)
    new = [replace(event, t=before.t) for event in events]
    return [*history.events[:position], *new, *history.events[position:]]


def appended(history: History, *events: AnyEvent) -> Events:
    return [*history.events, *(replace(event, t=history.end + 1) for event in events)]


def asked(history: History, f: str, *, call: dict[str, Any], reply: dict[str, Any], process: str = "x") -> Events:
    """One more operation after the end, answered with success."""
    return appended(history, *operation(f, call=call, reply=reply, process=process))


def operation(
    f: str, *, call: dict[str, Any], reply: dict[str, Any], process: str = "x", op: int = 10**9
) -> tuple[Invoke, Reply]:
    fields = {"type": "ok"} | reply
    return Invoke(process=process, op=op, f=f, **call), Reply(process=process, op=op, **fields)


def set_up(history: History, **fields: Any) -> Events:
    """The same events, in a run that promised something else."""
    return edit(history, (history.setup, fields))


# -- finding ----------------------------------------------------------------------------------------------------------


def first(items: Iterable[T], condition: Callable[[T], object] = lambda _: True) -> T:
    """The first that fits; raises `NoPlace` where none does."""
    for item in items:
        if condition(item):
            return item
    raise NoPlace


def change_of(history: History, condition: Callable[[Change], object]) -> Change:
    return first(history.changes, condition)


def answer_of(history: History, f: str, condition: Callable[[Answer], object] = lambda _: True) -> Answer:
    return first(history.answers(f), condition)


def all_of_job(history: History, job: str) -> list[AnyEvent]:
    """The changes of a job; its clients keep their answers."""
    return list(history.changes_of[job])


def finals_without(history: History, job: str) -> list[tuple[AnyEvent, dict[str, Any]]]:
    return [
        (final, {"jobs": {name: each for name, each in final.jobs.items() if name != job}})
        for final in history.of(FinalState)
    ]


def rebuilt(events: Iterable[AnyEvent]) -> History:
    return History(events)
