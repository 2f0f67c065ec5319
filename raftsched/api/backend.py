"""What the API needs of the node it runs in: ports, so that the API is tested without sockets between nodes or disks.

A state is good until the next `await` only: installing a snapshot replaces it.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from raftsched.api.event_log import EventLog
from raftsched.core.operations.base import Operation
from raftsched.core.records.ids import JobId
from raftsched.core.state.results import Result
from raftsched.errors import InvariantBroken
from raftsched.leader.leadership import Leadership
from raftsched.storage.reader import StateReader
from raftsched.wire.cluster import ClusterStatus, NodeStatus


class Backend(Protocol):
    """The node. Every method returns at once but the coroutines and what is awaited of `leadership`."""

    @property
    def node_id(self) -> str: ...
    @property
    def api_url(self) -> str:
        """Base URL of this node's own API."""

    @property
    def events(self) -> EventLog:
        """What this node has applied lately."""

    @property
    def is_leading(self) -> bool:
        """Whether this node leads and has applied its term's first entry."""

    def leader_url(self) -> str | None:
        """Base URL of the leader's API; None while it is unknown, and on the leader itself."""

    @property
    def leader_change_count(self) -> int:
        """Rises when this node begins or ceases to lead, and when it hears of another leader, or of none.

        Where it leads, its requests are served by then.
        """

    async def leader_change(self, since: int) -> None:
        """Return once `leader_change_count` is no longer `since`: at once, where it has changed already."""

    def fresh_state(self) -> StateReader:
        """The state, as new as any answer given so far; raises `NotLeader` or `Unavailable`."""

    async def confirm_lead(self) -> None:
        """Return once a majority has confirmed, after this call, that this node leads; then `stale_state` is current.

        Raises as `fresh_state` does.
        """

    def stale_state(self) -> tuple[StateReader, int]:
        """The state of this node, and milliseconds since it last heard from a leader (-1 = unknown). Never raises."""

    def leadership(self) -> Leadership:
        """The leader's duties; raises as `fresh_state` does, so that no leader that was cut off renews a lease."""

    def propose(self, operation: Operation) -> asyncio.Future[Result]:
        """A future of the operation's result, once it is committed and applied on this node.

        The future (never the call) raises `NotLeader` or `Unavailable` where the operation is certainly not in the
        log, and `OutcomeUnknown` where nobody can tell. Cancelling it only means that nobody wants the answer.
        """

    def new_job_id(self) -> JobId: ...
    def now_ms(self) -> int:
        """The cluster's time as far as this node can tell: never before the state's."""

    def jitter(self) -> int:
        """A draw from -1000 to 1000."""

    def cluster_status(self) -> ClusterStatus: ...
    def readiness(self) -> tuple[bool, str]:
        """Whether this node can serve, and why not; where it can, a warning, "" for none."""

    def fail(self, error: InvariantBroken) -> None:
        """Stop the node: what the API read in the state can't be right."""

    async def add_member(self, node_id: str, *, raft: str, api: str) -> tuple[NodeStatus, ...]:
        """Let a node join; return the nodes once that is committed. Raises `Rejected`, or what `propose` raises."""

    async def remove_member(self, node_id: str) -> tuple[NodeStatus, ...]:
        """Remove a node for good; as `add_member`. Raises `NotFound` for an id that is none of a member."""

    async def hand_over(self) -> bool:
        """Hand the lead to the follower that is furthest; False where none took it and this node still leads."""


TENANT_DEFAULT: Final = "default"
"""Until tokens bring tenants, every job belongs to this one."""
