"""Round trips: measured by answers, warned of near the limit that the timing sets."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from raftsched.consensus.ports import Timing
from raftsched.consensus.raft.clocks.round_trips import RoundTrips
from tests.consensus.subjects import TIMING, MendedSubject

LAN = Timing(heartbeat_seconds=0.1, election_min_seconds=0.5, election_max_seconds=1.0)


@pytest.fixture
def trips() -> RoundTrips:
    return RoundTrips(LAN)


def feed(trips: RoundTrips, peer: str, seconds: float, *, count: int = 20, now: float = 0.0) -> None:
    for number in range(count):
        trips.measured(peer, seconds, now + number * LAN.heartbeat_seconds)


def test_the_limit_leaves_room_for_the_next_heartbeat(trips: RoundTrips) -> None:
    assert trips.limit_seconds == pytest.approx(0.35)


def test_a_single_slow_answer_is_no_slow_network(trips: RoundTrips) -> None:
    feed(trips, "b", 0.002, count=40)
    feed(trips, "b", 2.0, count=3)
    assert trips.seconds("b") == 0.002
    assert not trips.warning


def test_nothing_is_said_of_a_few_answers(trips: RoundTrips) -> None:
    feed(trips, "b", 0.3, count=4)
    assert trips.seconds("b") is None
    assert not trips.warning


def test_a_round_trip_near_the_limit_is_warned_of_with_numbers_and_what_to_set(trips: RoundTrips) -> None:
    feed(trips, "b", 0.002)
    feed(trips, "c", 0.3)
    for part in (
        "to c takes 300 ms",
        "election_seconds_min = 0.5",
        "heartbeat_seconds = 0.1",
        "350 ms",
        "docs/operations.md",
    ):
        assert part in trips.warning
    assert trips.longest_ms == 300


def test_the_warning_ends_with_its_cause(trips: RoundTrips) -> None:
    feed(trips, "c", 0.3, count=64)
    feed(trips, "c", 0.01, count=64)
    assert not trips.warning


def test_what_stays_slow_is_logged_once_a_minute(trips: RoundTrips) -> None:
    with capture_logs() as logs:
        feed(trips, "c", 0.3, count=1_300)  # 130 s
    assert [line["event"] for line in logs] == ["round_trip_slow"] * 3


def test_a_node_that_left_is_not_warned_of(trips: RoundTrips) -> None:
    feed(trips, "c", 0.3)
    trips.keep({"b"})
    assert not trips.warning


def test_a_leader_measures_from_the_question_to_its_answer(tmp_path: Path) -> None:
    leader = MendedSubject("bc", tmp_path)
    leader.lead()
    for _ in range(10):
        asked_us = int(leader.clock.now * 1_000_000)
        leader.clock.now += 0.04
        leader.give(
            "b",
            type="next_node_idx",
            term=leader.term,
            success=True,
            reset=False,
            next_node_idx=2,
            rejected=0,
            sent_us=asked_us,
        )
    assert leader.engine.measured.round_trips.seconds("b") == pytest.approx(0.04, abs=0.001)
    assert leader.engine.measured.round_trips.limit_seconds < TIMING.election_min_seconds


def test_a_follower_knows_the_longest_round_trip_of_its_leader(tmp_path: Path) -> None:
    follower = MendedSubject("bc", tmp_path)
    append = {"prevLogIdx": 1, "prevLogTerm": 0, "entries": [], "commit_index": 1, "sent_us": 0, "wall_ms": 0}
    follower.give("b", type="append_entries", term=1, round_trip_ms=280, **append)
    assert follower.engine.measured.round_trips.known_ms == 280
