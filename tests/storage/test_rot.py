"""No flipped bit and no missing byte of a state's file is served, whether the file is verified before it is opened or
beside."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from raftsched import limits
from raftsched.storage.directory import inspect_copy, open_state
from raftsched.storage.store.lmdb_store import DATA_FILE, open_store
from raftsched.storage.store.port import DamagedCopy, StorageFailed, Table
from raftsched.storage.verification import DamagedState, is_verified_later, require_sound_copy, verify_elsewhere
from tests.drills.rot import drill, make_state

FLIPS = 25


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rot") / "state"
    make_state(directory, jobs=80)
    return directory


def damaged(source: Path, directory: Path, data: bytes) -> Path:
    directory.mkdir()
    (directory / DATA_FILE).write_bytes(data)
    return directory


@pytest.mark.parametrize("as_large", [False, True], ids=["small", "large"])
def test_no_flipped_bit_is_served(*, as_large: bool) -> None:
    counts = drill(FLIPS, 5, as_large=as_large)
    assert not [what for what in counts if what.startswith("SERVED")]
    assert set(counts) <= {
        "refused at start",
        "stopped at read",
        "stopped at copy",
        "found beside the node",
        "unused space",
        "older commit",
    }
    assert counts["unused space"] < FLIPS


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_a_file_cut_short_is_refused_in_words(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    """Opened as it is, LMDB would end the process with SIGBUS at the first page that is missing."""
    if is_large:
        monkeypatch.setattr(limits, "VERIFIED_AT_START_BYTES", 0)
    data = (source / DATA_FILE).read_bytes()
    for number, length in enumerate([len(data) - 4096, len(data) // 2, 5_000, 4_096, 100]):
        directory = damaged(source, tmp_path / str(number), data[:length])
        with pytest.raises(DamagedState, match="NEW id"):
            open_state(directory)
        assert (directory / DATA_FILE).stat().st_size == length


def test_the_meta_pages_that_lmdb_writes_first_are_no_state_yet(tmp_path: Path) -> None:
    """A power loss leaves them if it comes between them and the first commit."""
    directory = tmp_path / "state"
    lmdb.open(str(directory), lib_version=0).close()
    assert (directory / DATA_FILE).stat().st_size == 2 * 4_096
    open_state(directory).close()
    assert (directory / DATA_FILE).stat().st_size > 2 * 4_096


def test_a_table_that_is_gone_is_not_made_again(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VERIFIED_AT_START_BYTES", 0)
    data = (source / DATA_FILE).read_bytes()
    directory = damaged(source, tmp_path / "state", data.replace(b"payloads", b"paylaods"))
    with pytest.raises(StorageFailed, match="payloads"):
        open_state(directory)


def test_a_large_file_is_verified_by_a_child_beside_the_node(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "VERIFIED_AT_START_BYTES", 0)
    data = (source / DATA_FILE).read_bytes()
    directory = damaged(source, tmp_path / "state", data.replace(b"account-0030", b"account-?030"))
    assert is_verified_later(directory)
    state = open_state(directory)
    try:
        (fault,) = verify_elsewhere(directory)
        assert "table payloads" in fault
        assert verify_elsewhere(source) == []
        with pytest.raises(DamagedCopy, match="table payloads"):
            state.copy_to(tmp_path / "copy")
            inspect_copy(tmp_path / "copy")
    finally:
        state.close()


def test_a_row_that_is_missing_is_found_though_every_other_is_sound(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    for key in (b"1", b"2", b"3"):
        store.put(Table.WAITING, key, b"")
    store.commit()
    with store._env.begin(write=True) as txn:
        txn.delete(b"2", db=store._tables[Table.WAITING])
    store.copy_to(tmp_path / "copy")
    store.close()
    with pytest.raises(DamagedCopy, match="table waiting: rows are missing"):
        require_sound_copy(tmp_path / "copy")
    with pytest.raises(DamagedState, match="table waiting: rows are missing"):
        open_state(tmp_path / "state")
