"""What only the store on disk has to stand: killed processes, full maps, full disks, readers that died."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from raftsched import limits
from raftsched.errors import InvariantBroken
from raftsched.storage.store.lmdb_store import DATA_FILE, open_read_only, open_store
from raftsched.storage.store.port import CopyFailed, DamagedCopy, StorageFailed, Table, all_rows
from raftsched.storage.store.resident import let_go, mapped_bytes
from tests.storage.conftest import LmdbHome

_KIB = 1024
_MIB = 1024 * _KIB


@contextmanager
def other_process(script: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that ran `script` and waits; it is killed at the end."""
    source = (
        f"import sys\nfrom pathlib import Path\ndirectory = Path(sys.argv[1])\n{script}\nprint('ready', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", source + "sys.stdin.read()", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_killed_process_leaves_its_last_commit(tmp_path: Path) -> None:
    script = """
from raftsched.storage.store.lmdb_store import open_store
from raftsched.storage.store.port import Table
store = open_store(directory)
store.put(Table.JOBS, b"committed", b"1")
store.commit()
store.put(Table.JOBS, b"committed", b"2")
store.put(Table.JOBS, b"lost", b"")
"""
    with other_process(script, tmp_path / "state"):
        pass
    store = open_store(tmp_path / "state")
    assert list(all_rows(store, Table.JOBS)) == [(b"committed", b"1")]
    store.put(Table.JOBS, b"next", b"")
    store.commit()
    store.close()


def test_readers_of_a_killed_process_are_found_and_freed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    script = """
import lmdb
env = lmdb.open(str(directory), max_dbs=1)
reader = env.begin()
"""
    with other_process(script, tmp_path / "state"):
        assert store.check_readers() == 0, "a living reader is left alone"
    assert store.check_readers() == 1
    assert store.check_readers() == 0
    store.close()


def test_store_is_synced_locked_and_not_read_ahead(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    flags = store._env.flags()
    assert flags["sync"]
    assert flags["metasync"]
    assert flags["lock"]
    assert not flags["map_async"]
    assert not flags["readahead"]
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0, "payloads are for the node's user only"
    assert (tmp_path / "state" / "data.mdb").stat().st_mode & 0o077 == 0
    store.close()


# -- the map ----------------------------------------------------------------------------------------------------------


def test_map_grows_ahead_of_the_data(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state", map_bytes=_MIB, headroom_bytes=_MIB)
    for number in range(20):
        store.put(Table.PAYLOADS, b"%02d" % number, bytes(500 * _KIB))
        store.commit()
        figures = store.figures()
        assert figures.map_bytes - figures.used_bytes >= _MIB
    store.close()
    store = open_store(tmp_path / "state", map_bytes=_MIB, headroom_bytes=_MIB)
    assert len(list(all_rows(store, Table.PAYLOADS))) == 20
    assert store.figures().map_bytes > 10 * _MIB, "an older, smaller setting does not matter"
    store.close()


def test_a_small_map_grows_when_it_is_opened(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state", map_bytes=64 * _KIB)
    store.put(Table.PAYLOADS, b"large", bytes(10 * _MIB))
    store.commit()
    assert store.get(Table.PAYLOADS, b"large") == bytes(10 * _MIB)
    store.close()


def test_map_does_not_move_under_a_copy_but_grows_after_it(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state", map_bytes=4 * _MIB, headroom_bytes=_MIB)
    before = store.figures().map_bytes
    with store._copying:
        store.put(Table.PAYLOADS, b"1", bytes(3500 * _KIB))
        store.commit()
        assert store.figures().map_bytes == before
    store.commit()
    assert store.figures().map_bytes > before
    store.close()


def test_a_transaction_larger_than_the_map_fails_with_a_clear_error_for_good(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state", map_bytes=_MIB, headroom_bytes=0)
    store.put(Table.JOBS, b"a", b"1")
    store.commit()
    store.put(Table.JOBS, b"b", b"2")
    store.put(Table.PAYLOADS, b"large", bytes(2 * _MIB))
    with pytest.raises(StorageFailed, match=r"put failed.*MDB_MAP_FULL.*address space"):
        store.commit()
    with pytest.raises(StorageFailed, match="MDB_MAP_FULL"):
        store.delete(Table.JOBS, b"a")
    store.close()
    store = open_store(tmp_path / "state", map_bytes=_MIB)
    assert list(all_rows(store, Table.JOBS)) == [(b"a", b"1")]
    assert store.delete(Table.JOBS, b"a")
    store.commit()
    store.close()


# -- memory and copies ------------------------------------------------------------------------------------------------


def test_commit_lets_go_of_mapped_pages_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path / "state")
    for number in range(64):
        store.put(Table.PAYLOADS, b"%02d" % number, bytes([number]) * _MIB)
    store.commit()
    before = mapped_bytes()
    assert len(list(all_rows(store, Table.PAYLOADS))) == 64
    assert mapped_bytes() - before > 60 * _MIB
    store.commit()
    assert mapped_bytes() - before > 60 * _MIB, "below the limit all stays"
    monkeypatch.setattr(limits, "MAPPED_BYTES_MAX", before)
    store.commit()
    assert mapped_bytes() - before < 4 * _MIB
    assert [value[:1] for _, value in all_rows(store, Table.PAYLOADS)] == [bytes([number]) for number in range(64)]
    store.close()


def test_copy_onto_a_full_disk_leaves_no_file_and_the_store_goes_on(tmp_path: Path) -> None:
    home = LmdbHome(tmp_path / "state")
    store = home.open()
    store.put(Table.PAYLOADS, b"large", bytes(_MIB))
    store.commit()
    with home.failing_disk(file_bytes_max=100 * _KIB), pytest.raises(CopyFailed):
        store.copy_to(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    store.put(Table.JOBS, b"a", b"1")
    store.commit()
    store.copy_to(tmp_path / "copy")
    store.close()


def test_full_disk_is_called_so_whatever_lmdb_calls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB says "Input/output error" where the disk took a part of a write; the file system says whether it is full."""
    said = {}
    for free_kib in (4, 10_000_000):
        home = LmdbHome(tmp_path / f"state{free_kib}")
        store = home.open()
        store.commit()
        store.put(Table.PAYLOADS, b"large", bytes(_MIB))
        values = list(os.statvfs(tmp_path))
        values[1], values[4] = _KIB, free_kib  # f_frsize, f_bavail
        with monkeypatch.context() as patched, home.failing_disk():
            patched.setattr(os, "statvfs", lambda _path, values=values: os.statvfs_result(values))
            with pytest.raises(StorageFailed, match="commit failed") as caught:
                store.commit()
        said[free_kib] = str(caught.value)
    assert "the disk is full, 4 KiB are left: free some space" in said[4]
    assert "disk is full" not in said[10_000_000]


# -- misuse and bad files ---------------------------------------------------------------------------------------------


def test_store_that_nobody_closed_is_named_when_it_goes(tmp_path: Path) -> None:
    """One that another thread collects leaves its lock in a list of this one, whose next lock may end the process."""
    store = open_store(tmp_path / "state")
    store.put(Table.JOBS, b"a", b"1")
    with pytest.warns(ResourceWarning, match=f"{tmp_path}/state was not closed"):
        del store
    store = open_store(tmp_path / "state")
    store.put(Table.JOBS, b"a", b"1")
    store.close()
    with warnings.catch_warnings(action="error"):
        del store


def test_store_refuses_other_threads(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    store.put(Table.JOBS, b"a", b"1")
    raised: list[Exception] = []

    def commit_elsewhere() -> None:
        try:
            store.commit()
        except InvariantBroken as error:
            raised.append(error)

    thread = threading.Thread(target=commit_elsewhere)
    thread.start()
    thread.join()
    assert [str(error) for error in raised] == ["only the thread that opened a store may use it"]
    store.commit()
    store.close()


def test_directory_that_can_not_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match=r"file/state can't be opened"):
        open_store(tmp_path / "file" / "state")


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not LMDB" * 2000)
    with pytest.raises(StorageFailed, match="can't be opened"):
        open_store(tmp_path)
    assert (tmp_path / "data.mdb").read_bytes() == b"not LMDB" * 2000


def test_read_only_store_reads_the_last_commit_beside_a_writer_and_refuses_writes(tmp_path: Path) -> None:
    script = """
from raftsched.storage.store.lmdb_store import open_store
from raftsched.storage.store.port import Table
store = open_store(directory)
store.put(Table.JOBS, b"a", b"1")
store.commit()
store.put(Table.JOBS, b"b", b"2")
"""
    with other_process(script, tmp_path / "state"):
        store = open_read_only(tmp_path / "state")
        assert list(all_rows(store, Table.JOBS)) == [(b"a", b"1")]
        for write in (
            lambda: store.put(Table.JOBS, b"c", b"3"),
            lambda: store.delete(Table.JOBS, b"a"),
            store.commit,
        ):
            with pytest.raises(InvariantBroken, match="reading only"):
                write()
        assert store.get(Table.JOBS, b"a") == b"1"
        store.close()


@pytest.mark.parametrize("make_bad", ["missing", "empty", "no LMDB", "other tables", "cut short"])
def test_read_only_store_refuses_what_is_no_whole_state(tmp_path: Path, make_bad: str) -> None:
    path = tmp_path / "copy"
    if make_bad == "empty":
        path.write_bytes(b"")
    elif make_bad == "no LMDB":
        path.write_bytes(bytes(100_000))
    elif make_bad == "other tables":
        import lmdb

        lmdb.open(str(path), subdir=False, max_dbs=1).close()
    elif make_bad == "cut short":
        store = open_store(tmp_path / "state")
        store.put(Table.PAYLOADS, b"large", bytes(_MIB))
        store.commit()
        store.copy_to(path)
        store.close()
        path.write_bytes(path.read_bytes()[: 512 * _KIB])
    with pytest.raises(DamagedCopy, match="copy"):
        open_read_only(path)


@pytest.mark.skipif(not mapped_bytes(), reason="this system doesn't say how much of a file is mapped")
def test_reads_at_random_without_a_commit_don_t_bring_the_whole_file_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bulk change of a large backlog reads thousands of places within one entry of the log."""
    store = open_store(tmp_path / "state")
    keys = [number.to_bytes(4, "big") for number in range(25_000)]
    for key in keys:
        store.put(Table.PAYLOADS, key, bytes(3_000))
    store.commit()
    let_go(tmp_path / "state" / DATA_FILE)
    start, file_bytes = mapped_bytes(), (tmp_path / "state" / DATA_FILE).stat().st_size
    monkeypatch.setattr(limits, "MAPPED_BYTES_MAX", start + file_bytes // 8)
    most = 0
    for number, key in enumerate(Random(1).sample(keys, 10_000)):
        assert store.get(Table.PAYLOADS, key)
        if number % 50 == 0:
            most = max(most, mapped_bytes() - start)
    store.close()
    assert most < file_bytes // 2
