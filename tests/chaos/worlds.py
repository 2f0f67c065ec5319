"""Worlds that a test steps by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from chaos.sim.rates import Rates
from chaos.sim.world.world import World, unaltered


@contextmanager
def running(
    seed: int, node_count: int, *, seconds: float, alter: Callable[[Rates], Rates] = unaltered
) -> Iterator[World]:
    """A world that has been running for so long, and is closed at the end."""
    with closing(World(seed, node_count, alter=alter)) as world:
        world.start()
        world.run(seconds)
        yield world
