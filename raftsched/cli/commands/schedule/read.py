"""Define `raftsched schedule list | get | next | firings`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from raftsched.cli.commands.schedule.fire_times import local_text, print_outlook
from raftsched.cli.terminal.notices import alarm_text, notice_text
from raftsched.cli.terminal.options import limit_option, order_option, tenant_option
from raftsched.cli.terminal.output import (
    json_option,
    print_fields,
    print_json,
    print_table,
    status_text,
)
from raftsched.cli.terminal.session import Session, part, with_session
from raftsched.cli.terminal.times import rounded, when

_COLUMNS: Final = ("name", "status", "when", "timezone", "job", "next", "last", "fired", "skipped", "active")


def schedule_path(name: str, *rest: str) -> str:
    """Return the path of a schedule by name or id, or of a resource below it."""
    return "/".join(("/schedules", part(name), *rest))


def print_schedule(schedule: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(schedule)
        return
    texts = {
        "labels": ", ".join(f"{name}={text}" for name, text in schedule["labels"].items()),
        "parameters": "; ".join(map(_parameter_text, schedule["parameters"])),
        "notify": "; ".join(map(notice_text, schedule["notify"])),
        "alarms": "; ".join(map(alarm_text, schedule["alarms"])),
    }
    print_fields({**schedule, **texts})


def _parameter_text(parameter: Mapping[str, Any]) -> str:
    choices = f" ({'|'.join(parameter['choices'])})" if "choices" in parameter else ""
    default = f", default {parameter['default']}" if "default" in parameter else ""
    return f"{parameter['name']}: {parameter['type']}{choices}{default}{', required' if parameter['required'] else ''}"


@click.command("list")
@tenant_option
@click.option("--queue", help="Queue of their jobs.")
@click.option("--source", help="Source that applied them.")
@click.option("--owner", help="Their owner.")
@click.option("--label", metavar="NAME=TEXT", help="A label that they have.")
@click.option("--paused/--not-paused", default=None, help="Only paused ones, or only others.")
@limit_option
@with_session
@json_option
def list_schedules(session: Session, limit: int, *, as_json: bool, **filters: Any) -> None:
    """List schedules by name."""
    schedules = list(session.items("/schedules", "schedules", limit=limit, **filters))
    if as_json:
        print_json(schedules)
    else:
        print_table(_COLUMNS, map(_row, schedules), optional=("last", "skipped", "job", "fired", "active", "timezone"))


@click.command("get")
@click.argument("name")
@tenant_option
@with_session
@json_option
def get_schedule(session: Session, name: str, tenant: str | None, *, as_json: bool) -> None:
    """Show a schedule."""
    print_schedule(session.get(schedule_path(name), tenant=tenant), as_json=as_json)


@click.command("next")
@click.argument("name")
@click.option("--count", type=click.IntRange(1, 1_000), default=10, show_default=True, help="Number of fire times.")
@tenant_option
@with_session
@json_option
def next_instants(session: Session, name: str, count: int, tenant: str | None, *, as_json: bool) -> None:
    """Show the next fire times of a schedule."""
    answer = session.get(schedule_path(name, "next"), count=count, tenant=tenant)
    if as_json:
        print_json(answer)
        return
    schedule = session.get(schedule_path(name), tenant=tenant)
    title = (
        f"{answer['name']} is paused: none of these fires while it is paused" if answer["paused"] else answer["name"]
    )
    print_outlook(answer, schedule["timezone"], title=title)


@click.command("firings")
@click.argument("name")
@click.option("--kind", type=click.Choice(["planned", "manual", "backfill"]), help="Only runs of this kind.")
@click.option("--fired/--skipped", default=None, help="Only decisions that made a job, or that skipped one.")
@order_option
@limit_option
@tenant_option
@with_session
@json_option
def list_firings(session: Session, name: str, limit: int, order: str | None, *, as_json: bool, **filters: Any) -> None:
    """Show the decision for each fire time, the latest first."""
    firings = list(
        session.items(schedule_path(name, "firings"), "firings", limit=limit, order=order or "desc", **filters)
    )
    if as_json:
        print_json(firings)
        return
    columns = ("instant", "away", "kind", "decision", "job", "reason", "instants", "late by")
    print_table(columns, map(_firing_row, firings), optional=("late by", "kind", "instants", "away"))


def _row(schedule: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        schedule["name"],
        status_text(schedule["status"]),
        when_text(schedule),
        schedule["timezone"],
        schedule["job"]["name"],
        when(schedule["next_at"]),
        when(schedule["last_at"]),
        schedule["fired_count"],
        schedule["skipped_count"],
        len(schedule["active"]) + len(schedule["backfilling"]),
    )


def when_text(schedule: Mapping[str, Any]) -> str:
    """Return the timing of a schedule, in the words in which it was written."""
    if schedule.get("cron"):
        return str(schedule["cron"])
    if schedule.get("every"):
        return f"every {schedule['every']}"
    if schedule["status"] == "manual":
        return "by hand"
    return f"at {local_text(schedule.get('at'), 'UTC') or schedule.get('at')}"


def _firing_row(firing: Mapping[str, Any]) -> tuple[Any, ...]:
    count = firing["count"]
    late_ms = firing["lateness_ms"]
    return (
        firing["instant"],
        when(firing["instant"]),
        firing["kind"],
        status_text("fired" if firing["fired"] else "skipped"),
        firing["job_id"],
        firing["reason"],
        "very many" if count is None else count,
        None if late_ms is None else rounded(late_ms / 1000),
    )


COMMANDS: Final = (list_schedules, get_schedule, next_instants, list_firings)
