"""Node processes of a drill, each on a host of its backend."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp

from chaos.drills.backends import Backend
from chaos.drills.shims import NodeShims
from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline

STOP_SECONDS_MAX: Final = 15.0
LEASE_SECONDS: Final = 5.0
_SETTINGS: Final = f'auth = "none"\ncluster = "drill"\nlease_seconds = {LEASE_SECONDS}\n'
_ROOT: Final = Path(__file__).parents[2]
_POLL_SECONDS: Final = 0.1
NODE: Final = ("raftsched", "node")
"""The module that runs, and its first arguments."""


class Node:
    """One node; it can be killed, paused and started again over the same data."""

    def __init__(
        self,
        number: int,
        backend: Backend,
        directory: Path,
        shims: NodeShims | None,
        entry: Sequence[str],
        *,
        configuration: str = "",
    ) -> None:
        self.number: Final = number
        self.id: Final = f"n{number}"
        self.api: Final = backend.api(number)
        self.url: Final = f"http://{self.api}"
        self.disk: Final = directory / self.id
        self.data: Final = self.disk / "data"
        self.log: Final = directory / f"{self.id}.log"
        self.shims: Final = shims
        self._config = directory / f"{self.id}.toml"
        self._backend = backend
        self._entry = entry
        self._process: subprocess.Popen[bytes] | None = None
        self.is_paused = False
        self.disk.mkdir()
        self._config.write_text(_SETTINGS + configuration + backend.config(number))

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start the process; it is not ready yet when this returns."""
        settings = {"RAFTSCHED_NODE_ID": self.id, "RAFTSCHED_DATA_DIR": str(self.data)}
        settings |= self.shims.settings if self.shims is not None else {}
        arguments = ["-m", *self._entry, "--config", str(self._config), UNTIL_STDIN_ENDS]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._backend.command(self.number, sys.executable, *arguments),
                env=os.environ | settings,
                cwd=_ROOT,
                stdin=lifeline(),
                stdout=log,
                stderr=log,
                process_group=0,  # only we get Ctrl-C; and without us the kernel ends a paused node, which reads nothing
            )
        self.is_paused = False

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.is_paused = False

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    async def stop(self) -> bool:
        """Ask it to stop; return whether it did so within `STOP_SECONDS_MAX`. If not, its stack is in its log."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self.is_running and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        if not self.is_running:
            return True
        await self._dump_stack()
        self.kill()
        return False

    async def _dump_stack(self) -> None:
        program = shutil.which("py-spy")
        if program is None or self._process is None:
            return
        with self.log.open("ab") as log:
            dump = await asyncio.create_subprocess_exec(
                program, "dump", "--pid", str(self._process.pid), stdout=log, stderr=log
            )
            await dump.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            self._process.send_signal(number)


class Cluster:
    """All nodes of a drill, and what they say of themselves."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes: Final = tuple(nodes)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1.0))

    async def close(self) -> None:
        """End every process."""
        await self._session.close()
        for node in self.nodes:
            node.kill()

    async def get(self, node: Node, path: str) -> tuple[int, Any]:
        """Return (status, document) of a GET; status 0 if there is no answer within a second."""
        try:
            async with self._session.get(f"{node.url}{path}") as reply:
                return reply.status, await reply.json()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0, {}

    async def leader(self, *, seconds: float = 30.0) -> Node:
        """Return the leader as running nodes name it; raises `TimeoutError` if there is none in time."""
        by_id = {node.id: node for node in self.nodes}
        async with asyncio.timeout(seconds):
            while True:
                for node in self._asked():
                    _, document = await self.get(node, "/api/v1/cluster")
                    leader = by_id.get(document.get("leader") or "")
                    if leader is not None and leader in self._asked():
                        return leader
                await asyncio.sleep(_POLL_SECONDS)

    def _asked(self) -> list[Node]:
        return [node for node in self.nodes if node.is_running and not node.is_paused]

    async def healthy(self, *, seconds: float = 60.0) -> str:
        """Wait until every node is ready, has a leader, and has applied almost what it has.

        Return "", or after `seconds` what is missing.
        """
        deadline = time.monotonic() + seconds
        while (missing := await self._missing()) and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        return missing

    async def _missing(self) -> str:
        for node in self.nodes:
            status, document = await self.get(node, "/readyz")
            if status != 200:  # HTTP's
                return f"{node.id} is not ready: {document.get('detail') or f'status {status}'}"
        _, document = await self.get(self.nodes[0], "/api/v1/cluster")
        behind = [each for each in document.get("nodes", []) if each["applied"] is None or each["state"] == "down"]
        if behind or not document.get("leader"):
            return f"{self.nodes[0].id} sees no {'leader' if not behind else behind[0]['id']}"
        applied = [each["applied"] for each in document["nodes"]]
        return "" if max(applied) - min(applied) < _BEHIND_MAX else f"applied indexes are {applied}"

    async def converged(self, *, seconds: float = 60.0) -> str:
        """Wait, once nobody writes any more, until all nodes have applied the same index; return "", or what is wrong."""
        deadline = time.monotonic() + seconds
        while True:
            _, document = await self.get(self.nodes[0], "/api/v1/cluster")
            applied = {each["applied"] for each in document.get("nodes", [])}
            if len(applied) == 1 and None not in applied:
                return ""
            if time.monotonic() > deadline:
                return f"applied indexes are {applied}"
            await asyncio.sleep(_POLL_SECONDS)


_BEHIND_MAX: Final = 200
"""Entries, under load."""
