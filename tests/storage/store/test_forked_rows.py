"""Rows over those of a store: as a dictionary sorted for each scan, and cheap if a list is taken from its start."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched.errors import InvariantBroken
from raftsched.storage.store.forked_rows import ForkedRows
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import Row, Table, all_rows

KEYS = st.binary(min_size=1, max_size=2).map(lambda key: bytes(byte % 4 for byte in key))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["put", "insert"]), KEYS, st.binary(max_size=2)),
        st.tuples(st.sampled_from(["delete", "remove", "get"]), KEYS, st.none()),
        st.tuples(st.sampled_from(["forward", "backward"]), KEYS, st.one_of(st.none(), KEYS)),
    ),
    max_size=40,
)


def in_range(model: dict[bytes, bytes], start: bytes, stop: bytes | None, *, reverse: bool) -> list[Row]:
    return sorted(((k, v) for k, v in model.items() if k >= start and (stop is None or k < stop)), reverse=reverse)


@given(st.dictionaries(KEYS, st.binary(max_size=2)), STEPS, st.integers(0, 4))
def test_forked_rows_are_those_of_a_dictionary(
    stored: dict[bytes, bytes], steps: list[tuple[str, bytes, bytes | None]], limit: int
) -> None:
    store = MemoryStore()
    for row in stored.items():
        store.put(Table.JOBS, *row)
    fork, model = ForkedRows(store), dict(stored)
    for what, key, value in steps:
        match what:
            case "put":
                fork.put(Table.JOBS, key, value or b"")
                model[key] = value or b""
            case "insert" if key not in model:
                fork.insert(Table.JOBS, key, value or b"")
                model[key] = value or b""
            case "delete":
                assert fork.delete(Table.JOBS, key) is (model.pop(key, None) is not None)
            case "remove" if key in model:
                fork.remove(Table.JOBS, key)
                del model[key]
            case "forward" | "backward":
                reverse = what == "backward"
                expected = in_range(model, key, value, reverse=reverse)[:limit]
                assert fork.scan(Table.JOBS, key, value, limit=limit, reverse=reverse) == expected
        assert fork.get(Table.JOBS, key) == model.get(key)
    assert dict(all_rows(fork, Table.JOBS)) == model
    assert dict(all_rows(store, Table.JOBS)) == stored
    fork.merge()
    assert dict(all_rows(store, Table.JOBS)) == model
    assert not store.scan(Table.RESULTS, b"", None, limit=1)


def test_forked_rows_refuse_what_is_there_already_or_not_there_at_the_latest_when_merged() -> None:
    store = MemoryStore()
    store.put(Table.JOBS, b"a", b"1")
    fork = ForkedRows(store)
    fork.put(Table.JOBS, b"b", b"2")
    fork.delete(Table.JOBS, b"a")
    with pytest.raises(InvariantBroken, match="already"):
        fork.insert(Table.JOBS, b"b", b"3")
    with pytest.raises(InvariantBroken, match="no row"):
        fork.remove(Table.JOBS, b"a")
    inserting, removing = ForkedRows(store), ForkedRows(store)
    inserting.insert(Table.JOBS, b"a", b"2")
    removing.remove(Table.JOBS, b"c")
    for fork in (inserting, removing):
        with pytest.raises(InvariantBroken):
            fork.merge()


def test_taking_the_first_of_a_list_again_and_again_reads_the_list_once() -> None:
    read_count = 0

    class Counting(MemoryStore):
        def scan(
            self, table: Table, start: bytes, stop: bytes | None, *, limit: int, reverse: bool = False
        ) -> list[Row]:
            nonlocal read_count
            found = super().scan(table, start, stop, limit=limit, reverse=reverse)
            read_count += len(found)
            return found

    store = Counting()
    for number in range(1_000):
        store.put(Table.BLOCKED, number.to_bytes(2, "big"), b"")
    fork = ForkedRows(store)
    for number in range(1_000):
        ((key, _),) = fork.scan(Table.BLOCKED, b"\0", b"\xff", limit=1)
        assert key == number.to_bytes(2, "big")
        fork.remove(Table.BLOCKED, key)
    assert read_count <= 3_000
