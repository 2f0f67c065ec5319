"""Define `raftsched schedule create | delete | pause | resume | preview`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from raftsched.cli.commands.schedule.fire_times import print_outlook
from raftsched.cli.commands.schedule.read import print_schedule, schedule_path
from raftsched.cli.terminal.handlerless import HandlerlessCommand, handlerless_options, work_fields
from raftsched.cli.terminal.notices import FORM, notice_document
from raftsched.cli.terminal.options import (
    JOB_OPTIONS,
    given,
    job_fields,
    job_options,
    options,
    pairs,
    parse_json,
    tenant_option,
)
from raftsched.cli.terminal.output import json_option, print_json, say
from raftsched.cli.terminal.session import Session, with_session
from raftsched.cli.terminal.times import SPAN, WALL_MOMENT
from raftsched.cli.terminal.verb_command import verb_command
from raftsched.errors import Invalid
from raftsched.wire.verbs import SCHEDULE

OVERLAPS: Final = ("skip", "buffer_one", "buffer_all", "allow", "cancel_previous", "terminate_previous")

timing_options = options(
    click.option("--cron", help="Five fields, or six with the seconds first, or @daily and the like."),
    click.option("--every", help="Fixed interval, as 90s or 1h30m."),
    click.option("--at", type=WALL_MOMENT, help="Once."),
    click.option(
        "--timezone",
        metavar="ZONE",
        is_eager=True,  # the other times are read by its clock
        help="IANA name, as Europe/Berlin; default: UTC. Also the zone of times without an offset.",
    ),
    click.option("--start-at", type=WALL_MOMENT, help="No fire time before it; a fixed interval begins there."),
    click.option("--end-at", type=WALL_MOMENT, help="No fire time after it."),
    click.option("--dst-gap", type=click.Choice(["shift", "skip"]), help="For a wall time that a clock change skips."),
    click.option("--dst-overlap", type=click.Choice(["first", "both"]), help="For a wall time that occurs twice."),
    click.option(
        "--skip-date", "skip_dates", multiple=True, metavar="DATE", help="No fire time on this day. Repeatable."
    ),
    click.option(
        "--business-days",
        metavar="COUNTRY",
        help="Only business days: weekdays, or those of a country with holidays, as DE or DE-BY.",
    ),
    click.option("--calendar", help="JSON, for blackouts and the rest. See POST /schedules for its fields."),
)
_CALENDAR: Final = ("skip_dates", "business_days", "calendar")


@click.command("create", cls=HandlerlessCommand)
@click.argument("name")
@click.argument("job", required=False)
@click.argument("payload", required=False)
@timing_options
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    metavar="POLICY",
    help=f"If an earlier run has not ended: {', '.join(OVERLAPS)}; default: skip.",
)
@click.option(
    "--misfire",
    type=click.Choice(["run_once", "skip", "run_all"]),
    help="For fire times missed in an outage or a pause; default: run_once.",
)
@click.option(
    "--catchup-window", "catchup_window_seconds", type=SPAN, help="Older missed fire times are skipped; default: 1d."
)
@click.option("--jitter", "jitter_seconds", type=SPAN, help="Spread runs over this time after their fire time.")
@click.option("--max-firings", type=int, help="End after this number of runs.")
@click.option("--pause-until", type=WALL_MOMENT, help="Begin paused, until then.")
@click.option("--description", help="A text for people: its purpose.")
@click.option("--owner", help="Name or e-mail address of the person or team to ask.")
@click.option("--label", "labels", multiple=True, metavar="NAME=TEXT", help="To find it by. Repeatable.")
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="JSON",
    help='A value that runs get, as in \'{"name": "region", "default": "eu"}\'. See POST /schedules for its fields.'
    " Repeatable.",
)
@click.option(
    "--notify",
    multiple=True,
    metavar=FORM,
    help="Send a message at failed, dead_letter, missed, late, recovered or success. TARGET: a URL, slack:URL,"
    " email:ADDRESS,… or a job as JSON. Repeatable.",
)
@click.option(
    "--expect-success-within",
    "expect_success_within_seconds",
    type=SPAN,
    help="It is missed if no run succeeds for this time, as 26h.",
)
@click.option(
    "--late-after", "late_after_seconds", type=SPAN, help="A run that starts this long after its fire time is late."
)
@click.option("--create-only", is_flag=True, help="Fail if there is one of this name, instead of changing it.")
@tenant_option
@job_options
@handlerless_options
@with_session
@json_option
def create_schedule(
    session: Session,
    name: str,
    job: str | None,
    payload: str | None,
    *,
    create_only: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Create a schedule, or change the one of this name.

    At each fire time it submits the job JOB with PAYLOAD: JSON, or - for JSON from standard input. With --http or --shell it
    submits a request or a command, and JOB is optional.
    """
    work = work_fields(job, payload, fields)
    if not work:
        raise click.UsageError("give either JOB [PAYLOAD], --http URL, or --shell")
    fields["labels"] = pairs(fields["labels"], "=", "--label", "NAME=TEXT") or None
    fields["parameters"] = [parse_json(text, "--parameter") for text in fields["parameters"]] or None
    fields["notify"] = [notice_document(text) for text in fields["notify"]] or None
    job_options_given = {field: fields.pop(field) for field in JOB_OPTIONS}
    document = {
        "name": name,
        **_timing_fields(fields),
        "job": {**work, **job_fields(job_options_given)},
    }
    headers = {"If-None-Match": "*"} if create_only else {}
    print_schedule(session.post("/schedules", document, headers=headers), as_json=as_json)


@click.command("preview")
@click.argument("expression", required=False, metavar="[CRON]")
@timing_options
@click.option("--after", type=WALL_MOMENT, help="Default: now.")
@click.option("--count", type=click.IntRange(1, 1_000), default=10, show_default=True, help="Number of fire times.")
@with_session
@json_option
def preview(session: Session, expression: str | None, count: int, *, as_json: bool, **fields: Any) -> None:
    """Show the fire times of a timing; nothing is stored.

    As in: preview '0 9 * * mon-fri' --timezone Europe/Berlin.
    """
    if expression is not None and fields["cron"] is not None:
        raise click.UsageError("give the expression once")
    fields["cron"] = expression or fields["cron"]
    answer = session.post("/schedules/preview", {**_timing_fields(fields), "count": count})
    if as_json:
        print_json(answer)
    else:
        print_outlook(answer, fields["timezone"] or "UTC")


@click.command("delete", help=SCHEDULE["delete"].help)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@tenant_option
@with_session
@json_option
def delete_schedules(session: Session, names: tuple[str, ...], tenant: str | None, *, as_json: bool) -> None:
    deleted = []
    for name in names:
        deleted.append(session.do(SCHEDULE["delete"], schedule_path(name), query={"tenant": tenant}))
        if not as_json:
            say(f"{name}  deleted")
    if as_json:
        print_json(deleted)


pause_schedule = verb_command(SCHEDULE["pause"], schedule_path, print_schedule, tenant_option)
resume_schedule = verb_command(SCHEDULE["resume"], schedule_path, print_schedule, tenant_option)


def _timing_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a schedule that are not its job's, from the options."""
    wanted = given({name: value for name, value in fields.items() if name not in _CALENDAR})
    calendar = parse_json(fields["calendar"], "--calendar") if fields["calendar"] else {}
    if not isinstance(calendar, dict):
        raise Invalid("--calendar: must be a JSON object", field="calendar")
    if fields["skip_dates"]:
        calendar["skip_dates"] = [*calendar.get("skip_dates", ()), *fields["skip_dates"]]
    if fields["business_days"]:
        calendar["business_days"] = _business_days(fields["business_days"])
    return wanted | ({"calendar": calendar} if calendar else {})


def _business_days(text: str) -> bool | dict[str, str]:
    if text == "weekdays":
        return True
    country, _, subdivision = text.partition("-")
    return {"country": country, **({"subdivision": subdivision} if subdivision else {})}


COMMANDS: Final = (create_schedule, preview, delete_schedules, pause_schedule, resume_schedule)
