"""Define `raftsched encryption …`: show how the nodes encrypt their data, and move it to another key."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from raftsched.cli.terminal.output import json_option, print_json, print_table, say
from raftsched.cli.terminal.session import Session, with_session
from raftsched.errors import RaftschedError

_POLL_SECONDS: Final = 0.5
_COLUMNS: Final = ("node", "state", "key", "rows", "plain_rows", "other_keys_needed")


@click.group("encryption")
def encryption_command() -> None:
    """Show how nodes encrypt their data, and move it to another key."""


@encryption_command.command("status")
@with_session
@json_option
def status(session: Session, *, as_json: bool) -> None:
    """Show the keys of each node.

    Also its rows under its first key, and the keys that its files still need. Exit code 1 if a node does not answer, or if
    the nodes have different first keys.
    """
    found = _asked(session, "GET", "/cluster/encryption")
    _show(found, as_json=as_json)
    if any("error" in each for each in found) or len({each.get("key") for each in found}) > 1:
        raise SystemExit(1)


@encryption_command.command("rotate")
@click.option("--wait/--no-wait", default=True, help="Wait until all nodes are done. Default: wait.")
@with_session
@json_option
def rotate(session: Session, *, wait: bool, as_json: bool) -> None:
    """Move all data to the first key.

    Put the new key first in the keys file of every node, and restart the nodes one by one, before. Plain data is encrypted
    as well. Nodes continue by themselves after a restart. Once all are complete, no node needs the older keys, and they can
    be removed from the files.
    """
    found = _asked(session, "POST", "/cluster/encryption/rotate")
    keys = {each.get("key") for each in found if "error" not in each}
    while wait and any(each.get("state") == "moving" for each in found):
        time.sleep(_POLL_SECONDS)
        found = _asked(session, "GET", "/cluster/encryption")
    _show(found, as_json=as_json)
    if len(keys) > 1:
        raise click.ClickException(f"the nodes have different first keys: {', '.join(sorted(map(str, keys)))}")
    if any("error" in each for each in found):
        raise click.ClickException("not all nodes were asked: repeat the command when they answer")
    if not wait:
        return
    if any(each["state"] != "complete" for each in found):
        raise click.ClickException("not all nodes are complete: repeat the command")
    say("all data is under the first key; older keys can be removed from the keys files")


def _asked(session: Session, method: str, path: str) -> list[dict[str, Any]]:
    """Return the answer of each node, or its error."""
    return [_answer(session, node, method, path) for node in session.get("/cluster")["nodes"]]


def _answer(session: Session, node: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    try:
        with session.at(node["api"]) as there:
            return there.send(method, path)
    except RaftschedError as error:
        return {"node": node["id"], "error": str(error)}


def _show(found: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json({"nodes": found})
        return
    print_table(_COLUMNS, [[_cell(each, column) for column in _COLUMNS] for each in found], title="encryption at rest")


def _cell(status: dict[str, Any], column: str) -> Any:
    if "error" in status:
        return {"node": status["node"], "state": status["error"]}.get(column)
    if column == "rows":
        return sum(key["rows"] for key in status["keys"] if key["id"] == status["key"])
    if column == "other_keys_needed":
        needed = [key["id"] for key in status["keys"] if key["needed"] and key["id"] != status["key"]]
        return ", ".join(needed) or None
    return status.get(column)
