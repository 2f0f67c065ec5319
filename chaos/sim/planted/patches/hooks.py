"""Planted into hooks: a job that an event asks for is stored late, is left out, or comes too often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftsched.core.jobs.hooks import hook_of, submission
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import FINISHED, Job
from raftsched.core.state.results import Context, Result
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutJob
from raftsched.core.workflows import cascade as cascade_module
from raftsched.leader.duties import Duties, Post
from raftsched.leader.now import NEVER_MS, Now


class _Forwarding:
    """A duty that proposes the hooks of the ends that this leader saw."""

    name = "planted_hooks"

    def __init__(self) -> None:
        self.ended: list[tuple[Job, Any]] = []

    def step(self, now: Now) -> Sequence[Operation]:
        orders = []
        for job, (view, hook) in self.ended:
            write = submission(view, job, hook, Context(TimeMs(now.cluster_ms), 0))
            new = write.new
            orders.append(SubmitJob(new.id, new.tenant, new.spec, new.due_at_ms, write.payload or b""))
        self.ended = []
        return orders

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:
        pass

    def next_call_ms(self, now: Now) -> int:
        return now.monotonic_ms if self.ended else NEVER_MS


def submits_hooks_in_a_second_entry(patch: Any) -> None:
    """The leader proposes the hook when it sees the end; one that dies before has seen it for nobody."""
    patch.setattr(cascade_module, "hook_of", lambda _view, _job: None)
    start, on_changes = Duties.__init__, Duties.on_changes

    def init(self: Any, *args: Any, **fields: Any) -> None:
        start(self, *args, **fields)
        self.planted = _Forwarding()
        self._posts = (*self._posts, Post(self.planted))

    def changed(self: Any, changes: Any, now: Now) -> None:
        for old, new in changes:
            if new is not None and new.status in FINISHED and (old is None or old.status not in FINISHED):
                hook = hook_of(self._view, new)
                if hook is not None:
                    self.planted.ended.append((new, (self._view, hook)))
        on_changes(self, changes, now)

    patch.setattr(Duties, "__init__", init)
    patch.setattr(Duties, "on_changes", changed)


def forgets_hooks_of_what_nobody_reported(patch: Any) -> None:
    """Only reports of workers have hooks: not lost workers, timeouts and deadlines."""

    def reported(view: View, job: Job) -> Any:
        by_report = job.attempts and job.failure_reason in ("", "attempts_exhausted", "rejected")
        return hook_of(view, job) if by_report else None

    patch.setattr(cascade_module, "hook_of", reported)


def submits_hooks_for_every_attempt(patch: Any) -> None:
    """An attempt that failed has the hook of its job already, and the end has it again."""
    follow = cascade_module.Cascade._follow  # noqa: SLF001  # what is patched
    matters = cascade_module._matters  # noqa: SLF001  # what is patched

    def with_attempts(self: Any, change: PutJob) -> None:
        hook = _hook_of_attempt(change)
        if hook is not None:
            self.fork.execute((submission(self.fork, change.new, hook, self._context),))
        follow(self, change)

    patch.setattr(cascade_module.Cascade, "_follow", with_attempts)
    patch.setattr(
        cascade_module, "_matters", lambda view, change: _hook_of_attempt(change) is not None or matters(view, change)
    )


def _hook_of_attempt(change: PutJob) -> Any:
    old, new = change.old, change.new
    is_over = old is not None and old.lease is not None and new.lease is None and new.failure_count > old.failure_count
    if not is_over or new.status in FINISHED or new.spec.options is None:
        return None
    return new.spec.options.on_failure if new.failure_count == 1 else None
