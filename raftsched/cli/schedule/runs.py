"""`raftsched schedule trigger | backfill`: runs by hand, for now or for the past."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final

import click

from raftsched.cli.options import dry_run_option, given, payload_field, tenant_option
from raftsched.cli.output import json_option, print_json, print_table, progress_console, say
from raftsched.cli.schedule.reading import schedule_path
from raftsched.cli.schedule.saving import OVERLAPS
from raftsched.cli.session import Session, with_session
from raftsched.cli.times import MOMENT, rfc3339, when

_SHOWN_MAX: Final = 50
_PAUSE_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 10.0
"""How long a backfill without room waits for one of its runs to end."""
_COUNTED: Final = {"run": "run_count", "skip": "skipped_count", "known": "known_count"}
"""What becomes of an instant, and where an answer counts that."""


@click.command("trigger")
@click.argument("name")
@click.option("--payload", help="JSON in place of the schedule's; - for standard input.")
@click.option("--overlap", type=click.Choice(OVERLAPS), help="Default: the schedule's, so it may be skipped.")
@click.option(
    "--instant", type=MOMENT, help="What it is a run for; the same a second time finds the first. Default: now."
)
@click.option("--idempotency-key", help="The same key and trigger a second time finds the first run.")
@tenant_option
@with_session
@json_option
def trigger(
    session: Session,
    name: str,
    *,
    payload: str | None,
    overlap: str | None,
    instant: str | None,
    idempotency_key: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Run a schedule now, beside its instants.

    Exit code 1 where the run is skipped, since an earlier one has not ended.
    """
    asked = {**payload_field(payload), **given({"overlap": overlap, "instant": instant})}
    headers = session.key_header(idempotency_key)
    firing = session.post(schedule_path(name, "trigger"), asked, query={"tenant": tenant}, headers=headers)
    if as_json:
        print_json(firing)
    else:
        say(f"job {firing['job_id']}" if firing["fired"] else f"skipped: {firing['reason']}")
    if not firing["fired"]:
        raise SystemExit(1)


@click.command("backfill")
@click.argument("name")
@click.option("--from", "from_", type=MOMENT, required=True, help="The first instant.")
@click.option("--to", type=MOMENT, default="now", show_default=True, help="Not part of the range.")
@click.option(
    "--overlap",
    type=click.Choice(["sequential", "allow"]),
    help="One run after the other (default), or all at the same time.",
)
@click.option("--latest-first", is_flag=True, help="By default the oldest instant runs first.")
@click.option("--per-minute", type=click.IntRange(min=1), help="So many runs come due in a minute.")
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
    """Run a schedule for past instants.

    It does so whatever was decided for them at their time. At most 1,000 of its
    runs are unfinished at once; it goes on as they end, and gives up when for
    ten seconds none does.

    The same command again goes on where it stands: what was made once is not made again, for 30 days.
    """
    asked = {
        "from": from_,
        "to": to,
        **given({"overlap": overlap, "order": latest_first and "desc", "per_minute": per_minute, "dry_run": dry_run}),
    }
    answer = _backfilled(session, schedule_path(name, "backfill"), asked, tenant)
    if as_json:
        print_json(answer)
    elif dry_run:
        _print_plan(answer)
    else:
        say(f"{answer['run_count']:,} runs made, {answer['skipped_count']:,} instants skipped")
        if answer["known_count"]:
            say(f"{answer['known_count']:,} were backfilled before")
        if answer["remaining_count"]:
            told = "there is no room for more unfinished runs; say it again when some of them have ended"
            say(f"{answer['remaining_count']:,} instants remain: {told}")


def _backfilled(session: Session, path: str, asked: Mapping[str, Any], tenant: str | None) -> dict[str, Any]:
    """Send the request, each time for what remains, until it gets no further for a while; return the answer about all.

    No instant that is decided is asked for again, so how long the cluster knows of it does not matter.
    """
    headers = session.key_header()
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    counts: Counter[str] = Counter()
    decided: list[dict[str, Any]] = []
    with progress_console.status("making runs") as shown:
        while True:
            answer = session.post(path, asked, query={"tenant": tenant}, headers=headers)
            following = answer["next_instant"]
            gone = _before(following, answer["instants"])
            if following is None or (not gone and time.monotonic() >= give_up_at):
                counts.update({name: answer[field] for name, field in _COUNTED.items()})
                totals = {field: counts[name] for name, field in _COUNTED.items()}
                return {**answer, **totals, "instants": decided + answer["instants"]}
            if not gone:  # there is no room until some of the runs have ended
                time.sleep(_PAUSE_SECONDS)
                continue
            give_up_at = time.monotonic() + _PATIENCE_SECONDS
            counts.update(item["action"] for item in gone)
            decided += gone
            asked = _remaining(asked, following)
            shown.update(f"{counts['run']:,} runs made, {answer['remaining_count']:,} to come")


def _before(following: str | None, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(takewhile(lambda item: item["instant"] != following, items))


def _remaining(asked: Mapping[str, Any], following: str) -> dict[str, Any]:
    """The request for the instants from `following` on, in the order of the runs."""
    if asked.get("order") == "desc":
        return {**asked, "to": rfc3339(datetime.fromisoformat(following) + timedelta(milliseconds=1))}
    return {**asked, "from": following}


def _print_plan(answer: Mapping[str, Any]) -> None:
    instants = answer["instants"]
    rows = [
        (each["instant"], each["action"], when(each["run_at"]), each["planned"], each["reason"])
        for each in instants[:_SHOWN_MAX]
    ]
    print_table(("instant", "would", "due", "at its time", "reason"), rows)
    if len(instants) > _SHOWN_MAX:
        say(f"and {len(instants) - _SHOWN_MAX:,} more; --json has all")
    say(f"would make {answer['run_count']:,} runs and skip {answer['skipped_count']:,} instants")
    if answer["known_count"]:
        say(f"{answer['known_count']:,} were backfilled before")
    if answer["remaining_count"]:
        say(f"{answer['remaining_count']:,} would have to wait until runs have ended")


COMMANDS: Final = (trigger, backfill)
