"""Define `raftsched node`: run one node, in the foreground, until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from pathlib import Path

import click
import structlog
import uvloop

from raftsched import config as settings
from raftsched import logs, trace_export
from raftsched.cli.local.children import until_stdin_ends_option
from raftsched.cli.terminal.output import reports_errors
from raftsched.errors import RaftschedError
from raftsched.node.shutdown import EXIT_FAULT, Shutdown

log = structlog.get_logger()


@click.command("node")
@click.option(
    "--config", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Settings in TOML."
)
@click.option("--check-config", is_flag=True, help="Check the settings, print what would run, and write nothing.")
@until_stdin_ends_option
@reports_errors
def node_command(path: Path | None, *, check_config: bool) -> None:
    """Run one node.

    Every setting can also be given as RAFTSCHED_… in the environment.
    """
    if not __debug__:
        raise click.ClickException("raftsched asserts its invariants in production; start it without python -O")
    try:
        read = settings.read(path)
    except settings.ConfigInvalid as error:
        for fault in error.faults:
            click.echo(f"raftsched: {fault}", err=True)
        sys.exit(1)
    loaded = read.config
    if check_config:
        sys.exit(_check(read))
    logs.configure(level=loaded.log_level, form=loaded.log_format, node_id=loaded.node_id)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the node can read its settings again
    shutdown = Shutdown()
    shutdown.watch_signals()
    # Never closed: that would wait for threads, one of which may wait for a disk or for a name server.
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    shutdown.end(_run(runner, read, shutdown, path))


def _check(read: settings.ReadConfig) -> int:
    """Print what would run, and the faults that prevent it; return the exit code."""
    from raftsched.node.preflight import faults, summary

    loaded = read.config
    found = asyncio.run(faults(loaded))
    for line in summary(loaded):
        click.echo(line)
    for warning in loaded.warnings():
        click.echo(f"warning: {read.places.of(warning)}", err=True)
    for fault in found:
        click.echo(f"raftsched: {read.places.of(fault)}", err=True)
    return 1 if found else 0


def _run(runner: asyncio.Runner, read: settings.ReadConfig, shutdown: Shutdown, path: Path | None) -> int:
    """Run the node to its end; return the exit code. The last line of its log has the reason."""
    from raftsched.node.node import Node
    from raftsched.system import SystemClock, system_randomness

    # Imported objects live as long as the process. Without this, each full pass of the collector would examine them again
    # and block everything for tens of milliseconds.
    gc.collect()
    gc.freeze()
    try:
        trace_export.set_up("raftsched", read.config.node_id)
        node = Node(
            read.config,
            clock=SystemClock(),
            randomness=system_randomness(),
            shutdown=shutdown,
            read_settings=lambda: settings.read(path),
        )
        runner.run(node.run())
    except (RaftschedError, OSError) as error:
        code = error.code if isinstance(error, RaftschedError) else "os_error"
        log.critical("node_failed", error=read.places.of(str(error)), code=code)
        return EXIT_FAULT
    except Exception:
        log.critical("node_failed", error="a bug of raftsched; please report it", exc_info=True)
        return EXIT_FAULT
    finally:
        trace_export.flush()
    return 0
