"""The position in the log is kept with the format's version, and other formats are refused untouched."""

from __future__ import annotations

import msgspec
import pytest

from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import Store, Table, all_rows
from raftsched.storage.tables.position import (
    FORMAT_VERSION,
    Position,
    UnknownFormat,
    read_position,
    write_position,
)


def test_position_of_a_new_store_is_zero(store: Store) -> None:
    assert read_position(store) == Position(0, 0, TimeMs(0), FencingToken(0))


def test_position_is_read_back(store: Store) -> None:
    position = Position(7, 2, TimeMs(1_700_000_000_000), FencingToken(99), 3)
    write_position(store, position)
    assert read_position(store) == position


def test_position_without_later_fields_reads_with_their_defaults(store: Store) -> None:
    write_position(store, Position(7, 2))
    store.put(Table.META, b"position", msgspec.msgpack.encode([7, 2, 1_700_000_000_000, 99]))
    assert read_position(store) == Position(7, 2, TimeMs(1_700_000_000_000), FencingToken(99), 0)


@pytest.mark.parametrize("lost", [b"format", b"position"])
def test_half_a_position_is_refused_rather_than_taken_for_a_new_store(lost: bytes) -> None:
    store = MemoryStore()
    write_position(store, Position(7, 2))
    store.delete(Table.META, lost)
    with pytest.raises(UnknownFormat):
        read_position(store)


@pytest.mark.parametrize(
    ("version", "advice"), [(FORMAT_VERSION + 1, "newer"), (FORMAT_VERSION - 1, "too old")], ids=["newer", "older"]
)
def test_state_of_another_format_is_refused_and_left_untouched(version: int, advice: str) -> None:
    store = MemoryStore()
    write_position(store, Position(7, 2))
    store.put(Table.META, b"format", version.to_bytes(4, "big"))
    store.put(Table.COUNTERS, b"a key of another shape", b"")
    store.commit()
    before = [list(all_rows(store, table)) for table in Table]
    with pytest.raises(UnknownFormat, match=rf"format {version}, this raftsched reads {FORMAT_VERSION}.*{advice}"):
        State(store)
    assert [list(all_rows(store, table)) for table in Table] == before
