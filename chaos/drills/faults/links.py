"""Faults of the network between nodes. Users reach every node all the time, also those that are cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from chaos.drills.backends import Need
from chaos.drills.faults.registry import Scene, again_and_again, fault

_FLAP_SECONDS: Final = 0.5
_FIVE: Final = 5


@fault(Need.LINKS)
async def isolate_leader(scene: Scene) -> AsyncIterator[str]:
    """Cut the leader off from all other nodes."""
    leader = await scene.leader()
    for node in scene.nodes:
        if node is not leader:
            await scene.cut(leader, node)
    yield leader.id
    await scene.heal_links()


@fault(Need.LINKS)
async def leader_deaf(scene: Scene) -> AsyncIterator[str]:
    """Lose all that other nodes send to the leader; its own arrive."""
    leader = await scene.leader()
    for node in scene.nodes:
        if node is not leader:
            await scene.deafen(leader, node)
    yield leader.id
    await scene.heal_links()


@fault(Need.LINKS)
async def leader_mute(scene: Scene) -> AsyncIterator[str]:
    """Lose all that the leader sends to other nodes; theirs arrive."""
    leader = await scene.leader()
    for node in scene.nodes:
        if node is not leader:
            await scene.deafen(node, leader)
    yield leader.id
    await scene.heal_links()


@fault(Need.LINKS, nodes_min=_FIVE)
async def ring(scene: Scene) -> AsyncIterator[str]:
    """Let each node reach its two neighbours on a ring only: each sees another majority."""
    nodes = scene.nodes
    for first, one in enumerate(nodes):
        for second in range(first + 2, len(nodes)):
            if second - first < len(nodes) - 1:
                await scene.cut(one, nodes[second])
    yield "all"
    await scene.heal_links()


@fault(Need.LINKS)
async def bridge(scene: Scene) -> AsyncIterator[str]:
    """Cut the nodes into two halves that only one node reaches both of."""
    nodes = list(scene.nodes)
    scene.random.shuffle(nodes)
    half = len(nodes) // 2
    for one in nodes[:half]:
        for other in nodes[half + 1 :]:
            await scene.cut(one, other)
    yield nodes[half].id
    await scene.heal_links()


@fault(Need.LINKS, hold_seconds=10.0)
async def flap_leader(scene: Scene) -> AsyncIterator[str]:
    """Cut whoever led at first off from all others for half a second, in every second."""
    leader = await scene.leader()

    async def step() -> AsyncIterator[float]:
        for node in scene.nodes:
            if node is not leader:
                await scene.cut(leader, node)
        yield _FLAP_SECONDS
        await scene.heal_links()
        yield _FLAP_SECONDS

    flapping = asyncio.create_task(again_and_again(step))
    yield leader.id
    flapping.cancel()
    await asyncio.gather(flapping, return_exceptions=True)
    await scene.heal_links()
