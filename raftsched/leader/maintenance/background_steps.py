"""Advance long work: propose the next step of each until none is left.

The whole state of a background step is in the log, so a new leader continues where the last one stopped, and a step
that is proposed twice only does two steps.

Background steps take turns: the kinds first, and within a kind its subjects. So neither a thousand of one kind nor one
that takes a thousand steps delays any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raftsched.core.operations.base import Operation
from raftsched.core.operations.control import BackgroundKind, DoBackgroundStep
from raftsched.core.state.results import Result
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.view import LeaderView

PARALLEL_MAX: Final = 4
"""Steps that are on their way at the same time."""


class BackgroundSteps:
    """Propose `DoBackgroundStep` while there are background steps."""

    name: Final = "background steps"

    def __init__(self, view: LeaderView) -> None:
        self._view: Final = view
        self._may_have_any = True
        self._latest: Final = dict.fromkeys(BackgroundKind, b"")
        """The subject of each kind that had its turn last; the first kind here has waited longest."""

    def notify(self) -> None:
        """Note that a background step was started or advanced."""
        self._may_have_any = True

    def step(self, now: Now) -> Sequence[Operation]:  # noqa: ARG002
        found = {kind: self._next_of(kind) for kind in self._latest}
        turns = [
            (kind, subjects[turn])
            for turn in range(PARALLEL_MAX)
            for kind, subjects in found.items()
            if turn < len(subjects)
        ]
        chosen = turns[:PARALLEL_MAX]
        self._may_have_any = bool(chosen)
        for kind, subject in chosen:
            del self._latest[kind]
            self._latest[kind] = subject
        return [DoBackgroundStep(kind, subject) for kind, subject in chosen]

    def _next_of(self, kind: BackgroundKind) -> list[bytes]:
        """Return the subjects of a kind whose turn is next, at most `PARALLEL_MAX`, each once."""
        latest = self._latest[kind]
        behind = self._subjects(kind, after=latest)
        if len(behind) == PARALLEL_MAX:
            return behind
        before = [subject for subject in self._subjects(kind, after=b"") if subject <= latest]
        return [*behind, *before][:PARALLEL_MAX]

    def _subjects(self, kind: BackgroundKind, *, after: bytes) -> list[bytes]:
        found = self._view.background_work(limit=PARALLEL_MAX, after=(kind, after))
        return [subject for its_kind, subject in found if its_kind is kind]

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:
        """Note the result of a step, or that it is unknown; the next read says what is left."""

    def next_call_ms(self, now: Now) -> int:
        return now.monotonic_ms if self._may_have_any else NEVER_MS
