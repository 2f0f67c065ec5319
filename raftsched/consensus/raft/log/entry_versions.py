"""Decide the version in which a leader may write log entries, while nodes have several releases (a rolling upgrade).

Each node reads entries up to some version (`core.operations`) and says so in its greeting. The version *in force* is the
highest of any entry that was applied; it is part of the state, and never falls. A leader writes in the version in force
until it knows that all members read a later one, those included that only join, and then in the latest that all read.

An earlier report of a node is not enough: the node may have been stopped since, and come back with the release
before, and the leader learns that only later. To go back is legal until all nodes have been upgraded, so nobody may
write a version that they did not all read at the same moment. Hence the rule: let s be the moment at which the last of
them reported. Each must have answered, on the connection of its report, a message that was sent after s. Then the
process that reported was alive at s, and so were all the others.

From that moment on there is no way back. The leader tells its version in its greetings, also before an entry carries
it, and a node that reads less is refused by whoever knows of a later one, and stops when it learns that. A member is
never met by that, unless somebody takes it back to an older release afterwards. A node without a report counts as one
that reads the version in force and no more: a member that is down for good must be removed, or it holds all others
back.

Pure: nothing here sends or reads a clock; `membership/peer_identity.py` and `replication/leader.py` feed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from raftsched.consensus.machine import StateMachine
from raftsched.consensus.ports import NodeId


class PeerVersion(NamedTuple):
    """A leader's knowledge of another node; times are of its own monotonic clock."""

    reads: int
    """The latest version of log entries that it reads."""
    reported_at: float
    """Time of that report on the present connection; infinity without a connection."""
    answered_at: float
    """Send time of the newest message that it has answered; minus infinity before the first."""


def agreed_version(in_force: int, own: int, others: Iterable[PeerVersion | None]) -> int:
    """Return the version in which a leader may write: `in_force`, or the latest that all were seen to read at one moment.

    `own` is what the leader itself reads; None means a node without a report.
    """
    known = []
    for other in others:
        if other is None:
            return in_force
        known.append(other)
    last_reported_at = max((other.reported_at for other in known), default=-inf)
    if any(other.answered_at <= last_reported_at for other in known):
        return in_force
    return max(in_force, min([own, *(other.reads for other in known)]))


class OperationVersions:
    """The versions that one node and its peers read, and the version in force."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self._agreed = 0
        self._reports: dict[NodeId, tuple[int, float]] = {}

    @property
    def own(self) -> int:
        """The latest version that this node reads."""
        return self._machine.operations_read

    @property
    def in_force(self) -> int:
        """The latest version of any entry that was applied here, or that this node may write as leader; never falls."""
        return max(self._machine.operation_version, self._agreed)

    @property
    def may_rise(self) -> bool:
        """Whether this node reads a later version than the one in force; asked for each answer of a follower."""
        return self._agreed < self.own and self.in_force < self.own

    def record(self, peer: NodeId, reads: int, now: float) -> None:
        """Record what a peer reads; it may report the same again."""
        if self._reports.get(peer) in (None, (reads, inf)) or self.read_by(peer) != reads:
            self._reports[peer] = (reads, now)

    def disconnected(self, peer: NodeId) -> None:
        """Forget when a peer reported: the process behind its next connection may be another."""
        reads = self.read_by(peer)
        if reads is not None:
            self._reports[peer] = (reads, inf)

    def read_by(self, peer: NodeId) -> int | None:
        """Return the version that a peer last reported; None if it never did."""
        return self._reports[peer][0] if peer in self._reports else None

    def agree(self, others: Iterable[NodeId], answered_at: Callable[[NodeId], float]) -> bool:
        """As leader, raise the version in force if `others`, all who may get entries, allow it; return whether it rose."""
        before = self.in_force
        self._agreed = agreed_version(before, self.own, [self._known(each, answered_at(each)) for each in others])
        return self.in_force > before

    def _known(self, peer: NodeId, answered_at: float) -> PeerVersion | None:
        found = self._reports.get(peer)
        return None if found is None else PeerVersion(*found, answered_at)
