"""The register of faults.

A fault is an asynchronous context manager: it strikes on entry, yields its target in words, and heals on exit. Between
lies the time that it lasts. Its docstring is what `--list` tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from subprocess import SubprocessError
from typing import Final, Protocol

from chaos.drills.backends import Backend, Disk, Need, Unfit
from chaos.drills.cluster import Cluster
from chaos.drills.nodes import Node
from chaos.drills.shims import NodeShims
from raftsched.node.identity import NODE_FILE
from raftsched.node.shutdown import EXIT_FAULT

HOLD_SECONDS: Final = 6.0
_START_SECONDS_MAX: Final = 60.0
_FOUNDING_SECONDS_MAX: Final = 1.6
_POLL_SECONDS: Final = 0.01
_STOP_SECONDS_MAX: Final = 15.0
_FLUSHED: Final = 0.3
"""Part of the power cuts before which the file system's journal gets as far as the disk."""
_AND: Final = "+"
FAILURES: Final = (OSError, RuntimeError, SubprocessError, Unfit)
"""Of making a fault, and of healing it; a TimeoutError is an OSError."""


class LoadProcess(Protocol):
    """A process of the load."""

    @property
    def name(self) -> str: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def stop(self) -> None:
        """Ask it to stop, and wait."""


@dataclass(slots=True)
class Scene:
    """The targets of faults."""

    cluster: Cluster
    backend: Backend
    random: Random
    workers: Sequence[LoadProcess]
    crowds: Sequence[LoadProcess] = ()
    """Clients by the dozen; a fault starts and stops them."""
    not_made: dict[str, str] = field(default_factory=dict)
    """Faults of this round that could not be made, and why."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the members."""
        return tuple(self.cluster.nodes)

    async def leader(self) -> Node:
        return await self.cluster.leader()

    async def followers(self) -> list[Node]:
        """Return all nodes but the leader, in any order."""
        return (await self.leader_and_others())[1]

    async def leader_and_others(self) -> tuple[Node, list[Node]]:
        """Return the leader, and the other nodes in any order."""
        leader = await self.leader()
        others = [node for node in self.nodes if node is not leader]
        self.random.shuffle(others)
        return leader, others

    @asynccontextmanager
    async def meanwhile(self, doing: Coroutine[None, None, None]) -> AsyncIterator[None]:
        """Do something until the end; raises whatever ended it before."""
        task = asyncio.create_task(doing)
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def restart(self, node: Node) -> None:
        """Stop a node with SIGTERM, start it again, and wait until all is well; raises RuntimeError if that takes long."""
        if not await node.stop():
            raise RuntimeError(f"{node.id} did not end on SIGTERM")
        node.start()
        if missing := await self.cluster.healthy():
            raise RuntimeError(f"after the restart of {node.id}: {missing}")

    async def deafen(self, node: Node, sender: Node) -> None:
        """Lose what `sender` sends to `node`."""
        await self.backend.cut(sender.number, node.number)

    async def heal_links(self) -> None:
        await self.backend.heal()

    def disk(self, node: Node) -> Disk:
        """Return the disk of a node; `Need.DISKS`."""
        return self.backend.disk_at(node.disk)

    def shims(self, node: Node) -> NodeShims:
        """Return what a node was started with; `Need.SHIMS`."""
        assert node.shims is not None, "the fault needs shims"
        return node.shims

    async def begin_founding(self) -> float:
        """Start all nodes, which are empty; return at a random moment of the founding, in seconds since its first sign."""
        for node in self.nodes:
            node.start()
        async with asyncio.timeout(_START_SECONDS_MAX):
            while not any((node.data / NODE_FILE).exists() for node in self.nodes):
                await asyncio.sleep(_POLL_SECONDS)
        after_seconds = self.random.uniform(0.0, _FOUNDING_SECONDS_MAX)
        await asyncio.sleep(after_seconds)
        return after_seconds

    async def cut_power(self, *nodes: Node) -> None:
        """Cut the power of nodes, all at one moment; `Need.DISKS`."""
        for node in nodes:
            node.pause()
        for node in nodes:
            is_flushed = self.random.random() < _FLUSHED
            await asyncio.to_thread(self.disk(node).cut_power, is_journal_flushed=is_flushed)
            node.kill()

    async def restore_power(self, *nodes: Node) -> None:
        """Start nodes again over what their disks have kept; `Need.DISKS`."""
        for node in nodes:
            await asyncio.to_thread(self.disk(node).mount)
            node.start()


Strike = Callable[[Scene], AbstractAsyncContextManager[str]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault."""

    name: str
    strike: Strike
    needs: frozenset[Need]
    about: str
    hold_seconds: float = HOLD_SECONDS
    nodes_min: int = 3
    is_single: bool = True
    """A minority has it at any time, so the cluster must serve again within the bounds."""
    is_alone: bool = False
    """It strikes and heals on its own only: another fault at once could keep it from that."""
    at_founding: bool = False
    """It starts the nodes of an empty cluster, and strikes while they found it."""
    short_logs: bool = False
    """All nodes but the first keep as little of their logs as they can."""
    is_last: bool = False
    """No other fault may follow in its cluster."""
    apart_seconds: float = 0.0
    """Of several at once."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the faults that it consists of: its own, if it is one."""
        return tuple(self.name.split(_AND))


FAULTS: Final[dict[str, Fault]] = {}


def fault(
    *needs: Need,
    hold_seconds: float = HOLD_SECONDS,
    nodes_min: int = 3,
    is_single: bool = True,
    is_alone: bool = False,
    at_founding: bool = False,
    short_logs: bool = False,
    is_last: bool = False,
) -> Callable[[Callable[[Scene], AsyncIterator[str]]], Strike]:
    """Register a fault under the name of its function."""

    def register(function: Callable[[Scene], AsyncIterator[str]]) -> Strike:
        strike = asynccontextmanager(function)
        name = function.__name__
        about = (function.__doc__ or "").strip().splitlines()[0]
        FAULTS[name] = Fault(
            name,
            strike,
            frozenset({Need.PROCESSES, *needs}),
            about,
            hold_seconds,
            nodes_min,
            is_single=is_single,
            is_alone=is_alone or at_founding,
            at_founding=at_founding,
            short_logs=short_logs,
            is_last=is_last,
        )
        return strike

    return register


def chosen(texts: Sequence[str]) -> list[Fault]:
    """Return the faults that `NAME`, `NAME:ROUNDS` and `NAME+NAME:ROUNDS` ask for, once for each round.

    Raises ValueError naming the wrong one.
    """
    wanted: list[Fault] = []
    for text in texts:
        names, _, rounds = text.partition(":")
        for name in names.split(_AND):
            if name not in FAULTS:
                raise ValueError(f"{text}: no such fault; `python -m chaos drills --list` names them")
        if rounds and not (rounds.isascii() and rounds.isdigit() and int(rounds)):
            raise ValueError(f"{text}: write {names}:ROUNDS with a number from 1 on")
        if alone := [name for name in names.split(_AND) if _AND in names and FAULTS[name].is_alone]:
            raise ValueError(f"{text}: {alone[0]} strikes on its own only")
        wanted += [at_once([FAULTS[name] for name in names.split(_AND)])] * int(rounds or 1)
    return wanted


def at_once(faults: Sequence[Fault], apart_seconds: float = 0.0) -> Fault:
    """Return the fault that is all of these: each begins `apart_seconds` after the one before, all heal in reverse order.

    More than a minority may have it, so no time is judged. A part that can't be made beside the others is left out, and
    noted in `Scene.not_made`.
    """
    if len(faults) == 1:
        return faults[0]

    @asynccontextmanager
    async def strike(scene: Scene) -> AsyncIterator[str]:
        targets = []
        async with AsyncExitStack() as struck:
            for number, each in enumerate(faults):
                await asyncio.sleep(apart_seconds if number else 0.0)
                try:
                    targets.append(await struck.enter_async_context(each.strike(scene)))
                except FAILURES as error:
                    scene.not_made[each.name] = str(error) or type(error).__name__
            yield ", ".join(targets)

    return Fault(
        name=_AND.join(each.name for each in faults),
        strike=strike,
        needs=frozenset().union(*(each.needs for each in faults)),
        about="; ".join(each.about for each in faults),
        hold_seconds=max(each.hold_seconds for each in faults),
        nodes_min=max(each.nodes_min for each in faults),
        is_single=False,
        short_logs=any(each.short_logs for each in faults),
        apart_seconds=apart_seconds,
    )


async def require_stopped(node: Node) -> None:
    """Raise RuntimeError unless a node has stopped itself because of its disk, or does so soon; then it has ended."""
    if await node.ended(seconds=_STOP_SECONDS_MAX):
        if node.exit_code != EXIT_FAULT:
            raise RuntimeError(f"{node.id} ended with {node.exit_code}, not with {EXIT_FAULT}; see {node.log}")
    else:
        node.kill()
        raise RuntimeError(f"{node.id} still runs over a disk that failed")


async def again_and_again(step: Callable[[], AsyncIterator[float]]) -> None:
    """Run a generator for ever, and sleep for as many seconds as it yields."""
    while True:
        async for seconds in step():
            await asyncio.sleep(seconds)
