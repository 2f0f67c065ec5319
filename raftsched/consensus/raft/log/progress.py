"""Track a leader's knowledge of one follower (after etcd's `tracker.Progress`).

A follower is in one of three states:

probing       where the logs agree is not known: one empty message at a time, until it is
replicating   entries leave as they come, ahead of the answers, up to a window
snapshotting  the follower needs entries that this log no longer has: chunks of a copy, and empty messages for contact
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf

from pysyncobj.node import Node


@dataclass(slots=True)
class Progress:
    """One follower, in one term of this leader."""

    node: Node
    next: int
    """Index of the next entry to send; what comes before it is assumed to be there."""
    match: int = 0
    """Its log is known to equal ours up to here, durably."""
    probing: bool = True
    snapshotting: bool = False
    catching_up: bool = False
    """It has installed a snapshot, and lacks more of the log than is kept for anybody: that is held for it."""
    linked_at: float = -inf
    """Monotonic time at which it was last connected to this leader; minus infinity if that was before this term."""
    in_flight: deque[int] = field(default_factory=deque)
    """Last index of each message with entries that is not acknowledged."""

    def probe(self, next_index: int) -> None:
        """Find out where the logs agree, beginning below `next_index`."""
        self.next = next_index
        self.probing = True
        self.in_flight.clear()

    def matched(self, index: int) -> None:
        """The follower has our log up to `index`."""
        self.match = max(self.match, index)
        self.next = max(self.next, self.match + 1)
        self.probing = False
        while self.in_flight and self.in_flight[0] <= self.match:
            self.in_flight.popleft()
