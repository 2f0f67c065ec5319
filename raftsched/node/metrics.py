"""Read the numbers of one node, and while it leads those of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from raftsched.consensus.machine import ReplicatedState
from raftsched.consensus.proposer import Proposer
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.replica import Replica
from raftsched.errors import Unavailable
from raftsched.free_space import fullest_disk
from raftsched.histogram import Histogram
from raftsched.leader.leadership import Leadership
from raftsched.metrics import catalog
from raftsched.metrics.cluster_gauges import ClusterGauges
from raftsched.metrics.job_events import JobEvents
from raftsched.metrics.reading import Reading
from raftsched.metrics.requests import RequestTimes
from raftsched.node.facts import Expiry

STALL_SECONDS: Final = 0.2


class NodeMetrics:
    """The sources of one node's readings."""

    def __init__(
        self,
        *,
        directory: Path,
        machine: ReplicatedState,
        replica: Replica,
        proposer: Proposer,
        cluster_clock: ClusterClock,
        expiries: Callable[[], Sequence[Expiry]],
    ) -> None:
        """`expiries` returns when the node's certificates expire."""
        self.events: Final = JobEvents()
        self.requests: Final = RequestTimes()
        self._gauges: Final = ClusterGauges(self.events)
        self._stalls: Final = Histogram(catalog.EVENT_LOOP_STALL.buckets)
        self._directory: Final = directory
        self._machine: Final = machine
        self._replica: Final = replica
        self._proposer: Final = proposer
        self._clock: Final = cluster_clock
        self._expiries: Final = expiries

    async def watch_loop(self) -> None:
        """Measure the delays of the event loop until cancelled."""
        while True:
            due = self._clock.monotonic() + STALL_SECONDS
            await asyncio.sleep(STALL_SECONDS)
            self._stalls.observe(max(self._clock.monotonic() - due, 0.0))

    def readings(self, leadership: Leadership | None) -> Iterator[Reading]:
        """Yield the readings of now; `leadership` is that of this node if it leads."""
        is_leader = leadership is not None and self._is_confirmed()
        yield Reading(catalog.IS_LEADER, (), int(is_leader))
        yield from self._of_consensus()
        yield Reading(catalog.STATE_BYTES, (), self._machine.state.figures().used_bytes)
        yield from disk_readings(self._directory)
        yield from self.requests.readings()
        yield Reading(catalog.EVENT_LOOP_STALL, (), self._stalls)
        yield from certificate_readings(self._expiries())
        yield Reading(catalog.BUILD_INFO, (version("raftsched"),), 1)
        if is_leader and leadership is not None:
            yield from self._of_nodes()
            yield from self.events.readings()
            yield from self._gauges.readings(self._machine.state, leadership, self._clock.wall_ms())

    def _is_confirmed(self) -> bool:
        try:
            self._replica.check_fresh()
        except Unavailable:
            return False
        return True

    def _of_consensus(self) -> Iterator[Reading]:
        replica = self._replica
        status = replica.status()
        yield Reading(catalog.RAFT_TERM, (), status.term)
        yield Reading(catalog.RAFT_COMMIT_INDEX, (), status.commit_index)
        yield Reading(catalog.RAFT_APPLIED_INDEX, (), status.applied_index)
        yield Reading(catalog.LEADER_CHANGES, (), replica.leader_count)
        yield Reading(catalog.COMMIT_SECONDS, (), self._proposer.commit_seconds)
        yield Reading(catalog.FSYNC_SECONDS, (), replica.sync_seconds)
        yield Reading(catalog.CHECKPOINT_SECONDS, (), replica.checkpoint_seconds)
        offset_ms = self._clock.own_offset_ms()
        if offset_ms is not None:
            yield Reading(catalog.CLOCK_OFFSET, (), offset_ms / 1000)

    def _of_nodes(self) -> Iterator[Reading]:
        status = self._replica.status()
        for peer in status.peers:
            yield Reading(catalog.NODE_CONNECTED, (peer.node_id,), int(peer.is_connected))
            if peer.match_index:  # else this leader does not know it yet
                yield Reading(catalog.FOLLOWER_LAG, (peer.node_id,), max(status.commit_index - peer.match_index, 0))


def disk_readings(directory: Path) -> Iterator[Reading]:
    """Yield the size of the journal in a data directory, and the space of its disk."""
    try:
        journal_bytes = sum(path.stat().st_size for path in (directory / "journal").iterdir())
        free_bytes, size_bytes = fullest_disk(directory)
    except OSError:  # absent is right: a file was removed meanwhile, or the disk can't be read
        return
    yield Reading(catalog.JOURNAL_BYTES, (), journal_bytes)
    yield Reading(catalog.DISK_FREE_BYTES, (), free_bytes)
    yield Reading(catalog.DISK_SIZE_BYTES, (), size_bytes)


def certificate_readings(expiries: Iterable[Expiry]) -> Iterator[Reading]:
    """Yield when certificates expire, as far as it is known."""
    for setting, expires_at in expiries:
        if expires_at:
            yield Reading(catalog.CERTIFICATE_EXPIRES, (setting,), expires_at)
