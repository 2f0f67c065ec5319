"""The nodes that are members of a drill's cluster, and what they say of themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp

from chaos.drills.nodes import Node
from raftsched.node.shutdown import EXIT_FAULT

MakeNode = Callable[[int, Mapping[str, int]], Node]
"""(number of a host, hosts of all nodes by id) -> a node that is not started."""
_POLL_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 1.0
_CHANGE_SECONDS: Final = 5.0
_WITHOUT_MAJORITY_SECONDS: Final = 3.0


class Cluster:
    """A node with an id of its own for each number; one more host, `spare`, is free."""

    def __init__(self, numbers: Sequence[int], make: MakeNode) -> None:
        founders = {f"n{number}": number for number in numbers}
        self.nodes: Final = [make(number, founders) for number in numbers]
        """The members: changes of the members change this list."""
        self.all_nodes: Final = list(self.nodes)
        """Members, and nodes that were members once."""
        self.spare: Final = max(numbers) + 1
        self._make = make
        self._later = count(1)
        self._session = aiohttp.ClientSession()

    def new_node(self, number: int) -> Node:
        """Make a node with an empty disk and a new id at a host that is free; it is no member yet, and not started.

        Its id is greater than those of older nodes, so it dials them, at the addresses of its own configuration.
        """
        hosts = {node.id: node.number for node in self.nodes} | {f"new-{next(self._later):02}": number}
        node = self._make(number, hosts)
        self.all_nodes.append(node)
        return node

    @property
    def directory(self) -> Path:
        """Return the directory of disks and logs."""
        return self.nodes[0].disk.parent

    async def stop(self) -> list[Node]:
        """Ask the members to stop, one after the other; return those that did not end in time.

        The first one is the last: in a drill with short logs it alone has the whole one, and must have what others cut.
        """
        return [node for node in reversed(self.nodes) if not await node.stop()]

    async def close(self) -> None:
        """End every process."""
        await self._session.close()
        for node in self.all_nodes:
            node.kill()

    async def get(self, node: Node, path: str) -> tuple[int, Any]:
        """Return (status, document) of a GET; status 0 if there is no answer within a second."""
        return await self._ask(node, "GET", path, seconds=_ANSWER_SECONDS)

    async def change(self, node: Node, method: str, path: str, document: Any = None) -> tuple[int, Any]:
        """Return (status, document) of a request that changes the cluster; status 0 if there is no answer in time."""
        return await self._ask(node, method, path, document, seconds=_CHANGE_SECONDS)

    async def _ask(
        self, node: Node, method: str, path: str, document: Any = None, *, seconds: float
    ) -> tuple[int, Any]:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._session.request(method, f"{node.url}{path}", json=document, timeout=timeout) as reply:
                return reply.status, await reply.json()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0, {}

    async def leader(self, *, seconds: float = 30.0) -> Node:
        """Return the leader as running nodes name it; raises `TimeoutError` if there is none in time.

        While another fault stops a majority there can be none, so that is not waited for as long.
        """
        by_id = {node.id: node for node in self.nodes}
        begin = time.monotonic()
        while True:
            for node in self.running():
                _, document = await self.get(node, "/api/v1/cluster")
                leader = by_id.get(document.get("leader") or "")
                if leader is not None and leader in self.running():
                    return leader
            running, waited = len(self.running()), time.monotonic() - begin
            if waited > (seconds if running > len(self.nodes) / 2 else min(seconds, _WITHOUT_MAJORITY_SECONDS)):
                raise TimeoutError(f"no leader within {waited:.0f} s, {running} of {len(self.nodes)} nodes run")
            await asyncio.sleep(_POLL_SECONDS)

    async def transfer(self, to: Node, *, seconds: float = 30.0) -> None:
        """Let a node lead; raises `TimeoutError` if it does not within `seconds`."""
        async with asyncio.timeout(seconds):
            while (leader := await self.leader()) is not to:
                await self.change(leader, "POST", "/api/v1/cluster/transfer", {"to": to.id})
                await asyncio.sleep(_POLL_SECONDS)

    def running(self) -> list[Node]:
        """Return the members that can answer."""
        return [node for node in self.nodes if node.is_running and not node.is_paused]

    async def healthy(self, *, seconds: float = 60.0) -> str:
        """Wait until every node is ready, has a leader, and has applied almost what it has.

        Return "", or after `seconds` what is missing. Nodes that stop because their disk was full are started again.
        """
        deadline = time.monotonic() + seconds
        while (missing := await self._missing()) and time.monotonic() < deadline:
            for node in self.nodes:
                if node.was_full and node.exit_code == EXIT_FAULT:
                    node.start()
            await asyncio.sleep(_POLL_SECONDS)
        return missing

    async def _missing(self) -> str:
        for node in self.nodes:
            status, document = await self.get(node, "/readyz")
            if status != 200:  # HTTP's
                return f"{node.id} is not ready: {document.get('detail') or f'status {status}'}"
        _, document = await self.get(self.nodes[0], "/api/v1/cluster")
        if (told := sorted(each["id"] for each in document.get("nodes", []))) != sorted(node.id for node in self.nodes):
            return f"{self.nodes[0].id} names the members {', '.join(told) or 'none'}"
        behind = [each for each in document.get("nodes", []) if each["applied"] is None or each["state"] == "down"]
        if behind or not document.get("leader"):
            return f"{self.nodes[0].id} sees no {'leader' if not behind else behind[0]['id']}"
        applied = [each["applied"] for each in document["nodes"]]
        return "" if max(applied) - min(applied) < _BEHIND_MAX else f"applied indexes are {applied}"

    async def until(self, missing: Callable[[], Awaitable[str]], what: str, *, seconds: float = 60.0) -> None:
        """Wait until `missing` returns ""; raises `TimeoutError` with what it returned last."""
        deadline = time.monotonic() + seconds
        while reason := await missing():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds:.0f} s for {what}: {reason}")
            await asyncio.sleep(_POLL_SECONDS)

    async def converged(self, *, seconds: float = 60.0) -> dict[str, int]:
        """Wait, once nobody writes any more, until all members have applied the same index.

        Return what each says of itself then, or after `seconds`; a node that says nothing is not there.
        """
        deadline = time.monotonic() + seconds
        while True:
            applied = {node.id: index for node in self.nodes if (index := await self._applied(node)) is not None}
            is_equal = len(applied) == len(self.nodes) and len(set(applied.values())) == 1
            if is_equal or time.monotonic() > deadline:
                return applied
            await asyncio.sleep(_POLL_SECONDS)

    async def _applied(self, node: Node) -> int | None:
        _, document = await self.get(node, "/api/v1/cluster")
        return next((each["applied"] for each in document.get("nodes", ()) if each["id"] == node.id), None)


_BEHIND_MAX: Final = 200
"""Entries, under load."""
