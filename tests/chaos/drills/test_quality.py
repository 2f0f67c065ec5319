"""When packets arrive over a bad link."""

from __future__ import annotations

from random import Random

from chaos.drills.backends.quality import Link, Quality


def arrivals(quality: Quality, *, count: int = 2000, every: float = 0.001, size: int = 100) -> list[tuple[int, float]]:
    """Return (number, seconds on the way) of all that arrives, in the order of arrival."""
    link = Link(quality, Random(7))
    sent = [(number, number * every) for number in range(count)]
    found = [(arrival, number, arrival - at) for number, at in sent for arrival in link.arrivals(size, at)]
    return [(number, seconds) for _, number, seconds in sorted(found)]


def test_a_perfect_link_delivers_at_once_and_a_slow_one_within_delay_and_jitter_in_order() -> None:
    assert arrivals(Quality(), count=3) == [(0, 0.0), (1, 0.0), (2, 0.0)]
    slow = arrivals(Quality(delay_ms=50, jitter_ms=20))
    assert [number for number, _ in slow] == list(range(2000))
    assert 0.05 <= min(seconds for _, seconds in slow) < 0.06 < max(seconds for _, seconds in slow) <= 0.0701


def test_packets_are_lost_repeated_and_reordered_as_often_as_said() -> None:
    assert 80 < 2000 - len(arrivals(Quality(lost=0.05))) < 120
    assert 2080 < len(arrivals(Quality(repeated=0.05))) < 2120
    numbers = [number for number, _ in arrivals(Quality(jitter_ms=30, overtaking=0.3))]
    assert sorted(numbers) == list(range(2000)) != numbers


def test_a_narrow_link_keeps_back_what_exceeds_it() -> None:
    narrow = arrivals(Quality(delay_ms=10, bytes_per_second=50_000), count=1000)  # given twice what it carries
    assert abs(narrow[-1][1] - (1000 * 0.002 - 1000 * 0.001 + 0.01)) < 0.01
    link = Link(Quality(bytes_per_second=1000), Random(1))
    link.arrivals(2000, 5.0)
    assert (link.backlog_seconds(5.0), link.backlog_seconds(9.0)) == (2.0, 0.0)
