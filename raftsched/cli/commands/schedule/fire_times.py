"""Show fire times of schedules in tables: in UTC, by the clock of their zone, and their distance from now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.text import Text

from raftsched.cli.terminal.output import print_table, say
from raftsched.cli.terminal.times import read_time, when
from raftsched.core.cron.zones import zone
from raftsched.errors import Invalid

_CLOCK: Final = "%a %Y-%m-%d %H:%M:%S %z"


def local_text(instant: str | None, timezone: str) -> str:
    """Return the time by the clock of `timezone`, by the zone data that the cluster has; "" if it is not known."""
    moment = read_time(instant)
    try:
        return "" if moment is None else moment.astimezone(zone(timezone).info).strftime(_CLOCK)
    except Invalid:
        return ""


def print_outlook(answer: Mapping[str, Any], timezone: str, *, title: str | None = None) -> None:
    """Print the next fire times, with the reason for those that the calendar skips."""
    fires = [(instant, Text("fires", style="green")) for instant in answer["firings"]]
    skips = [(each["instant"], Text(f"skipped: {each['reason']}", style="dim")) for each in answer["skipped"]]
    rows = [
        (instant, local_text(instant, timezone), when(instant), told)
        for instant, told in sorted((*fires, *skips), key=lambda row: row[0])
    ]
    if not rows:
        say("There are no more fire times.")
        return
    print_table(("instant", timezone, "away", ""), rows, title=title, optional=("instant",))
    if not answer["complete"]:
        say("The calendar skips so many fire times that not all were checked.")
