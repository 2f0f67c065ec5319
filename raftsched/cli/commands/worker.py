"""Define `raftsched worker`: run a worker that a Python module defines."""

from __future__ import annotations

import importlib
import os
import sys

import click
from click.core import ParameterSource

from raftsched import logs
from raftsched.cli.local.children import until_stdin_ends_option
from raftsched.cli.terminal.output import reports_errors
from raftsched.errors import Invalid
from raftsched.worker import Worker


@click.command("worker")
@click.option("--app", required=True, help="The worker: package.module:variable.")
@click.option(
    "--url",
    "urls",
    multiple=True,
    envvar="RAFTSCHED_URL",
    help="API of a node, in place of those in the app; may be given several times. RAFTSCHED_URL (spaces between) is used"
    " if the app names none.",
)
@click.option(
    "--region",
    envvar="RAFTSCHED_REGION",
    help="Take jobs of this region, and those of none, in place of the app's region. RAFTSCHED_REGION is used if the"
    " app names none.",
)
@click.option(
    "--follow-leader/--no-follow-leader",
    default=None,
    envvar="RAFTSCHED_FOLLOW_LEADER",
    help="Ask also the nodes that the cluster names (the default), or only those at --url, as behind a load balancer. Also"
    " from RAFTSCHED_FOLLOW_LEADER.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="Least level that is logged.",
)
@until_stdin_ends_option
@click.pass_context
@reports_errors
def worker_command(
    context: click.Context,
    *,
    app: str,
    urls: tuple[str, ...],
    region: str | None,
    follow_leader: bool | None,
    log_level: str,
) -> None:
    """Run a worker until SIGTERM.

    The first SIGTERM lets running jobs finish; a second signal ends the worker at once.
    """
    logs.configure(level=log_level, form="console" if sys.stderr.isatty() else "json")
    worker = _find(app)
    if urls and (_is_told_here(context, "urls") or not worker.urls):
        worker.connect_to(*urls)
    if region and (_is_told_here(context, "region") or worker.region is None):
        worker.move_to(region)
    if follow_leader is not None:
        worker.follow_leader(follow=follow_leader)
    worker.run()


def _is_told_here(context: click.Context, option: str) -> bool:
    return context.get_parameter_source(option) is ParameterSource.COMMANDLINE


def _find(app: str) -> Worker:
    module_name, colon, variable = app.partition(":")
    if not colon or not module_name or not variable:
        raise Invalid(f"--app: {app!r} is not package.module:variable", field="app")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  # as `python -m` does
    try:
        found = getattr(importlib.import_module(module_name), variable)
    except (ImportError, AttributeError) as error:
        raise Invalid(f"--app: {error}", field="app") from error
    if not isinstance(found, Worker):
        raise Invalid(f"--app: {app} is a {type(found).__name__}, not a raftsched.Worker", field="app")
    return found
