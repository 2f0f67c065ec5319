"""What is wrong with pysyncobj's own FileJournal, shown on it, and right on ours: P1 to P3, P7, P8 of RELIABILITY.

These are the reasons why `raftsched.consensus.journal.journal` exists. A stock half that fails after an upgrade of pysyncobj
means that the library mended it: read its change, then drop that half.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
from pathlib import Path

import pysyncobj.journal
import pytest
from pysyncobj.journal import FileJournal

from chaos.sim.machine.disk import PowerCut
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.segments import RECORD_BYTES, JournalCorrupt, segment_name
from raftsched.disk import DiskFailed, SystemDisk
from tests.consensus.journals import add, indexes, new_disk, open_small


class _Syncs:
    """Counts every call that could make something durable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        counts = self

        class CountedMap(mmap.mmap):
            def flush(self, *arguments: int) -> None:
                counts.count += 1
                super().flush(*arguments)

        monkeypatch.setattr(pysyncobj.journal.mmap, "mmap", CountedMap)
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._counting(getattr(os, name)))

    def _counting(self, real: object) -> object:
        assert callable(real)

        def sync(descriptor: int) -> None:
            self.count += 1
            real(descriptor)

        return sync


# -- P1: entries are acknowledged from the page cache ------------------------------------------------------------------


def test_stock_journal_never_syncs_p1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = _Syncs(monkeypatch)
    stock = FileJournal(str(tmp_path / "journal"))
    for index in range(1, 101):
        stock.add(b"x" * 100, index, 1)
    stock.onOneSecondTimer()
    assert syncs.count == 0


def test_journal_syncs_every_group_p1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(SystemDisk(tmp_path))
    syncs = _Syncs(monkeypatch)
    for group in range(1, 11):
        add(journal, 10)
        journal.sync()
        assert syncs.count == group


# -- P2: term and vote -------------------------------------------------------------------------------------------------


def test_stock_journal_forgets_its_vote_by_one_bit_and_never_syncs_it_p2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = _Syncs(monkeypatch)
    stock = FileJournal(str(tmp_path / "journal"))
    stock.setCurrentTerm(7, "n2")
    assert syncs.count == 0
    meta = tmp_path / "journal.meta"
    content = bytearray(meta.read_bytes())
    content[0] ^= 1
    meta.write_bytes(content)
    reopened = FileJournal(str(tmp_path / "journal"))
    assert (reopened.getCurrentTerm(), reopened.getVotedForNodeId()) == (0, None)


def test_journal_syncs_its_vote_and_reports_a_wrong_bit_in_it_p2() -> None:
    disk = new_disk()
    journal = open_small(disk)
    journal.setCurrentTerm(7, "n2")
    syncs = disk.sync_count
    journal._destroy()
    assert disk.sync_count > syncs
    disk.flip(segment_name(1), disk.read(segment_name(1)).index(b"n2"), 0)
    with pytest.raises(JournalCorrupt):
        open_small(disk)


# -- P3: compaction in place -------------------------------------------------------------------------------------------


def test_stock_journal_loses_the_log_when_killed_in_compaction_p3(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    stock = FileJournal(path)
    for index in range(1, 101):
        stock.add(b"x", index, 1)

    real_add = stock.add
    added: list[object] = []

    def add_until_killed(*entry: object) -> None:
        if len(added) == 20:
            raise PowerCut
        added.append(entry)
        real_add(*entry)

    stock.add = add_until_killed
    with pytest.raises(PowerCut):
        stock.deleteEntriesTo(10)
    assert len(FileJournal(path)) == 20  # of the 90 that had to stay


@pytest.mark.parametrize("call_count", range(8))
def test_journal_killed_in_compaction_keeps_the_log_p3(call_count: int) -> None:
    disk = new_disk()
    journal = open_small(disk)
    for _ in range(100):
        add(journal)
        journal.sync()
    disk.cut_power_after(call_count)
    with pytest.raises(PowerCut):
        journal.compact_to(80)
        journal.sync()
    disk.power_loss()
    reopened = open_small(disk)
    assert reopened.first_index in (1, 80)
    assert indexes(reopened) == list(range(reopened.first_index, 101))


# -- P7: a full disk; the stock journal dies by SIGBUS there, which takes a file system of its own to show -------------


def test_journal_reports_a_file_that_can_grow_no_more_p7(tmp_path: Path) -> None:
    journal = Journal(SystemDisk(tmp_path))
    add(journal, 10, size=10_000)
    journal.sync()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, limits[1]))
    try:
        with pytest.raises(DiskFailed) as raised:
            for _ in range(10):
                add(journal, size=10_000)
                journal.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == errno.EFBIG
    journal._destroy()
    reopened = Journal(SystemDisk(tmp_path))
    assert indexes(reopened)[:10] == list(range(1, 11))
    reopened._destroy()


# -- P8: no checksum, and a limit of 4 GiB -----------------------------------------------------------------------------


def test_stock_journal_loads_a_wrong_bit_silently_p8(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    stock = FileJournal(str(path))
    stock.add(b"pay 100", 1, 1)
    stock._destroy()
    path.write_bytes(path.read_bytes().replace(b"pay 100", b"pay 900"))
    assert FileJournal(str(path))[0] == (b"pay 900", 1, 1)


def test_journal_reports_a_wrong_bit_p8() -> None:
    disk = new_disk()
    journal = open_small(disk)
    journal.add(b"pay 100", 1, 1)
    journal._destroy()
    data = disk.read(segment_name(1))
    disk.plant(segment_name(1), data.replace(b"pay 100", b"pay 900"))
    with pytest.raises(JournalCorrupt):
        open_small(disk)


def test_stock_journal_cannot_pass_four_gibibytes_p8(tmp_path: Path) -> None:
    stock = FileJournal(str(tmp_path / "journal"))
    with pytest.raises(Exception, match="'I' format requires"):
        stock._FileJournal__setLastRecordOffset(2**32)


def test_journal_has_no_offset_over_its_segments_p8() -> None:
    """A log of any size is many small files, each found by its number, so no offset grows with the log."""
    disk = new_disk()
    journal = open_small(disk)
    for _ in range(50):
        add(journal)
        journal.sync()
    assert max(len(disk.read(name)) for name in disk.names()) <= 1_000 + 3 * RECORD_BYTES + 100
