"""What the API answers about the cluster and its nodes."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from raftsched.api.backend import NodeStatus
from raftsched.wire.replies.common import Reply


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
