"""Define the status of a replica and its peers, for people and for the API."""

from __future__ import annotations

from dataclasses import dataclass

from raftsched.consensus.disk_space import Space
from raftsched.consensus.ports import NodeId


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A peer as seen by this node; only a leader knows more than `node_id` and `is_connected`."""

    node_id: NodeId
    is_connected: bool
    match_index: int
    clock_offset_ms: int | None
    """Its wall clock minus this node's."""
    round_trip_ms: int | None
    """90th percentile of its latest round trips; None if too few were measured."""
    snapshot_bytes: tuple[int, int] | None
    """(acknowledged, total) of a snapshot that is being sent."""
    operations_read: int | None
    """The latest version of log entries that it can read, by its last message; None if there was none."""
    space: Space | None
    """The free space of its disk, by its last report to this leader."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The status of a replica at one moment; indexes are positions in the log."""

    node_id: NodeId
    state: str
    term: int
    leader_id: NodeId
    commit_index: int
    applied_index: int
    durable_index: int
    first_index: int
    last_index: int
    peers: tuple[PeerStatus, ...]
    """The other members, including joining ones."""
    incoming_snapshot_bytes: tuple[int, int] | None
    operations_read: int
    """The latest version of log entries that this replica reads."""
    operation_version: int
    """The version in use, as far as this replica knows."""
