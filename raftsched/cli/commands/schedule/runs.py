"""Define `raftsched schedule trigger | backfill`: manual runs, for now or for the past."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from raftsched.cli.commands.schedule.parameters import parameter_values
from raftsched.cli.commands.schedule.read import schedule_path
from raftsched.cli.commands.schedule.save import OVERLAPS
from raftsched.cli.terminal.options import dry_run_option, given, payload_field, tenant_option
from raftsched.cli.terminal.output import json_option, print_json, print_table, progress_console, say
from raftsched.cli.terminal.session import Session, with_session
from raftsched.cli.terminal.times import MOMENT, when
from raftsched.client.backfill import PATIENCE_SECONDS, PAUSE_SECONDS, BackfillProgress
from raftsched.wire.verbs import SCHEDULE

_TRIGGER: Final = SCHEDULE["trigger"]
_SHOWN_MAX: Final = 50
_PAUSE_SECONDS: Final = PAUSE_SECONDS
_PATIENCE_SECONDS: Final = PATIENCE_SECONDS


@click.command(
    "trigger",
    help=f"{_TRIGGER.help}\n\nExit code 1 if the run is skipped because an earlier one has not ended.",
)
@click.argument("name")
@click.option("--payload", help="JSON in place of the schedule's; - for standard input.")
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    metavar="POLICY",
    help=f"One of {', '.join(OVERLAPS)}; default: the schedule's, so it may be skipped.",
)
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a parameter; a terminal is asked for missing ones. Repeatable.",
)
@click.option("--instant", type=MOMENT, help="Fire time of the run; a repeated one finds the first run. Default: now.")
@click.option("--idempotency-key", help="A repeated trigger with the same key finds the first run.")
@tenant_option
@with_session
@json_option
def trigger(
    session: Session,
    name: str,
    *,
    payload: str | None,
    overlap: str | None,
    parameters: tuple[str, ...],
    instant: str | None,
    idempotency_key: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    values = parameter_values(session, name, parameters, tenant)
    asked = {
        **payload_field(payload),
        **given({"overlap": overlap, "instant": instant}),
        **({"parameters": values} if values else {}),
    }
    firing = session.do(_TRIGGER, schedule_path(name), asked, query={"tenant": tenant}, key=idempotency_key)
    if as_json:
        print_json(firing)
    else:
        say(f"job {firing['job_id']}" if firing["fired"] else f"skipped: {firing['reason']}")
    if not firing["fired"]:
        raise SystemExit(1)


@click.command("backfill")
@click.argument("name")
@click.option("--from", "from_", type=MOMENT, required=True, help="First fire time.")
@click.option("--to", type=MOMENT, default="now", show_default=True, help="End of the range, exclusive.")
@click.option(
    "--overlap",
    type=click.Choice(["sequential", "allow"]),
    help="One run after the other (default), or all at the same time.",
)
@click.option("--latest-first", is_flag=True, help="Run the latest fire time first; default: the oldest.")
@click.option("--per-minute", type=click.IntRange(min=1), help="Most runs that come due in a minute.")
@dry_run_option
@tenant_option
@with_session
@json_option
def backfill(
    session: Session,
    name: str,
    *,
    from_: str,
    to: str,
    overlap: str | None,
    per_minute: int | None,
    tenant: str | None,
    latest_first: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run a schedule for past fire times.

    It does so whatever was decided for them at their time. At most 1,000 of its
    runs are unfinished at once; it continues as they end, and gives up when none
    ends for ten seconds.

    The same command again continues from there: no run is made twice within 30 days.
    """
    asked = {
        "from": from_,
        "to": to,
        **given({"overlap": overlap, "order": latest_first and "desc", "per_minute": per_minute, "dry_run": dry_run}),
    }
    answer = _backfilled(session, schedule_path(name), asked, tenant)
    if as_json:
        print_json(answer)
    elif dry_run:
        _print_plan(answer)
    else:
        say(f"{answer['run_count']:,} runs made, {answer['skipped_count']:,} fire times skipped")
        if answer["known_count"]:
            say(f"{answer['known_count']:,} were backfilled before")
        if answer["remaining_count"]:
            told = "there are too many unfinished runs; run it again when some of them have ended"
            say(f"{answer['remaining_count']:,} fire times remain: {told}")


def _backfilled(session: Session, path: str, asked: Mapping[str, Any], tenant: str | None) -> dict[str, Any]:
    """Send the request, each time for the rest, until it makes no progress for a while; return the total."""
    key = session.new_key()
    progress = BackfillProgress(asked)
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    with progress_console.status("making runs") as shown:
        while True:
            has_advanced = progress.add(
                session.do(SCHEDULE["backfill"], path, progress.request, query={"tenant": tenant}, key=key)
            )
            if progress.is_done or (not has_advanced and time.monotonic() >= give_up_at):
                return progress.total()
            shown.update(f"{progress.run_count:,} runs made, {progress.remaining_count:,} left")
            if has_advanced:
                give_up_at = time.monotonic() + _PATIENCE_SECONDS
            else:  # no more can be made until some of the runs have ended
                time.sleep(_PAUSE_SECONDS)


def _print_plan(answer: Mapping[str, Any]) -> None:
    instants = answer["instants"]
    rows = [
        (each["instant"], each["action"], when(each["run_at"]), each["planned"], each["reason"])
        for each in instants[:_SHOWN_MAX]
    ]
    print_table(("instant", "would", "due", "at its time", "reason"), rows)
    if len(instants) > _SHOWN_MAX:
        say(f"and {len(instants) - _SHOWN_MAX:,} more; --json has all")
    say(f"would make {answer['run_count']:,} runs and skip {answer['skipped_count']:,} fire times")
    if answer["known_count"]:
        say(f"{answer['known_count']:,} were backfilled before")
    if answer["remaining_count"]:
        say(f"{answer['remaining_count']:,} would have to wait until runs have ended")


COMMANDS: Final = (trigger, backfill)
