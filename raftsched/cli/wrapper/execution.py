"""Run a command with the environment, directory and streams of this process, under the supervisor of shell jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click

from raftsched.executors.shell.errors import CommandNotStarted, CommandRefused, SupervisorDied
from raftsched.executors.shell.process import Command, Take, run
from raftsched.single_file import others_variables

GRACE_SECONDS: Final = 5.0
"""Time from SIGTERM to SIGKILL for a command that must stop."""
EXIT_TIMEOUT: Final = 124
"""As timeout(1)."""
_EXIT_NOT_FOUND: Final = 127
"""As shells report a command that is not there."""
_EXIT_NOT_STARTED: Final = 126
"""As shells report a command that can't be started."""
NOT_RUN: Final = (CommandRefused, CommandNotStarted, SupervisorDied)
"""Errors of a command that did not run to its end."""
_EXIT_SIGNAL: Final = 128
"""Shells add the number of the signal."""


def own_command(argv: Sequence[str], variables: Mapping[str, str] | None = None) -> Command:
    """Return the command `argv` as a shell would start it here, with `variables` besides those of this process.

    Raises `CommandRefused` if there is no such program.
    """
    program = shutil.which(argv[0])
    if program is None:
        raise CommandRefused(f"argv: there is no program {argv[0]!r}")
    return Command(
        program=os.path.abspath(program),  # noqa: PTH100  # links are not followed: the name chooses what some do
        argv=tuple(argv),
        env={**others_variables(), **(variables or {})},
        cwd=os.getcwd(),  # noqa: PTH109  # the plain text
        stdin=None,
    )


async def run_alone(argv: Sequence[str], timeout_seconds: float | None) -> int:
    """Run a command that no cluster knows of, and return the exit code for this process. Cancelling ends the command."""
    try:
        command = own_command(argv)
        async with asyncio.timeout(timeout_seconds):
            code = await run(
                command, grace_seconds=GRACE_SECONDS, take_stdout=_take("stdout"), take_stderr=_take("stderr")
            )
    except TimeoutError:
        return EXIT_TIMEOUT
    except NOT_RUN as error:
        return reported_code(error)
    return shell_code(code)


def shell_code(code: int) -> int:
    """Return an exit code as shells report it: 128 more than the number of a signal."""
    return code if code >= 0 else _EXIT_SIGNAL - code


def signal_code(number: int) -> int:
    """Return the exit code of a process that the signal ended."""
    return _EXIT_SIGNAL + number


def reported_code(error: Exception) -> int:
    """Print why the command did not run, and return the exit code for that."""
    click.echo(f"raftsched: {error}", err=True)
    return _EXIT_NOT_FOUND if isinstance(error, CommandRefused) else _EXIT_NOT_STARTED


def copy_output(stream: str, data: bytes) -> None:
    """Write output of the command to the same stream of this process; what nobody reads any more is dropped."""
    target = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
    with contextlib.suppress(BrokenPipeError):
        target.write(data)
        target.flush()


def _take(stream: str) -> Take:
    async def take(data: bytes) -> None:
        copy_output(stream, data)

    return take
