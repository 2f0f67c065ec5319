"""Snapshots: a hot copy of the machine, sent in acknowledged chunks to followers that the log can't help any more.

Sender (the leader) and receiver are plain state machines. What blocks (making a copy, checking and syncing a received
one) is handed out as `Work`, which the shell runs in a thread and finishes between two steps.

    sender     one copy at a time, shared by all followers that need one. `chunks` are what a follower's window has
               room for; an acknowledgement says how many bytes the follower holds without a gap and moves the window.
               `snapshot_transfer.py` adapts it to the link, and sends again what is not acknowledged. The copy goes
               away with its last transfer.
    receiver   writes chunks in order to a file. When it is whole, `Work` checks length and CRC, syncs it, and lets the
               machine inspect it. Only then is there a `Received` for the engine to install. Any failure drops the file
               and is silent for a while: a failure is never acknowledged, and the leader begins again.

A transfer ends by what the follower says about its log (`Replication`), not by its last byte. A new leader begins a new
transfer. Files of earlier lives are removed at start.

Left out: resuming across leaders (their copies differ in bytes) and compression.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import IO, Final, Protocol

import structlog

from raftsched.consensus.machine import StateMachine
from raftsched.consensus.ports import NodeId, Sizes
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.replication.snapshot_transfer import Transfer
from raftsched.errors import InvariantBroken
from raftsched.ports import Randomness
from raftsched.storage.store.port import REPLACE_THIS_NODE, DamagedCopy

RETRY_SECONDS: Final = 1.0
"""Pause after a failure, so that a full disk is not a busy loop."""
_READ_BYTES: Final = 1024 * 1024

_log = structlog.get_logger()


class Work(Protocol):
    """Something that blocks: `run` in a thread, then `finish` or `fail` between two steps of the engine."""

    def run(self) -> None:
        """Do it; touches nothing but files and, to read, the machine."""

    def finish(self, now: float) -> None: ...
    def fail(self, error: Exception, now: float) -> None: ...


def _checksum(path: Path) -> tuple[int, int]:
    """(bytes, CRC-32) of a file."""
    size = crc = 0
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            size += len(data)
            crc = zlib.crc32(data, crc)
    return size, crc


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def remove_leftovers(directory: Path) -> None:
    """Create the directory if needed and remove copies of earlier lives."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.glob("*.copy"):
        path.unlink()


# -- sender -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Copy:
    path: Path
    floor: int
    """The log is kept from here on while the copy is of use."""
    transfer: int
    file: IO[bytes] | None = None
    index: int = 0
    index_term: int = 0
    size: int = 0
    crc: int = 0


class SnapshotSender:
    """The leader's side; `peers` are the followers that a transfer is under way for."""

    def __init__(
        self,
        directory: Path,
        machine: StateMachine,
        randomness: Randomness,
        sizes: Sizes,
        *,
        patience_seconds: float,
    ) -> None:
        """Send copies of `machine`, made in `directory`; `patience_seconds` is that of `Transfer`."""
        self._directory = directory
        self._machine = machine
        self._randomness = randomness
        self._new_transfer = partial(
            Transfer,
            chunk_bytes=sizes.chunk_bytes,
            window_chunks_max=sizes.window_chunks,
            patience_seconds=patience_seconds,
        )
        self._copy: _Copy | None = None
        self._transfers: dict[NodeId, Transfer] = {}
        self._pending: CopyWork | None = None
        self._retry_at = -inf

    @property
    def floor(self) -> int | None:
        """The log from here on will be needed by the receivers; None while there are none."""
        return self._copy.floor if self._copy is not None else None

    def progress(self, peer: NodeId) -> tuple[int, int] | None:
        """Return (acknowledged, total) bytes of a transfer; None if there is none."""
        transfer = self._transfers.get(peer)
        if transfer is None:
            return None
        return transfer.acknowledged, self._copy.size if self._copy is not None else 0

    def start(self, peer: NodeId, *, first_index: int, now: float) -> None:
        """Begin a transfer to `peer`, of the copy at hand if the log still follows on from it, else of a new one."""
        self._transfers.setdefault(peer, self._new_transfer())
        copy = self._copy
        if copy is not None and copy.file is not None and copy.index < first_index:
            _log.warning("snapshot_outlived_by_log", index=copy.index, first_index=first_index)
            self._discard()
        if self._copy is None and now >= self._retry_at:
            self._begin_copy()

    def _begin_copy(self) -> None:
        transfer = self._randomness.randint(1, 2**53)
        path = self._directory / f"outgoing-{transfer}.copy"
        self._copy = _Copy(path, self._machine.durable_index, transfer)
        self._pending = CopyWork(self, self._copy, self._machine)
        for each in self._transfers:
            self._transfers[each] = self._new_transfer()

    def take_work(self) -> CopyWork | None:
        work, self._pending = self._pending, None
        return work

    def copied(self, copy: _Copy) -> None:
        """The copy is there; if nobody wants it any more it goes away."""
        copy.file = copy.path.open("rb")
        if copy is not self._copy:
            _remove(copy)
            return
        copy.floor = copy.index
        _log.info("snapshot_copied", index=copy.index, bytes=copy.size)

    def copy_failed(self, copy: _Copy, error: Exception, now: float) -> None:
        """Try again later; raises where the state itself can't be read, since then the node must stop."""
        _log.error("snapshot_copy_failed", error=str(error))
        copy.path.unlink(missing_ok=True)
        if isinstance(error, InvariantBroken):
            raise error
        if isinstance(error, DamagedCopy):
            raise InvariantBroken(f"a copy of this node's state is damaged: {error}. {REPLACE_THIS_NODE}") from error
        self._retry_at = now + RETRY_SECONDS
        if copy is self._copy:
            self._copy = None

    def stop(self, peer: NodeId) -> None:
        """End the transfer to `peer`."""
        self._transfers.pop(peer, None)
        if not self._transfers:
            self._discard()

    def stop_all(self) -> None:
        self._transfers.clear()
        self._discard()

    def _discard(self) -> None:
        copy, self._copy, self._pending = self._copy, None, None
        if copy is not None and copy.file is not None:
            _remove(copy)

    def chunks(self, peer: NodeId, now: float) -> list[Message]:
        """The fields of each chunk that is to be sent now."""
        transfer, copy = self._transfers.get(peer), self._copy
        if transfer is None or copy is None or copy.file is None:
            return []
        return [self._read(copy, offset, size) for offset, size in transfer.due(copy.size, now)]

    def _read(self, copy: _Copy, offset: int, size: int) -> Message:
        assert copy.file is not None
        copy.file.seek(offset)
        data = copy.file.read(size)
        if len(data) != size:
            raise InvariantBroken(f"the copy {copy.path} has lost its end")
        return {
            "transfer": copy.transfer,
            "index": copy.index,
            "index_term": copy.index_term,
            "size": copy.size,
            "crc": copy.crc,
            "offset": offset,
            "data": data,
        }

    def acknowledged(self, peer: NodeId, message: Message, now: float) -> None:
        """The follower holds `offset` bytes of a transfer."""
        transfer, copy = self._transfers.get(peer), self._copy
        if transfer is None or copy is None or message["transfer"] != copy.transfer:
            return
        transfer.acknowledge(min(message["offset"], copy.size), now)


def _remove(copy: _Copy) -> None:
    if copy.file is not None:
        copy.file.close()
    copy.path.unlink(missing_ok=True)


class CopyWork:
    """Make a copy of the machine's last checkpoint."""

    def __init__(self, sender: SnapshotSender, copy: _Copy, machine: StateMachine) -> None:
        self._sender = sender
        self._copy = copy
        self._machine = machine

    def run(self) -> None:
        copy = self._copy
        self._machine.copy_to(copy.path)
        copy.index, copy.index_term = self._machine.inspect_copy(copy.path)
        copy.size, copy.crc = _checksum(copy.path)

    def finish(self, now: float) -> None:  # noqa: ARG002  # only failures wait
        self._sender.copied(self._copy)

    def fail(self, error: Exception, now: float) -> None:
        self._sender.copy_failed(self._copy, error, now)


# -- receiver ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Received:
    """A whole, durable, inspected copy."""

    path: Path
    index: int
    term: int


@dataclass(slots=True)
class _Incoming:
    transfer: int
    path: Path
    size: int
    crc: int
    index: int
    index_term: int
    file: IO[bytes]
    offset: int = 0


class SnapshotReceiver:
    """The follower's side: at most one incoming copy."""

    def __init__(self, directory: Path, machine: StateMachine) -> None:
        self._directory = directory
        self._machine = machine
        self._incoming: _Incoming | None = None
        self._pending: CheckWork | None = None
        self._received: Received | None = None
        self._silent_until = -inf

    @property
    def progress(self) -> tuple[int, int] | None:
        """(received, total) bytes; None while nothing is coming in."""
        return (self._incoming.offset, self._incoming.size) if self._incoming is not None else None

    def receive(self, chunk: Message, now: float) -> int | None:
        """Take a chunk; return how many bytes are here without a gap, or None to keep silent."""
        if now < self._silent_until:
            return None
        try:
            return self._take(chunk)
        except OSError as error:
            self._give_up(error, now)
            return None

    def _take(self, chunk: Message) -> int:
        incoming = self._incoming
        if incoming is None or incoming.transfer != chunk["transfer"]:
            if chunk["offset"] != 0:
                return 0
            incoming = self._open(chunk)
        if chunk["offset"] == incoming.offset < incoming.size:
            incoming.file.write(chunk["data"])
            incoming.offset += len(chunk["data"])
            if incoming.offset >= incoming.size:
                incoming.file.close()
                self._pending = CheckWork(self, incoming, self._machine)
        return incoming.offset

    def _open(self, chunk: Message) -> _Incoming:
        self.abandon()
        path = self._directory / f"incoming-{chunk['transfer']}.copy"
        self._incoming = incoming = _Incoming(
            transfer=chunk["transfer"],
            path=path,
            size=chunk["size"],
            crc=chunk["crc"],
            index=chunk["index"],
            index_term=chunk["index_term"],
            file=path.open("wb"),
        )
        return incoming

    def abandon(self) -> None:
        """Drop what came in so far, and what was ready to install."""
        incoming, self._incoming, self._pending = self._incoming, None, None
        if incoming is not None:
            incoming.file.close()
            incoming.path.unlink(missing_ok=True)
        received, self._received = self._received, None
        if received is not None:
            received.path.unlink(missing_ok=True)

    def take_work(self) -> CheckWork | None:
        work, self._pending = self._pending, None
        return work

    def take_received(self) -> Received | None:
        """The copy to install, once."""
        received, self._received = self._received, None
        if received is not None:
            self._incoming = None
        return received

    def checked(self, incoming: _Incoming) -> None:
        if incoming is self._incoming:
            self._received = Received(incoming.path, incoming.index, incoming.index_term)
        else:
            incoming.path.unlink(missing_ok=True)

    def check_failed(self, incoming: _Incoming, error: Exception, now: float) -> None:
        incoming.path.unlink(missing_ok=True)
        if incoming is self._incoming:
            self._give_up(error, now)

    def _give_up(self, error: Exception, now: float) -> None:
        _log.error("snapshot_refused", error=str(error))
        self.abandon()
        self._silent_until = now + RETRY_SECONDS


class CheckWork:
    """Make a received copy durable and see that it is what was announced."""

    def __init__(self, receiver: SnapshotReceiver, incoming: _Incoming, machine: StateMachine) -> None:
        self._receiver = receiver
        self._incoming = incoming
        self._machine = machine

    def run(self) -> None:
        incoming = self._incoming
        if _checksum(incoming.path) != (incoming.size, incoming.crc):
            raise ValueError("the received copy differs from the one that was sent")
        _sync(incoming.path)
        position = self._machine.inspect_copy(incoming.path)
        if position != (incoming.index, incoming.index_term):
            raise ValueError(f"the received copy is of {position}, not of {(incoming.index, incoming.index_term)}")

    def finish(self, now: float) -> None:  # noqa: ARG002  # only failures wait
        self._receiver.checked(self._incoming)

    def fail(self, error: Exception, now: float) -> None:
        self._receiver.check_failed(self._incoming, error, now)
