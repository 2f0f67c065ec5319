"""Faults of clocks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from chaos.drills.backends import Need
from chaos.drills.faults.registry import Scene, fault

_HOUR_SECONDS: Final = 3600.0


@fault(Need.SHIMS, hold_seconds=10.0)
async def clock_leader(scene: Scene) -> AsyncIterator[str]:
    """Put the leader's wall clock an hour ahead or back, and right again at the end."""
    leader = await scene.leader()
    ahead = scene.random.choice((_HOUR_SECONDS, -_HOUR_SECONDS))
    scene.shims(leader).set_clock(ahead)
    yield f"{leader.id} {ahead:+.0f} s"
    scene.shims(leader).set_clock(0.0)
