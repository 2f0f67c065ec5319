"""Faults of names: with the power, names are lost whose directory was not synced since (`chaos.drills.names`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from chaos.drills.backends.port import Need
from chaos.drills.faults.registry import Scene, fault
from chaos.drills.names import lose
from chaos.drills.nodes import Node


@fault(Need.NAMES, is_alone=True)
async def names_leader(scene: Scene) -> AsyncIterator[str]:
    """Kill the leader, and lose all names that it has not synced; start it again at the end."""
    leader = await scene.leader()
    await _lose_names(leader)
    yield leader.id
    leader.start()


@fault(Need.NAMES, hold_seconds=1.0, is_single=False, is_alone=True)
async def names_all(scene: Scene) -> AsyncIterator[str]:
    """Kill all nodes, and lose all names that they have not synced; start them again at the end."""
    for node in scene.nodes:
        node.pause()
    await _lose_names(*scene.nodes)
    yield "all"
    for node in scene.nodes:
        node.start()


@fault(Need.NAMES, hold_seconds=1.0, is_single=False, at_founding=True)
async def names_at_founding(scene: Scene) -> AsyncIterator[str]:
    """Kill all nodes of an empty cluster while they found it, and lose all names that they have not synced."""
    after_seconds = await scene.begin_founding()
    await _lose_names(*scene.nodes)
    yield f"all, {after_seconds:.2f} s"
    for node in scene.nodes:
        node.start()


async def _lose_names(*nodes: Node) -> None:
    for node in nodes:
        node.kill()
    for node in nodes:
        await asyncio.to_thread(lose, node.disk)
