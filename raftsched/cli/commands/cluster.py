"""Define `raftsched cluster …`: show nodes and leader, change members, transfer the lead."""

from __future__ import annotations

import click

from raftsched.cli.commands.cluster_backup import backup_command
from raftsched.cli.commands.cluster_status import print_nodes, status_command
from raftsched.cli.commands.new_cluster import recover_command
from raftsched.cli.terminal.output import json_option, print_json, say
from raftsched.cli.terminal.session import Session, part, with_session


@click.group("cluster")
def cluster_command() -> None:
    """Show the cluster, change its members, back it up, recover it."""


cluster_command.add_command(status_command)
cluster_command.add_command(backup_command)
cluster_command.add_command(recover_command)


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
    print_json(answer) if as_json else print_nodes(answer["nodes"], title=f"{node_id} joins")


@cluster_command.command("remove")
@click.argument("node_id", metavar="ID")
@with_session
@json_option
def remove(session: Session, node_id: str, *, as_json: bool) -> None:
    """Remove a node. Its id is never used again. Stop it afterwards."""
    answer = session.send("DELETE", f"/cluster/members/{part(node_id)}")
    print_json(answer) if as_json else print_nodes(answer["nodes"], title=f"{node_id} was removed")


@cluster_command.command("transfer")
@click.option("--to", "node_id", metavar="ID", help="The node that shall lead; default: the one with the longest log.")
@with_session
@json_option
def transfer(session: Session, node_id: str | None, *, as_json: bool) -> None:
    """Transfer the lead to another node.

    Use it before you stop a leader for maintenance. Requests wait until the new leader serves. A node that is down, joins,
    or has no disk space is refused. One that is behind has one election timeout to catch up, else the leader keeps its lead.
    """
    answer = session.post("/cluster/transfer", {"to": node_id} if node_id else None)
    print_json(answer) if as_json else say(f"{node_id} leads" if node_id else "handed over")
