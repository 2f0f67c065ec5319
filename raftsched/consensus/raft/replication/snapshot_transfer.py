"""Pace one transfer of a snapshot: which bytes are sent now, and which are sent again.

Theory of operation. A snapshot travels on the connection that heartbeats use as well, so what is on its way delays them.
On a fast link that is nothing. On a narrow one a large window is many seconds, in which its follower knows no leader,
and a sender that takes the silence for a loss sends the same window once more, which doubles the delay. So:

    window     begins with one chunk, and grows with each one that is acknowledged within `patience_seconds`. One that takes
               longer halves it; afterwards it grows by a chunk per window. (Chiu & Jain 1989: additive increase,
               multiplicative decrease.)
    silence    for `STALL_SECONDS`, or twice the time that chunks take, sends a single chunk again; each further silence
               must be twice as long. TCP loses nothing while a connection lasts; this is for receivers that lost their
               connection, their file, or room.

Left out: fairness between several followers, which have a transfer each.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

STALL_SECONDS: Final = 1.0
"""No answer for that long: what is unacknowledged is sent again."""
STALL_SECONDS_MAX: Final = 4.0
"""The pause between repetitions grows up to this, or one that recovers would wait too long."""


class Transfer:
    """The transfer of a copy to one follower; `patience_seconds` is how late its heartbeats may become by it."""

    def __init__(self, *, chunk_bytes: int, window_chunks_max: int, patience_seconds: float) -> None:
        self.acknowledged = 0
        """Bytes that the follower holds without a gap."""
        self._sent = 0
        self._chunk_bytes = chunk_bytes
        self._window_chunks_max = window_chunks_max
        self._patience_seconds = patience_seconds
        self._window_chunks = 1
        self._is_starting = True
        """No chunk was late so far."""
        self._credit = 0
        """Chunks in time since the window grew."""
        self._shrink_from = 0
        """Chunks up to here were on their way when the window shrank, and do not shrink it again."""
        self._sent_at: dict[int, float] = {}
        """End of a chunk on its way -> when it was sent first."""
        self._active_at = -inf
        self._stall_seconds = STALL_SECONDS

    def due(self, size: int, now: float) -> Iterator[tuple[int, int]]:
        """Yield (offset, bytes) of each chunk of a copy of `size` bytes that is to be sent now."""
        if self._active_at > -inf and now - self._active_at >= self._stall_seconds:
            self._repeat(size)
        limit = min(size, self.acknowledged + self._window_chunks * self._chunk_bytes)
        while self._sent < limit:
            offset, self._sent = self._sent, min(self._sent + self._chunk_bytes, limit)
            self._sent_at.setdefault(self._sent, now)
            self._active_at = now
            yield offset, self._sent - offset

    def _repeat(self, size: int) -> None:
        """Begin again behind what is acknowledged, with little.

        If all was acknowledged and nothing installed, the follower has lost it; the last piece makes it report that.
        """
        self._stall_seconds = min(2 * self._stall_seconds, STALL_SECONDS_MAX)
        self._window_chunks, self._is_starting = 1, False
        self._sent = max(0, size - self._chunk_bytes) if self.acknowledged >= size else self.acknowledged

    def acknowledge(self, offset: int, now: float) -> None:
        """Note that the follower holds `offset` bytes; fewer than before mean that it starts again."""
        if offset < self.acknowledged:
            self._sent = offset
            self._sent_at.clear()
        elif offset > self.acknowledged:
            self._active_at, self._stall_seconds = now, STALL_SECONDS
            for end in [end for end in self._sent_at if end <= offset]:
                self._judge(end, now - self._sent_at.pop(end))
        self.acknowledged = offset
        self._sent = max(self._sent, offset)

    def _judge(self, end: int, took_seconds: float) -> None:
        """Adapt the window, and the time after which silence is one, to the time that a chunk took."""
        self._stall_seconds = min(max(self._stall_seconds, 2 * took_seconds), STALL_SECONDS_MAX)
        if took_seconds > self._patience_seconds:
            self._is_starting = False
            if end > self._shrink_from:
                self._window_chunks = max(1, self._window_chunks // 2)
                self._credit, self._shrink_from = 0, self._sent
            return
        self._credit += 1
        if self._credit >= (1 if self._is_starting else self._window_chunks):
            self._window_chunks, self._credit = min(self._window_chunks + 1, self._window_chunks_max), 0
