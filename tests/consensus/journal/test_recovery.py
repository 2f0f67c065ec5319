"""What journal and machine must agree on at a start."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from chaos.sim.engine.machine import HistoryMachine, MachineDisk
from chaos.sim.machine.disk import SimulatedDisk
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.recovery import InstallMarker, align
from raftsched.errors import InvariantBroken


def journal(first: int, last: int, term: int = 1) -> Journal:
    made = Journal(SimulatedDisk(Random(1)))
    for index in range(first, last + 1):
        made.add(b"\x00x", index, term)
    return made


def machine(index: int, term: int = 1) -> HistoryMachine:
    return HistoryMachine(MachineDisk([(term, None)] * index))


@pytest.fixture
def marker(tmp_path: Path) -> InstallMarker:
    return InstallMarker(tmp_path)


@pytest.mark.parametrize(
    ("first", "last", "applied"), [(1, 0, 0), (1, 9, 0), (1, 9, 4), (1, 9, 9), (5, 9, 4), (5, 9, 5)]
)
def test_a_log_that_leads_on_from_the_machine_is_taken(
    first: int, last: int, applied: int, marker: InstallMarker
) -> None:
    log = journal(first, last)
    align(log, machine(applied), marker)
    assert (len(log), log.last_index) == (last - first + 1, last)


@pytest.mark.parametrize(
    ("log", "position", "complaint"),
    [
        ((5, 9), (3, 1), "begins at index 5, but the state ends at 3"),
        ((1, 9), (10, 1), "ends at index 9, but the state is at 10"),
        ((1, 0), (10, 1), "the journal is empty"),
        ((1, 9), (7, 2), "different entries at index 7"),
    ],
)
def test_a_log_that_does_not_is_refused(
    log: tuple[int, int], position: tuple[int, int], complaint: str, marker: InstallMarker
) -> None:
    with pytest.raises(InvariantBroken, match=complaint):
        align(journal(*log), machine(*position), marker)


@pytest.mark.parametrize(("first", "last"), [(1, 9), (1, 0), (1, 30)])
def test_an_interrupted_installation_is_finished(first: int, last: int, marker: InstallMarker) -> None:
    log = journal(first, last)
    marker.write(20, 2)
    align(log, machine(20, 2), marker)
    assert (log.first_index, log.last_index, log.term_at(20)) == (20, 20, 2)


def test_an_installation_that_never_reached_the_machine_changes_nothing(marker: InstallMarker) -> None:
    log = journal(1, 9)
    marker.write(20, 2)
    align(log, machine(5), marker)
    assert (log.first_index, log.last_index) == (1, 9)


def test_a_finished_installation_keeps_the_log_behind_it(marker: InstallMarker) -> None:
    log = journal(20, 30, 2)
    marker.write(20, 2)
    align(log, machine(20, 2), marker)
    assert (log.first_index, log.last_index) == (20, 30)


def test_a_marker_that_was_never_finished_says_nothing(marker: InstallMarker, tmp_path: Path) -> None:
    marker.write(20, 2)
    (tmp_path / "installing.json").write_text('{"index": 2')
    assert marker.read() is None


def test_a_cleared_marker_is_gone(marker: InstallMarker) -> None:
    marker.write(20, 2)
    assert marker.read() == (20, 2)
    marker.clear()
    marker.clear()
    assert marker.read() is None
