"""Who is wrong is what a majority of the voters says, at indexes that are far enough, whatever messages are lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.sim.engine.machine import HistoryMachine, MachineDisk
from raftsched.consensus.journal.recovery import DifferenceMark
from raftsched.consensus.raft.replication.state_comparison import BEAT_SECONDS, EVERY_ENTRIES, Note, StateComparison

THREE = frozenset({"n1", "n2", "n3"})
FIVE = THREE | {"n4", "n5"}


class Scene:
    """n1's comparison, over a machine that applies what it is told to."""

    def __init__(self, directory: Path) -> None:
        self.machine = HistoryMachine(MachineDisk())
        self.comparison = StateComparison("n1", self.machine, DifferenceMark(directory))

    def apply(self, count: int) -> None:
        for _ in range(count):
            index = self.machine.applied_index + 1
            self.machine.apply(index, 1, b"entry")
            self.comparison.applied(index)

    def record(self, peer: str, note: Note) -> None:
        self.comparison.record(peer, note)

    def judge(self, voters: frozenset[str] = THREE) -> tuple[bool, set[str]]:
        """(this node is wrong, all that are)."""
        self.comparison.judge(voters)
        return bool(self.comparison.difference), set(self.comparison.differing)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def other(note: Note) -> Note:
    return Note(note.index, note.digest ^ 1)


def test_a_node_tells_each_agreed_index_and_the_newest_at_every_beat(scene: Scene) -> None:
    assert scene.comparison.due(0.0) == []
    scene.apply(EVERY_ENTRIES + 5)
    assert [note.index for note in scene.comparison.due(1.0)] == [EVERY_ENTRIES, EVERY_ENTRIES + 5]
    assert scene.comparison.due(1.0 + BEAT_SECONDS / 2) == []
    for beat in (1, 2):
        assert [note.index for note in scene.comparison.due(1.0 + beat * BEAT_SECONDS)] == [EVERY_ENTRIES + 5]


def test_the_majority_of_the_voters_says_who_is_wrong(tmp_path: Path) -> None:
    found, wanted = [], []
    for number, (voters, agree, differ, expected) in enumerate(
        [
            (THREE, ["n2"], ["n3"], (False, {"n3"})),
            (THREE, [], ["n2", "n3"], (True, {"n1"})),
            (THREE, [], ["n2"], (False, set())),
            (THREE, ["n2", "n3"], [], (False, set())),
            (FIVE, [], ["n2", "n3"], (False, set())),
            (FIVE, [], ["n2", "n3", "n4"], (True, {"n1"})),
            (FIVE, ["n5", "n4"], ["n2", "n3"], (False, {"n2", "n3"})),
            (frozenset({"n2", "n3", "n4"}), [], ["n2", "n3"], (True, set())),
            (frozenset({"n2", "n3", "n4"}), ["n2"], ["n3"], (False, set())),
            (frozenset({"n1"}), [], ["n2", "n3"], (False, set())),
        ]
    ):
        directory = tmp_path / str(number)
        directory.mkdir()
        scene = Scene(directory)
        scene.apply(EVERY_ENTRIES)
        (note,) = scene.comparison.due(0.0)
        for peer in agree:
            scene.record(peer, note)
        for peer in differ:
            scene.record(peer, other(note))
        found.append(scene.judge(voters))
        wanted.append(expected)
    assert found == wanted


def test_what_peers_named_first_is_compared_once_it_is_reached(scene: Scene) -> None:
    for peer in ("n2", "n3"):
        scene.record(peer, Note(7, 1))
    assert scene.judge() == (False, set())
    scene.apply(7)
    assert [note.index for note in scene.comparison.due(-1.0)] == [7]
    assert scene.judge() == (True, {"n1"})


def test_a_node_that_is_wrong_says_so_after_a_restart_until_its_state_is_replaced(scene: Scene, tmp_path: Path) -> None:
    scene.apply(EVERY_ENTRIES)
    (note,) = scene.comparison.due(0.0)
    for peer in ("n2", "n3"):
        scene.record(peer, other(note))
    scene.judge()
    assert "n2, n3 have" in scene.comparison.difference
    again = Scene(tmp_path)
    assert again.comparison.difference == scene.comparison.difference
    again.comparison.replaced()
    assert again.comparison.difference == Scene(tmp_path).comparison.difference == ""


def test_states_that_differ_without_a_majority_are_warned_of_and_forgotten_with_it(scene: Scene) -> None:
    for _ in range(3):
        assert not scene.comparison.warning
        scene.apply(EVERY_ENTRIES)
        for note in scene.comparison.due(-1.0):
            scene.record("n2", other(note))
        scene.judge()
    assert "n1, n2 differ" in scene.comparison.warning
    assert not scene.comparison.difference
    note = Note(scene.machine.applied_index, scene.machine.digest)
    scene.record("n3", note)
    assert scene.judge() == (False, {"n2"})
    assert "n2 is not that of the majority" in scene.comparison.warning


def test_notes_of_those_that_vote_no_more_are_forgotten(scene: Scene) -> None:
    scene.apply(EVERY_ENTRIES)
    (note,) = scene.comparison.due(0.0)
    scene.record("n2", other(note))
    scene.record("n3", other(note))
    assert scene.judge(frozenset({"n1", "n3"})) == (False, set())
    assert scene.judge() == (False, set())
