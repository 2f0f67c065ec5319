"""Which nodes have room on their disks, and whether the cluster takes new work.

Each follower tells its leader how much is free: once a second, and at once when that becomes low or enough again. The
leader counts the voters that have room, itself among them:

    the leader is low, another has room     the lead is handed over (`RaftEngine`); meanwhile work is accepted
    a majority has room                     new work is accepted: entries commit without the nodes that are low
    otherwise                               new work is refused, before those disks are full; outcomes, cancels and
                                            heartbeats still pass, and use the reserves

A node that fell silent counts by its last word for `SILENCE_SECONDS`, and one that was never heard in this term as one
with room for as long, so that neither an election nor a restart refuses anything. After that, a silent node has no room:
entries can't be committed with its help.

Left out: room for a snapshot. A follower without it fails to take the snapshot, and says so (`snapshot_refused`).
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
"""A leader hands over once its disk was low for that long: by then it knows whether the others' are low as well."""
_JUDGE_SECONDS: Final = 0.1

_log = structlog.get_logger()


class Space(NamedTuple):
    """The free space of one node."""

    free_bytes: int
    reserve_bytes: int
    """Below this new work should go elsewhere, or wait."""
    is_low: bool

    def __str__(self) -> str:
        return f"{self.free_bytes >> 20:,} MiB free, reserve {self.reserve_bytes >> 20:,} MiB"


_AMPLE: Final = Space(2**62, 0, is_low=False)


class ClusterSpace:
    """What this node knows of its own disk, and while it leads, of the others'. Moments are its monotonic clock."""

    def __init__(self, node_id: NodeId, clock: Clock, look: Callable[[], Space] = lambda: _AMPLE) -> None:
        self._node_id = node_id
        self._clock = clock
        self._look = look
        self._others: tuple[NodeId, ...] = ()
        self._counts_self = True
        self._heard: dict[NodeId, tuple[Space, float]] = {}
        self._leads_since = inf
        self._judge_at = inf
        self._told: tuple[NodeId, bool] = ("", False)
        self._tell_at = 0.0
        self._low_since = inf
        self.refusal = ""
        """Why this leader takes no new work; "" where it does."""

    def set_voters(self, others: Iterable[NodeId], *, counts_self: bool) -> None:
        """Whose disks count: these, and this node's own if it votes."""
        self._others = tuple(others)
        self._counts_self = counts_self

    def own(self) -> Space:
        """The free space of this node."""
        return self._look()

    def of(self, peer: NodeId) -> Space | None:
        """The last word of a peer; None where there is none."""
        return self._heard[peer][0] if peer in self._heard else None

    # -- following ----------------------------------------------------------------------------------------------------

    def report_due(self, leader: NodeId, now: float) -> Space | None:
        """Return what to tell the leader now; None where it was told lately."""
        space = self._look()
        if self._told == (leader, space.is_low) and now < self._tell_at:
            return None
        self._told = (leader, space.is_low)
        self._tell_at = now + REPORT_SECONDS
        return space

    # -- leading ------------------------------------------------------------------------------------------------------

    def start_leading(self) -> None:
        """Begin a term: nobody was heard yet."""
        self._heard.clear()
        self._leads_since = self._clock.monotonic()
        self._judge_at = self._leads_since

    def stop_leading(self) -> None:
        self._heard.clear()
        self._judge_at = inf
        self._low_since, self.refusal = inf, ""

    def heard(self, peer: NodeId, space: Space) -> None:
        """A peer told its free space."""
        now = self._clock.monotonic()
        self._heard[peer] = (space, now)
        self._judge_at = min(self._judge_at, now)

    def has_room(self, peer: NodeId) -> bool:
        """Whether a peer was heard lately, and has room."""
        space, heard_at = self._heard.get(peer, (None, -inf))
        return space is not None and not space.is_low and not self._is_silent(heard_at)

    def should_leave(self, now: float) -> bool:
        """Whether this leader should hand over to a node that has room."""
        return now - self._low_since >= LOW_SECONDS

    def judge(self, now: float) -> None:
        """As leader, see who has room; often called, and cheap."""
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
        """Why new work is to be refused; "" where it is not."""
        spaces = {self._node_id: own} if self._counts_self else {}
        spaces |= {peer: self._heard[peer][0] for peer in self._others if peer in self._heard}
        low = sorted(node_id for node_id, space in spaces.items() if space.is_low)
        silent = [peer for peer in self._others if self._is_silent(self._heard.get(peer, (None, self._leads_since))[1])]
        voter_count = len(self._others) + self._counts_self
        if not low or 2 * len({*low, *silent}) < voter_count:
            return ""
        named = ", ".join(f"{node_id} ({spaces[node_id]})" for node_id in low)
        down = sorted(set(silent) - set(low))
        return (
            f"too few nodes have room on their disks: low on {named}"
            + (f"; not heard from: {', '.join(down)}" if down else "")
            + ": new work is refused until a majority has room; running jobs may finish"
        )

    def _is_silent(self, heard_at: float) -> bool:
        return self._clock.monotonic() - heard_at > SILENCE_SECONDS
