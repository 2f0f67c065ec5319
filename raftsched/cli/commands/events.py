"""Define `raftsched events`: follow committed changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from raftsched.cli.terminal.options import tenant_option
from raftsched.cli.terminal.output import json_option, print_json_line, say, status_text, visible
from raftsched.cli.terminal.session import Session, with_plain_session
from raftsched.cli.terminal.times import rfc3339
from raftsched.client.events import RESET
from raftsched.client.records import Event
from raftsched.errors import Invalid

_SHOWN_BESIDE: Final = ("name", "queue", "worker", "attempt_number", "reason", "instant", "kind")
_SUBJECTS: Final = ("job_id", "schedule_id", "workflow_id")
_PLACE_HEADER: Final = "Last-Event-ID"
"""The API's header for --after."""


@click.command("events")
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="As job.completed, or job for all of them. Repeatable."
)
@click.option("--queue", help="Events of this queue and of its jobs.")
@click.option("--job", metavar="ID", help="Events of this job.")
@tenant_option
@click.option("--after", metavar="ID", help="Continue after the event with this id, as --json shows it.")
@click.option("--count", type=click.IntRange(min=1), help="End after this number of events; default: at Ctrl-C.")
@with_plain_session
@json_option
def events_command(
    session: Session, types: Sequence[str], after: str | None, count: int | None, *, as_json: bool, **filters: Any
) -> None:
    """Follow events of jobs, schedules, workflows and queues.

    With --json: JSON lines.
    """
    for shown, event in enumerate(_events(session, after=after, types=types, **filters), start=1):
        fields = {name: _written(value) for name, value in msgspec.structs.asdict(event).items() if value is not None}
        print_json_line(fields) if as_json else _show(fields)
        if shown == count:
            return


def _events(session: Session, **asked: Any) -> Iterator[Event]:
    try:
        yield from session.events(**asked)
    except Invalid as error:
        if error.field != _PLACE_HEADER:
            raise
        raise type(error)(str(error).replace(_PLACE_HEADER, "--after"), field="--after") from None


def _written(value: Any) -> Any:
    """Return a field in the form of the API."""
    return rfc3339(value) if isinstance(value, datetime) else value


def _show(event: Mapping[str, Any]) -> None:
    kind = event["type"]
    if kind == RESET:
        say("This node no longer has the earlier events; it continues from here.")
        return
    beside = "  ".join(f"{name.removesuffix('_number')} {event[name]}" for name in _SHOWN_BESIDE if name in event)
    subject = next((event[name] for name in _SUBJECTS if name in event), "")
    clock = event["at"][11:23]
    coloured = Text(f"{kind:24}", style=status_text(kind.partition(".")[2]).style)
    say(Text(f"{clock}  ", style="dim") + coloured + Text(visible(f"{subject:36}  {beside}")))
