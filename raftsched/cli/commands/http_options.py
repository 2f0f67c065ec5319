"""Define the options of `raftsched worker --http`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from raftsched.client.client import URL_DEFAULT
from raftsched.errors import Invalid
from raftsched.executors.http.executor import HttpExecutor, HttpSettings
from raftsched.executors.http.targets import Targets
from raftsched.executors.secrets import Secrets

HTTP_CONCURRENCY = 100
"""Requests wait for their targets most of the time."""
_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = [
    click.option("--http", is_flag=True, help="Send the requests of HTTP jobs, in place of an app."),
    click.option(
        "--allow-target",
        "allow_targets",
        multiple=True,
        envvar="RAFTSCHED_HTTP_ALLOW",
        metavar="NETWORK|NAME",
        help="With --http: inner addresses that requests may go to, as 10.1.0.0/16 or hooks.internal; may be given several"
        " times. Also from RAFTSCHED_HTTP_ALLOW (spaces between).",
    ),
    click.option(
        "--deny-target",
        "deny_targets",
        multiple=True,
        envvar="RAFTSCHED_HTTP_DENY",
        metavar="NETWORK|NAME",
        help="With --http: addresses that requests may not go to, even if they are allowed. Also from RAFTSCHED_HTTP_DENY.",
    ),
    click.option(
        "--secrets-dir",
        type=click.Path(path_type=Path),
        envvar="RAFTSCHED_SECRETS_DIR",
        help="With --http, --shell or --email: a directory with a file for each secret that jobs or options name. Also from"
        " RAFTSCHED_SECRETS_DIR.",
    ),
    click.option(
        "--proxy",
        envvar="RAFTSCHED_HTTP_PROXY",
        metavar="URL",
        help="With --http: the proxy for all requests. Also from RAFTSCHED_HTTP_PROXY.",
    ),
]


def http_options(command: _F) -> _F:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def http_executor(
    context: click.Context,
    *,
    http: bool,
    allow_targets: Sequence[str],
    deny_targets: Sequence[str],
    secrets_dir: Path | None,
    proxy: str | None,
    urls: Sequence[str],
) -> HttpExecutor | None:
    """Return what sends requests, or None without --http; raises `Invalid` naming the option at fault."""
    if http:
        targets = Targets(allow=allow_targets, deny=deny_targets)
        secrets = Secrets(secrets_dir)
        return HttpExecutor(HttpSettings(targets=targets, secrets=secrets, proxy=proxy, cluster=urls or [URL_DEFAULT]))
    for option in ("allow_targets", "deny_targets", "proxy"):
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            name = option.removesuffix("s").replace("_", "-")
            raise Invalid(f"--{name}: give it with --http", field=name)
    return None
