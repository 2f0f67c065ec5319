"""Storage of a simulated node: its journal's disk and its state, both of which forget what was not synced.

The journal lies on a `SimulatedDisk`. The state is production's `ReplicatedState`, over the in-memory twin of LMDB, which
falls back to its last commit in a crash, or, in a share of the seeds, over LMDB itself in a directory of the machine. Copies
on their way between nodes are real files in any case.

A *fault point* is a place in which a machine can stop: before and after each call that changes the disk, each commit and
each step of an installation. `Machine` counts each point that is passed, and stops there if that is planned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Protocol

from chaos.sim.machine.disk import PowerCut, SimulatedDisk
from chaos.sim.record.log_changes import Deed
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.register import SegmentId, SegmentRegister
from raftsched.consensus.journal.segments import segment_number
from raftsched.consensus.machine import ReplicatedState
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CODEC_VERSION
from raftsched.core.state.results import Applied, Context, Result
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.ports import Randomness
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import DamagedCopy, StorageFailed
from raftsched.storage.verification import faults_of_rows

OnApplied = Callable[[int, int, bytes | None, list[Deed]], None]
"""(index, term, command, operations and their results) of an entry, right after it was applied."""
OnConfigured = Callable[[int, int, bytes], None]
"""(index, term, content) of an entry that says who the members are, right after it was applied."""
MARKER = "installing.json"
CUT = " (power cut)"
"""The end of a point's name in `Machine.points` that counts the cuts there."""


class Machine:
    """The hardware of a node, which outlives its processes."""

    def __init__(self, directory: Path, randomness: Random, cipher: Cipher = NO_KEYS) -> None:
        self.cipher = cipher
        self.directory = directory
        self.snapshots = directory / "snapshots"
        self.disk = MachineDisk(self, randomness)
        self.register = MachineRegister(self)
        self.store = MemoryStore(cipher)
        self.points: Counter[str] = Counter()
        self.is_cut = False
        """The power is gone: whatever still runs must do nothing any more."""
        self.fails_next_commit = False
        self._plans: dict[str, int] = {}
        """Point -> how often it is passed before the power goes there."""
        self._random = randomness
        self._marker = ""
        self.on_cut: Callable[[], None] = lambda: None

    def stop_at(self, point: str, *, after: int) -> None:
        """Cut the power, once, when `point` is reached, after `after` other times.

        The plan outlives crashes that come first, and plans for other points: some are passed rarely.
        """
        self._plans[point] = after

    def stop_nowhere(self) -> None:
        """Drop every plan."""
        self._plans.clear()

    def point(self, name: str) -> None:
        """A place where the machine may stop; raises `PowerCut` if it does."""
        if self.is_cut:
            raise PowerCut
        self.points[name] += 1
        if name not in self._plans:
            return
        self._plans[name] -= 1
        if self._plans[name] < 0:
            del self._plans[name]
            self.points[f"{name}{CUT}"] += 1
            self.is_cut = True
            self.on_cut()
            raise PowerCut

    def lose_power(self) -> None:
        """Everything stops, and what was not synced is lost or not, by the dice."""
        self.disk.power_loss()
        self._end()
        for path in self.snapshots.glob("*.copy"):
            with path.open("r+b") as file:
                file.truncate(self._random.randint(0, path.stat().st_size))
        marker = self.snapshots / MARKER
        if self._marker and not marker.exists() and self._random.random() < 0.3:
            marker.write_text(self._marker, encoding="ascii")  # its removal was never synced

    def lose_process(self) -> None:
        """The process ends; what it wrote is there."""
        self.disk.kill()
        self._end()

    def _end(self) -> None:
        self.store.crash()
        self.is_cut = False
        self.fails_next_commit = False

    def remember_marker(self) -> None:
        marker = self.snapshots / MARKER
        self._marker = marker.read_text(encoding="ascii") if marker.exists() else self._marker


class MachineDisk(SimulatedDisk):
    """The journal's disk, with a fault point before and after each call."""

    def __init__(self, machine: Machine, randomness: Randomness) -> None:
        super().__init__(randomness)
        self._machine = machine
        self._last_call = ""
        self.data_sync_count = 0

    def _call(self, name: str) -> None:
        if self._last_call:
            last, self._last_call = self._last_call, ""
            self._machine.point(f"after {last}")
        self._machine.point(f"before {name}")
        super()._call(name)
        self._last_call = name

    def datasync(self, content: object) -> None:
        super().datasync(content)  # type: ignore[arg-type]  # the file's content, as the base class has it
        self.data_sync_count += 1

    def proven_byte(self, randomness: Random) -> tuple[str, int] | None:
        """A place (file, offset) of which the journal knows that it was synced, if there is one.

        All but the newest segment: rot in the last group looks like a torn tail (`consensus.journal.replay`).
        """
        names = [name for name in self.names() if segment_number(name) is not None]
        places = [(name, len(self.read(name))) for name in names[:-1]]
        places = [(name, size) for name, size in places if size]
        if not places:
            return None
        name, size = places[randomness.randint(0, len(places) - 1)]
        return name, randomness.randint(0, size - 1)


class MachineRegister:
    """The part of node.json about the journal: replaced as a whole, with a fault point before and after."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.newest: SegmentId | None = None

    def record(self, segment: SegmentId) -> None:
        self._machine.point("before register")
        self.newest = segment
        self._machine.point("after register")


class JournalEar(Protocol):
    """A port that is called with what a journal made durable."""

    def durable(self, index: int, term: int, command: bytes) -> None: ...
    def truncated(self, index: int) -> None: ...


class WatchedJournal(Journal):
    """The journal; tells of entries once a sync that reached the disk has made them durable."""

    def __init__(
        self,
        disk: MachineDisk,
        ear: JournalEar,
        *,
        segment_bytes: int,
        cache_bytes: int,
        register: SegmentRegister | None = None,
        cipher: Cipher = NO_KEYS,
    ) -> None:
        self._fresh: list[tuple[int, int, bytes]] = []
        self._leaving: list[tuple[int, int, bytes]] = []
        self._syncs_before = 0
        self._machine_disk = disk
        self._ear = ear
        super().__init__(disk, segment_bytes=segment_bytes, cache_bytes=cache_bytes, register=register, cipher=cipher)
        self._fresh.clear()

    def add(self, command: bytes, index: int, term: int) -> None:
        super().add(command, index, term)
        self._fresh.append((index, term, command))

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802  # pysyncobj's name
        last = self.last_index
        super().deleteEntriesFrom(position)
        if self.last_index < last:
            self._fresh.append((self.last_index + 1, -1, b""))

    def reset(self, index: int, term: int) -> None:
        holds_other = self.first_index <= index <= self.last_index and self.term_at(index) != term
        super().reset(index, term)
        self._fresh.append((index if holds_other else index + 1, -1, b""))

    def write(self) -> None:
        self._syncs_before = self._machine_disk.data_sync_count
        super().write()
        self._leaving += self._fresh
        self._fresh = []

    def synced(self) -> None:
        super().synced()
        if self._machine_disk.data_sync_count == self._syncs_before:
            return  # nothing reached the disk, whatever the journal believes
        for index, term, command in self._leaving:
            if term < 0:
                self._ear.truncated(index)
            else:
                self._ear.durable(index, term, command)
        self._leaving = []


class WatchedState(ReplicatedState):
    """`ReplicatedState`; reports of each entry the results of its operations."""

    _on_applied: OnApplied
    _deeds: list[Deed]

    def apply(self, index: int, term: int, command: bytes | None) -> list[Result]:
        self._deeds = []
        results = super().apply(index, term, command)
        self._on_applied(index, term, command, self._deeds)
        return results

    def _decide(self, operation: Operation, context: Context) -> Applied:
        applied = super()._decide(operation, context)
        self._deeds.append(Deed(operation, applied))
        return applied


class TwinState(WatchedState):
    """`ReplicatedState` over the in-memory twin of LMDB."""

    def __init__(
        self,
        machine: Machine,
        on_applied: OnApplied,
        on_installed: Callable[[State], None],
        *,
        operations_read: int = CODEC_VERSION,
    ) -> None:
        # Not the base class's start, which opens LMDB.
        self._machine = machine
        self._on_applied = on_applied
        self._on_installed = on_installed
        self.on_configured: OnConfigured = lambda _index, _term, _content: None
        self.operations_read = operations_read
        self.state = State(machine.store)
        self.on_changes = None
        self.on_records = None
        self._require_readable()

    def configure(self, index: int, term: int, content: bytes) -> None:
        super().configure(index, term, content)
        self.on_configured(index, term, content)

    def checkpoint(self) -> int:
        machine = self._machine
        machine.point("before commit")
        if machine.fails_next_commit:
            machine.fails_next_commit = False
            machine.store.fail_next_commit()
        durable = super().checkpoint()
        machine.point("after commit")
        return durable

    def copy_to(self, path: Path) -> None:
        self._machine.point("before copy")
        super().copy_to(path)

    def inspect_copy(self, path: Path) -> tuple[int, int]:
        store = MemoryStore.load(path, self._machine.cipher)
        for fault in faults_of_rows(store):
            raise DamagedCopy(f"{path}: {fault}")
        state = State(store)
        if state.applied_index == 0:
            raise DamagedCopy(f"{path} was made before anything was applied")
        return state.applied_index, state.applied_term

    def install(self, path: Path) -> None:
        machine = self._machine
        machine.remember_marker()
        machine.point("before install")
        self.state.close()
        machine.store = MemoryStore.load(path, machine.cipher)
        path.unlink()
        machine.point("after install")
        self.state = State(machine.store)
        self._require_readable()
        self._on_installed(self.state)


class LmdbState(WatchedState):
    """`ReplicatedState` over LMDB, in the machine's directory."""

    def __init__(
        self,
        machine: Machine,
        on_applied: OnApplied,
        on_installed: Callable[[State], None],
        *,
        operations_read: int = CODEC_VERSION,
    ) -> None:
        self._machine = machine
        self._on_applied = on_applied
        self._on_installed = on_installed
        self.on_configured: OnConfigured = lambda _index, _term, _content: None
        super().__init__(
            machine.directory / "state", map_bytes=16 << 20, operations_read=operations_read, cipher=machine.cipher
        )

    def configure(self, index: int, term: int, content: bytes) -> None:
        super().configure(index, term, content)
        self.on_configured(index, term, content)

    def checkpoint(self) -> int:
        self._machine.point("before commit")
        if self._machine.fails_next_commit:
            raise StorageFailed("commit failed: a simulated fault of the disk")
        durable = super().checkpoint()
        self._machine.point("after commit")
        return durable

    def copy_to(self, path: Path) -> None:
        self._machine.point("before copy")
        super().copy_to(path)

    def install(self, path: Path) -> None:
        self._machine.remember_marker()
        self._machine.point("before install")
        super().install(path)
        self._on_installed(self.state)
        self._machine.point("after install")

    def forget(self) -> None:
        """The process ends: what was not committed is dropped."""
        self.state.close()
