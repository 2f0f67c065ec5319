"""Define `raftsched cluster …`: show nodes and leader, change members, transfer the lead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from raftsched.cli.terminal.output import json_option, print_json, print_table, say
from raftsched.cli.terminal.session import Session, part, with_session

_GIB_IN_MIB: Final = 1024


@click.group("cluster")
def cluster_command() -> None:
    """Show the cluster, change its members, transfer its lead."""


@cluster_command.command("status")
@with_session
@json_option
def status(session: Session, *, as_json: bool) -> None:
    """Show the leader, the term and the state of each node.

    Also the version of operations in force, and of each node its disk and the versions that it reads.
    """
    answer = session.get("/cluster")
    title = f"leader {answer['leader'] or 'none'}, term {answer['term']}, operations {answer['operation_version']}"
    if as_json:
        print_json(answer)
        return
    _print_nodes(answer["nodes"], title=title)
    if answer.get("warning"):
        say(f"warning: {answer['warning']}")


@cluster_command.command("add")
@click.argument("node_id", metavar="ID")
@click.option("--raft", required=True, metavar="HOST:PORT", help="Raft address for the other nodes.")
@click.option("--api", required=True, metavar="HOST:PORT", help="Address of its API.")
@with_session
@json_option
def add(session: Session, node_id: str, raft: str, api: str, *, as_json: bool) -> None:
    """Add a new node to the cluster.

    Start it before or after this command, with an empty data directory. It gets the log at once, and becomes a voter by
    itself when it has nearly all of it; `status` shows when.
    """
    answer = session.post("/cluster/members", {"id": node_id, "raft": raft, "api": api})
    print_json(answer) if as_json else _print_nodes(answer["nodes"], title=f"{node_id} joins")


@cluster_command.command("remove")
@click.argument("node_id", metavar="ID")
@with_session
@json_option
def remove(session: Session, node_id: str, *, as_json: bool) -> None:
    """Remove a node. Its id is never used again. Stop it afterwards."""
    answer = session.send("DELETE", f"/cluster/members/{part(node_id)}")
    print_json(answer) if as_json else _print_nodes(answer["nodes"], title=f"{node_id} was removed")


@cluster_command.command("transfer")
@with_session
@json_option
def transfer(session: Session, *, as_json: bool) -> None:
    """Transfer the lead to the follower with the longest log.

    Use it before you stop a leader for maintenance.
    """
    answer = session.post("/cluster/transfer")
    print_json(answer) if as_json else say("handed over")


def _print_nodes(nodes: Sequence[dict[str, Any]], *, title: str) -> None:
    columns = (
        "id",
        "state",
        "member",
        "applied",
        "disk_free",
        "operations_read",
        "clock_offset_ms",
        "round_trip_ms",
        "api",
        "raft",
    )
    rows = [[_cell(node, column) for column in columns] for node in nodes]
    print_table(
        columns,
        rows,
        title=title,
        optional=("raft", "operations_read", "clock_offset_ms", "round_trip_ms", "applied", "disk_free"),
    )


def _cell(node: dict[str, Any], column: str) -> Any:
    if column == "member":
        return "voter" if node.get("voter", True) else "joining"
    if column == "disk_free":
        return _disk(node.get("disk_free_bytes"), is_low=bool(node.get("disk_low")))
    return node.get(column)


def _disk(free_bytes: int | None, *, is_low: bool) -> str | None:
    if free_bytes is None:
        return None
    mib = free_bytes >> 20
    return (f"{mib:,} MiB" if mib < _GIB_IN_MIB else f"{mib / 1024:,.1f} GiB") + (", low" if is_low else "")
