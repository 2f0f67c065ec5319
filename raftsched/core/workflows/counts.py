"""Update a workflow's counts when its jobs end, or run again."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec.structs import replace

from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import FINISHED, TRAITS, Job
from raftsched.core.records.workflow import Workflow
from raftsched.core.state.results import Context

_COUNTS: Final = {status: traits.workflow_count for status, traits in TRAITS.items() if traits.workflow_count}
"""The count for each final status; completed jobs are the rest."""


class Tally:
    """Sum the changes of several jobs for their workflow."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._runs_again = False

    def move(self, old: Job, new: Job) -> None:
        """Count one job's change; it has no effect if both statuses are finished, or neither is."""
        for job, sign in ((old, -1), (new, 1)):
            name = _COUNTS.get(job.status) if job.status in FINISHED else "unfinished_count"
            if name is not None:
                self._counts[name] += sign
        self._runs_again = self._runs_again or new.status not in FINISHED

    def applied_to(self, workflow: Workflow, context: Context, *, is_cancelling: bool) -> Workflow:
        """Return the workflow with updated counts; it is finished exactly if all its jobs are.

        While parts are missing its `updated_at_ms` stays the time of the latest part.
        """
        counts = {name: getattr(workflow, name) + self._counts[name] for name in sorted(self._counts)}
        moved = replace(workflow, revision=context.index, **counts)
        if self._runs_again and not is_cancelling:
            moved = replace(moved, cancel_requested_at_ms=TimeMs(0))
        if not moved.is_whole:
            return moved
        finished_at_ms = TimeMs(0) if moved.unfinished_count else moved.finished_at_ms or context.now_ms
        return replace(moved, updated_at_ms=context.now_ms, finished_at_ms=finished_at_ms)
