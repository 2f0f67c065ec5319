"""Measure the round trips of peers by messages that are sent anyway, for the warning of a leader.

A leader's lead is confirmed by an answer (`quorum_lease.py`), which counts from when the question left. So an answer must
come back before the promise that it renews has run out, and the next question leaves a heartbeat later:

    round trip + heartbeat < usable part of the least election timeout

Beyond that limit reads are refused, and soon elections fail as well. A warning comes at half of it. A round trip includes
what the follower's disk takes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import structlog

from raftsched.consensus.ports import NodeId, Timing
from raftsched.consensus.raft.clocks.quorum_lease import DRIFT

_SAMPLES: Final = 64
"""Six seconds of heartbeats."""
_SAMPLES_BETWEEN: Final = 8
"""With all samples there, the result is computed again after this many; under load answers come by the hundred a
second."""
_SAMPLES_MIN: Final = 5
"""With fewer nothing is said: a single one may have met a stalled process."""
_PERCENT: Final = 90
_WARN_PART: Final = 0.5
_WARN_SECONDS: Final = 60.0
"""Interval at which a persisting slowness is logged again."""

_log = structlog.get_logger()


class RoundTrips:
    """The recent round trips to each peer; they outlive a term, because who can't lead for long must tell why."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._samples: dict[NodeId, deque[float]] = {}
        self._seconds: dict[NodeId, float] = {}
        self._uncounted: dict[NodeId, int] = {}
        self.longest_ms = 0
        """To the slowest peer, in whole milliseconds; 0 while none is known."""
        self.leaders_ms = 0
        """The same of the leader that this node follows, as its messages say."""
        self._warned_at: dict[NodeId, float] = {}

    @property
    def limit_seconds(self) -> float:
        """Beyond this no contact is ever recent enough."""
        return self._timing.election_min_seconds * (1 - DRIFT) - self._timing.heartbeat_seconds

    def answered(self, peer: NodeId, sent_us: int, now: float) -> None:
        """Measure the answer to what this node sent at `sent_us`; 0 if that is not known."""
        if sent_us:
            self.measured(peer, now - sent_us / 1_000_000, now)

    def measured(self, peer: NodeId, seconds: float, now: float) -> None:
        """Record the round trip of a peer's answer."""
        samples = self._samples.setdefault(peer, deque(maxlen=_SAMPLES))
        samples.append(seconds)
        self._uncounted[peer] = uncounted = self._uncounted.get(peer, 0) + 1
        if len(samples) < _SAMPLES_MIN or (uncounted < _SAMPLES_BETWEEN and len(samples) == _SAMPLES):
            return
        self._uncounted[peer] = 0
        self._seconds[peer] = sorted(samples)[len(samples) * _PERCENT // 100]
        self._find_longest()
        if now - self._warned_at.get(peer, now - _WARN_SECONDS) < _WARN_SECONDS or not self._is_slow(peer):
            return
        self._warned_at[peer] = now
        _log.warning("round_trip_slow", peer=peer, advice=self._advice(peer))

    def keep(self, peers: set[NodeId]) -> None:
        """Forget everybody else."""
        for peer in self._samples.keys() - peers:
            del self._samples[peer]
            self._seconds.pop(peer, None)
        self._find_longest()

    def _find_longest(self) -> None:
        self.longest_ms = round(1000 * max(self._seconds.values(), default=0.0))

    @property
    def known_ms(self) -> int:
        """Return the longest round trip between the leader and another node, as far as this node knows; 0 = unknown."""
        return max(self.longest_ms, self.leaders_ms)

    def seconds(self, peer: NodeId) -> float | None:
        """Return the 90th percentile of round trips; None if too few were measured."""
        return self._seconds.get(peer)

    @property
    def warning(self) -> str:
        """Return a warning with the peers near the limit or beyond it, and the setting to change; "" if none is."""
        slow = sorted(filter(self._is_slow, self._samples))
        return self._advice(max(slow, key=lambda peer: self.seconds(peer) or 0.0)) if slow else ""

    def _is_slow(self, peer: NodeId) -> bool:
        seconds = self.seconds(peer)
        return seconds is not None and seconds > _WARN_PART * self.limit_seconds

    def _advice(self, peer: NodeId) -> str:
        milliseconds, limit = round(1000 * (self.seconds(peer) or 0.0)), round(1000 * self.limit_seconds)
        return (
            f"the round trip to {peer} takes {milliseconds:,} ms; with election_seconds_min = "
            f"{self._timing.election_min_seconds:g} and heartbeat_seconds = {self._timing.heartbeat_seconds:g} it must stay "
            f"well below {limit:,} ms: set larger values on all nodes, as the table of slow networks in docs/operations.md has them"
        )
