"""The journal as the engine uses it: a list of entries with a term and a vote, made durable in groups."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from chaos.sim.machine.disk import SimulatedDisk
from raftsched.consensus.journal.journal import BASE_COMMAND, Journal
from raftsched.consensus.journal.segments import RECORD_BYTES, JournalCorrupt, decode, encode, segment_name
from raftsched.disk import DiskFailed, SystemDisk
from raftsched.errors import InvariantBroken
from tests.consensus.journals import add, held, indexes, new_disk, open_small, segments


def _reopened(disk: SimulatedDisk) -> Journal:
    """After a power loss: only what was synced counts."""
    disk.power_loss()
    return open_small(disk)


# -- entries ----------------------------------------------------------------------------------------------------------


def test_journal_begins_empty() -> None:
    journal = Journal(new_disk())
    assert (len(journal), journal.first_index, journal.last_index) == (0, 0, 0)
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId(), journal.getRaftCommitIndex()) == (0, None, 1)
    assert journal[:] == []
    assert not journal.dirty


@pytest.mark.parametrize("cache_bytes", [0, 500, 3_000, 10**6])
def test_journal_indexes_like_a_list(cache_bytes: int) -> None:
    journal = open_small(new_disk(), cache_bytes=cache_bytes)
    reference = [(b"%d" % index * 30, index, index // 10) for index in range(7, 60)]
    for entry in reference:
        journal.add(*entry)
        if entry[1] % 5 == 0:
            journal.sync()
    assert (journal.first_index, journal.last_index) == (7, 59)
    for position in range(-len(reference), len(reference)):
        assert journal[position] == reference[position]
    for start in (None, 0, 3, 20, 50, -5, -40, 100):
        for stop in (None, 0, 4, 30, 52, -1, 100):
            assert journal[start:stop] == reference[start:stop]
            assert journal[start:stop:2] == reference[start:stop:2]
    for position in (len(reference), -len(reference) - 1):
        with pytest.raises(IndexError):
            journal[position]


def test_journal_refuses_an_entry_that_is_not_the_next(disk: SimulatedDisk, journal: Journal) -> None:
    add(journal, 3)
    for index in (3, 5):
        with pytest.raises(InvariantBroken):
            journal.add(b"", index, 1)
    assert indexes(journal) == [1, 2, 3]
    journal.sync()
    assert indexes(_reopened(disk)) == [1, 2, 3]


def test_journal_terms_are_known_without_reading(disk: SimulatedDisk) -> None:
    journal = open_small(disk, cache_bytes=0)
    for index in range(1, 50):
        journal.add(b"x" * 100, index, index // 7)
        journal.sync()
    disk.fail("read")
    assert [journal.term_at(index) for index in range(1, 50)] == [index // 7 for index in range(1, 50)]
    for index in (0, 50):
        with pytest.raises(IndexError):
            journal.term_at(index)


def test_journal_entries_fit_the_bytes_asked_for_and_are_at_least_one(journal: Journal) -> None:
    for _ in range(20):
        add(journal, size=100)
        journal.sync()
    record = RECORD_BYTES + 100
    for start in (1, 8, 17):
        assert [entry[1] for entry in journal.entries(start, 3 * record)] == [start, start + 1, start + 2]
        assert [entry[1] for entry in journal.entries(start, 3 * record - 1)] == [start, start + 1]
        assert [entry[1] for entry in journal.entries(start, 0)] == [start]
    assert [entry[1] for entry in journal.entries(1, 10**9)] == list(range(1, 21))
    assert journal.entries(21, 10**9) == []
    journal.compact_to(5)
    assert [entry[1] for entry in journal.entries(5, 3 * record)] == [5, 6, 7]
    with pytest.raises(IndexError):
        journal.entries(4, 10**9)


def test_journal_index_before_bytes_is_the_lowest_that_fits(journal: Journal) -> None:
    add(journal, 20, size=100)
    record = RECORD_BYTES + 100
    assert journal.index_before_bytes(20 * record) == 1
    assert journal.index_before_bytes(20 * record - 1) == 2
    assert journal.index_before_bytes(3 * record) == 18
    assert journal.index_before_bytes(3 * record - 1) == 19
    assert journal.index_before_bytes(0) == 20
    journal.compact_to(10)
    assert journal.index_before_bytes(3 * record) == 18
    assert journal.index_before_bytes(100 * record) == 10


def test_journal_truncates_by_position(disk: SimulatedDisk, journal: Journal) -> None:
    add(journal, 20)
    journal.sync()
    journal.deleteEntriesFrom(15)
    assert indexes(journal) == list(range(1, 16))
    add(journal, 2, term=2)
    journal.deleteEntriesFrom(len(journal))
    journal.sync()
    assert journal[-1] == ((17).to_bytes(4, "big") * 25, 17, 2)
    assert held(_reopened(disk)) == held(journal)


def test_journal_cleared_may_begin_anywhere(disk: SimulatedDisk, journal: Journal) -> None:
    add(journal, 20)
    journal.sync()
    journal.clear()
    assert (len(journal), journal.first_index, journal.last_index) == (0, 0, 0)
    journal.add(b"a", 7, 3)
    journal.sync()
    assert _reopened(disk)[:] == [(b"a", 7, 3)]


# -- term and vote ----------------------------------------------------------------------------------------------------


def test_journal_keeps_term_and_vote(disk: SimulatedDisk, journal: Journal) -> None:
    for term, voted in ((1, "n1"), (2, None), (2, "n2")):
        journal.setCurrentTerm(term, voted)
        assert journal.dirty
        journal.sync()
        assert held(_reopened(disk)) == ([], term, voted)
        journal = open_small(disk)


def test_journal_same_term_and_vote_cost_nothing(journal: Journal) -> None:
    journal.setCurrentTerm(3, "n1")
    journal.sync()
    journal.setCurrentTerm(3, "n1")
    assert not journal.dirty


def test_journal_keeps_term_and_vote_when_old_segments_are_gone(disk: SimulatedDisk, journal: Journal) -> None:
    journal.setCurrentTerm(5, "n3")
    for _ in range(40):
        add(journal)
        journal.sync()
    journal.compact_to(40)
    journal.sync()
    assert segments(disk)[0] > 1
    assert held(_reopened(disk)) == (journal[:], 5, "n3")


# -- compaction and reset ---------------------------------------------------------------------------------------------


def test_journal_compaction_begins_exactly_there_and_removes_whole_segments(
    disk: SimulatedDisk, journal: Journal
) -> None:
    for _ in range(60):
        add(journal)
        journal.sync()
    everything = journal[:]
    before = segments(disk)
    journal.compact_to(40)
    assert (journal.first_index, journal[0], journal[:]) == (40, everything[39], everything[39:])
    assert segments(disk) == before  # nothing goes before it is durable that the log begins later
    journal.sync()
    assert segments(disk) == before[journal._table.segment(0) - 1 :] != before
    reopened = _reopened(disk)
    assert (reopened.first_index, reopened[:]) == (40, everything[39:])


def test_journal_compaction_keeps_the_last_entry(journal: Journal) -> None:
    add(journal, 5)
    journal.compact_to(99)
    assert indexes(journal) == [5]
    journal.compact_to(1)
    assert indexes(journal) == [5]


def test_journal_compacts_by_position_for_pysyncobj(journal: Journal) -> None:
    add(journal, 10)
    journal.deleteEntriesTo(4)
    assert indexes(journal) == [5, 6, 7, 8, 9, 10]
    journal.deleteEntriesTo(0)
    assert journal.first_index == 5


def test_journal_compaction_keeps_a_segment_until_no_entry_of_the_log_lies_in_it(
    disk: SimulatedDisk, journal: Journal
) -> None:
    for _ in range(3):
        add(journal, 10)
        journal.sync()
    number_of_21 = segments(disk)[-1]
    journal.compact_to(21)
    journal.sync()
    assert segments(disk)[0] == number_of_21
    assert held(_reopened(disk)) == held(journal)


def test_journal_reset_is_one_base_entry_and_removes_all_before(disk: SimulatedDisk, journal: Journal) -> None:
    journal.setCurrentTerm(9, "n1")
    for _ in range(30):
        add(journal)
        journal.sync()
    journal.reset(1_000, 8)
    assert journal[:] == [(BASE_COMMAND, 1_000, 8)]
    journal.sync()
    add(journal, 2, term=9)
    journal.sync()
    assert len(segments(disk)) <= 2
    assert held(_reopened(disk)) == held(journal)
    assert held(journal).term == 9


def test_journal_reset_not_synced_leaves_the_old_log(disk: SimulatedDisk, journal: Journal) -> None:
    add(journal, 30)
    journal.sync()
    old = held(journal)
    journal.reset(1_000, 8)
    assert held(_reopened(disk)) == old


# -- memory -----------------------------------------------------------------------------------------------------------


def test_journal_keeps_recent_entries_up_to_the_bound_and_reads_older_ones(disk: SimulatedDisk) -> None:
    journal = open_small(disk, cache_bytes=2_000)
    for _ in range(100):
        add(journal)
        journal.sync()
        assert sum(RECORD_BYTES + len(entry[0]) for entry in journal._table.recent) <= 2_000
    recent_count = len(journal._table.recent)
    assert recent_count >= 10
    disk.fail("read")
    assert [entry[1] for entry in journal[-recent_count:]] == list(range(101 - recent_count, 101))
    assert journal[-recent_count] == journal[len(journal) - recent_count]
    with pytest.raises(DiskFailed):
        journal[0]


def test_journal_reopened_has_its_recent_entries_in_memory(disk: SimulatedDisk, journal: Journal) -> None:
    for _ in range(100):
        add(journal)
        journal.sync()
    disk.kill()
    journal = open_small(disk, cache_bytes=2_000)
    assert 10 <= len(journal._table.recent) <= 16
    assert indexes(journal) == list(range(1, 101))


def test_journal_first_entry_is_read_once(disk: SimulatedDisk) -> None:
    journal = open_small(disk, cache_bytes=0)
    add(journal, 20)
    journal.sync()
    assert journal[0][1] == 1
    disk.fail("read")
    assert journal[0][1] == 1
    with pytest.raises(DiskFailed):
        journal[1]


def test_journal_first_entry_is_the_present_one_after_every_change(journal: Journal) -> None:
    add(journal, 20)
    assert journal[0][1] == 1
    journal.compact_to(5)
    assert journal[0][1] == 5
    journal.deleteEntriesFrom(0)
    journal.add(b"a", 5, 2)
    assert journal[0] == (b"a", 5, 2)
    journal.reset(40, 2)
    assert journal[0] == (BASE_COMMAND, 40, 2)
    journal.clear()
    journal.add(b"b", 7, 3)
    assert journal[0] == (b"b", 7, 3)


def test_journal_last_entry_is_always_in_memory(disk: SimulatedDisk) -> None:
    journal = open_small(disk, cache_bytes=0)
    add(journal, 20)
    journal.sync()
    disk.fail("read")
    assert journal[-1][1] == 20


def test_journal_refuses_to_return_one_entry_for_another() -> None:
    journal = open_small(new_disk(), cache_bytes=0)
    add(journal, 20)
    journal.sync()
    journal._table.place(5, 1, journal._table.extent(3)[0])
    with pytest.raises(JournalCorrupt):
        journal[4]


def test_journal_refuses_to_return_a_rotten_entry(disk: SimulatedDisk) -> None:
    journal = open_small(disk, cache_bytes=0)
    add(journal, 20)
    journal.sync()
    offset = journal._table.extent(4)[0]
    disk.flip(segment_name(1), offset + RECORD_BYTES + 7, 0)
    with pytest.raises(JournalCorrupt) as raised:
        journal[4]
    assert (raised.value.file, raised.value.offset) == (segment_name(1), offset)
    assert journal[5][1] == 6


# -- groups -----------------------------------------------------------------------------------------------------------


def test_journal_group_is_one_write_and_one_sync(disk: SimulatedDisk) -> None:
    journal = open_small(disk, segment_bytes=10**6)
    calls, syncs = disk.call_count, disk.sync_count
    journal.setCurrentTerm(2, "n1")
    add(journal, 100)
    journal.deleteEntriesFrom(50)
    journal.sync()
    assert (disk.call_count - calls, disk.sync_count - syncs) == (2, 1)
    journal.sync()
    assert disk.call_count - calls == 2


def test_journal_adds_during_a_sync_wait_for_the_next_group(disk: SimulatedDisk, journal: Journal) -> None:
    add(journal, 2)
    journal.write()
    add(journal, 2)
    journal.datasync()
    journal.synced()
    assert journal.dirty
    disk.power_loss()
    assert indexes(open_small(disk)) == [1, 2]


def test_journal_two_writes_without_a_sync_between_are_refused(journal: Journal) -> None:
    add(journal)
    journal.write()
    add(journal)
    with pytest.raises(InvariantBroken):
        journal.write()
    journal.datasync()
    journal.synced()
    journal.write()


def test_journal_sync_finishes_a_group_in_flight(disk: SimulatedDisk, journal: Journal) -> None:
    add(journal)
    journal.write()
    add(journal)
    journal.sync()
    assert not journal.dirty
    assert indexes(_reopened(disk)) == [1, 2]


def test_journal_datasync_may_run_in_another_thread(tmp_path: Path) -> None:
    journal = open_small(SystemDisk(tmp_path))
    for _ in range(20):
        add(journal)
        journal.write()
        thread = threading.Thread(target=journal.datasync)
        thread.start()
        thread.join()
        journal.synced()
    journal._destroy()
    assert indexes(open_small(SystemDisk(tmp_path))) == list(range(1, 21))


def test_journal_new_segment_costs_one_directory_sync_and_no_file_sync_more(disk: SimulatedDisk) -> None:
    journal = open_small(disk, segment_bytes=500)
    add(journal, 10)
    journal.sync()
    syncs, files = disk.sync_count, len(segments(disk))
    add(journal)
    journal.sync()
    assert (disk.sync_count - syncs, len(segments(disk)) - files) == (2, 1)
    add(journal)
    journal.sync()
    assert disk.sync_count - syncs == 3


def test_journal_marks_an_idle_second_once(journal: Journal) -> None:
    journal.onOneSecondTimer()
    assert not journal.dirty
    add(journal)
    journal.sync()
    journal.onOneSecondTimer()
    assert journal.dirty
    journal.sync()
    journal.onOneSecondTimer()
    assert not journal.dirty


# -- failures are final -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["write", "datasync", "create", "sync_directory", "remove"])
def test_journal_first_failure_is_final(call: str, disk: SimulatedDisk) -> None:
    journal = open_small(disk, segment_bytes=500)
    add(journal, 10)
    journal.sync()
    add(journal)
    journal.sync()
    journal.compact_to(11)
    disk.fail(call)
    with pytest.raises(DiskFailed) as first:
        for _ in range(10):
            add(journal)
            journal.sync()
    refused = [
        lambda: journal.add(b"", 99, 9),
        lambda: journal.setCurrentTerm(99, None),
        lambda: journal.deleteEntriesFrom(0),
        lambda: journal.reset(99, 9),
        lambda: journal.compact_to(99),
        journal.clear,
        journal.write,
        journal.datasync,
        journal.synced,
    ]
    before = held(journal)
    for action in refused:
        with pytest.raises(DiskFailed) as again:
            action()
        assert again.value is first.value
    assert held(journal) == before
    journal._destroy()


def test_journal_failed_sync_is_not_laundered_by_a_restart() -> None:
    """After a failed sync the page cache shows what the disk never got, and the next sync reports success."""
    for seed in range(20):
        disk = new_disk(seed)
        journal = open_small(disk)
        add(journal, 3)
        journal.sync()
        add(journal, 3)
        journal.write()
        disk.fail("datasync")
        with pytest.raises(DiskFailed):
            journal.datasync()
        disk.kill()
        journal = open_small(disk)
        vouched_for = held(journal)  # from here on the engine may acknowledge these entries
        disk.power_loss()
        assert held(open_small(disk)) == vouched_for


def test_journal_full_disk_is_an_error_and_loses_nothing_synced(disk: SimulatedDisk, journal: Journal) -> None:
    add(journal, 5)
    journal.sync()
    disk.capacity_bytes = 2_000
    with pytest.raises(DiskFailed, match="No space left"):
        for _ in range(100):
            add(journal)
            journal.sync()
    disk.capacity_bytes = None
    disk.power_loss()
    reopened = open_small(disk)
    assert reopened.last_index >= journal.last_index - 1
    assert reopened[:] == journal[: len(reopened)]


def test_journal_that_cannot_start_says_so(disk: SimulatedDisk) -> None:
    disk.fail("write", 28)
    with pytest.raises(DiskFailed, match=r"could not start: .*No space left"):
        open_small(disk)


# -- closing ----------------------------------------------------------------------------------------------------------


def test_journal_closing_makes_all_durable(disk: SimulatedDisk, journal: Journal) -> None:
    add(journal, 5)
    journal.setCurrentTerm(3, "n2")
    journal._destroy()
    assert held(_reopened(disk)) == (journal[:], 3, "n2")


def test_journal_closing_a_full_segment_begins_no_other(disk: SimulatedDisk, journal: Journal) -> None:
    add(journal, 30)
    journal.sync()
    before = segments(disk)
    journal._destroy()
    assert segments(disk) == before


def test_journal_on_a_real_disk_survives_reopening(tmp_path: Path) -> None:
    disk = SystemDisk(tmp_path)
    journal = open_small(disk)
    journal.setCurrentTerm(4, "n1")
    for _ in range(50):
        add(journal, term=4)
        journal.sync()
    journal.compact_to(20)
    journal.deleteEntriesFrom(25)
    before = held(journal)
    journal._destroy()
    for _ in range(3):
        journal = open_small(disk)
        assert held(journal) == before
        journal._destroy()


def test_journal_records_lie_beyond_four_gibibytes_too() -> None:
    offset = 5 * 2**32 + 12_345
    group = encode([(1, 2**63, 2**40, b"command")], segment=3, offset=offset)
    found = decode(group.data, segment=3, offset=offset, base=offset)
    assert found is not None
    assert found.record == (1, 2**63, 2**40, b"command")
    assert decode(group.data, segment=3, offset=offset + 1, base=offset + 1) is None
    journal = open_small(new_disk())
    add(journal)
    journal._table.place(1, 2**40, offset)
    assert journal._table.extent(0)[0] == offset
