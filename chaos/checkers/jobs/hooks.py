"""Properties of hooks: the end of a job that asks for another has it stored in its own entry, once, and nothing else has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaos.checkers.history.events import Change
from chaos.checkers.history.views import History
from chaos.checkers.model import ENDED
from chaos.checkers.report import Violation

_ASKED_BY = {"completed": "on_success", "dead_letter": "on_failure"}


def ends_submit_their_hooks(history: History) -> list[Violation]:
    """Every end that asks for a job stores it in the same entry, and no job is stored without such an end (DESIGN 12)."""
    asked = Counter((end.job, end.index) for end in _ends(history))
    stored = Counter((change.hook_of, change.index) for change in history.changes if change.hook_of)
    return [
        Violation(
            f"job {job} ends at index {index}, which asks for {asked[job, index]} hooks, not {stored[job, index]}", 0
        )
        for job, index in sorted(asked.keys() | stored.keys())
        if asked[job, index] != stored[job, index]
    ]


def hook_count(history: History) -> int:
    return sum(1 for _ in _ends(history))


def _ends(history: History) -> Iterator[Change]:
    """Yield the changes that end a run of a job, if that job asks for another at this end."""
    for changes in history.changes_of.values():
        hooks = changes[0].hooks
        if not hooks:
            continue
        has_ended = False
        for change in changes:
            is_end = change.status in ENDED
            if is_end and not has_ended and _ASKED_BY.get(change.status) in hooks:
                yield change
            has_ended = is_end
