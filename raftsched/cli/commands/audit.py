"""Define `raftsched audit`: the audit trail."""

from __future__ import annotations

from typing import Any

import click

from raftsched.cli.terminal.options import limit_option, order_option, tenant_option
from raftsched.cli.terminal.output import json_option, print_json, print_table
from raftsched.cli.terminal.session import Session, with_plain_session
from raftsched.cli.terminal.times import when


@click.command("audit")
@click.option("--actor", "who", help="Entries of this actor.")
@click.option("--action", help="As schedule.pause, or schedule for all actions on schedules.")
@click.option("--subject", help="As queue:mail, or queue alone.")
@tenant_option
@order_option
@limit_option
@with_plain_session
@json_option
def audit_command(
    session: Session, limit: int, who: str | None, order: str | None, *, as_json: bool, **filters: Any
) -> None:
    """Show who did what to what, the latest first."""
    lines = list(session.items("/audit", "entries", limit=limit, actor=who, order=order or "desc", **filters))
    if as_json:
        print_json(lines)
        return
    columns = ("at", "away", "who", "from", "did", "to", "detail")
    rows = [
        (line["at"], when(line["at"]), line["actor"], line["origin"], line["action"], line["subject"], line["detail"])
        for line in lines
    ]
    if_none = "no entry matches; without filters, `raftsched audit` shows all"
    print_table(columns, rows, optional=("away", "from"), folded=("detail",), if_none=if_none)
