"""Both stores behind one face, and short ways to make jobs."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.encryption.keys import Key
from raftsched.storage.state import State
from raftsched.storage.store.lmdb_store import LmdbStore, open_read_only, open_store
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import Store, Table


class Home(Protocol):
    """Where a store lives, and what can happen to it there."""

    def open(self) -> Store: ...
    def crash(self) -> Store:
        """Lose all that was not committed; return the store as the next process opens it."""

    def failing_disk(self) -> AbstractContextManager[None]: ...
    def load(self, path: Path) -> Store: ...
    def close(self) -> None: ...
    def rot(self, table: Table, key: bytes, change: Callable[[bytes], bytes]) -> None:
        """Change what is stored under `key`, seal included, behind the store's back."""


KEYS = (Key("k2", b"2" * 32), Key("k1", b"1" * 32))


class LmdbHome:
    def __init__(self, directory: Path, cipher: Cipher = NO_KEYS) -> None:
        self.directory = directory
        self.cipher = cipher
        self.store: LmdbStore | None = None

    def open(self) -> Store:
        self.store = open_store(self.directory, cipher=self.cipher)
        return self.store

    def crash(self) -> Store:
        assert self.store is not None
        self.store.close()
        return self.open()

    @contextmanager
    def failing_disk(self, file_bytes_max: int = 0) -> Iterator[None]:
        """The kernel refuses to write any file beyond `file_bytes_max`, by default beyond the present end of this one."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        file_bytes_max = file_bytes_max or (self.directory / "data.mdb").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def load(self, path: Path) -> Store:
        return open_read_only(path, self.cipher)

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    def rot(self, table: Table, key: bytes, change: Callable[[bytes], bytes]) -> None:
        assert self.store is not None
        self.store.commit()
        database = self.store._tables[table]  # what no caller of the store can do
        with self.store._env.begin(write=True) as txn:
            txn.put(key, change(txn.get(key, b"", database)), db=database)


class MemoryHome:
    def __init__(self, cipher: Cipher = NO_KEYS) -> None:
        self.cipher = cipher
        self.store = MemoryStore(cipher)

    def open(self) -> Store:
        return self.store

    def crash(self) -> Store:
        self.store.crash()
        return self.store

    @contextmanager
    def failing_disk(self) -> Iterator[None]:
        self.store.fail_next_commit()
        yield

    def load(self, path: Path) -> Store:
        return MemoryStore.load(path, self.cipher)

    def close(self) -> None:
        self.store.close()

    def rot(self, table: Table, key: bytes, change: Callable[[bytes], bytes]) -> None:
        rows = self.store._tables[table]  # what no caller of the store can do
        rows[key] = change(rows.get(key, b""))


MakeHome = Callable[[Path], Home]
KINDS = ["lmdb", "memory", "encrypted lmdb", "encrypted memory"]


def make_home(kind: str, directory: Path) -> Home:
    cipher = Cipher(KEYS) if kind.startswith("encrypted") else NO_KEYS
    return LmdbHome(directory, cipher) if kind.endswith("lmdb") else MemoryHome(cipher)


@pytest.fixture(params=KINDS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    made = make_home(request.param, tmp_path / "state")
    yield made
    made.close()


@pytest.fixture
def store(home: Home) -> Store:
    return home.open()


@pytest.fixture
def state(store: Store) -> State:
    return State(store)
