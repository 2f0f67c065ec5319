"""Define `raftsched token …`: make, list, rotate and revoke the tokens of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

import click

from raftsched.cli.terminal.output import json_option, print_fields, print_json, print_table, tell
from raftsched.cli.terminal.session import Session, part, with_plain_session, with_session
from raftsched.cli.terminal.times import span_seconds
from raftsched.limits import PAGE_JOBS_MAX
from raftsched.wire.tokens import RoleName

_SHOWN_ONCE: Final = "The token is shown this once; keep it in a file that only its user can read."


@click.group("token")
def token_command() -> None:
    """Make, list, rotate and revoke the tokens of the API."""


def _span(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    del context
    seconds = None if text is None else span_seconds(text)
    if text is not None and seconds is None:
        raise click.BadParameter(f"{text!r} is not a span, as 90d or 12h", param=parameter)
    return seconds


@token_command.command("create")
@click.option("--role", type=click.Choice(get_args(RoleName)), required=True, help="What it may do.")
@click.option("--tenant", help="Its tenant, or * for all tenants.  [default: yours, or default]")
@click.option("--name", help="The actor in histories and in the audit trail.  [default: its id]")
@click.option("--queue", "queues", multiple=True, help="Limit it to this queue or pattern; may be given several times.")
@click.option("--expires-in", metavar="SPAN", callback=_span, help="Let it expire, as in 90d.  [default: never]")
@with_session
@json_option
def create(
    session: Session,
    *,
    role: str,
    tenant: str | None,
    name: str | None,
    queues: tuple[str, ...],
    expires_in: float | None,
    as_json: bool,
) -> None:
    """Make a token, and print its text, which nobody can read again."""
    wanted = {"role": role, "tenant": tenant, "name": name, "queues": list(queues), "expires_in_seconds": expires_in}
    document = {field: value for field, value in wanted.items() if value not in (None, [])}
    _print_new(session.post("/tokens", document), as_json=as_json)


@token_command.command("list")
@with_plain_session
@json_option
def list_tokens(session: Session, *, as_json: bool) -> None:
    """List the tokens, without their texts. `used` is the beginning of the hour of the latest use."""
    tokens = [token for page in session.pages("/tokens", limit=PAGE_JOBS_MAX) for token in page["tokens"]]
    if as_json:
        print_json(tokens)
        return
    columns = ("id", "name", "role", "tenant", "queues", "created", "used", "expires")
    print_table(columns, map(_row, tokens), if_none="there are no tokens")


@token_command.command("rotate")
@click.argument("token_id", metavar="ID")
@click.option("--overlap", metavar="SPAN", callback=_span, help="Accept its former text for this time, as in 1h.")
@with_session
@json_option
def rotate(session: Session, token_id: str, *, overlap: float | None, as_json: bool) -> None:
    """Give a token another text, and print it. By default the former text is refused at once."""
    wanted = {} if overlap is None else {"overlap_seconds": overlap}
    _print_new(session.post(f"/tokens/{part(token_id)}/rotate", wanted), as_json=as_json)


@token_command.command("revoke")
@click.argument("token_id", metavar="ID")
@with_session
@json_option
def revoke(session: Session, token_id: str, *, as_json: bool) -> None:
    """Revoke a token: every node refuses it from now on."""
    revoked = session.send("DELETE", f"/tokens/{part(token_id)}")
    print_json(revoked) if as_json else print_fields({"revoked": revoked["id"], "name": revoked["name"]})


def _print_new(token: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(token)
        return
    shown = ("id", "name", "role", "tenant", "queues", "expires_at", "former_until", "token")
    print_fields({name: token.get(name) for name in shown if token.get(name)})
    tell(_SHOWN_ONCE)


def _row(token: Mapping[str, Any]) -> tuple[Any, ...]:
    expires = "expired" if token["expired"] else token["expires_at"] or ""
    queues = " ".join(token["queues"])
    used = token["last_used_at"] or "never"
    return (token["id"], token["name"], token["role"], token["tenant"], queues, token["created_at"], used, expires)
