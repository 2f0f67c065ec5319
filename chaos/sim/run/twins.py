"""Nodes with hash seeds of their own: other processes apply the log of a run again, with the same results.

The order of a set of texts depends on the hash seed, which a process draws when it starts, so all nodes of a simulated
cluster have the same. In production no two have. So in a share of the seeds each node gets a *twin*: a process with
another hash seed that applies the whole log. After each entry twins must agree on its results and on every row that was
written or removed since the start, in order; now and then they make a checkpoint, which writes counters and the position.

Twins live as long as the process that asks them. A bug that is planted here is planted there as well.

Left out: what is decided before an entry is in the log. `python -m chaos.sim repeat` runs whole seeds in two processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from typing import IO, Any

import msgspec

from chaos.sim.record.replay import LoggedEntry, LogReplay
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import Table

_CHECKPOINT_EVERY = 16
_LENGTH_BYTES = 8
_FIRST_HASH_SEED = 101

planted_bug = ""
"""The name of the bug that is in production code right now, if there is one."""


class Request(msgspec.Struct):
    """A log, from its first entry on."""

    bug: str
    log: list[LoggedEntry]


class _WatchedStore(MemoryStore):
    """Keeps a hash over all that was ever written and removed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.history = blake2b(digest_size=8)

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        self.history.update(b"put" + msgspec.msgpack.encode((table, key, value)))
        super().put(table, key, value)

    def delete(self, table: Table, key: bytes) -> bool:
        self.history.update(b"delete" + msgspec.msgpack.encode((table, key)))
        return super().delete(table, key)


def digests(log: Sequence[LoggedEntry]) -> Iterator[bytes]:
    """Apply a log; after each entry, give a digest of all that it and those before it did."""
    store = _WatchedStore()
    replay = LogReplay(State(store))
    for entry in log:
        store.history.update(repr(replay.apply(entry)).encode())
        if entry.index % _CHECKPOINT_EVERY == 0:
            replay.state.checkpoint()
        yield store.history.digest()


def difference(log: Sequence[LoggedEntry], *, count: int) -> str:
    """Return the entry from which one of `count` twins differs from this process, "" if all agree."""
    own = list(digests(log))
    for twin in _twins(count):
        theirs = twin.ask(Request(planted_bug, list(log)))
        for entry, one, other in zip(log, own, theirs, strict=True):
            if one != other:
                return f"entry {entry.index} has other results under hash seed {twin.hash_seed}"
    return ""


@contextmanager
def planting(name: str) -> Iterator[None]:
    """Have twins know that a bug is in production code within this block."""
    global planted_bug  # noqa: PLW0603  # as the bug itself: it is in the code of the whole process
    planted_bug = name
    try:
        yield
    finally:
        planted_bug = ""


class _Twin:
    """A process with a hash seed of its own; it ends when its input does."""

    def __init__(self, hash_seed: int) -> None:
        self.hash_seed = hash_seed
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.sim.planted.twin_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        )

    def ask(self, request: Request) -> list[bytes]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        write(self._process.stdin, request)
        return msgspec.msgpack.decode(read(self._process.stdout), type=list[bytes])


@cache
def _twins(count: int) -> tuple[_Twin, ...]:
    return tuple(_Twin(_FIRST_HASH_SEED + number) for number in range(count))


def write(pipe: IO[bytes], message: Any) -> None:
    data = msgspec.msgpack.encode(message)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    pipe.flush()


def read(pipe: IO[bytes]) -> bytes:
    """The next message; raises EOFError at the end of the input."""
    head = pipe.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        raise EOFError
    return pipe.read(int.from_bytes(head, "big"))
