"""Effects of the log on schedules, queues, workflows and chores, in the words of the history."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from raftsched.core.jobs.rate_limit import burst
from raftsched.core.operations.base import Operation
from raftsched.core.operations.control import BackgroundKind
from raftsched.core.operations.queues import CancelWorkflow
from raftsched.core.operations.schedules import FireSchedule, RunSchedule
from raftsched.core.records.notices import Watch
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, Schedule, ScheduleId
from raftsched.core.records.workflow import Workflow
from raftsched.core.state.writes import (
    PutBackgroundWork,
    PutFiring,
    PutQueue,
    PutSchedule,
    PutWorkflow,
    RemoveBackgroundWork,
    RemoveSchedule,
    RemoveWorkflow,
    Write,
)

_NOTHING = Watch()
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def other_events(operation: Operation, write: Write) -> Iterator[tuple[str, dict[str, Any]]]:
    """(kind of event, its fields) of a write that is not of a job; nothing for what no checker asks for."""
    match write:
        case PutFiring():
            yield "Decided", _decided(operation, write.schedule_id, write.firing)
        case PutSchedule():
            yield from _schedule_events(write)
        case RemoveSchedule():
            yield "ScheduleChanged", _schedule(write.old, "delete")
        case PutQueue(old, new) if old is None or _limits(old) != _limits(new):
            yield "QueueChanged", _limits(new)
        case PutWorkflow():
            yield "WorkflowChanged", _workflow(write.new, _verb_of_workflow(operation, write))
        case RemoveWorkflow():
            yield "WorkflowChanged", _workflow(write.old, "remove")
        case PutBackgroundWork():
            yield "BackgroundWorkChanged", _background_work(write.kind, write.subject, is_open=True)
        case RemoveBackgroundWork():
            yield "BackgroundWorkChanged", _background_work(write.kind, write.subject, is_open=False)


def _schedule_events(write: PutSchedule) -> Iterator[tuple[str, dict[str, Any]]]:
    old, new = write.old, write.new
    if old is None or _settings(old) != _settings(new):
        yield "ScheduleChanged", _schedule(new, _verb(old, new))
    if old is not None and old.health.alarms != new.health.alarms:
        yield "AlarmsChanged", _alarms(new)


def _decided(operation: Operation, schedule_id: ScheduleId, firing: Firing) -> dict[str, Any]:
    overlap = operation.overlap.label if isinstance(operation, RunSchedule) else ""
    return {
        "schedule": schedule_id.hex(),
        "generation": firing.generation,
        "kind": firing.kind.label if isinstance(operation, FireSchedule | RunSchedule) else "changed",
        "fire_time_ms": firing.fire_time_ms,
        "last_ms": firing.last_fire_time_ms or firing.fire_time_ms,
        "count": firing.count,
        "job": firing.job_id.hex(),
        "reason": firing.reason,
        "overlap": overlap,
    }


def _settings(schedule: Schedule) -> tuple[object, ...]:
    """The part of a schedule that a user, or the end of a pause, changes; firing moves the rest."""
    return (*_saved(schedule), schedule.paused, schedule.pause_until_ms)


def _saved(schedule: Schedule) -> tuple[object, ...]:
    return (schedule.generation, schedule.overlap, schedule.timing, schedule.template.spec.region, schedule.watch)


def _verb(old: Schedule | None, new: Schedule) -> str:
    if old is None or _saved(old) != _saved(new):
        return "save"
    return "pause" if new.paused else "resume"


def _schedule(schedule: Schedule, f: str) -> dict[str, Any]:
    timing = schedule.timing
    return {
        "schedule": schedule.id.hex(),
        "f": f,
        "generation": schedule.generation,
        "next_ms": schedule.next_at_ms,
        "anchor_ms": timing.begins_ms(0),
        "period_ms": _period_ms(timing.every),
        "paused": schedule.paused,
        "overlap": schedule.overlap.label,
        "max_firings": timing.max_firings,
        "end_ms": timing.end_at_ms or 0,
        "jitter_ms": timing.jitter_ms,
        "region": schedule.template.spec.region,
        "is_watched": schedule.watch is not None,
        **_watch(schedule.watch or _NOTHING),
    }


def _watch(watch: Watch) -> dict[str, Any]:
    return {
        "success_within_ms": watch.success_within_ms,
        "late_after_ms": watch.late_after_ms,
        "notices": tuple(tuple(event.label for event in notice.events) for notice in watch.notices),
    }


def _alarms(schedule: Schedule) -> dict[str, Any]:
    return {"schedule": schedule.id.hex(), "alarms": tuple(alarm.event.label for alarm in schedule.health.alarms)}


@lru_cache
def _period_ms(every: str) -> int:
    """The period as this simulator writes it (`1s500ms`), read again."""
    total, digits = 0, ""
    while every:
        unit = next((unit for unit in _UNITS_MS if every.startswith(unit)), "")
        if unit:
            total, digits = total + int(digits) * _UNITS_MS[unit], ""
        else:
            digits += every[0]
        every = every[len(unit) or 1 :]
    return total


def _limits(queue: Queue) -> dict[str, Any]:
    return {
        "queue": queue.name,
        "paused": queue.paused,
        "rate_count": queue.rate_count,
        "rate_period_ms": queue.rate_period_ms,
        "rate_burst": burst(queue) if queue.rate_count else 0,
        "concurrency_max": queue.concurrency_max,
        "key_concurrency_max": queue.key_concurrency_max or 1,
        "max_lost_workers": queue.lost_workers_max,
    }


def _verb_of_workflow(operation: Operation, write: PutWorkflow) -> str:
    old, new = write
    if old is None or old.stored_count != new.stored_count:
        return "submit"
    asks = isinstance(operation, CancelWorkflow) and operation.id == new.id
    return "cancel" if asks and new.cancel_requested_at_ms else "move"


def _workflow(workflow: Workflow, f: str) -> dict[str, Any]:
    return {
        "workflow": workflow.id.hex(),
        "f": f,
        "job_count": workflow.job_count,
        "stored_count": workflow.stored_count,
        "unfinished_count": workflow.unfinished_count,
    }


def _background_work(kind: BackgroundKind, subject: bytes, *, is_open: bool) -> dict[str, Any]:
    return {"kind": kind.name.lower(), "subject": subject.hex(), "is_open": is_open}
