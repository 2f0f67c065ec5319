"""Decide the version in which a leader may write log entries, while nodes have several releases (a rolling upgrade).

Each node reads entries up to some version (`core.operations`) and says so in its greeting. The version *in force* is the
highest of any entry that was applied; it is part of the state, and never falls. A leader writes in the version in force
until it knows that all members read a later one, those included that only join, and then in the latest that all read.

What a leader once heard of a node is not enough: the node may have been stopped since, and come back with the release
before, and the leader learns that only later. To go back is legal until all nodes have been upgraded, so nobody may
write a version that they did not all read at the same moment. Hence the rule: let s be the moment at which the last of
them was heard. Each must have answered, on the connection on which it was heard, a message that was sent after s. Then
the process that said so was alive at s, and so were all the others.

From that moment on there is no way back. The leader tells its version in its greetings, also before an entry carries
it, and a node that reads less is refused by whoever knows of a later one, and stops when it learns that. A member is
never met by that, unless somebody takes it back to an older release afterwards. A node that was not heard counts as one
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


class Heard(NamedTuple):
    """A leader's knowledge of another node; times are of its own monotonic clock."""

    reads: int
    """The latest version of log entries that it reads."""
    heard_at: float
    """Time of that report on the present connection; infinity without a connection."""
    answered_at: float
    """Send time of the newest message that it has answered; minus infinity before the first."""


def agreed_version(in_force: int, own: int, others: Iterable[Heard | None]) -> int:
    """Return the version in which a leader may write: `in_force`, or the latest that all were seen to read at one moment.

    `own` is what the leader itself reads; None means a node without a report.
    """
    heard = []
    for other in others:
        if other is None:
            return in_force
        heard.append(other)
    last_heard_at = max((other.heard_at for other in heard), default=-inf)
    if any(other.answered_at <= last_heard_at for other in heard):
        return in_force
    return max(in_force, min([own, *(other.reads for other in heard)]))


class OperationVersions:
    """The versions that one node and its peers read, and the version in force."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self._agreed = 0
        self._heard: dict[NodeId, tuple[int, float]] = {}

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

    def heard(self, peer: NodeId, reads: int, now: float) -> None:
        """A peer says what it reads, perhaps again."""
        if self._heard.get(peer) in (None, (reads, inf)) or self.read_by(peer) != reads:
            self._heard[peer] = (reads, now)

    def parted(self, peer: NodeId) -> None:
        """The connection is gone, and the process behind the next one may be another."""
        reads = self.read_by(peer)
        if reads is not None:
            self._heard[peer] = (reads, inf)

    def read_by(self, peer: NodeId) -> int | None:
        """Return the version that a peer last reported; None if it never did."""
        return self._heard[peer][0] if peer in self._heard else None

    def agree(self, others: Iterable[NodeId], answered_at: Callable[[NodeId], float]) -> bool:
        """As leader, raise the version in force if `others`, all who may get entries, allow it; return whether it rose."""
        before = self.in_force
        self._agreed = agreed_version(before, self.own, [self._known(each, answered_at(each)) for each in others])
        return self.in_force > before

    def _known(self, peer: NodeId, answered_at: float) -> Heard | None:
        found = self._heard.get(peer)
        return None if found is None else Heard(*found, answered_at)
