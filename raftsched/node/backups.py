"""Make backups of a node's state, one at a time, while it serves.

Theory of operation. A backup is of one checkpoint, so it holds everything that was applied before the request: if the node
leads, everything that was acknowledged. The copy is made by a thread, from a read transaction of its own, and verified by
a child process; the event loop waits for neither. The file loses its name once it is open, so the copy disappears with
its reader, whatever happens; one that was being made when the process ended is removed by the next start.

The copy needs space on the node's disk until it was sent. It is refused if that would reach the reserve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

import structlog

from raftsched.consensus.machine import ReplicatedState
from raftsched.encryption.cipher import Cipher
from raftsched.errors import BackupUnderWay, InvariantBroken, StorageFull, Unavailable
from raftsched.storage.backup import OpenBackup, describe
from raftsched.storage.store.port import REPLACE_THIS_NODE, DamagedCopy

_CHECKPOINT_SECONDS_MAX: Final = 10.0
_LOOK_SECONDS: Final = 0.05
_MIB: Final = 1 << 20
log = structlog.get_logger()


class Backups:
    """Make the backups of one node; `directory` is for copies, on the disk of the state."""

    def __init__(
        self,
        machine: ReplicatedState,
        *,
        cluster: str,
        node_id: str,
        directory: Path,
        cipher: Cipher,
        reserve_bytes: int,
        now_ms: Callable[[], int],
        free_bytes: Callable[[], int],
    ) -> None:
        self._machine = machine
        self._cluster = cluster
        self._node_id = node_id
        self._cipher = cipher
        self._copy = directory / "backup.copy"
        self._reserve_bytes = reserve_bytes
        self._now_ms = now_ms
        self._free_bytes = free_bytes
        self._is_busy = False

    async def take(self) -> OpenBackup:
        """Return a backup of all that is applied now.

        Raises `BackupUnderWay`, `StorageFull`, `Unavailable`, and `InvariantBroken` if the state is damaged.
        """
        if self._is_busy:
            raise BackupUnderWay(self._node_id)
        self._is_busy = True
        making: asyncio.Future[OpenBackup] | None = None
        try:
            await self._checkpointed()
            self._require_space()
            making = asyncio.get_running_loop().run_in_executor(None, self._make, self._now_ms())
            made = await asyncio.shield(making)
        except DamagedCopy as error:
            raise InvariantBroken(f"a copy of this node's state is damaged: {error}. {REPLACE_THIS_NODE}") from error
        except asyncio.CancelledError:
            if making is not None:  # the thread can't be stopped, and the next backup uses the same file
                making.add_done_callback(self._drop)
            raise
        finally:
            self._is_busy = making is not None and not making.done()
        log.info("backup_made", index=made.manifest.applied_index, bytes=made.manifest.content_bytes)
        return made

    def _drop(self, making: asyncio.Future[OpenBackup]) -> None:
        """Close a backup for which nobody waits any more."""
        self._is_busy = False
        if not making.cancelled() and making.exception() is None:
            making.result().close()

    async def _checkpointed(self) -> None:
        """Wait until all that is applied now is in a checkpoint."""
        wanted = self._machine.applied_index
        try:
            async with asyncio.timeout(_CHECKPOINT_SECONDS_MAX):
                while self._machine.durable_index < wanted:  # noqa: ASYNC110  # four times a second, and nobody else asks
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise Unavailable("this node makes no checkpoint: look at its disk; ask another node") from None
        if not wanted:
            raise Unavailable("this node is empty yet; ask another node")

    def _require_space(self) -> None:
        needed, free = self._machine.state.figures().used_bytes, self._free_bytes()
        if free - needed < self._reserve_bytes:
            raise StorageFull(
                f"a backup of node {self._node_id} needs {needed // _MIB + 1:,} MiB for a copy beside the reserve of "
                f"{self._reserve_bytes // _MIB:,} MiB, and {free // _MIB:,} MiB are free: free space, or ask another node"
            )

    def _make(self, taken_at_ms: int) -> OpenBackup:
        """Make the copy, and open it; runs in a thread."""
        copy = self._copy
        copy.unlink(missing_ok=True)
        try:
            self._machine.copy_to(copy)
            manifest = describe(
                copy,
                self._cipher,
                cluster=self._cluster,
                node=self._node_id,
                taken_at_ms=taken_at_ms,
                release=version("raftsched"),
            )
            return OpenBackup(manifest, copy.open("rb"))
        finally:
            copy.unlink(missing_ok=True)
