"""What a replica tells of itself and its peers, for people and for the API."""

from __future__ import annotations

from dataclasses import dataclass

from raftsched.consensus.disk_space import Space
from raftsched.consensus.ports import NodeId


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A peer as this node sees it; all but `node_id` and `is_connected` are known to a leader only."""

    node_id: NodeId
    is_connected: bool
    match_index: int
    clock_offset_ms: int | None
    """How far its wall clock is ahead of ours."""
    round_trip_ms: int | None
    """What nine of ten of its answers stay below, of the last ones; None where too few were measured."""
    snapshot_bytes: tuple[int, int] | None
    """(acknowledged, total) of a snapshot on its way."""
    operations_read: int | None
    """The latest version of log entries that it was last heard to read; None where it never was."""
    space: Space | None
    """The free space of its disk, as it last told this leader."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One look at a replica; indexes are positions in the log."""

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
    """The other members, those that join included."""
    incoming_snapshot_bytes: tuple[int, int] | None
    operations_read: int
    """The latest version of log entries that this replica reads."""
    operation_version: int
    """The one in force, as far as it knows."""
