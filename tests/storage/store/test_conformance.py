"""What every `Store` promises, tried on each: in LMDB on a real disk, and in memory."""

from __future__ import annotations

import tempfile
import threading
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raftsched.errors import InvariantBroken
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import CopyFailed, StorageFailed, Store, Table, all_rows
from tests.storage.conftest import Home, make_home


def rows(store: Store, table: Table = Table.JOBS) -> dict[bytes, bytes]:
    return dict(all_rows(store, table))


def test_store_returns_what_was_put_before_and_after_commit(store: Store) -> None:
    store.put(Table.JOBS, b"a", b"1")
    assert store.get(Table.JOBS, b"a") == b"1"
    store.commit()
    store.put(Table.JOBS, b"a", b"2")
    assert store.get(Table.JOBS, b"a") == b"2"
    assert store.get(Table.JOBS, b"b") is None


def test_store_keeps_tables_apart(store: Store) -> None:
    store.put(Table.JOBS, b"a", b"job")
    store.put(Table.RESULTS, b"a", b"result")
    assert store.delete(Table.JOBS, b"a")
    assert store.get(Table.RESULTS, b"a") == b"result"


def test_store_holds_empty_values_and_values_of_many_pages(store: Store) -> None:
    large = bytes(range(256)) * 1024
    store.put(Table.PAYLOADS, b"empty", b"")
    store.put(Table.PAYLOADS, b"large", large)
    store.commit()
    assert store.get(Table.PAYLOADS, b"empty") == b""
    assert store.get(Table.PAYLOADS, b"large") == large


def test_store_delete_says_whether_there_was_a_key(store: Store) -> None:
    store.put(Table.JOBS, b"a", b"1")
    assert store.delete(Table.JOBS, b"a") is True
    assert store.delete(Table.JOBS, b"a") is False
    assert store.get(Table.JOBS, b"a") is None


def test_store_removes_only_a_row_that_is_there(store: Store) -> None:
    store.put(Table.JOBS, b"a", b"1")
    store.remove(Table.JOBS, b"a")
    assert store.get(Table.JOBS, b"a") is None
    with pytest.raises(InvariantBroken, match="no row 61"):
        store.remove(Table.JOBS, b"a")


@pytest.mark.parametrize("key", [b"", b"k" * 512], ids=["empty", "512 bytes"])
def test_store_refuses_an_impossible_key_and_goes_on_unchanged(store: Store, key: bytes) -> None:
    store.put(Table.JOBS, b"a", b"1")
    for write in (store.put, store.insert):
        with pytest.raises(InvariantBroken, match="bytes"):
            write(Table.JOBS, key, b"x")
    store.put(Table.JOBS, b"k" * 511, b"2")
    assert rows(store) == {b"a": b"1", b"k" * 511: b"2"}


@pytest.mark.parametrize("held_by", ["put", "insert", "scan", "commit"])
def test_store_refuses_to_insert_a_row_that_is_there(home: Home, held_by: str) -> None:
    """At the latest `commit` does, and what was committed before stays whole."""
    store = home.open()
    store.put(Table.JOBS, b"other", b"0")
    store.commit()
    first = store.insert if held_by == "insert" else store.put
    first(Table.JOBS, b"a", b"1")
    if held_by == "scan":
        store.scan(Table.JOBS, b"", None, limit=1)
    elif held_by == "commit":
        store.commit()

    def insert_again() -> None:
        store.insert(Table.JOBS, b"a", b"2")
        store.commit()

    with pytest.raises(InvariantBroken, match="already"):
        insert_again()
    assert rows(home.crash()) == {b"other": b"0"} | ({b"a": b"1"} if held_by == "commit" else {})


def test_crash_loses_what_a_process_has_still_to_write(home: Home) -> None:
    """Also before the first commit: a node that is started again must not find a part of what the dead one did."""
    store = home.open()
    store.write_behind((Table.JOBS,), lambda: store.put(Table.JOBS, b"late", b"1"))
    store.put(Table.PAYLOADS, b"early", b"1")
    assert rows(home.crash()) == {}


def test_store_that_inserted_a_row_changes_and_removes_it_like_any_other(store: Store) -> None:
    for key in (b"dropped", b"changed", b"again", b"kept"):
        store.insert(Table.JOBS, key, b"1")
    store.put(Table.JOBS, b"changed", b"2")
    assert store.delete(Table.JOBS, b"dropped")
    assert store.delete(Table.JOBS, b"again")
    store.insert(Table.JOBS, b"again", b"3")
    assert store.get(Table.JOBS, b"dropped") is None
    expected = {b"changed": b"2", b"again": b"3", b"kept": b"1"}
    assert rows(store) == expected
    store.commit()
    assert store.delete(Table.JOBS, b"kept")
    store.insert(Table.JOBS, b"kept", b"4")
    store.commit()
    assert rows(store) == expected | {b"kept": b"4"}


# -- scans ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lettered(store: Store) -> Store:
    for key in (b"b", b"a\xff", b"a", b"ab", b"c", b"a\0"):
        store.put(Table.JOBS, key, b"=" + key)
    store.put(Table.RESULTS, b"aa", b"of another table")
    return store


def keys_of(store: Store, start: bytes, stop: bytes | None, *, limit: int = 100, reverse: bool = False) -> list[bytes]:
    found = store.scan(Table.JOBS, start, stop, limit=limit, reverse=reverse)
    assert all(value == b"=" + key for key, value in found)
    return [key for key, _ in found]


def test_scan_goes_bytewise_from_start_to_before_stop(lettered: Store) -> None:
    assert keys_of(lettered, b"", None) == [b"a", b"a\0", b"ab", b"a\xff", b"b", b"c"]
    assert keys_of(lettered, b"a\0", b"b") == [b"a\0", b"ab", b"a\xff"]
    assert keys_of(lettered, b"aa", b"a\xff\0") == [b"ab", b"a\xff"]
    assert keys_of(lettered, b"d", None) == []
    assert keys_of(lettered, b"b", b"b") == []
    assert keys_of(lettered, b"c", b"a") == []


def test_scan_reversed_goes_the_same_range_downwards(lettered: Store) -> None:
    assert keys_of(lettered, b"", None, reverse=True) == [b"c", b"b", b"a\xff", b"ab", b"a\0", b"a"]
    assert keys_of(lettered, b"a\0", b"b", reverse=True) == [b"a\xff", b"ab", b"a\0"]
    assert keys_of(lettered, b"ab", b"zz", reverse=True) == [b"c", b"b", b"a\xff", b"ab"]
    assert keys_of(lettered, b"", b"a", reverse=True) == []
    assert keys_of(lettered, b"c", b"a", reverse=True) == []


def test_scan_stops_at_its_limit_on_either_side(lettered: Store) -> None:
    assert keys_of(lettered, b"a\0", None, limit=2) == [b"a\0", b"ab"]
    assert keys_of(lettered, b"", b"b", limit=2, reverse=True) == [b"a\xff", b"ab"]
    assert keys_of(lettered, b"", None, limit=0) == []
    assert keys_of(lettered, b"", None, limit=0, reverse=True) == []


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_an_empty_table_is_empty(store: Store, *, reverse: bool) -> None:
    assert store.scan(Table.TIMERS, b"", None, limit=10, reverse=reverse) == []
    assert store.scan(Table.TIMERS, b"a", b"b", limit=10, reverse=reverse) == []


def test_rows_that_are_written_behind_are_there_for_whoever_looks(store: Store) -> None:
    behind: list[bytes] = []

    def write() -> None:
        for key in behind:
            store.insert(Table.JOBS, key, b"1")
        behind.clear()

    empty = store.sums.of(Table.JOBS)
    store.write_behind({Table.JOBS}, write)
    behind.append(b"a")
    assert rows(store, Table.WAITING) == {}
    assert behind == [b"a"]
    assert rows(store) == {b"a": b"1"}
    behind.append(b"b")
    assert store.sums.of(Table.JOBS) != empty
    assert behind == []
    behind.append(b"c")
    store.commit()
    assert behind == []
    assert store.get(Table.JOBS, b"c") == b"1"


def test_all_rows_walks_a_table_of_many_steps(store: Store) -> None:
    expected = {number.to_bytes(4, "big"): b"%d" % number for number in range(2_500)}
    for key, value in expected.items():
        store.put(Table.JOBS, key, value)
    assert list(all_rows(store, Table.JOBS)) == list(expected.items())
    assert len(list(all_rows(store, Table.JOBS, (7).to_bytes(4, "big"), (1_500).to_bytes(4, "big")))) == 1_493


# -- commits and crashes ----------------------------------------------------------------------------------------------


def test_crash_takes_the_store_back_to_its_last_commit(home: Home) -> None:
    store = home.open()
    for key in (b"kept", b"changed", b"removed"):
        store.put(Table.JOBS, key, b"1")
    store.commit()
    store.put(Table.JOBS, b"changed", b"2")
    store.put(Table.JOBS, b"changed", b"3")
    store.put(Table.LEASED, b"new", b"")
    store.delete(Table.JOBS, b"removed")
    store = home.crash()
    assert rows(store) == {b"kept": b"1", b"changed": b"1", b"removed": b"1"}
    assert rows(store, Table.LEASED) == {}


def test_crash_before_the_first_commit_leaves_nothing(home: Home) -> None:
    store = home.open()
    store.put(Table.JOBS, b"a", b"1")
    assert rows(home.crash()) == {}


def test_commit_survives_a_crash_whole(home: Home) -> None:
    store = home.open()
    store.put(Table.JOBS, b"a", b"1")
    store.put(Table.WAITING, b"w", b"")
    store.commit()
    store.delete(Table.WAITING, b"w")
    store.put(Table.LEASED, b"a", b"")
    store.commit()
    store = home.crash()
    assert [len(rows(store, table)) for table in (Table.JOBS, Table.WAITING, Table.LEASED)] == [1, 0, 1]


def test_commit_that_failed_is_final(home: Home) -> None:
    store = home.open()
    store.put(Table.JOBS, b"a", b"1")
    store.commit()
    store.put(Table.PAYLOADS, b"large", bytes(1 << 20))
    with home.failing_disk(), pytest.raises(StorageFailed, match="commit failed"):
        store.commit()
    refused: list[Any] = [
        lambda: store.get(Table.JOBS, b"a"),
        lambda: store.put(Table.JOBS, b"b", b"2"),
        lambda: store.delete(Table.JOBS, b"a"),
        lambda: store.scan(Table.JOBS, b"", None, limit=1),
        store.commit,
        store.figures,
        store.check_readers,
        lambda: store.copy_to(Path("/nowhere")),
    ]
    for call in refused:
        with pytest.raises(StorageFailed, match="commit failed"):
            call()
    store = home.crash()
    assert rows(store) == {b"a": b"1"}
    assert rows(store, Table.PAYLOADS) == {}


def test_closed_store_refuses_use_and_drops_what_was_not_committed(store: Store) -> None:
    store.put(Table.JOBS, b"a", b"1")
    store.close()
    with pytest.raises(StorageFailed, match="closed"):
        store.get(Table.JOBS, b"a")
    with pytest.raises(StorageFailed, match="closed"):
        store.commit()


# -- copies -----------------------------------------------------------------------------------------------------------


def test_copy_holds_exactly_the_last_commit(home: Home, tmp_path: Path) -> None:
    store = home.open()
    for key in (b"kept", b"changed", b"removed"):
        store.put(Table.JOBS, key, b"1")
    store.commit()
    store.put(Table.JOBS, b"changed", b"2")
    store.put(Table.LEASED, b"new", b"")
    store.delete(Table.JOBS, b"removed")
    store.copy_to(tmp_path / "copy")
    copy = home.load(tmp_path / "copy")
    assert rows(copy) == {b"kept": b"1", b"changed": b"1", b"removed": b"1"}
    assert rows(copy, Table.LEASED) == {}
    copy.close()
    assert rows(store) == {b"kept": b"1", b"changed": b"2"}
    store.close()


def test_copy_in_another_thread_goes_beside_writes_and_commits(home: Home, tmp_path: Path) -> None:
    store = home.open()
    for number in range(20_000):
        store.put(Table.JOBS, number.to_bytes(4, "big"), b"0" * 100)
    store.commit()
    copier = threading.Thread(target=store.copy_to, args=(tmp_path / "copy",))
    copier.start()
    generation = 0
    while copier.is_alive():
        generation += 1
        for number in range(0, 20_000, 97):
            store.put(Table.JOBS, number.to_bytes(4, "big"), b"%d" % generation * 100)
        store.commit()
    copier.join()
    copy = home.load(tmp_path / "copy")
    values = [value for key, value in all_rows(copy, Table.JOBS) if int.from_bytes(key, "big") % 97 == 0]
    assert len(values) == 207
    assert len(set(values)) == 1, "a copy must hold one commit, not parts of two"
    assert len(rows(copy)) == 20_000
    copy.close()
    store.close()


def test_copy_that_fails_leaves_no_file_and_the_store_unharmed(store: Store, tmp_path: Path) -> None:
    store.put(Table.JOBS, b"a", b"1")
    with pytest.raises(CopyFailed):
        store.copy_to(tmp_path / "missing" / "copy")
    store.commit()
    assert rows(store) == {b"a": b"1"}
    assert not (tmp_path / "missing").exists()


def test_figures_grow_with_what_is_stored(store: Store) -> None:
    store.commit()
    before = store.figures()
    store.put(Table.PAYLOADS, b"large", bytes(1 << 20))
    store.commit()
    after = store.figures()
    assert 1 << 20 <= after.used_bytes - before.used_bytes <= 1 << 21
    assert after.free_disk_bytes > 0


# -- any order of calls -----------------------------------------------------------------------------------------------

_ALL_KEYS = [bytes(key) for size in (1, 2, 3) for key in product((0, 85, 170, 255), repeat=size)]
_keys = st.sampled_from(_ALL_KEYS)


class StoreMachine(RuleBasedStateMachine):
    """Random calls against a plain dict and what it was at the last commit."""

    kind = ""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.home = make_home(self.kind, Path(self.folder.name) / "state")
        self.store = self.home.open()
        self.model: dict[bytes, bytes] = {}
        self.committed: dict[bytes, bytes] = {}

    @rule(key=_keys, value=st.binary(max_size=4))
    def put(self, key: bytes, value: bytes) -> None:
        self.store.put(Table.JOBS, key, value)
        self.model[key] = value

    @rule(key=_keys, value=st.binary(max_size=4))
    def insert(self, key: bytes, value: bytes) -> None:
        if key not in self.model:
            self.store.insert(Table.JOBS, key, value)
            self.model[key] = value

    @rule(key=_keys)
    def delete(self, key: bytes) -> None:
        assert self.store.delete(Table.JOBS, key) == (self.model.pop(key, None) is not None)

    @rule()
    def commit(self) -> None:
        self.store.commit()
        self.committed = dict(self.model)

    @rule()
    def crash(self) -> None:
        self.store = self.home.crash()
        self.model = dict(self.committed)

    @rule()
    def copy(self) -> None:
        path = Path(self.folder.name) / "copy"
        self.store.copy_to(path)
        copy = self.home.load(path)
        assert rows(copy) == self.committed
        copy.close()
        path.unlink()

    @rule(start=st.one_of(st.just(b""), _keys), stop=st.none() | _keys, limit=st.integers(0, 6), reverse=st.booleans())
    def scan(self, start: bytes, stop: bytes | None, limit: int, *, reverse: bool) -> None:
        inside = [key for key in self.model if key >= start and (stop is None or key < stop)]
        expected = sorted(inside, reverse=reverse)[:limit]
        found = self.store.scan(Table.JOBS, start, stop, limit=limit, reverse=reverse)
        assert found == [(key, self.model[key]) for key in expected]

    @rule()
    def sums(self) -> None:
        other = MemoryStore()
        for key, value in self.model.items():
            other.put(Table.JOBS, key, value)
        assert self.store.sums.of(Table.JOBS) == other.sums.of(Table.JOBS)

    @invariant()
    def agrees_with_the_model(self) -> None:
        """Key by key: a scan has a store write the rows that it holds back."""
        found = {key: value for key in _ALL_KEYS if (value := self.store.get(Table.JOBS, key)) is not None}
        assert found == self.model

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


class LmdbStoreMachine(StoreMachine):
    kind = "lmdb"


class MemoryStoreMachine(StoreMachine):
    kind = "memory"


_quick = settings(
    max_examples=25, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestLmdbStoreAgreesWithAModel = LmdbStoreMachine.TestCase
TestLmdbStoreAgreesWithAModel.settings = _quick
TestMemoryStoreAgreesWithAModel = MemoryStoreMachine.TestCase
TestMemoryStoreAgreesWithAModel.settings = settings(_quick, max_examples=60)
