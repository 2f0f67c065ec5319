"""Convert the schedule of Celery beat, as `celery_app` reads it from the application.

An entry becomes a schedule of jobs with the task's name; its payload is `{"args": …, "kwargs": …}`. In a crontab of Celery
both day fields must match. Beat runs an overdue entry once when it starts, does not look at earlier runs, and retries
nothing.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from raftsched.cli.converters.report import Entry, Report
from raftsched.cli.converters.schedule_fields import WINDOW_SECONDS_MAX
from raftsched.cli.converters.wall_times import WallTimes, timing_fields
from raftsched.core.cron.interval import period_text
from raftsched.errors import Invalid

_SCHEDULERS: Final = ("celery.beat:PersistentScheduler", "celery.beat:Scheduler")


def read_beat(document: dict[str, Any], *, timezone: str | None) -> Report:
    """Return the schedules of a document that `celery_app` printed."""
    report = Report(document["file"], timezone)
    if document["scheduler"] not in _SCHEDULERS:
        report.not_kept(f"entries that {document['scheduler']} keeps elsewhere, such as in a database, are not read")
    for each in document["entries"]:
        with report.entry(f"{each['name']}: {each['schedule']['shown']}", each["line"]) as entry:
            entry.name = each["name"]
            entry.fields = _timing(each["schedule"], document, report)
            deadline = document["starting_deadline_seconds"] if "crontab" in each["schedule"] else None
            entry.fields |= {
                "overlap": "allow",
                "misfire": "run_once",
                "catchup_window_seconds": WINDOW_SECONDS_MAX if deadline is None else deadline,
            }
            entry.job = _job(each, entry)
    return report


def _timing(schedule: dict[str, Any], document: dict[str, Any], report: Report) -> dict[str, Any]:
    if "fault" in schedule:
        raise Invalid(schedule["fault"])
    if "seconds" in schedule:
        if schedule["is_relative"]:
            raise Invalid("relative=True rounds to the clock; write a crontab")
        return {"every": period_text(_whole_ms(schedule["seconds"]))}
    sets = {name: frozenset(values) for name, values in schedule["crontab"].items()}
    times = WallTimes(
        minutes=sets["minute"],
        hours=sets["hour"],
        days=sets["day_of_month"],
        months=sets["month_of_year"],
        weekdays=sets["day_of_week"],
    )
    return timing_fields(times, zone=document["timezone"] or report.local_zone(), clock="shift")


def _whole_ms(seconds: float) -> int:
    if seconds * 1_000 != int(seconds * 1_000):
        raise Invalid(f"an interval of {seconds} s is not a whole number of milliseconds")
    return int(seconds * 1_000)


def _job(each: dict[str, Any], entry: Entry) -> dict[str, Any]:
    if "fault" in each:
        raise Invalid(each["fault"])
    job: dict[str, Any] = {"name": each["task"], "payload": each["payload"], "max_attempts": 1}
    if not each["acks_late"]:
        job["start"] = "at_most_once"
    for option, shown in each["options"].items():
        value = _literal(shown)
        if option == "queue" and isinstance(value, str):
            job["queue"] = value
        elif option == "expires" and isinstance(value, int | float):
            job["expires_in_seconds"] = value
        elif value is not None:
            entry.not_kept(f"option {option}={shown}")
    if not each["is_known"]:
        entry.note(f"the application has no task {each['task']}")
    return job


def _literal(shown: str) -> Any:
    """Return the value of a `repr`, or the text itself if it is none of a simple value."""
    try:
        return ast.literal_eval(shown)
    except (SyntaxError, ValueError):
        return object()
