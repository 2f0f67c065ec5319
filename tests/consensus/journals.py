"""Helpers of the journal's tests."""

from __future__ import annotations

import random
from typing import NamedTuple

from chaos.sim.machine.disk import SimulatedDisk
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.log_table import Entry
from raftsched.consensus.journal.segments import HEADER_BYTES, decode_header, segment_name, segment_number
from raftsched.ports import Disk


class Held(NamedTuple):
    """All that a journal promises to remember."""

    entries: list[Entry]
    term: int
    voted: str | None


def new_disk(seed: int = 0) -> SimulatedDisk:
    return SimulatedDisk(random.Random(seed))


def open_small(disk: Disk, *, segment_bytes: int = 1_000, cache_bytes: int = 500) -> Journal:
    """A journal that rolls, evicts and sweeps after a few entries."""
    return Journal(disk, segment_bytes=segment_bytes, cache_bytes=cache_bytes)


def add(journal: Journal, count: int = 1, *, term: int = 1, size: int = 100) -> None:
    for index in range(journal.last_index + 1, journal.last_index + 1 + count):
        journal.add(index.to_bytes(4, "big") * (size // 4), index, term)


def held(journal: Journal) -> Held:
    return Held(journal[:], journal.getCurrentTerm(), journal.getVotedForNodeId())


def indexes(journal: Journal) -> list[int]:
    return [entry[1] for entry in journal[:]]


def segments(disk: Disk) -> list[int]:
    return [number for name in disk.names() if (number := segment_number(name)) is not None]


def used_bytes(disk: Disk, number: int) -> int:
    """Bytes of a segment up to where the next one says that it ends, or to the file's end."""
    name = segment_name(number)
    following = segment_name(number + 1)
    if following in disk.names():
        header = decode_header(disk.read(following, 0, HEADER_BYTES), number + 1)
        if header is not None:
            return header.previous.end
    return len(disk.read(name))
