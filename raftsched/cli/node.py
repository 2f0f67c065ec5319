"""`raftsched node`: one node, in the foreground, until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import click
import structlog
import uvloop

from raftsched import config as settings
from raftsched import logs
from raftsched.cli.children import until_stdin_ends_option
from raftsched.cli.output import reports_errors
from raftsched.errors import RaftschedError

log = structlog.get_logger()
EXIT_FAULT = 70
"""EX_SOFTWARE of sysexits.h: the node stopped itself rather than go on with what can't be right."""


@click.command("node")
@click.option(
    "--config", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Settings in TOML."
)
@until_stdin_ends_option
@reports_errors
def node_command(path: Path | None) -> None:
    """Run one node; every setting can also be given as RAFTSCHED_… in the environment."""
    if not __debug__:
        raise click.ClickException("raftsched asserts its invariants in production; start it without python -O")
    loaded = settings.load(path)
    logs.configure(level=loaded.log_level, form=loaded.log_format, node_id=loaded.node_id)

    from raftsched.node import Node
    from raftsched.system import SystemClock, system_randomness

    # What is imported lives as long as the process. Left to the collector, each full pass would look at it again, and hold
    # everything up for tens of milliseconds.
    gc.collect()
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Node(loaded, clock=SystemClock(), randomness=system_randomness()).run())
    except (RaftschedError, OSError) as error:
        code = error.code if isinstance(error, RaftschedError) else "os_error"
        log.critical("node_failed", error=str(error), code=code)
        sys.exit(EXIT_FAULT)
    except Exception:
        log.critical("node_failed", error="a fault of raftsched; please report it", exc_info=True)
        sys.exit(EXIT_FAULT)
