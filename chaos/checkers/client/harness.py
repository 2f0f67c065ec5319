"""Properties of the history itself: a checker is worth no more than what it is fed, so the harness is checked too."""

from __future__ import annotations

from chaos.checkers.history.events import OPERATIONS, Invoke, Reply, Setup
from chaos.checkers.history.views import History
from chaos.checkers.report import Violation


def well_formed(history: History) -> list[Violation]:
    """A history keeps the form of RELIABILITY section 3.

    One setup, first; time never falls; each reply answers its own process's call, once; `info` retires a process.
    """
    violations = []
    if not history.events or not isinstance(history.events[0], Setup) or len(history.of(Setup)) != 1:
        violations.append(Violation("a history begins with its only setup"))
    latest = 0
    for event in history.events:
        if event.t < latest and not (event.t < 0):
            violations.append(Violation(f"{type(event).__name__} comes after {latest} µs", event.t))
        latest = max(latest, event.t)
    violations.extend(_unpaired(history))
    return violations


def _unpaired(history: History) -> list[Violation]:
    calls: dict[int, Invoke] = {}
    answered: set[int] = set()
    retired: set[str] = set()
    violations = []
    for event in history.events:
        problem = ""
        if isinstance(event, Invoke):
            if event.op in calls or event.f not in OPERATIONS:
                problem = "is called twice" if event.op in calls else f"asks for {event.f}"
            elif event.process in retired:
                problem = f"is called by {event.process}, which is retired"
            calls.setdefault(event.op, event)
        elif isinstance(event, Reply):
            call = calls.get(event.op)
            if call is None or call.process != event.process:
                problem = f"is answered to {event.process}, which did not call it"
            elif event.op in answered:
                problem = "is answered twice"
            answered.add(event.op)
            if event.type == "info":
                retired.add(event.process)
        if problem:
            assert isinstance(event, Invoke | Reply)
            violations.append(Violation(f"op {event.op} {problem}", event.t))
    return violations
