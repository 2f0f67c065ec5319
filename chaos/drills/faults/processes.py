"""Faults of processes: killed, paused, restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from chaos.drills.faults.registry import Scene, again_and_again, fault
from chaos.drills.nodes import Node

_FOUNDED_SECONDS: Final = 60.0
_CROWDED_SECONDS: Final = 4.0
"""Time for a crowd to start and to connect."""
_POLL_SECONDS: Final = 0.02
_FOUNDING_SECONDS_MAX: Final = 1.5
"""Drawn time from the moment at which a directory is made to the kill of its node."""
_STORM_SECONDS: Final = (0.2, 1.5)
"""Between two kills: drawn from this range."""


@fault()
async def kill_leader(scene: Scene) -> AsyncIterator[str]:
    """Kill the leader with SIGKILL; start it again at the end."""
    leader = await scene.leader()
    leader.kill()
    yield leader.id
    leader.start()


@fault()
async def kill_follower(scene: Scene) -> AsyncIterator[str]:
    """Kill a follower with SIGKILL; start it again at the end."""
    follower = (await scene.followers())[0]
    follower.kill()
    yield follower.id
    follower.start()


@fault(hold_seconds=1.0, is_single=False)
async def kill_all(scene: Scene) -> AsyncIterator[str]:
    """Kill all nodes at once with SIGKILL; start them again at the end."""
    for node in scene.nodes:
        node.kill()
    yield "all"
    for node in scene.nodes:
        node.start()


@fault(hold_seconds=2.0, is_single=False)
async def kill_majority(scene: Scene) -> AsyncIterator[str]:
    """Kill the leader and so many followers that no majority is left; start them again at the end."""
    struck = await _majority(scene)
    for node in struck:
        node.kill()
    yield _ids(struck)
    for node in struck:
        node.start()


@fault(hold_seconds=10.0, is_single=False)
async def kill_storm(scene: Scene) -> AsyncIterator[str]:
    """Kill a random node, and start it again at once, again and again in quick succession."""

    async def step() -> AsyncIterator[float]:
        node = scene.random.choice(scene.nodes)
        node.kill()
        node.start()
        yield scene.random.uniform(*_STORM_SECONDS)

    async with scene.meanwhile(again_and_again(step)):
        yield "any"


@fault(hold_seconds=0.0, is_single=False, at_founding=True)
async def kill_founding(scene: Scene) -> AsyncIterator[str]:
    """Start the nodes of a new cluster, and kill each once its directory is made; start it again at once."""

    async def found(node: Node) -> None:
        node.start()
        while not (node.data / "node.json").exists():
            await asyncio.sleep(_POLL_SECONDS)
        await asyncio.sleep(_FOUNDING_SECONDS_MAX * scene.random.random())
        node.kill()
        node.start()

    async with asyncio.timeout(_FOUNDED_SECONDS):
        await asyncio.gather(*map(found, scene.nodes))
    yield "each"


@fault()
async def pause_leader(scene: Scene) -> AsyncIterator[str]:
    """Stop the leader with SIGSTOP, longer than a lease; continue it at the end."""
    leader = await scene.leader()
    leader.pause()
    yield leader.id
    leader.resume()


@fault(hold_seconds=10.0)
async def herd(scene: Scene) -> AsyncIterator[str]:
    """Let a hundred more clients submit, kill the leader among them, and start it again at the end."""
    for crowd in scene.crowds:
        crowd.start()
    try:
        await asyncio.sleep(_CROWDED_SECONDS)
        leader = await scene.leader()
        leader.kill()
        yield leader.id
        leader.start()
    finally:  # also if there is no leader: a crowd that is left submits more than the workers can end
        for crowd in scene.crowds:
            await asyncio.to_thread(crowd.stop)


@fault()
async def pause_follower(scene: Scene) -> AsyncIterator[str]:
    """Stop a follower with SIGSTOP; continue it at the end."""
    follower = (await scene.followers())[0]
    follower.pause()
    yield follower.id
    follower.resume()


@fault(is_single=False)
async def pause_majority(scene: Scene) -> AsyncIterator[str]:
    """Stop the leader and so many followers with SIGSTOP that no majority is left; continue them at the end."""
    struck = await _majority(scene)
    for node in struck:
        node.pause()
    yield _ids(struck)
    for node in struck:
        node.resume()


@fault(is_single=False)
async def pause_all(scene: Scene) -> AsyncIterator[str]:
    """Stop all nodes with SIGSTOP, longer than a lease; continue them at the end."""
    for node in scene.nodes:
        node.pause()
    yield "all"
    for node in scene.nodes:
        node.resume()


@fault(hold_seconds=0.5, is_alone=True)
async def rolling_restart(scene: Scene) -> AsyncIterator[str]:
    """Stop each node with SIGTERM and start it again, one after the other."""
    for node in scene.nodes:
        await scene.restart(node)
    yield "each"


@fault()
async def kill_worker(scene: Scene) -> AsyncIterator[str]:
    """Kill a worker process of the SDK with SIGKILL, and its runs with it; start it again at the end."""
    worker = scene.random.choice(scene.workers)
    worker.kill()
    yield worker.name
    worker.start()


@fault(hold_seconds=8.0)
async def pause_worker(scene: Scene) -> AsyncIterator[str]:
    """Stop a worker process of the SDK with SIGSTOP, longer than its leases; continue it at the end."""
    worker = scene.random.choice(scene.workers)
    worker.pause()
    yield worker.name
    worker.resume()


async def _majority(scene: Scene) -> list[Node]:
    """Return the leader and as many followers as make a majority with it."""
    return [await scene.leader(), *(await scene.followers())[: len(scene.nodes) // 2]]


def _ids(nodes: list[Node]) -> str:
    return " ".join(node.id for node in nodes)
