"""Faults of a follower that only a snapshot helps; the first node has the whole log, and would send none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from chaos.drills.backends import Need, Quality
from chaos.drills.faults.registry import Scene, fault
from chaos.drills.nodes import Node

_COMPACTION_SECONDS_MAX: Final = 180.0
_POLL_SECONDS: Final = 0.01
_NARROW: Final = Quality(delay_ms=20.0, bytes_per_second=250_000.0)
"""A piece of a snapshot and the entries of the load share it with heartbeats."""
_READY: Final = 200
"""HTTP's."""


async def fall_behind(scene: Scene) -> Node:
    """Return a follower that was killed, once the leader's log begins behind its end; needs `short_logs`."""
    _, sender, receiver, *_ = scene.nodes
    await scene.cluster.transfer(sender)
    receiver.kill()
    newest = max((sender.data / "journal").glob("*.segment"))
    async with asyncio.timeout(_COMPACTION_SECONDS_MAX):
        while newest.exists():
            await asyncio.sleep(_POLL_SECONDS)
    return receiver


@fault(Need.SLOW_LINKS, hold_seconds=30.0, is_alone=True, short_logs=True)
async def narrow_snapshot(scene: Scene) -> AsyncIterator[str]:
    """Let a follower return that needs a snapshot, and 250 kB/s pass on each of its links; it must be ready by the end."""
    receiver = await fall_behind(scene)
    others = [node for node in scene.nodes if node is not receiver]
    links = [pair for other in others for pair in ((other, receiver), (receiver, other))]
    await scene.backend.worsen({(sender.number, to.number): _NARROW for sender, to in links})
    receiver.start()
    yield receiver.id
    status, document = await scene.cluster.get(receiver, "/readyz")
    await scene.heal_links()
    if status != _READY:
        raise RuntimeError(f"{receiver.id} was not helped over a narrow link: {document.get('detail')}")
