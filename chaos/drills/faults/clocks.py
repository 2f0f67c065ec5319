"""Faults of wall clocks. Monotonic ones stay as they are, and nothing but due times may rest on the others."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Final

from chaos.drills.backends import Need
from chaos.drills.faults.registry import Scene, again_and_again, fault

_DRIFT: Final = 0.05
"""The most by which a clock that drifts is fast or slow."""
_DRIFT_STEP_SECONDS: Final = 0.05
_JUMP_SECONDS: Final = (0.1, 0.8)
"""Between two jumps: drawn from this range."""
_HOUR_SECONDS: Final = 3600.0


@fault(Need.SHIMS, hold_seconds=10.0)
async def clock_leader(scene: Scene) -> AsyncIterator[str]:
    """Put the leader's wall clock an hour ahead or back, and right again at the end."""
    leader = await scene.leader()
    ahead = scene.random.choice((_HOUR_SECONDS, -_HOUR_SECONDS))
    scene.shims(leader).set_clock(ahead)
    yield f"{leader.id} {ahead:+.0f} s"
    scene.shims(leader).set_clock(0.0)


@fault(Need.SHIMS, hold_seconds=10.0)
async def clock_drift(scene: Scene) -> AsyncIterator[str]:
    """Let each node's wall clock be fast or slow by up to 5 %; put all right at the end."""
    drifts = [(scene.shims(node), scene.random.uniform(-_DRIFT, _DRIFT)) for node in scene.nodes]
    begin = time.monotonic()

    async def step() -> AsyncIterator[float]:
        for shims, drift in drifts:
            shims.set_clock(drift * (time.monotonic() - begin))
        yield _DRIFT_STEP_SECONDS

    async with scene.meanwhile(again_and_again(step)):
        yield ", ".join(f"{drift:+.1%}" for _, drift in drifts)
    for shims, _ in drifts:
        shims.set_clock(0.0)


@fault(Need.SHIMS, hold_seconds=10.0)
async def clock_jumps(scene: Scene) -> AsyncIterator[str]:
    """Let a node's wall clock jump to anywhere within an hour of the right time, again and again."""
    node = scene.random.choice(scene.nodes)

    async def step() -> AsyncIterator[float]:
        scene.shims(node).set_clock(scene.random.uniform(-_HOUR_SECONDS, _HOUR_SECONDS))
        yield scene.random.uniform(*_JUMP_SECONDS)

    async with scene.meanwhile(again_and_again(step)):
        yield node.id
    scene.shims(node).set_clock(0.0)
