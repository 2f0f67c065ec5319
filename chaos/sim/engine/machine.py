"""A state machine that is its own history: what was applied, in order, and how much of it would survive a power loss."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgpack

from raftsched.consensus.ports import CONFIGURATION
from raftsched.core.operations.codec import CODEC_VERSION

Applied = tuple[int, bytes | None]
"""(term, command) of an entry; None is a no-op."""


@dataclass(slots=True)
class MachineDisk:
    """The part of a machine that a power loss leaves."""

    history: list[Applied] = field(default_factory=list)
    configuration: tuple[int, bytes] | None = None


class HistoryMachine:
    """`raftsched.consensus.machine.StateMachine` for tests; entry `index` is `history[index - 1]`.

    `on_apply` is called with every entry; what it raises leaves `apply`, as a fault of a machine would.
    """

    def __init__(
        self, disk: MachineDisk, on_apply: Callable[[int, Applied], None] = lambda _index, _entry: None
    ) -> None:
        self._disk = disk
        self.on_apply = on_apply
        self.history = list(disk.history)
        self.configuration = disk.configuration
        self.installed_count = 0
        self.operations_read = CODEC_VERSION
        self.operation_version = CODEC_VERSION
        """Of entries that say nothing of versions; a test sets what it wants."""

    @property
    def digest(self) -> int:
        return zlib.crc32(repr(self.history).encode())

    @property
    def applied_index(self) -> int:
        return len(self.history)

    @property
    def applied_term(self) -> int:
        return self.history[-1][0] if self.history else 0

    @property
    def durable_index(self) -> int:
        return len(self._disk.history)

    def apply(self, index: int, term: int, command: bytes | None) -> object:
        assert index == len(self.history) + 1
        entry = (term, command)
        self.on_apply(index, entry)
        self.history.append(entry)
        return index

    def configure(self, index: int, term: int, content: bytes) -> None:
        self.apply(index, term, CONFIGURATION + content)
        self.configuration = (index, content)

    def checkpoint(self) -> int:
        self._disk.history += self.history[len(self._disk.history) :]
        self._disk.configuration = self.configuration
        return self.durable_index

    def copy_to(self, path: Path) -> None:
        path.write_bytes(msgpack.packb((self._disk.history, self._disk.configuration)))

    def inspect_copy(self, path: Path) -> tuple[int, int]:
        history, _ = msgpack.unpackb(path.read_bytes())
        return len(history), history[-1][0]

    def install(self, path: Path) -> None:
        history, configuration = msgpack.unpackb(path.read_bytes())
        self.history = [(term, command) for term, command in history]
        self.configuration = tuple(configuration) if configuration is not None else None
        self._disk.history = list(self.history)
        self._disk.configuration = self.configuration
        self.installed_count += 1
        path.unlink()
