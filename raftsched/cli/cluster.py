"""`raftsched cluster …`: who leads, how far each node is, who belongs to it, and handing the lead over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from raftsched.cli.output import console, json_option, print_json, print_table, reports_errors, url_option
from raftsched.client import BlockingClient


@click.group("cluster")
def cluster_command() -> None:
    """Look at the cluster, change its members, and hand its lead over."""


@cluster_command.command("status")
@url_option
@json_option
@reports_errors
def status(urls: Sequence[str], *, as_json: bool) -> None:
    """Show the leader, the term, the version of operations in force, and each node's state and what it reads."""
    with BlockingClient(*urls) as client:
        answer = client.cluster()
    if as_json:
        print_json(answer)
        return
    title = f"leader {answer['leader'] or 'none'}, term {answer['term']}, operations {answer['operation_version']}"
    _print_nodes(answer["nodes"], title=title)


@cluster_command.command("add")
@click.argument("node_id", metavar="ID")
@click.option("--raft", required=True, metavar="HOST:PORT", help="Where the other nodes reach it.")
@click.option("--api", required=True, metavar="HOST:PORT", help="Where its API listens.")
@url_option
@reports_errors
def add(urls: Sequence[str], node_id: str, raft: str, api: str) -> None:
    """Let a new node join, before or after it is started with an empty data directory.

    It gets the log at once, and becomes a voter by itself when it has nearly all of it; `status` shows when.
    """
    with BlockingClient(*urls) as client:
        _print_nodes(client.add_member(node_id, raft=raft, api=api), title=f"{node_id} joins")


@cluster_command.command("remove")
@click.argument("node_id", metavar="ID")
@url_option
@reports_errors
def remove(urls: Sequence[str], node_id: str) -> None:
    """Remove a node for good: its id is never used again. Stop it afterwards."""
    with BlockingClient(*urls) as client:
        _print_nodes(client.remove_member(node_id), title=f"{node_id} was removed")


@cluster_command.command("transfer")
@url_option
@reports_errors
def transfer(urls: Sequence[str]) -> None:
    """Hand the lead to the follower that is furthest; use it before stopping a leader for maintenance."""
    with BlockingClient(*urls) as client:
        client.transfer_leadership()
    console.print("handed over")


def _print_nodes(nodes: Sequence[dict[str, Any]], *, title: str) -> None:
    columns = ("id", "state", "member", "applied", "operations_read", "clock_offset_ms", "api", "raft")
    rows = [[_cell(node, column) for column in columns] for node in nodes]
    print_table(columns, rows, title=title)


def _cell(node: dict[str, Any], column: str) -> Any:
    if column == "member":
        return "voter" if node.get("voter", True) else "joining"
    return node.get(column)
