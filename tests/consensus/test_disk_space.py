"""Who has room, and when new work is refused: the leader's count of what all nodes say."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from raftsched.consensus.disk_space import LOW_SECONDS, REPORT_SECONDS, SILENCE_SECONDS, ClusterSpace, Space
from tests.consensus.subjects import HandClock

MIB = 1 << 20
ROOM = Space(1_000 * MIB, 256 * MIB, is_low=False)
LOW = Space(100 * MIB, 256 * MIB, is_low=True)


class Scene:
    """A leader `a` and the voters that it hears."""

    def __init__(self, others: str, *, counts_self: bool = True) -> None:
        self.clock = HandClock()
        self.own = ROOM
        self.space = ClusterSpace("a", self.clock, lambda: self.own)
        self.space.set_voters(others, counts_self=counts_self)
        self.space.start_leading()

    def judged(self, **heard: Space) -> str:
        for peer, space in heard.items():
            self.space.record(peer, space)
        self.clock.now += 0.1
        self.space.judge(self.clock.now)
        return self.space.refusal


@pytest.mark.parametrize(
    ("voters", "low", "refused"),
    [
        ("a", "", False),
        ("a", "a", True),
        ("ab", "a", True),
        ("ab", "b", True),
        ("abc", "a", False),
        ("abc", "c", False),
        ("abc", "bc", True),
        ("abc", "ab", True),
        ("abcd", "a", False),
        ("abcd", "ab", True),
        ("abcde", "de", False),
        ("abcde", "ade", True),
    ],
)
def test_new_work_is_refused_while_a_majority_of_voters_has_no_room(voters: str, low: str, refused: bool) -> None:
    scene = Scene(voters[1:])
    if "a" in low:
        scene.own = LOW
    refusal = scene.judged(**{peer: LOW if peer in low else ROOM for peer in voters[1:]})
    assert bool(refusal) is refused
    assert all(f"{node} (100 MiB free, reserve 256 MiB)" in refusal for node in low if refused)


def test_a_leader_that_does_not_vote_counts_the_voters_alone() -> None:
    scene = Scene("bc", counts_self=False)
    assert scene.judged(b=LOW, c=ROOM)
    scene.own = LOW
    assert not scene.judged(b=ROOM, c=ROOM)


def test_a_leader_leaves_once_its_disk_was_low_for_a_while() -> None:
    scene = Scene("bc")
    scene.own = LOW
    scene.judged(b=ROOM, c=ROOM)
    assert not scene.space.should_leave(scene.clock.now), "the others may be about to say that they are low too"
    scene.clock.now += LOW_SECONDS
    assert scene.space.should_leave(scene.clock.now)
    scene.own = ROOM
    scene.judged()
    assert not scene.space.should_leave(scene.clock.now)


def test_a_change_is_logged_once_and_named() -> None:
    scene = Scene("bc")
    with capture_logs() as logs:
        for heard in (LOW, LOW, LOW, ROOM, ROOM, LOW):
            scene.judged(b=LOW, c=heard)
    assert [line["event"] for line in logs] == ["new_work_refused", "new_work_accepted", "new_work_refused"]
    assert logs[0]["log_level"] == "warning"
    assert "b (100 MiB free" in logs[0]["reason"]


def test_silence_counts_as_the_last_word_for_a_while_and_then_as_no_room() -> None:
    scene = Scene("bc")
    assert not scene.judged(b=LOW), "c has not reported yet in this term"
    scene.clock.now += SILENCE_SECONDS
    refusal = scene.judged(b=LOW)
    assert "no report from: c" in refusal
    assert not scene.judged(b=LOW, c=ROOM)
    assert scene.space.has_room("c")
    scene.clock.now += SILENCE_SECONDS
    assert "no report from: c" in scene.judged(b=LOW)
    assert not scene.space.has_room("c")
    assert not scene.judged(b=ROOM), "where nobody is low, silence is no matter of disks"


def test_a_term_begins_and_ends_without_the_words_of_another() -> None:
    scene = Scene("bc")
    assert scene.judged(b=LOW, c=LOW)
    scene.space.stop_leading()
    assert not scene.space.refusal
    assert scene.space.of("b") is None
    scene.clock.now += 60
    scene.space.start_leading()
    assert not scene.judged(b=LOW)
    assert not scene.space.has_room("b")
    assert not scene.space.has_room("c"), "nobody transfers to a node that has not reported"


def test_a_follower_reports_once_a_period_and_at_once_what_changes() -> None:
    scene = Scene("")
    assert scene.space.report_due("b", scene.clock.now) == ROOM
    assert scene.space.report_due("b", scene.clock.now) is None
    scene.own = LOW
    assert scene.space.report_due("b", scene.clock.now) == LOW
    assert scene.space.report_due("b", scene.clock.now) is None
    assert scene.space.report_due("c", scene.clock.now) == LOW, "another leader has not heard it"
    scene.clock.now += REPORT_SECONDS
    assert scene.space.report_due("c", scene.clock.now) == LOW
