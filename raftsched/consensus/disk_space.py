"""Track the free disk space of nodes, and decide whether the cluster accepts new work.

Each follower reports its free space to its leader: once a second, and at once when it becomes low or sufficient again.
The leader counts the voters with enough space, itself included:

    the leader is low, another is not       leadership is transferred (`RaftEngine`); meanwhile work is accepted
    a majority has space                    new work is accepted: entries commit without the nodes that are low
    otherwise                               new work is rejected, before those disks are full; outcomes, cancels and
                                            heartbeats are still accepted, and use the reserves

The last report of a silent node counts for `SILENCE_SECONDS`. A node without a report in this term counts as having
space for the same time, so that neither an election nor a restart rejects work. After that, a silent node has no space:
entries cannot be committed with its help.

Left out: space for a snapshot. A follower without it fails to receive the snapshot, and logs that (`snapshot_refused`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final, NamedTuple

import structlog

from raftsched.consensus.ports import NodeId
from raftsched.ports import Clock

REPORT_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 10.0
LOW_SECONDS: Final = 1.5 * REPORT_SECONDS
"""Time of low space after which a leader transfers leadership: by then it has the reports of the others."""
_JUDGE_SECONDS: Final = 0.1

_log = structlog.get_logger()


class Space(NamedTuple):
    """The free space of one node."""

    free_bytes: int
    reserve_bytes: int
    """Below this, new work should go to other nodes, or wait."""
    is_low: bool

    def __str__(self) -> str:
        return f"{self.free_bytes >> 20:,} MiB free, reserve {self.reserve_bytes >> 20:,} MiB"


_AMPLE: Final = Space(2**62, 0, is_low=False)


class ClusterSpace:
    """The free space of this node, and on a leader of the others. Times are of its monotonic clock."""

    def __init__(self, node_id: NodeId, clock: Clock, look: Callable[[], Space] = lambda: _AMPLE) -> None:
        self._node_id = node_id
        self._clock = clock
        self._look = look
        self._others: tuple[NodeId, ...] = ()
        self._counts_self = True
        self._reports: dict[NodeId, tuple[Space, float]] = {}
        self._leads_since = inf
        self._judge_at = inf
        self._reported: tuple[NodeId, bool] = ("", False)
        self._report_at = 0.0
        self._low_since = inf
        self.refusal = ""
        """Reason why this leader rejects new work; "" if it accepts work."""

    def set_voters(self, others: Iterable[NodeId], *, counts_self: bool) -> None:
        """Set the voters whose disks count: the others, and this node if it votes."""
        self._others = tuple(others)
        self._counts_self = counts_self

    def own(self) -> Space:
        """Return the free space of this node."""
        return self._look()

    def of(self, peer: NodeId) -> Space | None:
        """Return the last report of a peer; None if there is none."""
        return self._reports[peer][0] if peer in self._reports else None

    # -- following ----------------------------------------------------------------------------------------------------

    def report_due(self, leader: NodeId, now: float) -> Space | None:
        """Return the report to send to the leader now; None if one was sent lately."""
        space = self._look()
        if self._reported == (leader, space.is_low) and now < self._report_at:
            return None
        self._reported = (leader, space.is_low)
        self._report_at = now + REPORT_SECONDS
        return space

    # -- leading ------------------------------------------------------------------------------------------------------

    def start_leading(self) -> None:
        """Begin a term, without any report."""
        self._reports.clear()
        self._leads_since = self._clock.monotonic()
        self._judge_at = self._leads_since

    def stop_leading(self) -> None:
        self._reports.clear()
        self._judge_at = inf
        self._low_since, self.refusal = inf, ""

    def record(self, peer: NodeId, space: Space) -> None:
        """Record a peer's report of its free space."""
        now = self._clock.monotonic()
        self._reports[peer] = (space, now)
        self._judge_at = min(self._judge_at, now)

    def has_room(self, peer: NodeId) -> bool:
        """Return whether a peer has reported lately, and has space."""
        space, reported_at = self._reports.get(peer, (None, -inf))
        return space is not None and not space.is_low and not self._is_silent(reported_at)

    def should_leave(self, now: float) -> bool:
        """Return whether this leader should transfer leadership to a node with space."""
        return now - self._low_since >= LOW_SECONDS

    def judge(self, now: float) -> None:
        """Decide, as leader, whether to accept new work; often called, and cheap."""
        if now < self._judge_at:
            return
        self._judge_at = now + _JUDGE_SECONDS
        own = self._look()
        self._low_since = min(self._low_since, now) if own.is_low else inf
        refusal = self._shortage(own)
        if bool(refusal) != bool(self.refusal):
            tell = _log.warning if refusal else _log.info
            tell("new_work_refused" if refusal else "new_work_accepted", **({"reason": refusal} if refusal else {}))
        self.refusal = refusal

    def _shortage(self, own: Space) -> str:
        """Return the reason to reject new work; "" if there is none."""
        spaces = {self._node_id: own} if self._counts_self else {}
        spaces |= {peer: self._reports[peer][0] for peer in self._others if peer in self._reports}
        low = sorted(node_id for node_id, space in spaces.items() if space.is_low)
        silent = [
            peer for peer in self._others if self._is_silent(self._reports.get(peer, (None, self._leads_since))[1])
        ]
        voter_count = len(self._others) + self._counts_self
        if not low or 2 * len({*low, *silent}) < voter_count:
            return ""
        named = ", ".join(f"{node_id} ({spaces[node_id]})" for node_id in low)
        down = sorted(set(silent) - set(low))
        return (
            f"too few nodes have free disk space: low on {named}"
            + (f"; no report from: {', '.join(down)}" if down else "")
            + ": new work is rejected until a majority has space; running jobs may finish"
        )

    def _is_silent(self, reported_at: float) -> bool:
        return self._clock.monotonic() - reported_at > SILENCE_SECONDS
