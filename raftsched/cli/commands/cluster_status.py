"""Define `raftsched cluster status`: what is wrong and what to do about it, then the state of each node."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from rich.text import Text

from raftsched.cli.terminal.output import (
    console,
    error_line,
    json_option,
    print_json,
    print_json_line,
    print_table,
    say,
)
from raftsched.cli.terminal.session import Session, with_session
from raftsched.cli.terminal.times import rounded, when
from raftsched.errors import RaftschedError

EXIT_OF_HEALTH: Final = {"healthy": 0, "degraded": 3, "down": 4}
_STYLES: Final = {"critical": "bold red", "warning": "yellow", "note": "dim"}
_GIB_IN_MIB: Final = 1024
_WATCH_SECONDS: Final = 2.0
_COLUMNS: Final = (
    *("id", "state", "member", "lag", "applied", "release", "uptime", "disk_free", "state_size", "journal_size"),
    *("clock_offset_ms", "round_trip_ms", "operations_read", "certificate_days", "encryption", "api", "raft"),
)
_LEFT_OUT_FIRST: Final = (
    *("raft", "operations_read", "encryption", "state_size", "journal_size", "round_trip_ms", "applied"),
    *("clock_offset_ms", "release", "certificate_days", "uptime", "disk_free"),
)


@click.command("status")
@click.option("--watch", is_flag=True, help="Repeat every 2 seconds, until Ctrl-C; with --json one document a line.")
@with_session
@json_option
def status_command(session: Session, *, watch: bool, as_json: bool) -> None:
    """Show what is wrong, what to do, and each node.

    Any node answers, also without a leader; then what only a leader knows is missing.

    Exit code 0 if the cluster is healthy, 3 if it is degraded but accepts work, 4 if it accepts none, 1 if no node answers.
    """
    while watch:
        _show_again(session, as_json=as_json)
        time.sleep(_WATCH_SECONDS)
    answer = session.get("/cluster")
    if as_json:
        print_json(answer)
    else:
        _show(answer)
    sys.exit(EXIT_OF_HEALTH.get(answer["health"], 0))


def _show_again(session: Session, *, as_json: bool) -> None:
    """Show one look of several; no answer is one of them."""
    try:
        answer = session.get("/cluster")
    except RaftschedError as error:
        print_json_line({"error": str(error), "code": error.code}) if as_json else say(error_line(error))
        return
    if as_json:
        print_json_line(answer)
        return
    if console.is_terminal:
        console.clear()
    _show(answer)


def _show(answer: Mapping[str, Any]) -> None:
    problems: Sequence[Mapping[str, Any]] = answer["problems"]
    worst = problems[0]["severity"] if problems else ""
    say(Text(answer["health"], style=_STYLES.get(worst, "green") if answer["health"] != "healthy" else "green"))
    for problem in problems:
        since = f" since {problem['since']} ({when(problem['since'])})" if problem["since"] else ""
        say(Text(f"  {problem['severity']}: {problem['text']}{since}", style=_STYLES[problem["severity"]]))
        say(f"    {problem['cure']}")
    if answer["leader"] != answer["answered_by"]:
        say(f"As {answer['answered_by']} sees it. Only a leader knows lag, clock and disk of the others.")
    print_nodes(answer["nodes"], title=_title(answer))


def _title(answer: Mapping[str, Any]) -> str:
    workers = "" if answer["workers"] is None else f", {answer['workers']} workers"
    title = (
        f"leader {answer['leader'] or 'none'}, term {answer['term']}, operations {answer['operation_version']}{workers}"
    )
    if backup := answer.get("last_backup"):
        title += f", last backup {when(backup['taken_at'])}"
    return title


def print_nodes(nodes: Sequence[Mapping[str, Any]], *, title: str) -> None:
    """Print a table of nodes, each with what is known of it."""
    rows = [_row(node) for node in nodes]
    columns = [
        column for column in _COLUMNS if column in {"id", "state"} or any(row[column] is not None for row in rows)
    ]
    print_table(columns, [[row[column] for column in columns] for row in rows], title=title, optional=_LEFT_OUT_FIRST)


def _row(node: Mapping[str, Any]) -> dict[str, Any]:
    facts: Mapping[str, Any] = node.get("facts") or {}
    row = {column: node.get(column) for column in _COLUMNS} | {"release": facts.get("release")}
    row["member"] = "voter" if node.get("voter", True) else "joining"
    row["disk_free"] = _size(node.get("disk_free_bytes"))
    if row["disk_free"] is not None and node.get("disk_low"):
        row["disk_free"] += ", low"
    if facts:
        row["uptime"] = rounded(facts["uptime_seconds"])
        row["state_size"], row["journal_size"] = _size(facts["state_bytes"]), _size(facts["journal_bytes"])
        row["encryption"] = facts["encryption_key"]
        row["certificate_days"] = min((each["days_left"] for each in facts["certificates"]), default=None)
    return row


def _size(size_bytes: int | None) -> str | None:
    if size_bytes is None:
        return None
    mib = size_bytes >> 20
    if not mib:
        return f"{size_bytes >> 10} KiB"
    return f"{mib:,} MiB" if mib < _GIB_IN_MIB else f"{mib / _GIB_IN_MIB:,.1f} GiB"
