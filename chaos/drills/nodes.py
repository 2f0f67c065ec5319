"""Nodes of a drill, each on a host of its backend."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from chaos.drills.backends import Backend, Launch, NodeProcess
from chaos.drills.shims import NodeShims
from raftsched.storage.store.lmdb_store import sync_directory

STOP_SECONDS_MAX: Final = 15.0
LEASE_SECONDS: Final = 5.0
_SETTINGS: Final = f'auth = "none"\ncluster = "drill"\nlease_seconds = {LEASE_SECONDS}\n'
_POLL_SECONDS: Final = 0.1
NODE: Final = ("raftsched", "node")
"""The module that runs, and its first arguments."""


def remove_durably(directory: Path) -> None:
    """Remove a directory, if it is there, so that no cut of the power brings it back."""
    shutil.rmtree(directory, ignore_errors=True)
    sync_directory(directory.parent)


class Node:
    """One node at host `number`; it can be killed, paused and started again over the same data."""

    def __init__(
        self,
        number: int,
        hosts: Mapping[str, int],
        backend: Backend,
        directory: Path,
        *,
        shims: NodeShims | None = None,
        entry: Sequence[str] = NODE,
        configuration: str = "",
    ) -> None:
        """Make a node that knows the other nodes by `hosts`, id -> number; its own id is among them."""
        self.number: Final = number
        self.id: Final = next(node for node, host in hosts.items() if host == number)
        self.addresses: Final = backend.addresses(number)
        """host:port of Raft and of the API, for other nodes."""
        self.api: Final = backend.api(number)
        self.url: Final = f"http://{self.api}"
        self.disk: Final = directory / self.id
        self.data: Final = self.disk / "data"
        self.log: Final = directory / f"{self.id}.log"
        self.shims: Final = shims
        self.settings: Final[dict[str, str]] = {}
        """Of its environment, beside its own."""
        self._config = directory / f"{self.id}.toml"
        self._backend = backend
        self._entry = entry
        self._process: NodeProcess | None = None
        self.release: Path | None = None
        """The directory that holds the package that it runs; None = this source."""
        self.is_paused = False
        self.was_full = False
        """Its disk was full in this round: it may stop because of that also later, and is then started again."""
        self.disk.mkdir()
        self._config.write_text(_SETTINGS + configuration + backend.config(number, hosts))

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Return how it ended; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start it, if it does not run; it is not ready yet when this returns."""
        if self.is_running:
            return
        settings = {"RAFTSCHED_NODE_ID": self.id, "RAFTSCHED_DATA_DIR": str(self.data), **self.settings}
        settings |= self.shims.settings if self.shims is not None else {}
        self._process = self._backend.start(
            self.number, Launch(self._entry, self._config, self.disk, self.log, settings, self.release)
        )
        self.is_paused = False

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
        self.is_paused = False

    def pause(self) -> None:
        if self._process is not None:
            self._process.pause()
        self.is_paused = True

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()
        self.is_paused = False

    async def stop(self) -> bool:
        """Ask it to stop; return whether it did so within `STOP_SECONDS_MAX`. If not, its stack is in its log."""
        if self._process is None:
            return True
        self._process.terminate()
        if await self.ended(seconds=STOP_SECONDS_MAX):
            return True
        await asyncio.to_thread(self._process.dump_stack)
        self.kill()
        return False

    async def ended(self, *, seconds: float) -> bool:
        """Wait until it has ended by itself; return whether it has within `seconds`."""
        deadline = time.monotonic() + seconds
        while self.is_running and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        return not self.is_running
