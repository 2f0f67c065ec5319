"""Change the members of a drill's cluster over its API, as an operator does: again until it is done, at any node."""

from __future__ import annotations

from typing import Any, Final

from chaos.drills.cluster import Cluster
from chaos.drills.nodes import Node

_OK: Final = 200
_MEMBERS: Final = "/api/v1/cluster/members"


async def add(cluster: Cluster, node: Node) -> None:
    """Start a node, add it, and return once it votes; raises `TimeoutError`."""
    node.start()
    raft, api = node.addresses
    document = {"id": node.id, "raft": raft, "api": api}
    await cluster.until(
        lambda: _refusal(cluster, "POST", _MEMBERS, document, done="already_member"), f"{node.id} to be added"
    )
    cluster.nodes.append(node)
    await cluster.until(lambda: _vote_missing(cluster, node), f"{node.id} to vote")


async def remove(cluster: Cluster, node: Node) -> None:
    """Remove a member and stop it; raises `TimeoutError`, or RuntimeError if it does not stop."""
    cluster.nodes.remove(node)
    await cluster.until(
        lambda: _refusal(cluster, "DELETE", f"{_MEMBERS}/{node.id}", done="not_found"), f"{node.id} to leave"
    )
    if not await node.stop():
        raise RuntimeError(f"{node.id} did not end on SIGTERM")


async def _refusal(cluster: Cluster, method: str, path: str, document: Any = None, *, done: str) -> str:
    """Ask for a change at each running node until one makes it; return "" if it is made, now or before, or a reason."""
    reason = "no node runs"
    for node in cluster.running():
        status, answer = await cluster.change(node, method, path, document)
        if status == _OK or answer.get("code") == done:
            return ""
        reason = answer.get("detail") or f"{node.id} does not answer"
    return reason


async def _vote_missing(cluster: Cluster, node: Node) -> str:
    leader = await cluster.leader()
    _, document = await cluster.get(leader, "/api/v1/cluster")
    voters = [each["id"] for each in document.get("nodes", []) if each["voter"]]
    return "" if node.id in voters else f"voters are {', '.join(voters)}"
