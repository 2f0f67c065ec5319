"""What a start believes: a torn tail is cut, rot and missing files are refused, and nothing is mistaken for another."""

from __future__ import annotations

import copy
import struct
from zlib import crc32

import pytest

from chaos.sim.machine.disk import SimulatedDisk
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.replay import JournalSummary, verify
from raftsched.consensus.journal.segment_files import START_NAME
from raftsched.consensus.journal.segments import (
    ENTRY,
    HEADER_BYTES,
    MARK_RECORD,
    RECORD_BYTES,
    STATE,
    Header,
    JournalCorrupt,
    JournalTooNew,
    Link,
    decode,
    encode,
    encode_header,
    last_mark,
    segment_name,
)
from tests.consensus.journals import add, held, indexes, new_disk, open_small, segments, used_bytes


def _grown(group_count: int = 30, *, segment_bytes: int = 1_000) -> tuple[SimulatedDisk, Journal]:
    """A journal of several segments, one entry a group, all synced."""
    disk = new_disk()
    journal = open_small(disk, segment_bytes=segment_bytes)
    journal.setCurrentTerm(7, "n2")
    for _ in range(group_count):
        add(journal, term=7)
        journal.sync()
    return disk, journal


def _last_file(disk: SimulatedDisk) -> str:
    return segment_name(segments(disk)[-1])


# -- torn tails -------------------------------------------------------------------------------------------------------


def test_replay_cuts_a_torn_tail_at_every_byte() -> None:
    disk, journal = _grown(3, segment_bytes=10_000)
    name, synced_bytes = _last_file(disk), len(disk.read(_last_file(disk)))
    add(journal, 3, term=7)
    journal.write()
    whole = disk.read(name)
    for size in range(synced_bytes, len(whole) + 1):
        torn = new_disk()
        torn.plant(name, whole[:size])
        full_records = max(0, size - synced_bytes - RECORD_BYTES) // (RECORD_BYTES + 100)
        assert indexes(open_small(torn)) == list(range(1, 4 + full_records))
        torn.kill()
        again = open_small(torn)
        assert indexes(again) == list(range(1, 4 + full_records))
        add(again, term=7)
        again.sync()
        torn.power_loss()
        assert indexes(open_small(torn)) == list(range(1, 5 + full_records))


@pytest.mark.parametrize("rest", [b"\0", b"\xff", b"junk"])
def test_replay_cuts_zeros_and_junk_behind_the_tail(rest: bytes) -> None:
    disk, journal = _grown(3)
    name = _last_file(disk)
    disk.plant(name, disk.read(name) + rest * 500)
    assert verify(disk).torn_bytes == len(rest) * 500
    assert held(open_small(disk)) == held(journal)


def test_replay_cuts_a_segment_that_was_begun_and_never_synced() -> None:
    disk, journal = _grown(3)
    next_name = segment_name(segments(disk)[-1] + 1)
    for content in (b"", b"\0" * 300, encode_header.__name__.encode()):
        damaged = copy.deepcopy(disk)
        damaged.plant(next_name, content)
        assert verify(damaged).torn_bytes == len(content)
        assert held(open_small(damaged)) == held(journal)


def test_replay_keeps_whole_records_of_the_last_group_even_if_nobody_knows_of_a_sync() -> None:
    disk, journal = _grown(5)
    disk.power_loss()
    assert held(open_small(disk)) == held(journal)


# -- rot --------------------------------------------------------------------------------------------------------------


def test_replay_reports_a_flip_in_every_byte_that_is_proven_synced() -> None:
    disk, journal = _grown(12, segment_bytes=500)
    journal._destroy()
    assert len(segments(disk)) >= 3
    for number in segments(disk):
        is_last = number == segments(disk)[-1]
        for offset in range(used_bytes(disk, number) - (RECORD_BYTES if is_last else 0)):
            disk.flip(segment_name(number), offset, offset % 8)
            with pytest.raises(JournalCorrupt) as raised:
                verify(disk)
            assert raised.value.file == segment_name(number)
            assert raised.value.offset <= offset
            disk.flip(segment_name(number), offset, offset % 8)
    assert verify(disk).entries == 12


def test_replay_tells_where_the_rot_is_and_what_to_do() -> None:
    disk, journal = _grown(12)
    offset = journal._table.extent(2)[0]
    disk.flip(segment_name(1), offset + RECORD_BYTES, 3)
    with pytest.raises(JournalCorrupt, match=f"{segment_name(1)}, byte {offset}: .* under a NEW id") as raised:
        open_small(disk)
    assert (raised.value.file, raised.value.offset) == (segment_name(1), offset)


def test_replay_refuses_and_changes_nothing() -> None:
    disk, _ = _grown(12)
    disk.flip(segment_name(1), 100, 3)
    names, calls = disk.names(), disk.call_count
    for _ in range(2):
        with pytest.raises(JournalCorrupt):
            open_small(disk)
    assert (disk.names(), disk.call_count) == (names, calls)


def test_replay_takes_rot_in_the_very_last_group_for_a_torn_tail_until_it_is_marked() -> None:
    """The limit of what can be told apart, and how short it is kept: see raftsched.consensus.journal.replay."""
    disk, journal = _grown(3, segment_bytes=10_000)
    last_entry = journal._table.extent(2)[0]
    unmarked = copy.deepcopy(disk)
    unmarked.flip(_last_file(disk), last_entry + RECORD_BYTES, 0)
    assert indexes(open_small(unmarked)) == [1, 2]
    journal.onOneSecondTimer()
    journal.sync()
    disk.flip(_last_file(disk), last_entry + RECORD_BYTES, 0)
    with pytest.raises(JournalCorrupt):
        open_small(disk)


def test_replay_reports_rot_behind_which_a_torn_tail_follows() -> None:
    disk, journal = _grown(6, segment_bytes=10_000)
    offset = journal._table.extent(1)[0]
    disk.flip(_last_file(disk), offset + 30, 0)
    disk.plant(_last_file(disk), disk.read(_last_file(disk))[:-10])
    with pytest.raises(JournalCorrupt) as raised:
        open_small(disk)
    assert raised.value.offset == offset


def test_replay_reports_rot_in_a_segment_behind_which_one_was_begun() -> None:
    disk, journal = _grown(3, segment_bytes=10_000)
    name = _last_file(disk)
    disk.flip(name, journal._table.extent(2)[0] + 30, 0)
    disk.plant(segment_name(2), b"begun")
    with pytest.raises(JournalCorrupt) as raised:
        open_small(disk)
    assert raised.value.file == name


@pytest.mark.parametrize("offset", [9, HEADER_BYTES + 5, -1], ids=["header", "STATE", "RESET"])
def test_replay_reports_rot_in_the_only_segment_even_before_its_first_mark(offset: int) -> None:
    """A segment is alone once those before it were removed, which is not done before it is synced."""
    disk, journal = _grown(10, segment_bytes=10 * (2 * RECORD_BYTES + 100))
    journal.reset(50, 7)
    journal.sync()
    (number,) = segments(disk)
    assert last_mark(disk.read(segment_name(number)), segment=number) == 0
    disk.flip(segment_name(number), offset, 0)
    with pytest.raises(JournalCorrupt):
        open_small(disk)


@pytest.mark.parametrize("wrong", [(ENTRY, 3, 1, b""), (STATE, 1, 99, b"")], ids=["gap", "begin"])
def test_replay_reports_records_that_contradict_one_another(
    wrong: tuple[int, int, int, bytes], disk: SimulatedDisk
) -> None:
    header = encode_header(Header(1, Link(0, 0)))
    records = encode([(STATE, 0, 0, b""), (ENTRY, 1, 1, b""), wrong], segment=1, offset=HEADER_BYTES)
    disk.plant(segment_name(1), header.data + records.data)
    with pytest.raises(JournalCorrupt) as raised:
        open_small(disk)
    assert raised.value.offset == records.offsets[-1]


# -- files that are lost, cut, exchanged ------------------------------------------------------------------------------


def test_replay_reports_a_lost_segment() -> None:
    disk, _ = _grown(30)
    for number in segments(disk)[:-1]:
        damaged = copy.deepcopy(disk)
        damaged.remove(segment_name(number))
        with pytest.raises(JournalCorrupt, match="missing"):
            open_small(damaged)


def test_replay_reports_a_cut_segment() -> None:
    disk, _ = _grown(30)
    for number in segments(disk)[:-1]:
        name = segment_name(number)
        for cut in (1, RECORD_BYTES + 100, 2 * (RECORD_BYTES + 100) + RECORD_BYTES, used_bytes(disk, number) - 1):
            damaged = copy.deepcopy(disk)
            damaged.plant(name, disk.read(name)[:-cut])
            with pytest.raises(JournalCorrupt) as raised:
                open_small(damaged)
            assert raised.value.file == name


def test_replay_reports_a_segment_of_another_journal() -> None:
    disk, _ = _grown(30)
    other = new_disk()
    journal = open_small(other)
    journal.setCurrentTerm(8, "n1")
    for _ in range(30):
        add(journal, term=8)
        journal.sync()
    assert segments(disk) == segments(other)
    for number in segments(disk)[1:-1]:
        mixed = copy.deepcopy(disk)
        mixed.plant(segment_name(number), other.read(segment_name(number)))
        with pytest.raises(JournalCorrupt):
            open_small(mixed)


def test_replay_reports_a_segment_under_another_name() -> None:
    disk, _ = _grown(30)
    disk.plant(segment_name(2), disk.read(segment_name(3)))
    with pytest.raises(JournalCorrupt) as raised:
        open_small(disk)
    assert raised.value.file == segment_name(2)


def test_replay_ignores_other_files() -> None:
    disk, journal = _grown(5)
    disk.plant("LOCK", b"")
    disk.plant("1.segment", b"not ours")
    disk.plant(START_NAME, b"left by a start that was cut short")
    assert held(open_small(disk)) == held(journal)
    assert "1.segment" in disk.names()
    assert START_NAME not in disk.names()


def test_replay_leaves_out_and_removes_segments_that_compaction_had_removed_when_they_come_back() -> None:
    disk, journal = _grown(60)
    old = {name: disk.read(name) for name in disk.names()}
    journal.compact_to(50)
    journal.sync()
    needed = segments(disk)[0]
    for back in ([1], [1, 2], [2, 4], [needed - 1], [needed - 2, needed - 1], range(1, needed)):
        haunted = copy.deepcopy(disk)
        for number in back:
            haunted.plant(segment_name(number), old[segment_name(number)])
        reopened = open_small(haunted)
        assert held(reopened) == held(journal)
        add(reopened, term=7)
        reopened.sync()
        assert segments(haunted)[0] == needed


# -- bytes ------------------------------------------------------------------------------------------------------------


def test_record_is_valid_only_where_it_was_written() -> None:
    record = (ENTRY, 5, 2, b"command")
    data = encode([record], segment=3, offset=1_000).data
    found = decode(data, segment=3, offset=1_000, base=1_000)
    assert found is not None
    assert (found.record, found.end) == (record, 1_000 + len(data))
    assert decode(data, segment=4, offset=1_000, base=1_000) is None
    assert decode(data, segment=3, offset=1_001, base=1_001) is None
    assert decode(data[:-1], segment=3, offset=1_000, base=1_000) is None


def test_mark_in_a_command_is_not_taken_for_one() -> None:
    forged = encode([MARK_RECORD], segment=1, offset=5_000).data
    disk = new_disk()
    journal = open_small(disk, segment_bytes=100_000)
    journal.add(b"a", 1, 1)
    journal.sync()
    journal.add(b"x", 2, 1)
    journal.add(forged * 300, 3, 1)
    journal.write()
    name = _last_file(disk)
    data = disk.read(name)
    assert last_mark(data, segment=1) == journal._table.extent(1)[0] - RECORD_BYTES
    disk.flip(name, journal._table.extent(1)[0] + 3, 0)
    assert indexes(open_small(disk)) == [1]


def test_replay_refuses_a_newer_format_in_its_own_words() -> None:
    disk, _ = _grown(5)
    name = segment_name(1)
    data = disk.read(name)
    fields = data[:8] + struct.pack("<I", 2) + data[12 : HEADER_BYTES - 4]
    disk.plant(name, fields + struct.pack("<I", crc32(fields)) + data[HEADER_BYTES:])
    with pytest.raises(JournalTooNew, match="format 2; this version reads 1"):
        open_small(disk)


# -- verify -----------------------------------------------------------------------------------------------------------


def test_verify_of_nothing_is_an_empty_journal() -> None:
    assert verify(new_disk()) == JournalSummary(0, 0, 0, 0, None, segments=0, torn_bytes=0)


def test_verify_says_what_the_journal_holds_and_changes_nothing() -> None:
    disk, journal = _grown(30)
    journal.compact_to(20)
    journal.sync()
    calls = disk.call_count
    expected = JournalSummary(11, 20, 30, 7, "n2", segments=len(segments(disk)), torn_bytes=0)
    assert verify(disk) == expected
    assert disk.call_count == calls
