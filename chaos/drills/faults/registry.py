"""The register of faults.

A fault is an asynchronous context manager: it strikes on entry, yields its target in words, and heals on exit. Between
lies the time that it lasts. Its docstring is what `--list` tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from chaos.drills.backends import Backend, Need
from chaos.drills.nodes import Cluster, Node

HOLD_SECONDS: Final = 6.0


class Killable(Protocol):
    """A worker process."""

    @property
    def name(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> None: ...


@dataclass(slots=True)
class Scene:
    """The targets of faults."""

    cluster: Cluster
    backend: Backend
    random: Random
    workers: Sequence[Killable]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.cluster.nodes

    async def leader(self) -> Node:
        return await self.cluster.leader()

    async def followers(self) -> list[Node]:
        """Return the other nodes, in any order."""
        leader = await self.leader()
        others = [node for node in self.nodes if node is not leader]
        self.random.shuffle(others)
        return others

    async def cut(self, one: Node, other: Node) -> None:
        """Cut two nodes off from each other."""
        await self.deafen(one, other)
        await self.deafen(other, one)

    async def deafen(self, node: Node, sender: Node) -> None:
        """Lose what `sender` sends to `node`."""
        await self.backend.cut(sender.number, node.number)

    async def heal_links(self) -> None:
        await self.backend.heal()


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


FAULTS: Final[dict[str, Fault]] = {}


def fault(
    *needs: Need, hold_seconds: float = HOLD_SECONDS, nodes_min: int = 3, is_single: bool = True
) -> Callable[[Callable[[Scene], AsyncIterator[str]]], Strike]:
    """Register a fault under the name of its function."""

    def register(function: Callable[[Scene], AsyncIterator[str]]) -> Strike:
        strike = asynccontextmanager(function)
        name = function.__name__
        about = (function.__doc__ or "").strip().splitlines()[0]
        FAULTS[name] = Fault(
            name, strike, frozenset({Need.PROCESSES, *needs}), about, hold_seconds, nodes_min, is_single=is_single
        )
        return strike

    return register


def chosen(texts: Sequence[str]) -> list[Fault]:
    """Return the faults that `NAME` and `NAME:ROUNDS` ask for, once for each round; raises ValueError naming the wrong."""
    wanted: list[Fault] = []
    for text in texts:
        name, _, rounds = text.partition(":")
        if name not in FAULTS:
            raise ValueError(f"{text}: no such fault; `python -m chaos drills --list` names them")
        if rounds and not (rounds.isascii() and rounds.isdigit() and int(rounds)):
            raise ValueError(f"{text}: write {name}:ROUNDS with a number from 1 on")
        wanted += [FAULTS[name]] * int(rounds or 1)
    return wanted


async def again_and_again(step: Callable[[], AsyncIterator[float]]) -> None:
    """Run a generator for ever, and sleep for as many seconds as it yields."""
    while True:
        async for seconds in step():
            await asyncio.sleep(seconds)
