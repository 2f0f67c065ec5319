"""Faults of the syncs of a node's disk: they hang, are slow, or fail. They need no disk of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chaos.drills.backends import Need
from chaos.drills.faults.registry import Scene, fault, require_stopped
from chaos.drills.nodes import Node


@fault(Need.SHIMS, hold_seconds=10.0)
async def fsync_hang_leader(scene: Scene) -> AsyncIterator[str]:
    """Let every sync of the leader's disk hang until the end."""
    leader = await scene.leader()
    scene.shims(leader).set_syncs("hang")
    yield leader.id
    scene.shims(leader).set_syncs("")


@fault(Need.SHIMS)
async def fsync_slow_leader(scene: Scene) -> AsyncIterator[str]:
    """Let every sync of the leader's disk take 0.3 s longer until the end."""
    leader = await scene.leader()
    scene.shims(leader).set_syncs("slow")
    yield leader.id
    scene.shims(leader).set_syncs("")


@fault(Need.SHIMS, is_alone=True)
async def fsync_eio_leader(scene: Scene) -> AsyncIterator[str]:
    """Fail every sync of the leader's disk with EIO, so that the node must stop; start it again at the end.

    What was not synced is lost then, if the backend can do that.
    """
    async with _failing(scene, "fail") as leader:
        yield leader.id


@fault(Need.SHIMS, is_alone=True)
async def fsync_enospc_leader(scene: Scene) -> AsyncIterator[str]:
    """Fail every sync of the leader's disk with ENOSPC, so that the node must stop; start it again at the end."""
    async with _failing(scene, "full") as leader:
        yield leader.id


@asynccontextmanager
async def _failing(scene: Scene, mode: str) -> AsyncIterator[Node]:
    """Let the leader's syncs fail, which it must not survive; start it again without what was not synced."""
    leader = await scene.leader()
    scene.shims(leader).set_syncs(mode)
    yield leader
    await require_stopped(leader)
    scene.shims(leader).set_syncs("")
    if Need.DISKS in scene.backend.offers:
        await scene.cut_power(leader)
        await scene.restore_power(leader)
    else:
        leader.start()
