"""The newest segment is recorded outside of the journal, and a journal without it is not taken for a new one."""

from __future__ import annotations

from random import Random

import pytest

from chaos.sim.machine.disk import PowerCut, SimulatedDisk
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.register import JournalLost, SegmentId, VolatileRegister
from raftsched.consensus.journal.segments import JournalCorrupt, segment_name, segment_number
from tests.for_each import for_each


def opened(disk: SimulatedDisk, register: VolatileRegister) -> Journal:
    return Journal(disk, segment_bytes=300, cache_bytes=200, register=register)


def segments(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.names() if segment_number(name) is not None]


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


@pytest.fixture
def register() -> VolatileRegister:
    return VolatileRegister()


def filled(disk: SimulatedDisk, register: VolatileRegister, *, entries: int = 20) -> Journal:
    journal = opened(disk, register)
    for index in range(1, entries + 1):
        journal.add(b"x" * 60, index, 1)
        journal.sync()
    return journal


def test_each_new_segment_is_recorded_before_its_group_counts_as_synced(
    disk: SimulatedDisk, register: VolatileRegister
) -> None:
    journal = opened(disk, register)
    assert register.newest is not None
    for index in range(1, 21):
        journal.add(b"x" * 60, index, 1)
        journal.write()
        journal.datasync()
        assert segment_name(register.newest.number) == segments(disk)[-1]
        journal.synced()
    assert register.newest.number > 3


def test_a_journal_is_refused_without_its_newest_segment_whatever_else_is_there(
    disk: SimulatedDisk, register: VolatileRegister
) -> None:
    filled(disk, register)
    names = segments(disk)
    assert len(names) > 3
    for kept in range(len(names)):
        left = SimulatedDisk(Random(1))
        for name in names[:kept]:
            left.plant(name, disk.read(name))
        before = left.names()
        with pytest.raises(JournalLost, match="must not come back under its old id"):
            opened(left, register)
        assert left.names() == before, "a refused start makes nothing"


def test_an_older_copy_and_another_nodes_journal_are_refused(disk: SimulatedDisk, register: VolatileRegister) -> None:
    filled(disk, register)
    assert register.newest is not None
    other_disk, other = SimulatedDisk(Random(2)), VolatileRegister()
    journal = opened(other_disk, other)
    number = 0
    while number < register.newest.number:
        journal.add(b"other" * 20, journal.last_index + 1, 2)
        journal.sync()
        assert other.newest is not None
        number = other.newest.number
    with pytest.raises(JournalLost, match="of another journal"):
        opened(other_disk, register)


def test_a_damaged_header_of_the_newest_segment_is_rot(disk: SimulatedDisk, register: VolatileRegister) -> None:
    """Without the register, a last segment with a bad header is taken for one that was begun and never synced."""
    filled(disk, register)
    disk.flip(segments(disk)[-1], 13, 0)
    with pytest.raises(JournalCorrupt, match="header"):
        opened(disk, register)


@for_each("seed", range(60))
def test_no_crash_leaves_a_journal_that_its_register_refuses(seed: int) -> None:
    """The power goes at any call, with any part of what was unsynced lost; the register is as old as can be."""
    random = Random(seed)
    disk, register = SimulatedDisk(random), VolatileRegister()
    for _ in range(12):
        disk.cut_power_after(random.randint(0, 60))
        try:
            journal = opened(disk, register)
            while True:
                journal.add(b"x" * random.randint(1, 120), journal.last_index + 1, 1)
                if random.random() < 0.2:
                    journal.compact_to(journal.last_index - 3)
                journal.sync()
        except PowerCut:
            disk.power_loss()
        else:
            raise AssertionError("the power was to be cut")
    opened(disk, register)


def test_a_journal_that_was_begun_and_not_recorded_is_opened(disk: SimulatedDisk) -> None:
    """The machine stopped between the two: nothing had left the node."""
    filled(disk, VolatileRegister(), entries=0)
    fresh = VolatileRegister()
    opened(disk, fresh)
    assert fresh.newest is not None
    assert fresh.newest.number == 2
    assert fresh.newest == SegmentId(2, fresh.newest.checksum)
