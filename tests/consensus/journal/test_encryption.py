"""A journal with keys holds no command in the clear, needs its keys, and drops the files of older keys."""

from __future__ import annotations

from zlib import crc32

import pytest

from chaos.sim.machine.disk import SimulatedDisk
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.segments import (
    ENCRYPTED,
    ENTRY,
    HEADER_BYTES,
    JournalCorrupt,
    decode,
    encode,
    segment_name,
)
from raftsched.encryption.cipher import Cipher
from raftsched.encryption.keys import Key, KeyMissing
from tests.consensus.journals import held, new_disk, segments
from tests.for_each import for_each

OLD, NEW = Key("k1", b"1" * 32), Key("key-two", b"2" * 32)
CANARY = b"canary-4711"


def opened(disk: SimulatedDisk, *keys: Key) -> Journal:
    return Journal(disk, segment_bytes=1_000, cache_bytes=300, cipher=Cipher(keys))


def filled(disk: SimulatedDisk, *keys: Key, count: int = 30) -> Journal:
    journal = opened(disk, *keys)
    for _ in range(count):
        journal.add(CANARY * 5, journal.last_index + 1, 1)
        journal.sync()
    return journal


def content(disk: SimulatedDisk) -> bytes:
    return b"".join(disk.read(name) for name in disk.names())


@for_each("keys", [(OLD,), ()])
def test_journal_holds_commands_in_the_clear_only_without_keys(keys: tuple[Key, ...]) -> None:
    disk = new_disk()
    expected = held(filled(disk, *keys))
    assert (CANARY in content(disk)) == (not keys)
    disk.kill()
    assert held(opened(disk, *keys)) == expected
    assert (CANARY in content(disk)) == (not keys)


@for_each("keys", [(), (NEW,)])
def test_journal_names_the_key_that_it_needs_and_is_unchanged(keys: tuple[Key, ...]) -> None:
    disk = new_disk()
    expected = held(filled(disk, OLD))
    before = content(disk)
    with pytest.raises(KeyMissing, match="k1"):
        opened(disk, *keys)
    assert content(disk) == before
    assert held(opened(disk, NEW, OLD)) == expected


@for_each(["more_entries", "lag"], [(0, 0), (40, 0), (40, 3)])
def test_journal_drops_the_files_of_older_keys_at_rest_and_under_load(more_entries: int, lag: int) -> None:
    disk = new_disk()
    filled(disk)._destroy()
    filled(disk, OLD)._destroy()
    journal = opened(disk, NEW, OLD)
    assert journal.has_older_files
    for _ in range(more_entries):
        journal.add(CANARY, journal.last_index + 1, 2)
        journal.sync()
        journal.drop_older_files(journal.last_index - lag)
    last = journal[-1]
    journal.drop_older_files(journal.last_index)
    journal.sync()
    assert not journal.has_older_files
    assert journal[-1] == last
    assert CANARY not in content(disk)
    expected = held(journal)
    disk.kill()
    assert held(opened(disk, NEW)) == expected


@for_each("waiting", [0, 3])
def test_journal_that_runs_changes_its_key_between_groups_and_drops_what_is_older(waiting: int) -> None:
    disk = new_disk()
    cipher = Cipher((OLD, NEW))
    journal = Journal(disk, segment_bytes=10_000, cache_bytes=0, cipher=cipher)
    for index in range(1, 31):
        journal.add(CANARY, index, 1)
    journal.sync()
    for index in range(31, 31 + waiting):
        journal.add(CANARY, index, 1)
    journal.change_files(lambda: cipher.encrypt_under(NEW.id))
    assert cipher.key_id == (OLD.id if waiting else NEW.id), "what waits has the size that it was counted with"
    journal.sync()
    journal.add(CANARY, journal.last_index + 1, 1)
    journal.sync()
    assert [entry[0] for entry in journal[:]] == [CANARY] * len(journal)
    assert journal.has_older_files
    journal.drop_older_files(journal.last_index)
    journal.sync()
    assert not journal.has_older_files
    expected = held(journal)
    disk.kill()
    assert held(opened(disk, NEW)) == expected


def test_journal_keeps_the_files_of_older_keys_while_the_state_needs_them() -> None:
    disk = new_disk()
    filled(disk, OLD)._destroy()
    journal = opened(disk, NEW, OLD)
    for durable_index in (0, 1, journal.last_index - 1, journal.last_index + 5):
        journal.drop_older_files(durable_index)
        journal.sync()
        assert journal.has_older_files
        assert journal.last_index == 30
    assert journal.first_index == 29


def test_journal_finds_a_command_that_was_moved_with_care() -> None:
    """A valid checksum does not help who puts a command in the place of another."""
    disk = new_disk()
    filled(disk, OLD, count=2)._destroy()
    (number, *_) = segments(disk)
    data = disk.read(segment_name(number))
    found, offset = [], HEADER_BYTES
    while record := decode(data, segment=number, offset=offset):
        found.append((offset, record.record))
        offset = record.end
    first, second = [(at, record) for at, record in found if record[0] == ENTRY | ENCRYPTED]
    forged = encode([(*first[1][:3], second[1][3])], segment=number, offset=first[0]).data
    assert crc32(forged) != crc32(data[first[0] : first[0] + len(forged)])
    for position, byte in enumerate(forged):
        for bit in range(8):
            if (byte ^ data[first[0] + position]) >> bit & 1:
                disk.flip(segment_name(number), first[0] + position, bit)
    with pytest.raises(JournalCorrupt, match="can't be decrypted"):
        opened(disk, OLD)
