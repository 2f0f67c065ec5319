"""Collect the facts of an event for the job that it submits, and fill placeholders with them.

A placeholder can only be inside a text, since two braces in a row are not JSON elsewhere. So the facts are inserted as
escaped text, without parsing the payload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from raftsched.core.records.ids import job_id_text, run_id_text
from raftsched.core.records.job import MEETS, Condition, Job
from raftsched.core.records.schedule import Schedule
from raftsched.core.records.texts import time_text

PLACEHOLDER: Final = re.compile(rb"\{\{cause\.([a-z_]*)\}\}")
FACTS: Final = (
    *("job_id", "run_id", "name", "queue", "status", "reason", "error", "attempts", "schedule", "fire_time"),
    *("event", "since", "summary"),
)
"""The names of placeholders, as `{{cause.error}}`."""
_FACT_CHARS_MAX: Final = 500
"""Length of a fact in place of a placeholder: a hook has few of them, and fits into the payload of a job."""
_ERROR_CHARS_MAX: Final = 300


def facts_of_end(job: Job, schedule: Schedule | None) -> dict[str, object]:
    """Return what is known of the end of a job's run, by the names of placeholders; `schedule` submitted the run."""
    has_succeeded = job.status in MEETS[Condition.SUCCESS]
    subject = f"Job {job.spec.name}" if schedule is None else run_subject(schedule, _fire_time_ms(job))
    return {
        **facts_of_run(job, schedule),
        "event": "success" if has_succeeded else "dead_letter",
        "since": None,
        "summary": f"{subject} {'succeeded' if has_succeeded else failure_text(job)}",
    }


def facts_of_run(job: Job, schedule: Schedule | None) -> dict[str, object]:
    """Return what is known of a job's run, without its event."""
    fire_time_ms = _fire_time_ms(job)
    return {
        "job_id": job_id_text(job.id),
        "run_id": run_id_text(job.id, job.run_number),
        "name": job.spec.name,
        "queue": job.spec.queue,
        "status": job.status.label,
        "reason": job.failure_reason or None,
        "error": error_text(job),
        "attempts": job.attempt_number,
        "schedule": None if schedule is None else schedule.name,
        "fire_time": None if fire_time_ms is None else time_text(fire_time_ms),
    }


def _fire_time_ms(job: Job) -> int | None:
    return None if job.spec.options is None else job.spec.options.fire_time_ms


def error_text(job: Job) -> str | None:
    """Return the error of the latest ended attempt; None if it has none."""
    error = job.attempts[-1].error if job.attempts else None
    if error is None:
        return None
    return f"{error.type}: {error.message}" if error.message else error.type


def run_subject(schedule: Schedule, fire_time_ms: int | None) -> str:
    """Return the beginning of a sentence about a run."""
    return f"Schedule {schedule.name}: the run for {time_text(fire_time_ms)}"


def failure_text(job: Job) -> str:
    """Return the rest of a sentence about a job that was dead-lettered."""
    return f"is in the dead-letter queue ({job.failure_reason}){error_part(job)}"


def error_part(job: Job) -> str:
    """Return the job's error for the end of a sentence: in one line and cut; "" if it has none."""
    error = error_text(job)
    return "" if error is None else f": {' '.join(error.split())[:_ERROR_CHARS_MAX]}"


def for_executor(facts: Mapping[str, object]) -> dict[str, object]:
    """Return facts whose braces an executor does not take for a placeholder of its own."""
    return {name: fact.replace("{{", "{{{{") if isinstance(fact, str) else fact for name, fact in facts.items()}


def filled(payload: bytes, facts: Mapping[str, object]) -> bytes:
    """Return JSON text with the facts in place of placeholders; unknown ones are left."""

    def fact(match: re.Match[bytes]) -> bytes:
        name = match[1].decode()
        if name not in facts:
            return match[0]
        value = facts[name]
        text = "" if value is None else str(value)[:_FACT_CHARS_MAX]
        return msgspec.json.encode(text)[1:-1]

    return PLACEHOLDER.sub(fact, payload)
