"""Answer what the API asks of its node, out of the node's parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from raftsched.api.access.origin import origin_for
from raftsched.api.event_log import EventLog
from raftsched.config import NodeConfig
from raftsched.consensus.disk_space import ClusterSpace
from raftsched.consensus.machine import ReplicatedState
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.raft.membership.members import Member
from raftsched.consensus.replica import Replica
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import NewWork
from raftsched.core.records.backup import LastBackup
from raftsched.core.records.ids import JobId
from raftsched.core.records.origin import Origin
from raftsched.core.state.results import Result
from raftsched.errors import InvariantBroken, NotLeader, StorageFull, Unavailable
from raftsched.leader.leadership import Leadership
from raftsched.metrics.reading import Reading
from raftsched.metrics.requests import RequestTimes
from raftsched.node.backups import Backups
from raftsched.node.metrics import NodeMetrics
from raftsched.node.reencryption import Reencryption
from raftsched.node.status import StatusReader
from raftsched.node.terms import Terms
from raftsched.node.unique_keys import keyed
from raftsched.ports import Clock, Randomness
from raftsched.storage.backup import OpenBackup
from raftsched.storage.state import State
from raftsched.wire.cluster import ClusterStatus, EncryptionStatus, NodeFacts, NodeStatus

log = structlog.get_logger()
_JITTER_MAX: Final = 1000


class NodeBackend:
    """One node, as its API sees it: the `Backend` of `raftsched.api.backend`, which says what each method promises."""

    def __init__(
        self,
        *,
        config: Callable[[], NodeConfig],
        events: EventLog,
        clock: Clock,
        cluster_clock: ClusterClock,
        randomness: Randomness,
        machine: ReplicatedState,
        replica: Replica,
        terms: Terms,
        space: ClusterSpace,
        status: StatusReader,
        metrics: NodeMetrics,
        reencryption: Reencryption,
        backups: Backups,
        new_job_id: Callable[[], JobId],
        propose: Callable[[Operation, Origin | None], asyncio.Future[Result]],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        """`config` returns the present settings."""
        self.node_id: Final = config().node_id
        self.api_url: Final = config().url_of(config().member.api)
        self.events: Final = events
        self._config = config
        self._clock = clock
        self._cluster_clock = cluster_clock
        self._randomness = randomness
        self._machine = machine
        self._replica = replica
        self._terms = terms
        self._space = space
        self._status = status
        self._metrics = metrics
        self._reencryption = reencryption
        self._backups = backups
        self._new_job_id = new_job_id
        self._propose = propose
        self._on_fault = on_fault

    # -- the leader ---------------------------------------------------------------------------------------------------

    @property
    def is_leading(self) -> bool:
        return self._replica.is_leading

    def leader_url(self) -> str | None:
        leader = self._replica.leader_id
        return None if leader == self.node_id else self._url_of(leader)

    def _url_of(self, node_id: str) -> str | None:
        member = next((member for member in self._replica.members if member.id == node_id), None)
        return self._config().url_of(member.api) if member is not None and member.api else None

    @property
    def leader_change_count(self) -> int:
        return self._replica.leader_change_count

    async def leader_change(self, since: int) -> None:
        await self._replica.leader_change(since)

    def round_trip_ms(self) -> int:
        return self._replica.round_trip_ms

    async def transfer_leadership(self, to: str = "") -> bool:
        return await self._replica.transfer_leadership(to)

    # -- the state ----------------------------------------------------------------------------------------------------

    def fresh_state(self) -> State:
        self._replica.check_fresh()
        return self._machine.state

    async def confirm_lead(self) -> None:
        await self._replica.confirm_lead()

    def stale_state(self) -> tuple[State, int]:
        if reason := self._replica.difference:
            raise Unavailable(reason)
        return self._machine.state, self._replica.leader_age_ms()

    def leadership(self) -> Leadership:
        self._replica.check_fresh()
        if self._terms.current is None:
            raise NotLeader(self._replica.leader_id)
        return self._terms.current

    def propose(self, operation: Operation) -> asyncio.Future[Result]:
        if self._space.refusal and isinstance(operation, NewWork):
            refused: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
            refused.set_exception(StorageFull(self._space.refusal))
            return refused
        return self._propose(keyed(operation, self._machine.state), origin_for(operation))

    # -- clocks and coins ---------------------------------------------------------------------------------------------

    def new_job_id(self) -> JobId:
        return self._new_job_id()

    def now_ms(self) -> int:
        return self._cluster_clock.wall_ms()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def jitter(self) -> int:
        return self._randomness.randint(-_JITTER_MAX, _JITTER_MAX)

    # -- this node ----------------------------------------------------------------------------------------------------

    def encryption(self) -> EncryptionStatus:
        return self._reencryption.status()

    def reencrypt(self) -> EncryptionStatus:
        self._reencryption.ask()
        return self._reencryption.status()

    async def backup(self) -> OpenBackup:
        if reason := self._replica.idle_reason:
            raise Unavailable(reason)
        if self._replica.status().incoming_snapshot_bytes is not None:
            raise Unavailable("this node receives a snapshot, since it is far behind: ask another node")
        return await self._backups.take()

    def last_backup(self) -> LastBackup | None:
        return self._machine.state.last_backup

    @property
    def request_times(self) -> RequestTimes:
        return self._metrics.requests

    def readings(self) -> Iterator[Reading]:
        return self._metrics.readings(self._terms.current)

    def facts(self) -> NodeFacts:
        return self._status.facts()

    def readiness(self) -> tuple[bool, str]:
        return self._status.readiness()

    def fail(self, error: InvariantBroken) -> None:
        self._on_fault(error)

    # -- the cluster --------------------------------------------------------------------------------------------------

    def cluster_status(self) -> ClusterStatus:
        return self._status.cluster()

    async def add_member(self, node_id: str, *, raft: str, api: str) -> tuple[NodeStatus, ...]:
        await self._replica.change_members(lambda members: members.with_joining(Member(node_id, raft, api)))
        log.info("member_added", id=node_id, raft=raft, api=api)
        return self.cluster_status().nodes

    async def remove_member(self, node_id: str) -> tuple[NodeStatus, ...]:
        if node_id == self.node_id and self.is_leading and len(self._replica.members) > 1:
            # A leader that removes itself causes an election; its successor can remove it without one.
            log.info("leadership_transferred", done=await self._replica.transfer_leadership(), reason="removed")
            self._replica.check_fresh()
        await self._replica.change_members(lambda members: members.without(node_id))
        log.info("member_removed", id=node_id)
        return self.cluster_status().nodes
