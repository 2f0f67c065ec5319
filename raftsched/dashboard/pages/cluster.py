"""Show what is wrong with the cluster and each node, and change its members, leader, encryption and backups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from raftsched.dashboard.page import Answer, Download, Page, Redirect, Rendered
from raftsched.dashboard.problems import not_found
from raftsched.dashboard.quorum import quorum_of
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View
from raftsched.errors import Invalid
from raftsched.wire.cluster import NodeStatus

_BACKUP_OLD: Final = timedelta(days=2)
"""As the alert has it (`configs/prometheus/alerts.yml`)."""
_CERTIFICATE_DAYS: Final = 14
_CLOCK_OFF_MS: Final = 500
_LAG_ENTRIES: Final = 10_000
_LOW_DISK: Final = 0.15
_STATES: Final = {"leader": "busy", "follower": "good", "candidate": "warn"}
_SEVERITIES: Final = {"critical": "bad", "warning": "warn", "note": "other"}
_HEALTH: Final = {"healthy": "good", "degraded": "warn", "down": "bad"}
_HOME: Final = url("/cluster")


@dataclass(frozen=True, slots=True)
class Row:
    """A node, and how urgent each of its facts is: `bad`, `warn` or ""."""

    node: NodeStatus
    kind: str
    """The class of its state."""
    since: str | None
    """The time since when it can't be reached."""
    certificate_days: int | None
    """Days until the first of its certificates expires."""
    levels: dict[str, str]

    @property
    def disk_share(self) -> float | None:
        """Return the free part of its disk."""
        facts = self.node.facts
        return facts.disk_free_bytes / facts.disk_total_bytes if facts and facts.disk_total_bytes else None


async def show(view: View) -> Answer:
    """Return the cluster as the answering node sees it."""
    status = view.cluster
    encryption = await view.client.asked_node.encryption() if view.may("cluster") else None
    backup = status.last_backup
    taken_at = datetime.fromisoformat(backup.taken_at) if backup else None
    return Rendered(
        "cluster/cluster.html",
        {
            "status": status,
            "health_kind": _HEALTH.get(status.health, "other"),
            "severities": _SEVERITIES,
            "rows": [_row(view, node) for node in status.nodes],
            "quorum": quorum_of(status.nodes),
            "encryption": encryption,
            "backup": backup,
            "backup_is_old": taken_at is None or view.now - taken_at > _BACKUP_OLD,
            "own_url": next((node.api for node in status.nodes if node.id == view.node_id), ""),
            "values": view.form,
        },
    )


def _row(view: View, node: NodeStatus) -> Row:
    facts = node.facts
    since = next(
        (each.since for each in view.cluster.problems if each.code == "node_down" and each.node == node.id), None
    )
    days = min((each.days_left for each in facts.certificates), default=None) if facts else None
    row = Row(node, _STATES.get(node.state, "bad"), since, days, {})
    clock, share = node.clock_offset_ms, row.disk_share
    row.levels.update(
        lag="warn" if node.lag is not None and node.lag > _LAG_ENTRIES else "",
        clock="warn" if clock is not None and abs(clock) > _CLOCK_OFF_MS else "",
        disk="bad" if node.disk_low else "warn" if share is not None and share < _LOW_DISK else "",
        certificate="" if days is None or days >= _CERTIFICATE_DAYS else "bad" if days < 0 else "warn",
    )
    return row


# -- leadership -------------------------------------------------------------------------------------------------------


async def show_transfer(view: View) -> Answer:
    """Ask whether leadership shall be transferred."""
    nodes = view.cluster.nodes
    heirs = [node for node in nodes if node.voter and node.state == "follower" and not node.disk_low]
    return Rendered(
        "cluster/transfer.html", {"leader": view.cluster.leader, "heirs": heirs, "chosen": view.form.get("to", "")}
    )


async def transfer(view: View) -> Answer:
    """Transfer leadership to the chosen node, or to the one with the most complete log."""
    to = view.form.get("to")
    await view.client.transfer_leadership(to)
    return Redirect(_HOME, f"{to} leads now." if to else "Leadership was transferred.")


# -- members ----------------------------------------------------------------------------------------------------------


async def show_add(view: View) -> Answer:
    """Ask whether a node shall join, and tell what quorum that leaves."""
    fields = view.form or view.query
    wanted = {name: fields.get(name, "") for name in ("id", "raft", "api")}
    missing = next((name for name, text in wanted.items() if not text), "")
    if missing:
        view.error = view.error or f"{missing}: fill in this field"
    before = quorum_of(view.cluster.nodes)
    after = before.with_voter(is_up=True)
    variables = {"wanted": wanted, "is_complete": not missing, "before": before, "after": after}
    return Rendered("cluster/add.html", variables)


async def add(view: View) -> Answer:
    """Add a node."""
    node_id, raft, api = (_required(view, name) for name in ("id", "raft", "api"))
    await view.client.add_member(node_id, raft=raft, api=api)
    return Redirect(_HOME, f"{node_id} joins. It becomes a voter by itself when it has nearly all of the log.")


def _required(view: View, name: str) -> str:
    text = view.form.get(name)
    if not text:
        raise Invalid(f"{name}: fill in this field", field=name)
    return text


async def show_remove(view: View) -> Answer:
    """Ask whether a node shall be removed, and tell what quorum that leaves."""
    nodes = view.cluster.nodes
    node = next((node for node in nodes if node.id == view.match["id"]), None)
    if node is None:
        return Rendered("problem.html", {"problem": not_found()}, 404)
    before = quorum_of(nodes)
    variables = {"node": node, "before": before, "after": before.without(node), "is_leader": node.state == "leader"}
    return Rendered("cluster/remove.html", variables)


async def remove(view: View) -> Answer:
    """Remove a node for good, once its id was typed."""
    node_id = view.match["id"]
    if view.form.get("confirm") != node_id:
        raise Invalid(f"confirm: type {node_id} to remove this node", field="confirm")
    await view.client.remove_member(node_id)
    return Redirect(_HOME, f"{node_id} was removed. Stop its process; its id can't be used again.")


# -- encryption and backup --------------------------------------------------------------------------------------------


async def show_encrypt(view: View) -> Answer:
    """Ask whether the data of this node shall be moved to its first key."""
    return Rendered("cluster/encrypt.html", {"encryption": await view.client.asked_node.encryption()})


async def encrypt(view: View) -> Answer:
    """Move the data of this node to its first key."""
    status = await view.client.asked_node.reencrypt()
    return Redirect(f"{_HOME}#encryption", f"Node {status.node} moves its data to the key {status.key}.")


async def download(view: View) -> Answer:
    """Send a backup of this node."""
    return Download(view.client.asked_node.backup)


PAGES: Final = (
    Page(path="/cluster", nav="Cluster", show=show),
    Page(path="/cluster/transfer", access="cluster", show=show_transfer, act=transfer),
    Page(path="/cluster/add", access="cluster", show=show_add, act=add),
    Page(path="/cluster/nodes/{id}/remove", access="cluster", show=show_remove, act=remove),
    Page(path="/cluster/encryption", access="cluster", show=show_encrypt, act=encrypt),
    Page(path="/cluster/backup", access="cluster", act=download),
)
