"""Compute the cluster's time on one node: a line over its monotonic clock, moved only by evidence of a majority's
clocks.

Theory of operation. Wall clocks can be set, and one of them may be an hour off; monotonic clocks only drift. So each
node keeps `line`, cluster time minus its own monotonic clock, and a reading of the time is `line` + monotonic. Nothing
that happens to the node's own wall clock enters a reading directly; it enters `line`, if at all, in one of two ways:

On the leader, by judgement. An answer of a peer shows its wall clock at a moment between the question and now, so it
bounds (the peer's wall clock - our monotonic clock) to an interval as wide as the round trip. With all that is
unknown at ±infinity these intervals bound the median of the members' clocks, and

    allowed = [upper bound of the median - skew, lower bound of the median + skew]

is what is certainly within `skew` of it, wherever in its bounds it is. Clocks agree where `allowed` is not empty, and a
majority of them is near the median. With every few answers the leader judges:

    they agree, own in `allowed`    the line becomes the own clock: the leader's clock is the cluster's
    they agree, own is not          the line stays, brought into `allowed`, so that stamps are right all the same
    they don't agree                the line continues, kept by a clock near it, with a warning. If there is no line yet,
                                    it begins, after `SETTLE_SECONDS`, at the middle of the clocks that are not behind
                                    the last stamp, at the earlier of two: late can be corrected, early can't
    no majority is known            nothing is learnt, and after `JUDGED_SECONDS` nothing is stamped any more

A leader whose own clock is off the median, or off the line without a median, for `OFF_SECONDS`, transfers leadership to
a node whose clock is right, if there is one (`RaftEngine`).

On a follower, by messages: those of the leader carry its reading, and the latest, quickest one is the line. So a new
leader begins with its predecessor's time, and three nodes of which one is wrong and one is dead still have the right
time: only together with the dead one there was a majority, but the living remember it.

Cluster time as applied, `floor_ms`, never runs backward. If it is ahead of the line (all clocks were set back, or an
older version stamped wrongly), a reading continues from it at half speed until the line has caught up: so leases end
and retries become due meanwhile, if late; a stopped clock would freeze them.

Readings that no stamp came of do go back when the line does: they were wrong. Whoever remembers what came due by one must
reckon with that (`leader.dispatch.due_jobs`). Only steps of up to `HELD_MS`, as rounding makes them many times a second, are
not passed on: time continues at half speed instead.

A node alone has no other clock to ask. Its own counts, jumps included; a jump is logged, and one backward only halves
the speed. Left out: clocks of a majority that are wrong together are right by definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

import structlog

from raftsched.consensus.ports import NodeId
from raftsched.core.records.ids import TimeMs
from raftsched.errors import Unavailable
from raftsched.limits import CLOCK_SKEW_MS
from raftsched.ports import Clock

BEST_SECONDS: Final = 1.0
"""A reading is kept that long against wider ones; longer, and the drift of bad clocks would outgrow the round trip."""
FRESH_SECONDS: Final = 5.0
"""A reading older than this counts as none."""
JUDGE_SECONDS: Final = 0.05
"""Answers that come sooner after clocks agreed change nothing."""
JUDGED_SECONDS: Final = 3.0
"""Stamps need a judgement that is not older."""
SETTLE_SECONDS: Final = 2.0
"""Time for which a leader without a line waits for clocks that agree; then it takes the earliest."""
OFF_SECONDS: Final = 1.0
"""A clock is off once it was off for this long: not while all clocks of a cluster are being set, one after the other."""
INHERITED_SECONDS: Final = 60.0
"""Oldest line, received or judged, from which a new leader may start."""
WARNING_SECONDS: Final = 60.0
"""Interval at which a persisting fault is logged again."""

HELD_MS: Final = 20
"""A reading goes back by more than this or not at all: lines are a millisecond apart by rounding, and some by round
trips."""

_log = structlog.get_logger()


@dataclass(slots=True)
class ClockReading:
    """A peer's wall clock, as bounds of (its wall clock - our monotonic clock) in milliseconds."""

    low_ms: float = -inf
    high_ms: float = inf
    measured_at: float = -inf

    @property
    def middle_ms(self) -> float:
        return (self.low_ms + self.high_ms) / 2

    def measured(self, *, peer_wall_ms: int, sent_at: float, now: float) -> None:
        """An answer that shows `peer_wall_ms` arrived at `now`; the question left at `sent_at`, both monotonic."""
        low_ms, high_ms = peer_wall_ms - now * 1000, peer_wall_ms + 1 - sent_at * 1000
        is_narrower = high_ms - low_ms <= self.high_ms - self.low_ms
        has_jumped = low_ms > self.high_ms or high_ms < self.low_ms
        if is_narrower or has_jumped or now - self.measured_at > BEST_SECONDS:
            self.low_ms, self.high_ms, self.measured_at = low_ms, high_ms, now

    def is_fresh(self, now: float) -> bool:
        return now - self.measured_at <= FRESH_SECONDS


@dataclass(frozen=True, slots=True)
class MedianBounds:
    """Bounds of the median of clocks; infinite unless a majority of them is known."""

    low_ms: float
    high_ms: float

    @classmethod
    def of(cls, lows: Iterable[float], highs: Iterable[float]) -> MedianBounds:
        """The bounds of the median of as many clocks as there are bounds; of an even number, of both middle ones."""
        sorted_lows, sorted_highs = sorted(lows), sorted(highs)
        return cls(sorted_lows[(len(sorted_lows) - 1) // 2], sorted_highs[len(sorted_highs) // 2])


class ClusterClock:
    """Cluster time on this node. It is a `Clock`, whose `wall_ms` is the estimate of cluster time; `stamp_ms` is for log
    entries. Neither goes back behind what was applied, nor by a few milliseconds.

    `floor_ms` is the cluster time of the last applied entry. All times that end in `_ms` are milliseconds; moments
    without a unit are seconds on the monotonic clock.
    """

    def __init__(self, clock: Clock, *, skew_ms: int = CLOCK_SKEW_MS, floor_ms: Callable[[], int] = lambda: 0) -> None:
        self._clock = clock
        self._skew_ms = skew_ms
        self._floor_ms = floor_ms
        self._peers: tuple[NodeId, ...] = ()
        self._readings: dict[NodeId, ClockReading] = {}
        self._line_ms: float | None = None
        self._line_at = -inf
        self._judged_at = -inf
        self._agreed_at = -inf
        """Time at which clocks agreed last, or this node began to lead."""
        self._agree = False
        """Whether clocks did at the last judgement."""
        self._reference: MedianBounds | None = None
        """Reference for clocks since then: their median, or the line if they don't agree."""
        self._off_since: float | None = None
        self._half_speed = (0, 0.0)
        """(cluster time, moment) from which on a reading advances at half speed, if it is ahead of the line."""
        self._read_ms = 0
        """The latest reading."""
        self._own_seen_ms: float | None = None
        self._warned_at: dict[str, float] = {}

    # -- reading ------------------------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wall_ms(self) -> int:
        """Cluster time as far as this node can tell: never behind the last applied stamp. It goes back if it was wrong."""
        return self._reading_ms(self._clock.monotonic())

    def stamp_ms(self) -> TimeMs:
        """The stamp of an entry that this leader proposes now; raises `Unavailable` where no majority bears it out."""
        now = self._clock.monotonic()
        if self._peers and not self._is_borne_out(now):
            raise Unavailable("the clocks of a majority of nodes are not known yet; retry in a moment")
        if not self._peers:
            self._notice_jump(now)
        return TimeMs(self._reading_ms(now))

    def sent_ms(self, now: float) -> int:
        """Return the leader's reading for its followers; 0 while it has none."""
        if self._line_ms is None or not self._is_borne_out(now):
            return 0
        return round(self._line_ms + now * 1000)

    def _is_borne_out(self, now: float) -> bool:
        return self._line_ms is not None and now - self._judged_at <= JUDGED_SECONDS

    def _reading_ms(self, now: float) -> int:
        floor_ms = self._floor_ms()
        if not self._peers:
            line_ms = self._clock.wall_ms()
        else:
            # With peers but no line yet the floor alone is known: the own clock may be the one that is wrong.
            line_ms = round(self._line_ms + now * 1000) if self._line_ms is not None else floor_ms
        start_ms, started_at = self._half_speed
        ahead_ms = start_ms + int((now - started_at) * 500)
        due_ms = max(line_ms, ahead_ms)
        least_ms = max(floor_ms, self._read_ms) if self._read_ms - due_ms <= HELD_MS else floor_ms
        if least_ms > due_ms:
            self._half_speed = (least_ms, now)
        self._read_ms = max(least_ms, due_ms)
        return self._read_ms

    # -- what operators see -------------------------------------------------------------------------------------------

    def offset_ms(self, peer: NodeId) -> int | None:
        """Return a peer's wall clock minus ours; None if it was never measured."""
        reading = self._readings.get(peer)
        return None if reading is None else round(reading.middle_ms - self._own_ms(self._clock.monotonic()))

    def own_offset_ms(self) -> int | None:
        """Return our wall clock minus cluster time; None if that is unknown, as on a single node."""
        if self._line_ms is None or not self._peers:
            return None
        return round(self._own_ms(self._clock.monotonic()) - self._line_ms)

    @property
    def is_off(self) -> bool:
        """Whether our wall clock has been off by more than the allowed skew for a while."""
        since = self._off_since
        return since is not None and self._clock.monotonic() - since >= OFF_SECONDS

    def is_right(self, peer: NodeId) -> bool:
        """Whether a peer's clock may have been within the allowed skew at the last judgement."""
        if self._reference is None:
            return True
        reading = self._readings.get(peer)
        return reading is not None and not self._is_surely_off(reading, self._reference)

    # -- following ----------------------------------------------------------------------------------------------------

    def observe_leader(self, sent_ms: int, *, now: float, round_trip_ms: int = 0) -> None:
        """Process a leader's reading (0: it has none), sent an unknown time ago: so the largest line is the best.

        It was on its way for up to a round trip, so our clock is ahead only if it is by more than that.
        """
        if not sent_ms:
            return
        line_ms = sent_ms - now * 1000
        if self._line_ms is not None and line_ms < self._line_ms and now - self._line_at <= BEST_SECONDS:
            return
        self._line_ms, self._line_at = line_ms, now
        own_ms = self._own_ms(now)
        ahead_ms = own_ms - line_ms
        is_off = not -self._skew_ms <= ahead_ms <= self._skew_ms + round_trip_ms
        self._note_own(ahead_ms, is_off=is_off, now=now)

    # -- leading ------------------------------------------------------------------------------------------------------

    def set_peers(self, peers: Iterable[NodeId]) -> None:
        """Set the other voting members, on any node."""
        self._peers = tuple(peers)
        self._readings = {peer: reading for peer, reading in self._readings.items() if peer in self._peers}

    def start_leading(self) -> None:
        """Begin a term as leader: nothing is judged yet."""
        now = self._clock.monotonic()
        if now - self._line_at > INHERITED_SECONDS:
            self._line_ms = None
        self._agreed_at = now
        self._judged_at = -inf
        self._agree = False
        self._reference = None
        self._off_since = None

    def observe_peer(self, peer: NodeId, *, wall_ms: int, sent_at: float, now: float) -> None:
        """Process a peer's answer, with its wall clock, to a message that this leader sent at `sent_at`."""
        if peer not in self._peers:
            return
        reading = self._readings.setdefault(peer, ClockReading())
        reading.measured(peer_wall_ms=wall_ms, sent_at=sent_at, now=now)
        if not self._agree or now - self._judged_at >= JUDGE_SECONDS:
            self._judge(now)

    def _judge(self, now: float) -> None:
        own_ms = self._own_ms(now)
        fresh = [reading for reading in self._readings.values() if reading.is_fresh(now)]
        unknown_count = len(self._peers) - len(fresh)
        if (len(fresh) + 1) * 2 <= len(self._peers) + 1:
            return
        median = MedianBounds.of(
            [own_ms, *(reading.low_ms for reading in fresh), *[-inf] * unknown_count],
            [own_ms, *(reading.high_ms for reading in fresh), *[inf] * unknown_count],
        )
        self._judged_at = now
        self._agree = self._do_agree(median, own_ms, fresh)
        if self._agree:
            self._agreed_at = now
            self._reference = median
            self._follow(own_ms, median, now)
        else:
            self._continue(own_ms, fresh, now)
            self._reference = MedianBounds(self._line_ms, self._line_ms) if self._line_ms is not None else None
        if self._reference is not None:
            self._name_who_is_off(self._reference, own_ms, now)

    def _do_agree(self, median: MedianBounds, own_ms: float, fresh: list[ClockReading]) -> bool:
        """Whether the median is known well enough, and a majority of clocks is near it, not one in the middle alone."""
        if median.high_ms - median.low_ms > 2 * self._skew_ms:
            return False
        near_count = sum(self._is_within(each_ms, median) for each_ms in (own_ms, *(each.middle_ms for each in fresh)))
        return near_count * 2 > len(self._peers) + 1

    def _follow(self, own_ms: float, median: MedianBounds, now: float) -> None:
        """Clocks agree: keep the line within the allowed skew of them."""
        start_ms, stop_ms = median.high_ms - self._skew_ms, median.low_ms + self._skew_ms
        if start_ms <= own_ms <= stop_ms:
            self._set_line(own_ms, now)
        else:
            line_ms = self._line_ms if self._line_ms is not None else (median.low_ms + median.high_ms) / 2
            self._set_line(min(max(line_ms, start_ms), stop_ms), now)

    def _continue(self, own_ms: float, fresh: list[ClockReading], now: float) -> None:
        """Continue the former time, by a clock near it, since the clocks of a majority don't agree."""
        known_ms = [own_ms, *(reading.middle_ms for reading in fresh)]
        offsets_ms = [round(each_ms - own_ms) for each_ms in known_ms]
        line_ms, skew_ms = self._line_ms, self._skew_ms
        has_settled = now - self._agreed_at >= SETTLE_SECONDS
        if has_settled:
            self._warn("clocks_disagree", now, offsets_ms=offsets_ms, allowed_ms=skew_ms)
        if line_ms is not None:
            self._set_line(self._nearest_ms(line_ms, own_ms, fresh) if has_settled else line_ms, now)
        elif has_settled:
            line_ms = self._guess(known_ms, last_stamp_ms=self._floor_ms() - now * 1000)
            self._set_line(line_ms, now)
            _log.error("cluster_time_guessed", offset_ms=round(line_ms - own_ms), offsets_ms=offsets_ms)

    def _nearest_ms(self, line_ms: float, own_ms: float, fresh: list[ClockReading]) -> float:
        """Return the time nearest to the line at which a clock may be, if that is within the allowed skew; else the
        line.

        The nearest, not any that is near enough: from one of those to the next the line could wander off.
        """
        known = [(own_ms, own_ms), *((reading.low_ms, reading.high_ms) for reading in fresh)]
        possible_ms = (min(max(line_ms, low_ms), high_ms) for low_ms, high_ms in known)
        nearest_ms = min(possible_ms, key=lambda each_ms: abs(each_ms - line_ms))
        return nearest_ms if abs(nearest_ms - line_ms) <= self._skew_ms else line_ms

    def _guess(self, known_ms: list[float], *, last_stamp_ms: float) -> float:
        """The middle one of the clocks that are not behind the last stamp, the earlier of two."""
        possible_ms = sorted(each_ms for each_ms in known_ms if each_ms >= last_stamp_ms - self._skew_ms)
        return possible_ms[(len(possible_ms) - 1) // 2] if possible_ms else last_stamp_ms

    def _name_who_is_off(self, reference: MedianBounds, own_ms: float, now: float) -> None:
        self._note_own(own_ms - reference.low_ms, is_off=not self._is_within(own_ms, reference), now=now)
        for peer, reading in self._readings.items():
            if reading.is_fresh(now) and self._is_surely_off(reading, reference):
                offset_ms = round(reading.middle_ms - reference.low_ms)
                self._warn("clock_off", now, kind=peer, peer=peer, offset_ms=offset_ms, allowed_ms=self._skew_ms)

    def _set_line(self, line_ms: float, now: float) -> None:
        self._line_ms, self._line_at = line_ms, now

    # -- both ---------------------------------------------------------------------------------------------------------

    def _own_ms(self, now: float) -> float:
        return self._clock.wall_ms() - now * 1000

    def _is_within(self, each_ms: float, reference: MedianBounds) -> bool:
        """Whether a clock may be within the allowed skew of the reference."""
        return reference.low_ms - self._skew_ms <= each_ms <= reference.high_ms + self._skew_ms

    def _is_surely_off(self, reading: ClockReading, reference: MedianBounds) -> bool:
        skew_ms = self._skew_ms
        return reading.low_ms > reference.high_ms + skew_ms or reading.high_ms < reference.low_ms - skew_ms

    def _note_own(self, offset_ms: float, *, is_off: bool, now: float) -> None:
        if not is_off:
            self._off_since = None
        elif self._off_since is None:
            self._off_since = now
        elif now - self._off_since >= OFF_SECONDS:
            self._warn("own_clock_off", now, offset_ms=round(offset_ms), allowed_ms=self._skew_ms)

    def _notice_jump(self, now: float) -> None:
        """A node alone follows its clock wherever it goes, but not in silence."""
        own_ms = self._own_ms(now)
        if self._own_seen_ms is not None and abs(own_ms - self._own_seen_ms) > self._skew_ms:
            _log.warning("clock_jumped", jump_ms=round(own_ms - self._own_seen_ms))
        self._own_seen_ms = own_ms

    def _warn(self, event: str, now: float, *, kind: str = "", **fields: object) -> None:
        key = f"{event} {kind}"
        if now - self._warned_at.get(key, -inf) >= WARNING_SECONDS:
            self._warned_at[key] = now
            _log.warning(event, **fields)
