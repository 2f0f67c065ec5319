"""Define `raftsched tls …`: make an authority and certificates for a cluster, and show certificates."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from raftsched.cli.terminal.output import json_option, print_json, print_table, reports_errors, say
from raftsched.errors import Invalid
from raftsched.tls.authority import (
    CA_CERTIFICATE,
    CA_KEY,
    DAYS_MAX,
    Issued,
    Shown,
    issue,
    new_authority,
    read_certificates,
)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)


@click.group("tls")
def tls_command() -> None:
    """Make an authority and certificates for a cluster.

    Files are in PEM; keys are ECDSA P-256 and readable by their owner only.
    """


@tls_command.command("new-ca")
@click.option("--out", type=_DIRECTORY, required=True, help=f"Directory for {CA_CERTIFICATE} and {CA_KEY}.")
@click.option("--name", default="", help="Name of the authority.  [default: raftsched CA and random digits]")
@click.option("--days", type=click.IntRange(1, DAYS_MAX), default=3650, show_default=True, help="How long it is valid.")
@json_option
@reports_errors
def new_ca(*, out: Path, name: str, days: int, as_json: bool) -> None:
    """Make a certificate authority for one cluster.

    Who has its key can make members: keep it offline. Nodes need the certificate only. Files that exist
    are never overwritten.
    """
    made = new_authority(out, days=days, name=name)
    if as_json:
        print_json(_made(made))
        return
    say(f"{made.certificate}: for `ca` of [peer_tls] and [api_tls] on every node, and for --ca-file of clients")
    say(f"{made.key}: keep it offline; valid until {made.expires:%Y-%m-%d}")


@tls_command.command("issue")
@click.option("--ca", type=_DIRECTORY, required=True, help="Directory that `raftsched tls new-ca` has made.")
@click.option("--name", required=True, help="Id of the node, or name of the client.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="Name or address at which the node's API is reached, as in `api`; may be given several times.",
)
@click.option("--out", type=_DIRECTORY, required=True, help="Directory for NAME.crt and NAME.key.")
@click.option("--days", type=click.IntRange(1, DAYS_MAX), default=365, show_default=True, help="How long it is valid.")
@click.option("--client", "is_client", is_flag=True, help="For a client of the API, which no node takes for a node.")
@click.option("--replace", is_flag=True, help="Replace NAME.crt and NAME.key; running nodes and workers use them soon.")
@json_option
@reports_errors
def issue_certificate(
    *, ca: Path, name: str, hosts: tuple[str, ...], out: Path, days: int, is_client: bool, replace: bool, as_json: bool
) -> None:
    """Make the certificate of a node or of a client, and its key."""
    if not _NAME.fullmatch(name):
        raise Invalid(f"--name: {name!r}: up to 64 letters, digits, '_', '.' and '-' expected", field="name")
    made = issue(ca, out, name=name, hosts=hosts, days=days, is_client=is_client, replace=replace)
    if as_json:
        print_json(_made(made))
    else:
        say(f"{made.certificate} and {made.key}: valid until {made.expires:%Y-%m-%d}")


@tls_command.command("show")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--within",
    "days",
    type=click.IntRange(0, DAYS_MAX),
    default=0,
    show_default=True,
    help="Exit with 1 also if a certificate expires within so many days.",
)
@json_option
@reports_errors
def show_certificates(*, file: Path, days: int, as_json: bool) -> None:
    """Show the certificates in FILE; exit code 1 if one has expired."""
    found = read_certificates(file)
    if as_json:
        print_json({"certificates": [_document(each) for each in found]})
    else:
        rows = [
            (each.subject, each.kind, ", ".join(each.names), each.issuer, f"{each.expires:%Y-%m-%d}", each.days_left)
            for each in found
        ]
        print_table(("subject", "kind", "names", "issuer", "expires", "days left"), rows, folded=("names",))
    if any(each.days_left < days for each in found):
        raise SystemExit(1)


def _made(issued: Issued) -> dict[str, Any]:
    return {"certificate": str(issued.certificate), "key": str(issued.key), "expires": _time(issued.expires)}


def _document(shown: Shown) -> dict[str, Any]:
    return {
        "subject": shown.subject,
        "kind": shown.kind,
        "names": shown.names,
        "issuer": shown.issuer,
        "valid_from": _time(shown.valid_from),
        "expires": _time(shown.expires),
        "days_left": shown.days_left,
        "fingerprint_sha256": shown.fingerprint,
    }


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
