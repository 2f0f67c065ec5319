"""Define the options of `raftsched worker --email`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from raftsched.errors import Invalid
from raftsched.executors.email.executor import EmailExecutor
from raftsched.executors.email.settings import START_TLS, EmailSettings, StartTls
from raftsched.executors.secrets import Secrets

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = [
    click.option("--email", is_flag=True, help="Send the mail of the jobs `email`, in place of an app."),
    click.option(
        "--smtp",
        envvar="RAFTSCHED_SMTP_URL",
        metavar="URL",
        help="With --email: the mail server, as smtp://mail.internal:587 or smtps://mail.internal:465. Also from"
        " RAFTSCHED_SMTP_URL.",
    ),
    click.option(
        "--smtp-from",
        envvar="RAFTSCHED_SMTP_FROM",
        metavar="ADDRESS",
        help="With --email: the sender, as jobs@example.org. Also from RAFTSCHED_SMTP_FROM.",
    ),
    click.option(
        "--smtp-allow-from",
        multiple=True,
        metavar="ADDRESS",
        help="With --email: another sender that jobs may name in `from`, as shop@example.org or *@example.org; may be given"
        " several times.",
    ),
    click.option(
        "--smtp-tls",
        type=click.Choice(START_TLS),
        help="With --email: STARTTLS of an smtp:// server.  [default: require with --smtp-user, else opportunistic]",
    ),
    click.option("--smtp-user", metavar="USER", help="With --email: log in as this user."),
    click.option(
        "--smtp-password-secret", metavar="NAME", help="With --smtp-user: the name of the secret with its password."
    ),
]


def email_options(command: _F) -> _F:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def email_executor(
    context: click.Context,
    *,
    email: bool,
    secrets_dir: Path | None,
    smtp: str | None,
    smtp_from: str | None,
    smtp_allow_from: Sequence[str],
    smtp_tls: StartTls | None,
    smtp_user: str | None,
    smtp_password_secret: str | None,
) -> EmailExecutor | None:
    """Return what sends mail, or None without --email; raises `Invalid` naming the option at fault."""
    if not email:
        for option in ("smtp", "smtp_from", "smtp_allow_from", "smtp_tls", "smtp_user", "smtp_password_secret"):
            if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
                name = option.replace("_", "-")
                raise Invalid(f"--{name}: give it with --email", field=name)
        return None
    if smtp is None:
        raise Invalid("--smtp: name the mail server, as smtp://mail.internal:587", field="smtp")
    if smtp_from is None:
        raise Invalid("--smtp-from: name the sender, as jobs@example.org", field="smtp-from")
    settings = EmailSettings(
        url=smtp,
        sender=smtp_from,
        tls=smtp_tls,
        user=smtp_user,
        password_secret=smtp_password_secret,
        secrets=Secrets(secrets_dir),
        allowed_senders=smtp_allow_from,
    )
    return EmailExecutor(settings)
