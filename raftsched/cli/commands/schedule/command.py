"""The `raftsched schedule` group; its commands are in modules by purpose: read, save, runs, apply."""

from __future__ import annotations

import click

from raftsched.cli.commands.schedule import read as reading
from raftsched.cli.commands.schedule import runs
from raftsched.cli.commands.schedule import save as saving


@click.group("schedule")
def schedule_command() -> None:
    """List, change and trigger schedules. NAME is the name or the id of a schedule."""


for _command in (*reading.COMMANDS, *saving.COMMANDS, *runs.COMMANDS):
    schedule_command.add_command(_command)
