"""Hosts that are network namespaces; users are on one of their own, which reaches all nodes at any time."""

from __future__ import annotations

import asyncio
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from chaos.drills.backends.bad_links import BadLinks, can_be_bad
from chaos.drills.backends.local_process import LocalProcess
from chaos.drills.backends.namespaces import Network
from chaos.drills.backends.port import Backend, Launch, Need, NodeProcess, Unfit
from chaos.drills.backends.quality import Quality

_SUBNET: Final = "10.93.9"
_API: Final = 8400
_RAFT: Final = 8401
_RESET_SECONDS: Final = 0.25
"""Longer than a heartbeat's interval: whoever sends within it gets RST."""
_SEED: Final = 1


class Namespaces(Backend):
    """The caller is inside the namespaces (`namespaces.enter`) when it makes one.

    `users` are the numbers of more hosts, without nodes. Links of `usual` are that bad at any time.
    """

    name = "namespaces"
    about = "network namespaces on a bridge; what is cut is dropped by nftables, Raft and API alike"
    offers = frozenset({Need.PROCESSES, Need.RELEASES, Need.NAMES, Need.ISOLATION, Need.LINKS, Need.SMALL_DISK}) | (
        {Need.SLOW_LINKS, Need.LOSSY_LINKS} if can_be_bad() else frozenset()
    )

    def __init__(
        self,
        numbers: Sequence[int],
        users: Sequence[int] = (),
        usual: Mapping[tuple[int, int], Quality] | None = None,
    ) -> None:
        hosts = (*numbers, *users)
        self._network = Network(_SUBNET, hosts)
        self._network.join()
        self._lost: dict[int, set[int]] = defaultdict(set)
        """Receiver -> senders whose packets it drops."""
        self._reset: dict[int, set[int]] = defaultdict(set)
        """Receiver -> senders whose packets it answers with RST."""
        self._bad_links = BadLinks(self._network, hosts, _SEED, usual or {})

    def end(self) -> None:
        """Do nothing: namespaces end with the last process inside."""

    async def open(self) -> None:
        """Make the usual links; all else was made before any thread, since threads begin on the host of their maker."""
        self._writing = asyncio.Lock()  # made here, since each drill has an event loop of its own
        await asyncio.to_thread(self._bad_links.heal)

    async def close(self) -> None:
        """End the switch; namespaces end with the last process inside."""
        await asyncio.to_thread(self._bad_links.close)

    def config(self, number: int, hosts: Mapping[str, int]) -> str:  # noqa: ARG002  # all have the same
        head = f'insecure_peers = true\napi_listen = "0.0.0.0:{_API}"\n'
        return head + "".join(
            f'[[nodes]]\nid = "{node}"\nraft = "{self.addresses(host)[0]}"\napi = "{self.api(host)}"\n'
            for node, host in hosts.items()
        )

    def addresses(self, number: int) -> tuple[str, str]:
        return f"{self._network.address(number)}:{_RAFT}", self.api(number)

    def api(self, number: int) -> str:
        return f"{self._network.address(number)}:{_API}"

    def host(self, number: int) -> Sequence[str]:
        """Return the beginning of command lines that run on a host."""
        return self._network.command(number)

    def start(self, number: int, launch: Launch) -> NodeProcess:
        return LocalProcess(launch, self._network.command(number))

    async def cut(self, sender: int, receiver: int) -> None:
        self._lost[receiver].add(sender)
        await self._refuse(receiver)

    async def worsen(self, links: Mapping[tuple[int, int], Quality]) -> None:
        await asyncio.to_thread(self._bad_links.worsen, links)

    async def reset(self, one: int, other: int) -> None:
        for receiver, sender in ((one, other), (other, one)):
            self._reset[receiver].add(sender)
            await self._refuse(receiver)
        await asyncio.sleep(_RESET_SECONDS)
        for receiver, sender in ((one, other), (other, one)):
            self._reset[receiver].discard(sender)
            await self._refuse(receiver)

    async def heal(self) -> None:
        for receiver in self._lost.keys() | self._reset.keys():
            self._lost[receiver].clear()
            self._reset[receiver].clear()  # of a reset that was cancelled before its end
            await self._refuse(receiver)
        await asyncio.to_thread(self._bad_links.heal)

    async def _refuse(self, receiver: int) -> None:
        """Write the rules of a receiver, also if the caller is cancelled: else its rules could outlast a heal."""
        await asyncio.shield(asyncio.create_task(self._write_rules(receiver)))

    async def _write_rules(self, receiver: int) -> None:
        async with self._writing:  # two faults at once: the later rules must be written last
            lost, reset = (
                [self._network.address(each) for each in sorted(senders[receiver])]
                for senders in (self._lost, self._reset)
            )
            await asyncio.to_thread(self._network.refuse, receiver, lost=lost, reset=reset)

    def mount_small(self, directory: Path, size_bytes: int) -> None:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(directory)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unfit(f"no small disk: {done.stderr.strip()}")
