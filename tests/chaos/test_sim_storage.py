"""`chaos.sim.hosts.storage`: places where a machine stops, and what is left of it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from chaos.sim.hosts.storage import CUT, Machine, WatchedJournal
from chaos.sim.machine.disk import PowerCut


class Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[int, int]] = []

    def durable(self, index: int, term: int, command: bytes) -> None:
        del command
        self.heard.append((index, term))

    def truncated(self, index: int) -> None:
        self.heard.append((index, -1))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path, Random(1))
    machine.snapshots.mkdir()
    return machine


def journal_of(machine: Machine, ear: Ear) -> WatchedJournal:
    return WatchedJournal(machine.disk, ear, segment_bytes=1_000, cache_bytes=1_000)


def test_entries_are_told_of_once_they_are_synced(machine: Machine) -> None:
    ear = Ear()
    journal = journal_of(machine, ear)
    journal.add(b"x", 1, 1)
    journal.write()
    assert not ear.heard
    journal.datasync()
    journal.synced()
    assert ear.heard == [(1, 1)]


def test_entries_that_never_reached_the_disk_are_not_told_of(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    ear = Ear()
    journal = journal_of(machine, ear)
    journal.add(b"x", 1, 1)
    journal.write()
    monkeypatch.setattr(journal, "datasync", lambda: None)
    journal.datasync()
    journal.synced()
    assert not ear.heard


def test_a_cut_log_is_told_of(machine: Machine) -> None:
    ear = Ear()
    journal = journal_of(machine, ear)
    for index in (1, 2, 3):
        journal.add(b"x", index, 1)
    journal.sync()
    journal.deleteEntriesFrom(1)
    journal.sync()
    assert ear.heard[3:] == [(2, -1)]


@pytest.mark.parametrize("point", ["before write", "after write", "before datasync", "after datasync"])
def test_a_machine_stops_at_the_planned_point_and_does_nothing_more(machine: Machine, point: str) -> None:
    cuts: list[str] = []
    machine.on_cut = lambda: cuts.append("cut")
    journal = journal_of(machine, Ear())
    machine.stop_at(point, after=0)
    with pytest.raises(PowerCut):
        for index in range(1, 5):
            journal.add(b"x", index, 1)
            journal.sync()
    with pytest.raises(PowerCut):
        machine.disk.sync_directory()
    assert cuts == ["cut"]


def test_only_what_a_later_segment_proves_is_open_to_rot(machine: Machine) -> None:
    journal = journal_of(machine, Ear())
    journal.add(b"x", 1, 1)
    journal.sync()
    assert machine.disk.proven_byte(Random(1)) is None
    for index in range(2, 40):
        journal.add(b"x" * 100, index, 1)
        journal.sync()
    place = machine.disk.proven_byte(Random(1))
    assert place is not None
    assert place[0] != machine.disk.names()[-1]


def test_a_plan_outlives_other_crashes_and_other_plans(machine: Machine) -> None:
    journal = journal_of(machine, Ear())
    machine.stop_at("before copy", after=1)
    machine.stop_at("before datasync", after=0)
    journal.add(b"x", 1, 1)
    with pytest.raises(PowerCut):
        journal.sync()
    machine.lose_power()
    machine.lose_process()
    machine.point("before copy")
    with pytest.raises(PowerCut):
        machine.point("before copy")
    assert {name for name in machine.points if name.endswith(CUT)} == {f"before datasync{CUT}", f"before copy{CUT}"}


def test_dropped_plans_stop_nothing(machine: Machine) -> None:
    machine.stop_at("before copy", after=0)
    machine.stop_nowhere()
    machine.point("before copy")
    assert machine.points == {"before copy": 1}
