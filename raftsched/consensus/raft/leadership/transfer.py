"""Transfer leadership: on request, or because this node is unfit while another is not.

start ──► serves and accepts nothing ──► a follower has the whole log: `timeout_now` ──► it is elected, by force
└─► none in time: this node leads on          └─► not in time: it steps down

clocks   a leader whose wall clock is off transfers to a node whose clock is right. Who can lead never depends on
clocks.
disks    a leader without room transfers to a node that has room (`disk_space.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

import structlog
from pysyncobj.node import Node

from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.clocks.measurements import Measurements
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.log.progress import Progress

_LEAVE_AGAIN_SECONDS: Final = 30.0
"""A leader whose clock is off or whose disk is low tries to transfer again after this, not before."""

_SETTLED_SECONDS: Final = 5.0
"""A follower whose link is younger may have just started, and not be connected to the others, whose votes it needs."""

_log = structlog.get_logger()


class Leader(Protocol):
    """The term that this node may lead, and whom it can talk to; `other_nodes` are the other voters."""

    @property
    def other_nodes(self) -> set[Node]: ...
    @property
    def connected_nodes(self) -> set[Node]: ...
    @property
    def term(self) -> int: ...
    @property
    def leads(self) -> bool: ...
    def step_down(self, term: int) -> None: ...


@dataclass(slots=True)
class _Transfer:
    """A transfer of leadership: nothing is served or accepted any more."""

    give_up_at: float
    wanted: NodeId = ""
    """The only follower that may take over; "" = any."""
    target: NodeId = ""
    """The follower that was asked to start an election; "" while none has caught up."""


class LeadershipTransfer:
    """The transfer that is under way, if any. `followers` returns what this leader knows of each follower."""

    def __init__(
        self,
        ports: EnginePorts,
        *,
        leader: Leader,
        measured: Measurements,
        followers: Callable[[], Mapping[NodeId, Progress]],
    ) -> None:
        self._node_id = ports.node_id
        self._log = ports.log
        self._transport = ports.transport
        self._clock = ports.clock
        self._timing = ports.timing
        self._leader = leader
        self._cluster_clock = measured.cluster_clock
        self._space = measured.space
        self._followers = followers
        self._transfer: _Transfer | None = None
        self._leave_at = -inf

    @property
    def is_under_way(self) -> bool:
        return self._transfer is not None

    @property
    def target(self) -> NodeId:
        """Return the follower that this leader asked to start an election; "" if none."""
        return self._transfer.target if self._transfer is not None else ""

    @property
    def deadline(self) -> float:
        """Return the time at which it fails."""
        return self._transfer.give_up_at if self._transfer is not None else inf

    def is_possible(self, to: NodeId = "") -> bool:
        """Return whether this node leads, and is connected to another one, or to the voter `to`."""
        peers = self._leader.connected_nodes & self._leader.other_nodes if to else self._leader.connected_nodes
        return self._leader.leads and any(not to or peer.id == to for peer in peers)

    def start(self, to: NodeId = "") -> None:
        """Serve nothing from now on, and transfer as soon as a connected follower, or the one named, has the whole log.

        It ends with this node as a follower, or, if none was asked in time, as the leader it was.
        """
        if self._transfer is None:
            self._transfer = _Transfer(self._clock.monotonic() + self._timing.election_max_seconds, to)

    def stop(self) -> None:
        """Forget it: this node leads no more."""
        self._transfer = None

    def reason_to_leave(self, now: float) -> str:
        """Return why this leader should transfer by itself, at most once in a while; "" if it should not."""
        if not self._leader.leads or self._transfer is not None or now < self._leave_at:
            return ""
        if self._cluster_clock.is_off:
            reason, is_fitter = "own_clock_off", self._can_take_over
        elif self._space.should_leave(now):
            reason, is_fitter = "own_disk_low", self._has_room_to_lead
        else:
            return ""
        if not any(is_fitter(progress) for progress in self._followers().values()):
            return ""
        self._leave_at = now + _LEAVE_AGAIN_SECONDS
        _log.warning("leadership_transfer_began", node=self._node_id, term=self._leader.term, reason=reason)
        return reason

    def _has_room_to_lead(self, progress: Progress) -> bool:
        return self._can_take_over(progress) and self._space.has_room(progress.node.id)

    def _can_take_over(self, progress: Progress) -> bool:
        """Check whether a follower keeps up with the log, and its clock is right."""
        if progress.node not in self._leader.other_nodes:
            return False
        keeps_up = not progress.probing and not progress.snapshotting and progress.node in self._leader.connected_nodes
        return keeps_up and self._cluster_clock.is_right(progress.node.id)

    def advance(self, now: float) -> None:
        """Ask a follower to start an election, or give up."""
        transfer = self._transfer
        if transfer is None:
            return
        if not transfer.target:
            self._send_timeout_now(transfer, now)
        if now < transfer.give_up_at:
            return
        _log.warning("transfer_failed", node=self._node_id, target=transfer.target)
        self._transfer = None
        if transfer.target:
            # It may still start an election by force, so this term's promise is gone: never serve in it again.
            self._leader.step_down(self._leader.term)

    def _send_timeout_now(self, transfer: _Transfer, now: float) -> None:
        for progress in self._successors(transfer, now):
            if progress.match == self._log.last_index and progress.node in self._leader.connected_nodes:
                transfer.target = progress.node.id
                transfer.give_up_at = now + self._timing.election_max_seconds
                self._transport.send(progress.node, {"type": messages.TIMEOUT_NOW, "term": self._leader.term})
                return

    def _successors(self, transfer: _Transfer, now: float) -> Sequence[Progress]:
        """Return the voters that are fittest to lead; one of them takes over once it has the whole log."""
        followers = self._followers().values()
        voters = [each for each in followers if each.node in self._leader.other_nodes]
        wanted = [each for each in voters if transfer.wanted in ("", each.node.id)]
        fit = [each for each in wanted if self._can_take_over(each)]
        fittest = [each for each in fit if self._has_room_to_lead(each)] or fit or wanted
        return [each for each in fittest if now >= each.linked_at + _SETTLED_SECONDS] or fittest
