"""Define `raftsched worker`: run a worker that a Python module defines, or one that executes jobs without a handler."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from raftsched import logs, trace_export
from raftsched.cli.commands.email_options import email_executor, email_options
from raftsched.cli.commands.http_options import HTTP_CONCURRENCY, http_executor, http_options
from raftsched.cli.commands.shell_options import shell_executor, shell_options
from raftsched.cli.local.children import until_stdin_ends_option
from raftsched.cli.terminal.output import caller_options, reports_errors
from raftsched.errors import Invalid
from raftsched.executors.email.executor import NAME as EMAIL
from raftsched.worker import Worker


@click.command("worker")
@click.option("--app", help="The worker: package.module:variable.")
@http_options
@shell_options
@email_options
@click.option(
    "--queue",
    "queues",
    multiple=True,
    help="Without --app: take jobs from this queue; may be given several times. mail* is all whose names begin so."
    "  [default: http, shell, email]",
)
@click.option(
    "--concurrency", type=int, help="Without --app: jobs that run at the same time.  [default: 32; 100 with --http]"
)
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
@caller_options
@until_stdin_ends_option
@click.pass_context
@reports_errors
def worker_command(
    context: click.Context,
    /,
    *,
    app: str | None,
    http: bool,
    allow_targets: tuple[str, ...],
    deny_targets: tuple[str, ...],
    secrets_dir: Path | None,
    proxy: str | None,
    shell: bool,
    allow: tuple[str, ...],
    allow_any: bool,
    env: tuple[str, ...],
    email: bool,
    queues: tuple[str, ...],
    concurrency: int | None,
    urls: tuple[str, ...],
    region: str | None,
    follow_leader: bool | None,
    log_level: str,
    **smtp: Any,
) -> None:
    """Run a worker until SIGTERM.

    The first SIGTERM lets running jobs finish; a second signal ends the worker at once.
    """
    logs.configure(level=log_level, form="console" if sys.stderr.isatty() else "json")
    if app is None:  # an app sets up its own
        trace_export.set_up("raftsched-executor")
    commands = shell_executor(
        shell=shell, allow=allow, allow_any=allow_any, env=env, secrets_dir=secrets_dir, urls=urls
    )
    requests = http_executor(
        context,
        http=http,
        allow_targets=allow_targets,
        deny_targets=deny_targets,
        secrets_dir=secrets_dir,
        proxy=proxy,
        urls=urls,
    )
    mail = email_executor(context, email=email, secrets_dir=secrets_dir, **smtp)
    is_executor = shell or http or email
    if not is_executor and _is_told_here(context, "secrets_dir"):
        raise Invalid("--secrets-dir: give it with --http, --shell or --email", field="secrets-dir")
    if http and concurrency is None:
        concurrency = HTTP_CONCURRENCY
    worker = _app_or_executors(app, queues, concurrency, is_executor=is_executor)
    if commands is not None:
        worker.execute("shell", commands.run)
    if requests is not None:
        worker.execute("http", requests, on_stop=requests.close)
    if mail is not None:
        worker.job(EMAIL)(mail.send)
    if urls and (_is_told_here(context, "urls") or not worker.urls):
        worker.connect_to(*urls)
    if region and (_is_told_here(context, "region") or worker.region is None):
        worker.move_to(region)
    if follow_leader is not None:
        worker.follow_leader(follow=follow_leader)
    worker.run()


def _app_or_executors(
    app: str | None, queues: tuple[str, ...], concurrency: int | None, *, is_executor: bool
) -> Worker:
    """Return the worker of the app, or one that has no handlers; raises `Invalid` unless exactly one is asked for."""
    if app is None and not is_executor:
        raise Invalid("--app: give the worker as package.module:variable, or --http, --shell or --email", field="app")
    if app is None:
        return Worker(queues=list(queues) or None, concurrency=concurrency)
    if is_executor:
        raise Invalid("--app: start one worker for it and another for --http, --shell or --email", field="app")
    for option, value in (("queue", queues), ("concurrency", concurrency)):
        if value:
            raise Invalid(f"--{option}: with --app, the app says it", field=option)
    return _find(app)


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
