"""Define `raftsched run`."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import click

from raftsched import logs
from raftsched.cli.terminal import session
from raftsched.cli.terminal.options import hook_document
from raftsched.cli.terminal.output import error_line, reports_errors, tell, url_option
from raftsched.cli.terminal.session import actor_option, user_name
from raftsched.cli.terminal.times import SPAN
from raftsched.cli.wrapper.execution import run_alone, signal_code
from raftsched.cli.wrapper.registered import (
    EXIT_NOT_RUN,
    LockHeld,
    NotRegistered,
    RegisteredRun,
    Wrapped,
    name_of,
    new_region,
    register,
)
from raftsched.client import Client
from raftsched.errors import Invalid, RaftschedError, Unavailable

EXIT_NO_CLUSTER: Final = 69
"""EX_UNAVAILABLE of sysexits.h."""
REACH_SECONDS: Final = 10.0
"""Longest wait for the cluster before the command runs without it; longer than an election."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_EXIT_CODES: Final = (
    "Exit code: that of the command, 128+N for signal N; 124 timeout, 127 or 126 it can't be started, 75 not run (lock held, queue"
    " paused), 69 no cluster with --require-cluster."
)


@click.command("run", context_settings={"allow_interspersed_args": False}, epilog=_EXIT_CODES)
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@click.option("--name", help="Name of the job and of the lock; default: that of the program.")
@click.option("--timeout", "timeout_seconds", type=SPAN, help="Longest run time, as in 90s or 5m: then it is stopped.")
@click.option(
    "--lock/--no-lock",
    "is_locked",
    default=True,
    help="Run a command of this name only once at a time in the whole cluster (the default), or as often as asked.",
)
@click.option(
    "--max-attempts", type=click.IntRange(min=1), default=1, show_default=True, help="Failures until it ends."
)
@click.option(
    "--on-failure",
    metavar="URL|JSON",
    help="Submit a job if it fails, or its machine dies: a request to URL, or JSON as of POST /jobs.",
)
@click.option(
    "--require-cluster",
    is_flag=True,
    help="Do not run without the cluster, and stop if the lease ends because it can't be reached.",
)
@actor_option
@url_option
@reports_errors
def run_command(
    *,
    argv: tuple[str, ...],
    name: str | None,
    timeout_seconds: float | None,
    on_failure: str | None,
    actor: str | None,
    urls: tuple[str, ...],
    is_locked: bool,
    max_attempts: int,
    require_cluster: bool,
) -> None:
    """Run COMMAND here as a job, for the lines of a crontab.

    As in: 0 3 * * * raftsched run --name backup -- pg_dump -Fc -f shop.dump shop. The command has the directory,
    environment, input and output of this process, and no terminal. The cluster keeps its log and history, and submits its
    hook. Its queue is `run`: a pause and the limits of that queue hold; it waits for them 60 s.

    Guaranteed: two commands of a name run at the same time only if one of them can't reach the cluster. If this process
    dies, the command is killed, and the job moves to the dead-letter queue. If the cluster can't be reached, the command
    still runs, with a warning, and without lock, log and hook; if it is lost meanwhile, the command continues. With
    --require-cluster, it does not run, or is stopped, so that the lock always holds.
    """
    logs.configure(level="critical", form="console")
    wrapped = Wrapped(
        argv=argv,
        name=name or name_of(argv[0]),
        timeout_seconds=timeout_seconds,
        max_attempts=max_attempts,
        is_locked=is_locked,
        on_failure=None if on_failure is None else hook_document(on_failure, "--on-failure"),
        must_be_registered=require_cluster,
    )
    raise SystemExit(asyncio.run(_run(wrapped, urls, actor or user_name())))


async def _run(wrapped: Wrapped, urls: Sequence[str], actor: str) -> int:
    """Run the command as a job, or alone if the cluster can't be reached; return the exit code for this process."""
    settings = replace(session.SETTINGS, retry_seconds=min(REACH_SECONDS, session.SETTINGS.retry_seconds))
    try:
        async with Client(*urls, actor=actor, settings=settings) as client:
            region = new_region()
            job = await register(client, wrapped, region)
            run = RegisteredRun(client, job, wrapped, urls=urls, region=region, settings=session.SETTINGS)
            with _interrupts(run.interrupt) as received:
                code = await run.run()
            return signal_code(received[0]) if received else code
    except LockHeld as held:
        tell(str(held))
        return EXIT_NOT_RUN
    except Invalid:
        raise
    except (RaftschedError, NotRegistered) as error:
        return await _run_without_cluster(wrapped, error)


async def _run_without_cluster(wrapped: Wrapped, error: Exception) -> int:
    why = error_line(error if isinstance(error, RaftschedError) else Unavailable(str(error)))
    if wrapped.must_be_registered:
        click.echo(why, err=True)
        return EXIT_NO_CLUSTER
    click.echo(f"{why} {wrapped.name} runs without the cluster: no lock, no log, no hook.", err=True)
    running = asyncio.create_task(run_alone(wrapped.argv, wrapped.timeout_seconds))
    with _interrupts(lambda _: running.cancel()) as received:
        await asyncio.wait([running])
    return signal_code(received[0]) if received else running.result()


@contextmanager
def _interrupts(interrupt: Callable[[str], object]) -> Iterator[list[int]]:
    """Call `interrupt` with a reason for each signal that ends this process, and collect their numbers.

    A signal that this process was started to ignore, as by nohup, is still ignored.
    """
    received: list[int] = []

    def note(number: int) -> None:
        received.append(number)
        interrupt(f"{signal.Signals(number).name} ended `raftsched run`")

    loop = asyncio.get_running_loop()
    is_main = threading.current_thread() is threading.main_thread()  # only there are signals handled
    numbers = [each for each in _SIGNALS if is_main and signal.getsignal(each) is not signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, note, number)
    try:
        yield received
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
