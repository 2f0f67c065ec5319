"""Faults of processes: killed, paused, restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from chaos.drills.faults.registry import Scene, fault

_HEALTHY_SECONDS: Final = 60.0
_CROWDED_SECONDS: Final = 4.0
"""Time for a crowd to start and to connect."""


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
    await asyncio.sleep(_CROWDED_SECONDS)
    leader = await scene.leader()
    leader.kill()
    yield leader.id
    leader.start()
    for crowd in scene.crowds:
        await asyncio.to_thread(crowd.stop)


@fault(hold_seconds=0.5)
async def rolling_restart(scene: Scene) -> AsyncIterator[str]:
    """Stop each node with SIGTERM and start it again, one after the other."""
    for node in scene.nodes:
        if not await node.stop():
            raise RuntimeError(f"{node.id} did not end on SIGTERM")
        node.start()
        if missing := await scene.cluster.healthy(seconds=_HEALTHY_SECONDS):
            raise RuntimeError(f"after the restart of {node.id}: {missing}")
    yield "each"


@fault()
async def kill_worker(scene: Scene) -> AsyncIterator[str]:
    """Kill a worker process of the SDK with SIGKILL, and its runs with it; start it again at the end."""
    worker = scene.random.choice(scene.workers)
    worker.kill()
    yield worker.name
    worker.start()
