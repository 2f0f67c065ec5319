"""What only the store in memory does: its copies are checked, and its disk can be made to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import DamagedCopy, Table


@pytest.mark.parametrize("place", [0, 30, -1])
def test_memory_copy_with_a_changed_byte_is_refused(tmp_path: Path, place: int) -> None:
    store = MemoryStore()
    store.put(Table.JOBS, b"a", b"1" * 100)
    store.commit()
    store.copy_to(tmp_path / "copy")
    data = bytearray((tmp_path / "copy").read_bytes())
    data[place] ^= 1
    (tmp_path / "copy").write_bytes(data)
    with pytest.raises(DamagedCopy):
        MemoryStore.load(tmp_path / "copy")


def test_memory_copy_cut_short_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    store.copy_to(tmp_path / "copy")
    (tmp_path / "copy").write_bytes((tmp_path / "copy").read_bytes()[:-1])
    with pytest.raises(DamagedCopy):
        MemoryStore.load(tmp_path / "copy")


def test_memory_store_shows_the_disk_that_a_test_wants() -> None:
    store = MemoryStore()
    store.free_disk_bytes = 0
    assert store.figures().free_disk_bytes == 0
