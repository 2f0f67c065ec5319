"""Handle ConfigureQueue and PauseQueue.

A queue has a record after its first change; other queues have no limits. Changed limits hold from the next lease on, and
do not affect running jobs. If the limit of concurrency keys rises, background steps release the blocked jobs, since there
may be many.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs import rate_limit as bucket
from raftsched.core.jobs.admission import key_concurrency_max
from raftsched.core.jobs.changes import invalid, refused
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import BackgroundKind
from raftsched.core.operations.queues import ConfigureQueue, PauseQueue
from raftsched.core.records.bounds import (
    TIME_MS_MAX,
    actor_problem,
    name_problem,
    range_problem,
    text_problem,
)
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.queue import Queue, TenantWeight
from raftsched.core.records.spec import Hook, hook_problem
from raftsched.core.records.tenant import WEIGHT_MAX
from raftsched.core.state.audit import audited, queue_changes
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, QueueSaved
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutBackgroundWork, PutQueue, Write

_NUMBERS = (
    "rate_count",
    "rate_period_ms",
    "rate_burst",
    "concurrency_max",
    "key_concurrency_max",
    "ageing_ms",
    "retention_ms",
    "lost_workers_max",
)


# -- settings ---------------------------------------------------------------------------------------------------------


@handles(ConfigureQueue)
def configure_queue(view: View, operation: ConfigureQueue, context: Context) -> Applied:
    problem = _settings_problem(operation)
    if problem:
        return invalid(problem)
    old = view.queue(operation.name)
    before = old or Queue(operation.name, created_at_ms=context.now_ms)
    fields = _changed_fields(before, operation)
    if not fields:
        return Applied(QueueSaved(before))
    new = replace(before, updated_at_ms=context.now_ms, revision=context.index, **fields)
    if new.rate_count and not new.rate_period_ms:
        return invalid("rate_period_ms: must be given with rate_count")
    if not fields.keys().isdisjoint(("rate_count", "rate_period_ms", "rate_burst")):
        new = bucket.relimited(before, new, context.now_ms)
    if old is None and _is_full(view):
        return _refusal_of_one_more()
    detail = queue_changes(before, new)
    audit = audited(context, "queue.configure", f"queue:{new.name}", actor=operation.actor, detail=detail)
    return Applied(QueueSaved(new), (PutQueue(old, new), *_offers(view, before, new), audit))


def _changed_fields(before: Queue, operation: ConfigureQueue) -> dict[str, Any]:
    wanted: dict[str, Any] = {name: getattr(operation, name) for name in _NUMBERS if getattr(operation, name) >= 0}
    if operation.weights is not None:
        wanted["weights"] = operation.weights
    for name, hooks in (("on_failure", operation.on_failure), ("on_success", operation.on_success)):
        if hooks is not None:
            wanted[name] = hooks[0] if hooks else None
    return {name: value for name, value in wanted.items() if value != getattr(before, name)}


def _offers(view: View, before: Queue, new: Queue) -> tuple[Write, ...]:
    """Return the write that begins the release of blocked jobs, if there are any and the limit rose."""
    if key_concurrency_max(new) <= key_concurrency_max(before) or not view.blocked_jobs(new.name, limit=1):
        return ()
    return (PutBackgroundWork(BackgroundKind.RELEASE_BLOCKED, new.name.encode()),)


def _settings_problem(operation: ConfigureQueue) -> str:
    return (
        name_problem("name", operation.name)
        or range_problem("rate_count", operation.rate_count, -1, limits.QUEUE_LIMIT_MAX)
        or range_problem("rate_period_ms", operation.rate_period_ms, -1, limits.RATE_PERIOD_MS_MAX)
        or range_problem("rate_burst", operation.rate_burst, -1, limits.QUEUE_LIMIT_MAX)
        or range_problem("concurrency_max", operation.concurrency_max, -1, limits.QUEUE_LIMIT_MAX)
        or range_problem("key_concurrency_max", operation.key_concurrency_max, -1, limits.QUEUE_LIMIT_MAX)
        or range_problem("ageing_ms", operation.ageing_ms, -1, limits.DELAY_MS_MAX)
        or range_problem("retention_ms", operation.retention_ms, -1, limits.DELAY_MS_MAX)
        or range_problem("lost_workers_max", operation.lost_workers_max, -1, limits.LOST_WORKERS_MAX)
        or _weights_problem(operation.weights or ())
        or actor_problem(operation.actor)
        or _hooks_problem("on_failure", operation.on_failure or ())
        or _hooks_problem("on_success", operation.on_success or ())
    )


def _hooks_problem(field: str, hooks: tuple[Hook, ...]) -> str:
    return range_problem(field, len(hooks), 0, 1) or (hook_problem(field, hooks[0]) if hooks else "")


def _weights_problem(weights: tuple[TenantWeight, ...]) -> str:
    problem = range_problem("weights", len(weights), 0, limits.QUEUE_WEIGHTS_MAX)
    for each in weights:
        problem = problem or name_problem("tenant", each.tenant) or range_problem("weight", each.weight, 1, WEIGHT_MAX)
    if not problem and len({each.tenant for each in weights}) < len(weights):
        return "weights: must name a tenant once"
    return problem


# -- pause ------------------------------------------------------------------------------------------------------------


@handles(PauseQueue)
def pause_queue(view: View, operation: PauseQueue, context: Context) -> Applied:
    problem = (
        name_problem("name", operation.name)
        or range_problem("until_ms", operation.until_ms, 0, TIME_MS_MAX)
        or text_problem("reason", operation.reason, limits.PAUSE_REASON_CHARS_MAX)
        or actor_problem(operation.actor)
    )
    if problem:
        return invalid(problem)
    old = view.queue(operation.name)
    before = old or Queue(operation.name, created_at_ms=context.now_ms)
    new = _paused(before, operation, context) if operation.paused else unpaused(before, context)
    if new == before:
        return Applied(QueueSaved(before))
    if old is None and _is_full(view):
        return _refusal_of_one_more()
    verb = "pause" if operation.paused else "resume"
    audit = audited(context, f"queue.{verb}", f"queue:{new.name}", actor=operation.actor, detail=operation.reason)
    return Applied(QueueSaved(new), (PutQueue(old, new), audit))


def _paused(queue: Queue, operation: PauseQueue, context: Context) -> Queue:
    """Return the paused queue; unchanged if it has the same pause already."""
    same = (queue.paused, queue.pause_until_ms, queue.pause_reason) == (True, operation.until_ms, operation.reason)
    if same:
        return queue
    return replace(
        queue,
        paused=True,
        paused_by=operation.actor,
        paused_at_ms=queue.paused_at_ms if queue.paused else context.now_ms,
        pause_until_ms=operation.until_ms,
        pause_reason=operation.reason,
        updated_at_ms=context.now_ms,
        revision=context.index,
    )


def unpaused(queue: Queue, context: Context) -> Queue:
    """Return the queue without its pause; unchanged if it is not paused."""
    if not queue.paused:
        return queue
    return replace(
        queue,
        paused=False,
        paused_at_ms=TimeMs(0),
        pause_until_ms=TimeMs(0),
        pause_reason="",
        paused_by="",
        updated_at_ms=context.now_ms,
        revision=context.index,
    )


# -- common parts -----------------------------------------------------------------------------------------------------


def _is_full(view: View) -> bool:
    return view.queue_count() >= limits.QUEUES_CONFIGURED_MAX


def _refusal_of_one_more() -> Applied:
    return refused(RejectCode.LIMIT_REACHED, f"{limits.QUEUES_CONFIGURED_MAX} queues have settings, and no more may")
