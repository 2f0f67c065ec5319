"""`raftsched worker`: run a worker that a Python module defines."""

from __future__ import annotations

import importlib
import os
import sys

import click

from raftsched import logs
from raftsched.cli.output import reports_errors
from raftsched.errors import Invalid
from raftsched.worker import Worker


@click.command("worker")
@click.option("--app", required=True, help="Where the worker is: package.module:variable.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@reports_errors
def worker_command(app: str, log_level: str) -> None:
    """Run a worker until SIGTERM, which lets running jobs finish first; a second signal ends it at once."""
    logs.configure(level=log_level, form="console" if sys.stderr.isatty() else "json")
    _find(app).run()


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
