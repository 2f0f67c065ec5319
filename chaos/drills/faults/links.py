"""Faults of the network between nodes: links that are cut. Users reach every node all the time, also those cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import combinations
from typing import Final

from chaos.drills.backends import Need
from chaos.drills.faults.registry import Scene, again_and_again, fault
from chaos.drills.nodes import Node

_FLAP_SECONDS: Final = 0.5
_STORM_SECONDS: Final = (0.1, 0.8)
"""Least and longest time between two changes of a storm."""
_FIVE: Final = 5
_Pairs = Iterable[tuple[Node, Node]]


@fault(Need.ISOLATION)
async def isolate_leader(scene: Scene) -> AsyncIterator[str]:
    """Cut the leader off from all other nodes."""
    leader = await scene.leader()
    async with _isolated(scene, leader):
        yield leader.id


@fault(Need.LINKS, nodes_min=_FIVE)
async def isolate_two(scene: Scene) -> AsyncIterator[str]:
    """Cut the leader and a follower off from all other nodes, and from each other."""
    leader, others = await scene.leader_and_others()
    follower, *rest = others
    lonely = (leader, follower)
    async with _cut(scene, [lonely, *((one, other) for one in lonely for other in rest)]):
        yield f"{leader.id} {follower.id}"


@fault(Need.LINKS, nodes_min=_FIVE)
async def halves(scene: Scene) -> AsyncIterator[str]:
    """Cut the leader with as many as are no majority off from the others: the leader sees some of its followers."""
    leader, others = await scene.leader_and_others()
    few = [leader, *others[: len(others) // 2 - 1]]
    many = others[len(others) // 2 - 1 :]
    async with _cut(scene, ((one, other) for one in few for other in many)):
        yield " ".join(node.id for node in few)


@fault(Need.LINKS)
async def leader_deaf(scene: Scene) -> AsyncIterator[str]:
    """Lose all that other nodes send to the leader; its own arrive."""
    leader, others = await scene.leader_and_others()
    async with _deaf(scene, ((leader, other) for other in others)):
        yield leader.id


@fault(Need.LINKS)
async def leader_mute(scene: Scene) -> AsyncIterator[str]:
    """Lose all that the leader sends to other nodes; theirs arrive."""
    leader, others = await scene.leader_and_others()
    async with _deaf(scene, ((other, leader) for other in others)):
        yield leader.id


@fault(Need.LINKS, nodes_min=_FIVE)
async def ring(scene: Scene) -> AsyncIterator[str]:
    """Let each node reach its two neighbours on a ring only: each sees another majority."""
    count = len(scene.nodes)
    chords = (
        (one, other)
        for (first, one), (second, other) in combinations(enumerate(scene.nodes), 2)
        if 1 < second - first < count - 1
    )
    async with _cut(scene, chords):
        yield "all"


@fault(Need.LINKS)
async def bridge(scene: Scene) -> AsyncIterator[str]:
    """Cut the nodes into two halves that only one node reaches both of."""
    nodes = list(scene.nodes)
    scene.random.shuffle(nodes)
    half = len(nodes) // 2
    async with _cut(scene, ((one, other) for one in nodes[:half] for other in nodes[half + 1 :])):
        yield nodes[half].id


@fault(Need.ISOLATION, hold_seconds=10.0)
async def flap_leader(scene: Scene) -> AsyncIterator[str]:
    """Cut whoever led at first off from all others for half a second, in every second."""
    leader = await scene.leader()

    async def step() -> AsyncIterator[float]:
        async with _isolated(scene, leader):
            yield _FLAP_SECONDS
        yield _FLAP_SECONDS

    async with scene.meanwhile(again_and_again(step)):
        yield leader.id
    await scene.heal_links()


@fault(Need.LINKS, hold_seconds=10.0, is_single=False)
async def storm(scene: Scene) -> AsyncIterator[str]:
    """Cut any directions of any links, and others again before a second has passed; a majority may be cut too."""

    async def step() -> AsyncIterator[float]:
        links = [(one, other) for one in scene.nodes for other in scene.nodes if one is not other]
        async with _deaf(scene, scene.random.sample(links, scene.random.randint(1, len(links) // 2))):
            yield scene.random.uniform(*_STORM_SECONDS)

    async with scene.meanwhile(again_and_again(step)):
        yield "all"
    await scene.heal_links()


@asynccontextmanager
async def _isolated(scene: Scene, node: Node) -> AsyncIterator[None]:
    """Cut a node off from all others, and heal all links at the end."""
    await scene.backend.isolate(node.number, [other.number for other in scene.nodes if other is not node])
    yield
    await scene.heal_links()


@asynccontextmanager
async def _deaf(scene: Scene, links: _Pairs) -> AsyncIterator[None]:
    """Lose what the second node of each pair sends to the first, and heal all links at the end."""
    for node, sender in links:
        await scene.deafen(node, sender)
    yield
    await scene.heal_links()


@asynccontextmanager
async def _cut(scene: Scene, pairs: _Pairs) -> AsyncIterator[None]:
    """Cut the nodes of each pair off from each other, and heal all links at the end."""
    both = [pair for one, other in pairs for pair in ((one, other), (other, one))]
    async with _deaf(scene, both):
        yield
