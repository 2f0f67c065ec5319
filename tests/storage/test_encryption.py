"""A state with keys holds no content in the clear, needs its keys, and moves to another key row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import pytest

from raftsched.encryption.cipher import NO_KEYS, Cipher, DataUnreadable
from raftsched.encryption.keys import Key, KeyMissing
from raftsched.storage.store.lmdb_store import open_store
from raftsched.storage.store.port import DamagedValue, Store, Table
from raftsched.storage.store.row_codec import (
    _ENCRYPTED_SEEDS,
    ENCRYPTED_TABLES,
    FIRST_PLACE,
    PLAIN_TABLES,
    is_encrypted,
)
from raftsched.storage.store.seals import SEAL_AT, pack_seal, seal_of
from raftsched.storage.verification import faults_of_rows, verify_elsewhere
from tests.for_each import for_each
from tests.storage.conftest import KEYS, Home, LmdbHome, MemoryHome
from tests.storage.store.test_seals import replaced_by, stored_row

NEW, OLD = KEYS
CANARY = b"canary-4711"
KEY = b"a key"
OTHER = b"a kez"


def all_moved(store: Store) -> None:
    place = FIRST_PLACE
    while (following := store.reencrypt(place, rows_max=2)) is not None:
        place = following
    store.commit()


@pytest.fixture(params=[LmdbHome, MemoryHome])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Cipher], Home]]:
    with ExitStack() as opened:

        def home(cipher: Cipher) -> Home:
            made: Home = LmdbHome(tmp_path / "state", cipher) if request.param is LmdbHome else MemoryHome(cipher)
            opened.callback(made.close)
            return made

        yield home


@for_each("keys", [(NEW, OLD), ()])
def test_state_file_holds_content_only_without_keys(tmp_path: Path, keys: tuple[Key, ...]) -> None:
    directory = tmp_path / f"{len(keys)}"
    store = open_store(directory, cipher=Cipher(keys))
    for table in ENCRYPTED_TABLES:
        store.put(table, KEY, CANARY * 2)
        store.insert(table, OTHER, CANARY * 300)
    store.commit()
    store.copy_to(tmp_path / f"copy-{len(keys)}")
    store.close()
    for file in (directory / "data.mdb", tmp_path / f"copy-{len(keys)}"):
        assert (CANARY in file.read_bytes()) == (not keys)


def test_tables_are_encrypted_unless_they_are_keys_of_other_records() -> None:
    """A new table is encrypted; one that is not must be named here, after a look at what its rows reveal."""
    assert {table.name for table in PLAIN_TABLES} == {
        *("WAITING", "TIMERS", "LEASED", "FINISHED", "PARKED", "BLOCKED", "DEADLINES", "KEYS", "UNIQUE"),
        *("WORKFLOW_KEYS", "SCHEDULE_NAMES", "FACETS", "COUNTERS", "DEPENDENCIES", "DEPENDANTS", "WORKFLOW_JOBS"),
        *("SCHEDULE_JOBS", "BACKGROUND_WORK", "WORKERS", "LOG_SIZES", "DEAD_LETTERS"),
    }


def test_sums_do_not_depend_on_keys(tmp_path: Path) -> None:
    digests = set()
    for number, keys in enumerate([(), (OLD,), (NEW, OLD)]):
        store = open_store(tmp_path / str(number), cipher=Cipher(keys))
        for table in Table:
            store.put(table, KEY, b"one")
            store.put(table, OTHER, b"two")
        store.commit()
        for table in Table:
            store.put(table, KEY, b"three")
            store.delete(table, OTHER)
        digests.add(store.sums.digest())
        store.commit()
        assert list(faults_of_rows(store)) == []
        store.close()
    assert len(digests) == 1


def test_rows_move_to_the_first_key_and_the_old_one_is_needed_until_then(make: Callable[[Cipher], Home]) -> None:
    home = make(NO_KEYS)
    store = home.open()
    for number in range(5):
        store.put(Table.PAYLOADS, b"plain %d" % number, CANARY)
    store.commit()
    assert store.rows_by_key() == {"": 5}
    home = _reopened(home, store, Cipher((OLD,)))
    store = home.open()
    for number in range(3):
        store.put(Table.RESULTS, b"old %d" % number, CANARY)
    store.commit()
    assert store.rows_by_key() == {"k1": 3, "": 5}
    home = _reopened(home, store, Cipher((NEW, OLD)))
    store = home.open()
    store.put(Table.PAYLOADS, b"plain 0", CANARY)
    store.remove(Table.RESULTS, b"old 0")
    assert store.rows_by_key() == {"k1": 2, "k2": 1, "": 4}
    all_moved(store)
    assert store.rows_by_key() == {"k2": 7, "": 0}
    store.commit()
    assert list(faults_of_rows(store)) == []
    home = _reopened(home, store, Cipher((NEW,)))
    store = home.open()
    assert {value for _, value in store.scan(Table.PAYLOADS, b"", None, limit=10)} == {CANARY}
    home.rot(Table.PAYLOADS, b"plain 1", replaced_by(CANARY + pack_seal(seal_of(Table.PAYLOADS, b"plain 1", CANARY))))
    with pytest.raises(DataUnreadable, match="is plain"):
        store.get(Table.PAYLOADS, b"plain 1")
    store.close()


def _reopened(home: Home, store: Store, cipher: Cipher) -> Home:
    store.close()
    if isinstance(home, LmdbHome):
        return LmdbHome(home.directory, cipher)
    assert isinstance(home, MemoryHome)
    home.store._cipher = cipher
    home.store.crash()
    return home


@for_each(
    ["keys", "says"],
    [((), "not set"), ((NEW,), "has only k2"), ((Key("k1", b"9" * 32),), "other bytes"), ((OLD,), "")],
)
def test_state_is_opened_only_with_the_keys_that_its_rows_need(
    tmp_path: Path, keys: tuple[Key, ...], says: str
) -> None:
    directory = tmp_path / str(abs(hash(keys)))
    store = open_store(directory, cipher=Cipher((OLD,)))
    store.put(Table.JOBS, KEY, CANARY)
    store.commit()
    store.close()
    if says:
        with pytest.raises(KeyMissing, match=says):
            open_store(directory, cipher=Cipher(keys))
    store = open_store(directory, cipher=Cipher((OLD,)))
    assert store.get(Table.JOBS, KEY) == CANARY
    store.close()


def _as_valid(table: Table, key: bytes, body: bytes) -> bytes:
    """The row that someone stores who knows the format, but not the key."""
    return body + pack_seal(crc32(body, crc32(key, _ENCRYPTED_SEEDS[table] | len(key))))


def test_rows_that_were_changed_with_care_are_errors_of_these_rows_only(make: Callable[[Cipher], Home]) -> None:
    home = make(Cipher((OLD,)))
    store = home.open()
    for table in (Table.PAYLOADS, Table.RESULTS):
        for key in (KEY, OTHER):
            store.put(table, key, b"%b of %b" % (key, table.name.encode()))
    store.commit()
    rows = {
        (table, key): stored_row(home, table, key) for table in (Table.PAYLOADS, Table.RESULTS) for key in (KEY, OTHER)
    }
    stored = rows[Table.PAYLOADS, KEY]
    body = stored[:SEAL_AT]
    assert is_encrypted(Table.PAYLOADS, KEY, stored)
    flipped = [body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] for at in range(len(body))]
    cut = [body[:length] for length in range(0, len(body), 7)]
    swapped = [rows[at][:SEAL_AT] for at in rows if at != (Table.PAYLOADS, KEY)]
    wrong = []
    for forged in (*flipped, *cut, *swapped):
        home.rot(Table.PAYLOADS, KEY, replaced_by(_as_valid(Table.PAYLOADS, KEY, forged)))
        try:
            wrong.append(store.get(Table.PAYLOADS, KEY))
        except (DataUnreadable, KeyMissing):
            assert store.get(Table.PAYLOADS, OTHER) == b"a kez of PAYLOADS"
    assert not wrong
    plain = b"forged"
    home.rot(Table.PAYLOADS, KEY, replaced_by(plain + pack_seal(seal_of(Table.PAYLOADS, KEY, plain))))
    with pytest.raises(DataUnreadable, match="is plain, although all is encrypted"):
        store.get(Table.PAYLOADS, KEY)
    for moved in (rows[Table.PAYLOADS, OTHER], rows[Table.RESULTS, KEY], body):
        home.rot(Table.PAYLOADS, KEY, replaced_by(moved))
        with pytest.raises(DamagedValue):  # its checksum is not of this place
            store.get(Table.PAYLOADS, KEY)
    store.close()


def test_state_is_verified_by_a_child_that_reads_the_keys_file(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state", cipher=Cipher((OLD,)))
    store.put(Table.JOBS, KEY, CANARY)
    store.commit()
    store.close()
    keys_file = tmp_path / "keys"
    keys_file.write_text("k1 MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE=\n")
    keys_file.chmod(0o600)
    assert verify_elsewhere(tmp_path / "state", Cipher((OLD,), source=keys_file)) == []
    (fault,) = verify_elsewhere(tmp_path / "state")
    assert "the key k1" in fault
