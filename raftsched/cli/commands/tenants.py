"""Define `raftsched tenant …`: quotas, shares and usage of tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from raftsched.cli.terminal.output import json_option, print_fields, print_json, print_table
from raftsched.cli.terminal.session import Session, part, with_plain_session, with_session
from raftsched.limits import PAGE_JOBS_MAX

_NONE: Final = "none"
_QUOTAS: Final = ("unfinished_jobs", "schedules", "submits_per_second", "submit_burst")


@click.group("tenant")
def tenant_command() -> None:
    """Show and set the quotas and shares of tenants.

    A tenant without settings has no quotas.
    """


@tenant_command.command("list")
@with_plain_session
@json_option
def list_tenants(session: Session, *, as_json: bool) -> None:
    """List the tenants in use, with their usage."""
    tenants = [tenant for page in session.pages("/tenants", limit=PAGE_JOBS_MAX) for tenant in page["tenants"]]
    if as_json:
        print_json(tenants)
        return
    columns = ("tenant", "unfinished jobs", "schedules", "submits per second", "weight")
    print_table(columns, map(_row, tenants), if_none="no tenant has settings, jobs or schedules")


@tenant_command.command("show")
@click.argument("name")
@with_plain_session
@json_option
def show(session: Session, name: str, *, as_json: bool) -> None:
    """Show a tenant: its quotas, its share and its usage."""
    _print_tenant(session.get(_path(name)), as_json=as_json)


@tenant_command.command("set")
@click.argument("name")
@click.option("--unfinished-jobs", metavar="COUNT", help="Most jobs that are not finished; none takes it away.")
@click.option("--schedules", metavar="COUNT", help="Most schedules; none takes it away.")
@click.option(
    "--submits-per-second",
    metavar="COUNT",
    help="Most jobs submitted in a second, evenly spread; none takes it away.",
)
@click.option(
    "--submit-burst", metavar="COUNT", help="Jobs that may be submitted at once after a rest; none = those of a second."
)
@click.option("--weight", metavar="SHARE", help="Its share of workers in queues that do not name it; none = 1.")
@with_session
@json_option
def set_tenant(session: Session, name: str, *, as_json: bool, **options: str | None) -> None:
    """Change settings of a tenant. Others stay as they are. Lower quotas end nothing that exists."""
    changes = {field: _number(field, text) for field, text in options.items() if text is not None}
    if not changes:
        raise click.UsageError("say what to change, as --unfinished-jobs 10000 or --submits-per-second 100")
    _print_tenant(session.send("PATCH", _path(name), changes), as_json=as_json)


@tenant_command.command("remove")
@click.argument("name")
@with_session
@json_option
def remove(session: Session, name: str, *, as_json: bool) -> None:
    """Remove the settings of a tenant. Its jobs and schedules stay, and it has no quotas then."""
    _print_tenant(session.send("DELETE", _path(name)), as_json=as_json)


def _path(name: str) -> str:
    return f"/tenants/{part(name)}"


def _number(field: str, text: str) -> int | None:
    if text == _NONE:
        return None
    if not text.isdecimal():
        raise click.UsageError(f"--{field.replace('_', '-')}: {text!r} is not a number, or none")
    return int(text)


def _row(tenant: Mapping[str, Any]) -> tuple[Any, ...]:
    usage = tenant["usage"]
    of_quotas = (_of(usage[name], tenant[name]) for name in ("unfinished_jobs", "schedules"))
    return (tenant["name"], *of_quotas, tenant["submits_per_second"] or "", tenant["weight"])


def _of(used: int, quota: int | None) -> str:
    return f"{used:,}" if quota is None else f"{used:,} of {quota:,}"


def _print_tenant(tenant: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(tenant)
        return
    usage = tenant["usage"]
    quotas = {name: tenant[name] or _NONE for name in _QUOTAS}
    used = {name: _of(usage[name], tenant[name]) for name in usage}
    print_fields({"tenant": tenant["name"], **quotas, **used, "weight": tenant["weight"]})
