"""Decide whether a leader may answer a read from its own state: the argument, and its clock.

A leader L of term T stamps each message to a follower with its monotonic clock (`sent_us`), and the follower's answer
repeats the stamp. Let s be the latest moment such that a majority, L included, answered messages that were sent at s or
later. Each of these followers processed its message after s, and from then on, for `election_min_seconds` on its own
clock, it gives no vote and no pre-vote to others (`Elections._leader_is_alive`). A leader of a later term needs votes
from a majority, so from at least one of them (or from L itself, which gives none while it leads). Hence:

    until s + election_min_seconds, less what clocks may drift, no other node can have been elected,

so everything that was ever acknowledged by then was acknowledged by L or committed in a term before T, and L has
applied it once the no-op of T is applied. That is `RaftEngine.check_fresh`: leader, no-op applied, s recent enough.

What makes the argument hold:

  * Contact counts from the send, not from when the answer is looked at. A leader that was stopped (SIGSTOP, a slow disk)
    wakes up to a socket full of old answers; their stamps are old, and no read is served by them.
  * A node that restarts has forgotten what it promised, so it counts its start as contact with a leader.
  * `timeout_now` asks a follower to start an election at once, and its `force` makes the others break their promise. So
    the leader that sends it stops serving at that moment, for the rest of its term: an election by force can only be for
    term T + 1, and L doesn't serve in T any more.
  * A leader that gives up says so (`lead_ended`), after which its followers may vote for others at once. It no longer
    serves in T by then, and can only lead again in a later term.
  * Monotonic clocks advance at nearly the same rate; `DRIFT` is a hundred times what quartz does. They must not stop
    while other nodes' run. CLOCK_BOOTTIME counts the time of a suspension (`raftsched.system`); a hypervisor that
    freezes a guest may freeze that clock too. That is outside the fault model, as is a clock that is set back by hand
    inside the kernel. `quorum_reads.py` answers reads without any clock.

Changes of the members (`configuration.py`) leave it true. A majority is one of the voters of the configuration in effect
on L, C; call the one before it P. Consider the first node to be elected in a later term. L has committed an entry of
its own term T, and before that it appended no other voters; so the winner's log holds that entry, and behind it nothing
but a part of what L appended. C was appended only when P was committed, so the winner's log holds P too: its
configuration is C or P. They differ by one voter, so majorities of both overlap, in a node that gave L its promise, or
in L itself. A node that joins gives the same promise with each answer, so its answers count from the moment in which it
votes. A wiped node gives no vote at all until a leader that knows its new disk has sent it entries (`peer_identity.py`).

The same contact is what pysyncobj's check for a quorum is fed with: a leader without a majority steps down.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from raftsched.consensus.ports import NodeId

DRIFT: Final = 0.1
"""Part of the promise that is not used: covers clocks that differ in rate, and the time from check to answer."""


class QuorumContact:
    """The latest moment from which on a majority is known to have followed this leader."""

    __slots__ = ("_needed", "_peers", "_sent_at", "_since", "_usable_seconds")

    def __init__(self, peers: Iterable[NodeId], *, promise_seconds: float) -> None:
        self._usable_seconds = promise_seconds * (1 - DRIFT)
        self._sent_at: dict[NodeId, float] = {}
        self.set_voters(peers, counts_self=True)

    def set_voters(self, peers: Iterable[NodeId], *, counts_self: bool) -> None:
        """From now on a majority of these, and of this node if it votes, is needed; what they answered still counts."""
        self._peers = tuple(peers)
        voter_count = len(self._peers) + counts_self
        self._needed = voter_count // 2 + 1 - counts_self
        self._since = self._find()

    def forget(self) -> None:
        """Start a term: nobody has answered yet."""
        self._sent_at.clear()
        self._since = self._find()

    def answered(self, peer: NodeId, sent_at: float) -> None:
        """`peer`, voter or not, answered, in this term, a message that was sent at `sent_at`."""
        if sent_at > self._sent_at.get(peer, -inf):
            self._sent_at[peer] = sent_at
            self._since = self._find()

    def answered_at(self, peer: NodeId) -> float:
        """Return the send time of the newest message that `peer` has answered in this term; minus infinity if none."""
        return self._sent_at.get(peer, -inf)

    def is_lost(self, now: float, seconds: float) -> bool:
        """Whether a majority has not answered what was sent in the last `seconds`."""
        return self._since < now - seconds

    @property
    def since(self) -> float:
        """The latest moment from which on a majority is known to have followed; infinite where nobody else votes."""
        return self._since

    def _find(self) -> float:
        if not self._needed:
            return inf
        return sorted(map(self.answered_at, self._peers), reverse=True)[self._needed - 1]

    def is_fresh(self, now: float) -> bool:
        """Whether no other leader can have been elected by `now`."""
        return now < self._since + self._usable_seconds
