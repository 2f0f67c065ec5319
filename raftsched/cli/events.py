"""`raftsched events`: what is committed, live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from raftsched.cli.options import tenant_option
from raftsched.cli.output import json_option, print_json_line, say, status_text
from raftsched.cli.session import Session, with_plain_session
from raftsched.client.events import RESET

_SHOWN_BESIDE: Final = ("name", "queue", "worker", "attempt_number", "reason", "instant", "kind")
_SUBJECTS: Final = ("job_id", "schedule_id", "workflow_id")


@click.command("events")
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="As job.completed, or job for all of them. Repeatable."
)
@click.option("--queue", help="Of jobs, or the queue itself.")
@click.option("--job", metavar="ID", help="Of this job alone.")
@tenant_option
@click.option("--after", metavar="ID", help="Go on behind the event with this id, as --json shows it.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many; by default at Ctrl-C.")
@with_plain_session
@json_option
def events_command(
    session: Session, types: Sequence[str], after: str | None, count: int | None, *, as_json: bool, **filters: Any
) -> None:
    """Show what happens, live: to jobs, schedules, workflows and queues.

    With --json: JSON lines.
    """
    for shown, event in enumerate(session.events(after=after, types=types, **filters), start=1):
        fields = {name: value for name, value in msgspec.to_builtins(event).items() if value is not None}
        print_json_line(fields) if as_json else _show(fields)
        if shown == count:
            return


def _show(event: Mapping[str, Any]) -> None:
    kind = event["type"]
    if kind == RESET:
        say("What happened before is not known to this node; it goes on from here.")
        return
    beside = "  ".join(f"{name.removesuffix('_number')} {event[name]}" for name in _SHOWN_BESIDE if name in event)
    subject = next((event[name] for name in _SUBJECTS if name in event), "")
    clock = event["at"][11:23]
    coloured = Text(f"{kind:24}", style=status_text(kind.partition(".")[2]).style)
    say(Text(f"{clock}  ", style="dim") + coloured + Text(f"{subject:36}  {beside}"))
