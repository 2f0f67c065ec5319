"""The nodes of the cluster and its members."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from raftsched.wire.common import MEMBER_ID_PATTERN, MEMBER_ID_RULE, Reply, Request


class MemberRequest(Request, frozen=True):
    """A node that is to join the cluster; it must be started with an empty data directory and this id."""

    id: Annotated[str, Meta(pattern=MEMBER_ID_PATTERN, description=MEMBER_ID_RULE)]
    raft: Annotated[str, Meta(max_length=300)]
    """host:port at which the other nodes reach it."""
    api: Annotated[str, Meta(max_length=300)]
    """host:port of its API."""


class NodeStatus(Reply, frozen=True):
    """One node as seen by the node that answers; None where it does not know."""

    id: str = ""
    api: str = ""
    """Base URL of its API."""
    state: str = ""
    """`leader`, `follower`, `candidate`, or `down` where the answering node has no connection to it.

    `differs` where its state is not the one that a majority of the voters has: it serves nothing, and must be replaced.
    """
    applied: int | None = None
    """Index of the last log entry it applied, or is known to hold."""
    clock_offset_ms: float | None = None
    """Its wall clock less the answering node's."""
    round_trip_ms: int | None = None
    """What nine of ten of its answers to the leader stay below; only the leader knows."""
    raft: str = ""
    """host:port at which the other nodes reach it."""
    voter: bool = True
    """False while it joins: it gets the log, and becomes a voter by itself when it has nearly all of it."""
    operations_read: int | None = None
    """The latest version of log entries that it reads."""
    disk_free_bytes: int | None = None
    disk_low: bool | None = None
    """Whether less is free than its reserve (`disk_reserve_mib`)."""


class ClusterStatus(Reply, frozen=True):
    """The cluster as seen by the node that answers."""

    leader: str = ""
    """Id of the leader; "" while none is known."""
    term: int = 0
    nodes: tuple[NodeStatus, ...] = ()
    operation_version: int = 0
    """The version of log entries that is in force. It rises once all members read a later one, and then no node can go
    back to a release that does not."""
    warning: str = ""
    """Why the leader takes no new work; "" where it does, or the answering node does not lead."""


class MembersReply(Reply, frozen=True):
    """The nodes of the cluster after a change."""

    nodes: tuple[NodeStatus, ...]


class TransferReply(Reply, frozen=True):
    """The lead was handed over; the next replies name the new leader."""

    transferred: Literal[True]


class HealthReply(Reply, frozen=True):
    """The node's process answers."""

    status: str
    node: str
    warning: str | UnsetType = UNSET
    """What an operator should look at, though the node serves; absent where there is nothing."""
