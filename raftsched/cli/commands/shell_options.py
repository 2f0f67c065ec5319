"""Define the options of `raftsched worker --shell`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from raftsched.errors import Invalid
from raftsched.executors.secrets import Secrets
from raftsched.executors.shell.executor import ShellExecutor
from raftsched.worker import WorkerSettings

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = [
    click.option(
        "--shell", is_flag=True, help="Run the commands of shell jobs, in place of an app. With --allow or --allow-any."
    ),
    click.option(
        "--allow",
        multiple=True,
        metavar="PATH",
        help="With --shell: a program that may run, as /usr/bin/pg_dump; may be given several times.",
    ),
    click.option("--allow-any", is_flag=True, help="With --shell: every program of this machine may run."),
    click.option(
        "--env",
        multiple=True,
        metavar="NAME",
        help="With --shell: a variable of this worker that commands get; may be given several times.",
    ),
]


def shell_options(command: _F) -> _F:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def shell_executor(
    *,
    shell: bool,
    allow: Sequence[str],
    allow_any: bool,
    env: Sequence[str],
    secrets_dir: Path | None,
    urls: Sequence[str],
) -> ShellExecutor | None:
    """Return what runs commands, or None without --shell; raises `Invalid` naming the option at fault."""
    if not shell:
        for option, value in (("allow", allow), ("allow-any", allow_any), ("env", env)):
            if value:
                raise Invalid(f"--{option}: give it with --shell", field=option)
        return None
    if allow and allow_any:
        raise Invalid("--allow-any: give it in place of --allow, not beside it", field="allow-any")
    if not allow and not allow_any:
        raise Invalid("--shell: say what may run, with --allow PATH for each program, or --allow-any", field="shell")
    grace_seconds = WorkerSettings().stop_grace_seconds
    return ShellExecutor(
        allow=None if allow_any else allow,
        env=env,
        urls=urls,
        grace_seconds=grace_seconds,
        secrets=Secrets(secrets_dir),
    )
