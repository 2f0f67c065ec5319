"""A simulated node: production's `Node` with other ports, the process it runs in, and the host that outlives both.

`SimulatedNode` replaces where state, journal and transport come from, and nothing else: the replica's pump, the proposer,
the duties of the leader and what the API sees of the node are production code on a `ProcessLoop`. Clients come through
`Host.request`, in place of HTTP: a handler runs in the node's own loop, as a request's handler would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from chaos.sim.loop import ProcessClock, ProcessLoop
from chaos.sim.network import SimulatedTransport
from chaos.sim.storage import LmdbState, Machine, TwinState, WatchedJournal
from raftsched.config import Member, NodeConfig
from raftsched.consensus.journal import Journal
from raftsched.consensus.machine import Change, ReplicatedState
from raftsched.consensus.replica import ReplicaSettings
from raftsched.core.view import Result
from raftsched.errors import StorageFull
from raftsched.node import Node
from raftsched.ports import Randomness, Wake
from raftsched.storage.state import State
from tests.simulated.disk import PowerCut

if TYPE_CHECKING:
    from chaos.sim.world import World

Handler = Callable[["SimulatedNode"], Awaitable[Any]]


class Unreachable(Exception):
    """Nobody listens there: the request was certainly not received."""


class Reset(Exception):
    """The connection broke: nobody knows what became of the request."""


class Answer(Protocol):
    """Who waits for a request's answer; called once, in the node's world."""

    def __call__(self, result: object, error: BaseException | None) -> None: ...


class _FreeSpace:
    """`raftsched.free_space.FreeSpace` of a host whose disk can be declared full."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def check(self) -> None:
        if self._host.is_nearly_full:
            raise StorageFull("the disk is nearly full: new jobs are refused until there is room")


class SimulatedNode(Node):
    """One life of a node."""

    def __init__(self, host: Host, config: NodeConfig, *, clock: ProcessClock, randomness: Randomness) -> None:
        super().__init__(config, clock=clock, randomness=randomness)
        self._host = host
        self._free_space = _FreeSpace(host)  # type: ignore[assignment]  # the same check, of a simulated disk
        self._changes: list[Change] = []
        self._led_term = 0
        self.is_built = False
        self._stop = asyncio.Event()

    async def live(self) -> None:
        """Run until `stop`, or until a part fails, which is raised; the order is that of `Node`."""
        self._build(self._host.machine.directory)
        self.is_built = True
        self._host.world.recorder.started(self.node_id, self.state.applied_index, self._journal)
        await self._replica.start()
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
        self._is_stopping = True
        await self._replica.stop()
        await asyncio.gather(*self._terms)
        await replica
        self._machine.close()

    def stop(self) -> None:
        """SIGTERM."""
        if self.is_built:
            self._stop.set()

    # -- what is replaced ---------------------------------------------------------------------------------------------

    def _open_machine(self, directory: Path) -> ReplicatedState:  # noqa: ARG002  # the host knows
        kind = LmdbState if self._host.world.rates.uses_lmdb else TwinState
        return kind(self._host.machine, self._on_applied, self._on_installed)

    def _open_journal(self, directory: Path) -> Journal:  # noqa: ARG002
        rates = self._host.world.rates
        self._journal: WatchedJournal = WatchedJournal(
            self._host.machine.disk, self._host, segment_bytes=rates.segment_bytes, cache_bytes=rates.cache_bytes
        )
        return self._journal

    def _replica_settings(self, directory: Path) -> ReplicaSettings:
        rates = self._host.world.rates
        return replace(super()._replica_settings(directory), sizes=rates.sizes, checkpoint_seconds=rates.checkpoint)

    def _make_transport(self, wake: Wake) -> Any:  # the same port as the real one
        return SimulatedTransport(self._host.world.network, self.node_id, wake)

    # -- what is watched ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def leads(self) -> bool:
        """Whether this node believes that it leads a term, served or not."""
        return self.is_built and self._replica._engine.leads  # noqa: SLF001  # the engine's own belief

    @property
    def leader_elsewhere(self) -> str:
        """Whom a request is passed on to; "" where this node leads, or knows of no leader."""
        leader = self._replica.leader_id
        return "" if leader == self.node_id else leader

    @property
    def term(self) -> int:
        return self._replica.term

    def _hear_changes(self, changes: Sequence[Change]) -> None:
        self._changes.extend(changes)
        super()._hear_changes(changes)

    def _on_applied(self, index: int, term: int, command: bytes | None, results: list[Result]) -> None:
        changes, self._changes = self._changes, []
        self._host.world.recorder.applied(self.node_id, self.state, (index, term, command), results, changes)

    def _on_installed(self, state: State) -> None:
        self._host.world.recorder.installed(self.node_id, state)

    def look(self) -> None:
        """After each round of callbacks: tell of a new leadership."""
        if self.leads:
            term = self.term
            if term != self._led_term:
                self._led_term = term
                self._host.world.recorder.leads(self.node_id, term)


class Host:
    """A machine of the cluster: starts its node's process, kills it, and passes requests to it."""

    def __init__(self, world: World, node_id: str, directory: Path) -> None:
        self.world = world
        self.id = node_id
        self.machine = Machine(directory, world.random)
        self.machine.on_cut = self._power_is_cut
        directory.mkdir(parents=True)
        self.machine.snapshots.mkdir()
        self.wall_error_ms = 0
        self.clock_rate = 1.0
        self.node: SimulatedNode | None = None
        self.loop: ProcessLoop | None = None
        self.is_lost = False
        """Its data is damaged: it may refuse to start, for ever."""
        self.is_damaged = False
        """A bit of its journal was changed."""
        self.is_excused = False
        """Its disk failed in this life: the node must stop, and is right to."""
        self.is_nearly_full = False
        self.slow_sync_until = 0.0
        self._answers: dict[int, Answer] = {}
        self._request_count = 0
        self._clock: ProcessClock | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process, unless it runs or its data is given up."""
        if self.node is not None or self.is_lost:
            return
        world = self.world
        self.is_excused = self.is_damaged
        clock = ProcessClock(
            world.timeline,
            origin=world.random.uniform(0, 1e5),
            rate=self.clock_rate,
            wall_offset_ms=self.wall_error_ms,
        )
        loop = ProcessLoop(
            world.timeline, clock, world.random, work_seconds=self._work_seconds, on_error=self._on_unhandled
        )
        node = SimulatedNode(self, self._config(), clock=clock, randomness=world.random)
        self._clock, self.loop, self.node = clock, loop, node
        loop.on_cycle = node.look
        loop.create_task(node.live(), name=f"{self.id}").add_done_callback(self._on_end)

    def _config(self) -> NodeConfig:
        world = self.world
        rates = world.rates
        members = tuple(
            Member(node_id, f"127.0.0.1:{7000 + place}", f"127.0.0.1:{8000 + place}")
            for place, node_id in enumerate(world.ids)
        )
        return NodeConfig(
            node_id=self.id,
            data_dir=str(self.machine.directory),
            nodes=members,
            auth="none",
            lease_seconds=rates.lease,
            cancel_grace_seconds=rates.cancel_grace,
            retention_seconds=rates.retention,
            election_seconds_min=rates.election[0],
            election_seconds_max=rates.election[1],
            heartbeat_seconds=rates.heartbeat,
        )

    def _work_seconds(self, executor: object) -> float:
        random, rates = self.world.random, self.world.rates
        if getattr(executor, "_thread_name_prefix", "") == "snapshot":
            return 0.1 * random.random()
        slow = 0.5 if self.slow_sync_until > self.world.timeline.now else 0.0
        return (rates.sync + slow) * random.random()

    def crash(self, *, power_loss: bool) -> None:
        """Lose the process, and with the power whatever was not synced."""
        node, loop = self.node, self.loop
        if node is None or loop is None:
            return
        self._bury(node, loop)
        if power_loss:
            self.machine.lose_power()
        else:
            self.machine.lose_process()

    def _bury(self, node: SimulatedNode, loop: ProcessLoop) -> None:
        loop.kill()
        self.world.graveyard.append((node, loop))
        self.node = self.loop = None
        self.world.network.detach(self.id)
        machine = getattr(node, "_machine", None)
        if isinstance(machine, LmdbState):
            machine.forget()
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer(None, Reset())

    def _power_is_cut(self) -> None:
        """The machine stops at this very point; what is left to do is done outside of its code."""
        if self.loop is not None:
            self.loop.kill()
        self.world.timeline.after(0.0, self._finish_cut)

    def _finish_cut(self) -> None:
        if self.machine.is_cut:
            self.world.count("crashed_at_point")
            self.crash(power_loss=True)
            self.world.restart_later(self)

    def stop(self) -> None:
        """SIGTERM: the node ends by itself, in order."""
        if self.node is not None and self.loop is not None:
            self.loop.call_soon(self.node.stop)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """The process ends by itself: in order, or because it can't go on."""
        error = task.exception()
        if isinstance(error, PowerCut):
            return
        self.world.on_exit(self, error)
        self.world.timeline.after(0.0, lambda: self._exited(task))

    def _exited(self, task: asyncio.Task[None]) -> None:
        if self.loop is not None and task.get_loop() is self.loop:
            self.crash(power_loss=False)
            self.world.restart_later(self)

    def _on_unhandled(self, context: dict[str, Any]) -> None:
        self.world.on_unhandled(self, context)

    # -- what befalls it ----------------------------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        if self.loop is not None:
            self.loop.pause(seconds)

    def resume(self) -> None:
        if self.loop is not None:
            self.loop.resume()

    def set_wall_error(self, error_ms: int) -> None:
        """Somebody sets the clock."""
        self.wall_error_ms = error_ms
        if self._clock is not None:
            self._clock.wall_offset_ms = error_ms

    # -- the ear of the journal ---------------------------------------------------------------------------------------

    def durable(self, index: int, term: int, command: bytes) -> None:
        self.world.recorder.durable(self.id, index, term, command)

    def truncated(self, index: int) -> None:
        self.world.recorder.truncated(self.id, index)

    # -- clients ------------------------------------------------------------------------------------------------------

    def request(self, handler: Handler, answer: Answer) -> Callable[[], None]:
        """Have `handler` run in the node's loop; return what cancels it, as a client that goes away does."""
        node, loop = self.node, self.loop
        if node is None or loop is None or not node.is_built:
            answer(None, Unreachable())
            return lambda: None
        self._request_count += 1
        number = self._request_count
        self._answers[number] = answer
        task = loop.create_task(_run(handler, node), name="request")

        def done(finished: asyncio.Task[Any]) -> None:
            waiting = self._answers.pop(number, None)
            if waiting is None:
                return
            if finished.cancelled():
                waiting(None, Reset())
            else:
                error = finished.exception()
                waiting(None if error is not None else finished.result(), error)

        task.add_done_callback(done)
        return lambda: self._cancel(loop, task)

    def _cancel(self, loop: ProcessLoop, task: asyncio.Task[Any]) -> None:
        if not loop.is_dead and not task.done():
            loop.call_soon(task.cancel)


async def _run(handler: Handler, node: SimulatedNode) -> Any:
    return await handler(node)
