"""Real replicas over loopback and a real disk, with a machine that is its own history."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos.sim.engine.machine import HistoryMachine, MachineDisk
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.net.address import Address
from raftsched.consensus.net.handshake import TransportSettings
from raftsched.consensus.net.transport import Transport
from raftsched.consensus.ports import Timing
from raftsched.consensus.replica import Replica, ReplicaSettings
from raftsched.disk import SystemDisk
from raftsched.system import SystemClock, system_randomness

WAIT_SECONDS = 20.0
TIMING = Timing(heartbeat_seconds=0.05, election_min_seconds=0.3, election_max_seconds=0.6)
LINKS = TransportSettings(redial_seconds_min=0.01, redial_seconds_max=0.05)


class CountingClock(SystemClock):
    """The real clock; it counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0

    def monotonic(self) -> float:
        self.reads += 1
        return super().monotonic()


class Member:
    """One replica, and the task that runs it."""

    def __init__(self, group: Group, node_id: str) -> None:
        self.group = group
        self.id = node_id
        self.disk = MachineDisk()
        self.clock = CountingClock()
        self.port = 0
        self.leaderships: list[bool] = []

    @property
    def directory(self) -> Path:
        return self.group.directory / self.id

    async def start(self, *, run: bool = True) -> None:
        group = self.group
        self.machine = HistoryMachine(self.disk)
        self.journal = Journal(SystemDisk(self.directory / "journal"))
        peers = {other: Address("127.0.0.1", group.members[other].port) for other in group.members if other != self.id}
        self.transport: Transport

        def make_transport(wake: Callable[[], None]) -> Transport:
            self.transport = Transport(
                self.id, Address("127.0.0.1", self.port), peers, cluster="test", wake=wake, settings=LINKS
            )
            return self.transport

        self.replica = Replica(
            settings=replace(
                group.settings, node_id=self.id, peers=tuple(peers), snapshot_directory=self.directory / "s"
            ),
            machine=self.machine,
            journal=self.journal,
            make_transport=make_transport,
            clock=self.clock,
            randomness=system_randomness(),
            on_leadership=self._on_leadership,
        )
        await self.replica.start()
        self.port = self.transport.port or self.port
        for other in group.members.values():
            if other is not self and hasattr(other, "transport"):
                other.transport.set_address(self.id, Address("127.0.0.1", self.port))
                self.transport.set_address(other.id, Address("127.0.0.1", other.port))
        if run:
            self.task = asyncio.create_task(self.replica.run())
            self.task.add_done_callback(lambda _task: group.changed.set())

    def _on_leadership(self, leads: bool) -> None:
        self.leaderships.append(leads)
        self.group.changed.set()

    async def stop(self) -> None:
        await self.replica.stop()
        with contextlib.suppress(Exception):
            await self.task


class Group:
    """Members that find each other."""

    def __init__(self, directory: Path, count: int, **settings: Any) -> None:
        self.directory = directory
        self.settings = ReplicaSettings("", (), directory, **{"timing": TIMING, **settings})
        self.changed = asyncio.Event()
        self.members = {f"n{k}": Member(self, f"n{k}") for k in range(1, count + 1)}

    async def until(self, happened: Callable[[], Any]) -> Any:
        """Wait until `happened` returns something true, and return it; looked at whenever anything may have changed."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not (result := happened()):
                self.changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), 0.02)
        return result

    async def leader(self) -> Member:
        found: Member = await self.until(lambda: [m for m in self.members.values() if m.leaderships[-1:] == [True]])
        return found[0]  # type: ignore[index,no-any-return]

    def others(self, member: Member) -> list[Member]:
        return [other for other in self.members.values() if other is not member]


@contextlib.asynccontextmanager
async def started(directory: Path, count: int, **settings: Any) -> AsyncIterator[Group]:
    group = Group(directory, count, **settings)
    for member in group.members.values():
        await member.start()
    try:
        yield group
    finally:
        for member in group.members.values():
            await member.stop()
