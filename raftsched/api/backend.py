"""Define the API's port to its node, so that the API is tested without disks, or sockets between nodes.

A state is valid until the next `await` only: installing a snapshot replaces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol

from raftsched.api.event_log import EventLog
from raftsched.core.operations.base import Operation
from raftsched.core.records.backup import LastBackup
from raftsched.core.records.ids import JobId
from raftsched.core.state.results import Result
from raftsched.errors import InvariantBroken
from raftsched.leader.leadership import Leadership
from raftsched.metrics.reading import Reading
from raftsched.metrics.requests import RequestTimes
from raftsched.storage.backup import OpenBackup
from raftsched.storage.reader import StateReader
from raftsched.wire.cluster import ClusterStatus, EncryptionStatus, NodeFacts, NodeStatus


class Backend(Protocol):
    """The node. Every method returns at once, except for coroutines, and for those of `leadership`."""

    @property
    def node_id(self) -> str: ...
    @property
    def api_url(self) -> str:
        """Base URL of this node's own API."""

    @property
    def events(self) -> EventLog:
        """Return the latest events that this node has applied."""

    @property
    def is_leading(self) -> bool:
        """Return whether this node leads and has applied its term's first entry."""

    def leader_url(self) -> str | None:
        """Return the base URL of the leader's API; None if it is unknown, and on the leader itself."""

    @property
    def leader_change_count(self) -> int:
        """Return a count that rises with each change of the leader that this node knows: itself, another node, none.

        If this node is the new leader, it serves requests by then.
        """

    async def leader_change(self, since: int) -> None:
        """Wait until `leader_change_count` differs from `since`."""

    def round_trip_ms(self) -> int:
        """Return the longest round trip between the leader and another node, as far as this node knows; 0 = unknown."""

    def fresh_state(self) -> StateReader:
        """Return the state, at least as new as any earlier answer; raises `NotLeader` or `Unavailable`."""

    async def confirm_lead(self) -> None:
        """Wait until a majority confirms, after this call, that this node leads; then `stale_state` is current.

        Raises as `fresh_state` does.
        """

    def stale_state(self) -> tuple[StateReader, int]:
        """Return the state of this node, and the milliseconds since a leader's last message (-1 = unknown).

        Never raises.
        """

    def leadership(self) -> Leadership:
        """Return the leader's services; raises as `fresh_state` does, so that no isolated leader renews a lease."""

    def propose(self, operation: Operation) -> asyncio.Future[Result]:
        """Propose the operation, and return the future of its result, set once it is committed and applied here.

        The future (never the call) raises `NotLeader` or `Unavailable` if the operation is certainly not in the log,
        and `OutcomeUnknown` if that is unknown. Cancelling the future does not cancel the operation.
        """

    def new_job_id(self) -> JobId: ...
    def now_ms(self) -> int:
        """Return this node's estimate of the cluster time: never before the state's."""

    def wall_ms(self) -> int:
        """Return the wall clock of this node's machine."""

    def jitter(self) -> int:
        """Return a random number from -1000 to 1000."""

    def encryption(self) -> EncryptionStatus:
        """Return how this node encrypts its files."""

    def reencrypt(self) -> EncryptionStatus:
        """Begin to move this node's data to its first key; raises `Rejected` if it has none."""

    async def backup(self) -> OpenBackup:
        """Return a backup of this node's state, which the caller closes; see `raftsched.node.backups`."""

    def last_backup(self) -> LastBackup | None:
        """Return the latest backup that was recorded, as far as this node knows; None if there is none."""

    def cluster_status(self) -> ClusterStatus:
        """Return what this node knows of the cluster, its `problems` with the time since when it has seen them."""

    def facts(self) -> NodeFacts:
        """Return what this node says of itself."""

    @property
    def request_times(self) -> RequestTimes:
        """Return the counts of the API's requests, to add to them."""

    def readings(self) -> Iterator[Reading]:
        """Yield the readings of this node, and those of the cluster if it leads and a majority confirms that."""

    def readiness(self) -> tuple[bool, str]:
        """Return whether this node can serve, with the reason if it can't, else with a warning or ""."""

    def fail(self, error: InvariantBroken) -> None:
        """Stop the node: the state that the API read breaks an invariant."""

    async def add_member(self, node_id: str, *, raft: str, api: str) -> tuple[NodeStatus, ...]:
        """Add a node; return all nodes once that is committed. Raises `Rejected`, or the errors of `propose`."""

    async def remove_member(self, node_id: str) -> tuple[NodeStatus, ...]:
        """Remove a node permanently; as `add_member`. Raises `NotFound` for an id of no member."""

    async def transfer_leadership(self, to: str = "") -> bool:
        """Transfer leadership to the follower with the most complete log, or to the voter `to`.

        Return False if it was not taken, and this node still leads.
        """
