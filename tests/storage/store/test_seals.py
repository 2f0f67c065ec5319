"""What disk or memory has changed is not served: every row carries a seal, and every table the sum of its seals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from raftsched.storage.store.lmdb_store import open_store
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import DamagedValue, Store, Table
from tests.storage.conftest import Home

KEY = b"a key"
OTHER = b"a kez"


def reads(store: Store, table: Table) -> dict[str, Callable[[], object]]:
    return {
        "get": lambda: store.get(table, KEY),
        "scan": lambda: store.scan(table, b"", None, limit=10),
        "scan backward": lambda: store.scan(table, b"", None, limit=10, reverse=True),
    }


def refusals(store: Store, table: Table) -> dict[str, str]:
    """What each way to read the row answers; "" where it gives the row out."""
    answers: dict[str, str] = {}
    for name, read in reads(store, table).items():
        try:
            read()
            answers[name] = ""
        except DamagedValue as error:
            answers[name] = f"{error.table} {error.key!r}"
    return answers


def flips(stored: bytes) -> Iterator[bytes]:
    for bit in range(8 * len(stored)):
        changed = bytearray(stored)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def stored_row(home: Home, table: Table, key: bytes) -> bytes:
    """The row as it is stored, seal included."""
    found: list[bytes] = []

    def look(stored: bytes) -> bytes:
        found.append(stored)
        return stored

    home.rot(table, key, look)
    return found[0]


def replaced_by(changed: bytes) -> Callable[[bytes], bytes]:
    return lambda _: changed


@pytest.mark.parametrize("value", [b"", b"account-7777"], ids=["entry of an index", "record"])
def test_every_flipped_bit_of_every_table_is_found_at_each_read(home: Home, value: bytes) -> None:
    store = home.open()
    wrong = []
    for table in Table:
        store.put(table, KEY, value)
        stored = stored_row(home, table, KEY)
        changes = list(flips(stored))
        if table not in (Table.JOBS, Table.WAITING):
            changes = changes[:9]
        for changed in (*changes, stored[:-1], b"", stored + b"\0"):
            home.rot(table, KEY, replaced_by(changed))
            answers = refusals(store, table)
            wrong += [(how, answer) for how, answer in answers.items() if answer != f"{table.name.lower()} {KEY!r}"]
        home.rot(table, KEY, replaced_by(stored))
        assert store.get(table, KEY) == value
    store.close()
    assert not wrong


def test_value_that_lies_under_another_key_or_in_another_table_is_found(home: Home) -> None:
    store = home.open()
    elsewhere = [(Table.PAYLOADS, OTHER), (Table.RESULTS, KEY)]
    for table, key in elsewhere:
        store.put(table, key, b"of another row")
    store.put(Table.PAYLOADS, KEY, b"its own")
    for table, key in elsewhere:
        home.rot(Table.PAYLOADS, KEY, replaced_by(stored_row(home, table, key)))
        with pytest.raises(DamagedValue, match=rf"table payloads: .* key {KEY.hex()}"):
            store.get(Table.PAYLOADS, KEY)
    store.close()


def test_damaged_value_says_what_to_do(home: Home) -> None:
    store = home.open()
    store.put(Table.JOBS, KEY, b"record")
    home.rot(Table.JOBS, KEY, lambda stored: b"?" + stored[1:])
    with pytest.raises(DamagedValue, match="under a NEW id with an empty data directory"):
        store.get(Table.JOBS, KEY)
    store.close()


# -- sums -------------------------------------------------------------------------------------------------------------


def write_at_random(store: Store, random: Random, rounds: int) -> None:
    for _ in range(rounds):
        table, key = random.choice(list(Table)), b"%d" % random.randrange(20)
        if random.random() < 0.3:
            store.delete(table, key)
        elif store.get(table, key) is None and random.random() < 0.5:
            store.insert(table, key, random.randbytes(random.randrange(30)))
        else:
            store.put(table, key, random.randbytes(random.randrange(30)))


def rewritten(store: Store) -> MemoryStore:
    """Another store with the same rows, each written once."""
    other = MemoryStore()
    for table in reversed(Table):
        for key, value in store.scan(table, b"", None, limit=1_000, reverse=True):
            other.put(table, key, value)
    return other


def test_sums_follow_from_the_rows_alone(home: Home) -> None:
    store = home.open()
    random = Random(7)
    for _ in range(10):
        write_at_random(store, random, 60)
        other = rewritten(store)
        assert [store.sums.of(table) for table in Table] == [other.sums.of(table) for table in Table]
        assert store.sums.digest() == other.sums.digest()
    store.close()


def test_sums_are_those_of_the_last_commit_after_a_crash_and_in_a_copy(home: Home, tmp_path: Path) -> None:
    store = home.open()
    store.put(Table.JOBS, KEY, b"1")
    store.commit()
    digest = store.sums.digest()
    store.put(Table.JOBS, KEY, b"2")
    store.delete(Table.JOBS, OTHER)
    assert store.sums.digest() != digest
    store.copy_to(tmp_path / "copy")
    copy = home.load(tmp_path / "copy")
    assert copy.sums.digest() == digest
    copy.close()
    store = home.crash()
    assert store.sums.digest() == digest
    store.close()


def test_digest_counts_what_the_log_decides_and_nothing_else(store: Store) -> None:
    for table in Table:
        before = store.sums.digest()
        store.put(table, KEY, b"")
        assert (store.sums.digest() == before) is (table in (Table.META, Table.COUNTERS)), table.name


def test_both_stores_come_to_the_same_sums(tmp_path: Path) -> None:
    on_disk, in_memory = open_store(tmp_path / "state"), MemoryStore()
    for store in (on_disk, in_memory):
        write_at_random(store, Random(11), 300)
        store.commit()
    assert on_disk.sums.digest() == in_memory.sums.digest()
    on_disk.close()


def test_equal_changes_of_many_values_don_t_cancel_out() -> None:
    """CRC-32 is linear: the same bits flipped at the same place in values of one length change all seals alike."""
    for seed in range(50):
        random = Random(seed)
        values = [random.randbytes(40) for _ in range(2)]
        digests = set()
        for mask in range(16):
            store = MemoryStore()
            for number, value in enumerate(values):
                store.put(Table.JOBS, b"%d" % number, value[:-1] + bytes([value[-1] ^ mask]))
            digests.add(store.sums.digest())
        assert len(digests) == 16
