"""A simulated node: production's `Node` with other ports. The process that it runs in is its host's (`host.py`).

`SimulatedNode` replaces where state, journal and transport come from, and nothing else: the replica's pump, the proposer,
the duties of the leader and what the API sees of the node are production code on a `ProcessLoop`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from chaos.sim.hosts.ports import Home
from chaos.sim.hosts.storage import LmdbState, TwinState, WatchedJournal
from chaos.sim.machine.loop import ProcessClock
from chaos.sim.network.links import SimulatedTransport
from chaos.sim.network.sockets import SimulatedPool
from chaos.sim.record.log_changes import Deed
from raftsched.api.access.door import OpenDoor
from raftsched.api.app import create_app, create_runner
from raftsched.config import NodeConfig
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.machine import ReplicatedState
from raftsched.consensus.net.address import Address
from raftsched.consensus.raft.membership.members import Membership, recorded_membership
from raftsched.consensus.replica import ReplicaSettings
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import RecordOutcome
from raftsched.core.state.results import Result
from raftsched.node.node import Node
from raftsched.ports import Randomness, Wake
from raftsched.storage.state import State

_API_STOP_SECONDS = 1.0
_AMPLE_BYTES = 1 << 40


class SimulatedNode(Node):
    """One life of a node."""

    def __init__(self, host: Home, config: NodeConfig, *, clock: ProcessClock, randomness: Randomness) -> None:
        super().__init__(config, clock=clock, randomness=randomness)
        self._host = host
        self._led_term = 0
        self._told_membership: Membership | None = None
        self._incarnation, self._register = host.incarnation, host.machine.register
        self._cipher = host.machine.cipher
        self.operations_read = host.world.releases.reads(host.id)
        self.is_built = False
        self._stop = asyncio.Event()

    async def live(self) -> None:
        """Run until `stop`, or until a part fails, which is raised; the order is that of `Node`."""
        self._build(self._host.machine.directory)
        self.is_built = True
        self._host.world.recorder.started(self.node_id, self.state.applied_index, self._journal)
        await self._replica.start()
        runner = create_runner(
            create_app(self.backend, OpenDoor(), http=SimulatedPool(decompress=False)), stop_seconds=_API_STOP_SECONDS
        )
        await self._listen(runner)
        replica = asyncio.create_task(self._replica.run(), name="replica")
        parts: list[asyncio.Future[Any]] = [
            replica,
            self._fault,
            asyncio.create_task(self._stop.wait(), name="signals"),
        ]
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in (replica, self._fault):
            if part.done():
                part.result()
        await self._retire()
        await runner.cleanup()
        await self._replica.stop()
        await self._terms.wait()
        if self._fault.done():
            self._fault.result()
        await replica
        self._machine.close()

    async def _listen(self, runner: web.AppRunner) -> None:
        await runner.setup()
        await web.TCPSite(runner, *self._host.api_address).start()

    def stop(self) -> None:
        """SIGTERM."""
        if self.is_built:
            self._stop.set()

    # -- what is replaced ---------------------------------------------------------------------------------------------

    def _free_bytes(self) -> int:
        return 0 if self._host.is_nearly_full else _AMPLE_BYTES

    def _open_machine(self, directory: Path, journal: Journal) -> ReplicatedState:  # noqa: ARG002  # the host knows
        kind = LmdbState if self._host.world.rates.uses_lmdb else TwinState
        machine = kind(self._host.machine, self._on_applied, self._on_installed, operations_read=self.operations_read)
        machine.on_configured = self._on_configured
        return machine

    def _open_journal(self, directory: Path) -> Journal:  # noqa: ARG002
        rates = self._host.world.rates
        self._journal: WatchedJournal = WatchedJournal(
            self._host.machine.disk,
            self._host,
            segment_bytes=rates.segment_bytes,
            cache_bytes=rates.cache_bytes,
            register=self._register,
            cipher=self._cipher,
        )
        return self._journal

    def _make_reencryption(self) -> Any:
        """Return nothing: a simulated node has no `node.json`, and nobody asks it to move its data to another key."""

    def _replica_settings(self, directory: Path) -> ReplicaSettings:
        rates = self._host.world.rates
        return replace(super()._replica_settings(directory), sizes=rates.sizes, checkpoint_seconds=rates.checkpoint)

    def _make_transport(self, wake: Wake) -> Any:  # the same port as the real one
        config = self.config
        return SimulatedTransport(
            self._host.world.network,
            self.node_id,
            wake,
            address=Address.parse(config.member.raft),
            peers={member.id: Address.parse(member.raft) for member in config.nodes if member.id != self.node_id},
            cluster=config.cluster,
        )

    # -- what is watched ----------------------------------------------------------------------------------------------

    def _propose_for_leadership(self, operation: Operation) -> asyncio.Future[Result]:
        if isinstance(operation, RecordOutcome):
            self._host.world.recorder.handed_back(self.node_id, operation)
        return super()._propose_for_leadership(operation)

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def leads(self) -> bool:
        """Whether this node believes that it leads a term, served or not."""
        return self.is_built and self._replica._engine.leads  # noqa: SLF001  # the engine's own belief

    @property
    def membership(self) -> Membership:
        """Whom this node takes for the members."""
        return self._replica._engine.configuration.membership  # noqa: SLF001

    @property
    def takes_part(self) -> bool:
        """Whether this node may vote and be a candidate."""
        return self._replica._engine.identity.takes_part  # noqa: SLF001

    @property
    def leader_elsewhere(self) -> str:
        """Whom a request is passed on to; "" where this node leads, or knows of no leader."""
        leader = self._replica.leader_id
        return "" if leader == self.node_id else leader

    @property
    def term(self) -> int:
        return self._replica.term

    def _on_applied(self, index: int, term: int, command: bytes | None, deeds: list[Deed]) -> None:
        self._tell_membership()
        self._host.world.recorder.applied(self.node_id, self.state, (index, term, command), deeds)

    def _on_installed(self, state: State) -> None:
        self._host.world.recorder.installed(self.node_id, state)

    def _on_configured(self, index: int, term: int, content: bytes) -> None:
        world = self._host.world
        self._tell_membership()
        world.recorder.applied_configuration(self.node_id, self.state, (index, term, content))
        world.on_membership(index, recorded_membership(content))

    def _tell_membership(self) -> None:
        engine = self._replica._engine  # noqa: SLF001
        membership = engine.configuration.membership
        if membership is not self._told_membership:
            self._told_membership = membership
            index, journal = engine.configuration.index, self._journal
            term = journal.term_at(index) if journal.first_index <= index <= journal.last_index else 0
            self._host.world.recorder.configured(self.node_id, (index, term), sorted(membership.voters))

    def look(self) -> None:
        """After each round of callbacks: tell of another configuration, and of a new leadership."""
        if not self.is_built:
            return
        self._tell_membership()
        if self.leads:
            term = self.term
            if term != self._led_term:
                self._led_term = term
                self._host.world.recorder.leads(self.node_id, term)
