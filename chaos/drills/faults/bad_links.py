"""Faults of the network between nodes: links that are bad rather than cut. Links of users stay as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from itertools import combinations, permutations
from typing import Final

from chaos.drills.backends import Need, Quality
from chaos.drills.faults.registry import Scene, again_and_again, fault
from chaos.drills.nodes import Node

_SLOW: Final = Quality(delay_ms=60.0, jitter_ms=40.0)
_LOSSY: Final = Quality(delay_ms=5.0, jitter_ms=5.0, lost=0.05, repeated=0.02)
_REORDERING: Final = Quality(delay_ms=5.0, jitter_ms=30.0, repeated=0.05, overtaking=0.3)
_NARROW: Final = Quality(delay_ms=5.0, bytes_per_second=64_000.0)
_TOO_SLOW: Final = Quality(delay_ms=400.0, jitter_ms=50.0)
"""Beyond what the election timeouts of a drill allow."""
_RESET_SECONDS: Final = 0.7
_HOLD_SECONDS: Final = 10.0


@fault(Need.SLOW_LINKS, hold_seconds=_HOLD_SECONDS)
async def slow_links(scene: Scene) -> AsyncIterator[str]:
    """Let each packet between nodes take 60 to 100 ms more in each direction."""
    await _worsen(scene, permutations(scene.nodes, 2), _SLOW)
    yield "all"
    await scene.heal_links()


@fault(Need.LOSSY_LINKS, hold_seconds=_HOLD_SECONDS)
async def lossy_links(scene: Scene) -> AsyncIterator[str]:
    """Lose 5 % of the packets between nodes, and deliver 2 % twice."""
    await _worsen(scene, permutations(scene.nodes, 2), _LOSSY)
    yield "all"
    await scene.heal_links()


@fault(Need.LOSSY_LINKS, hold_seconds=_HOLD_SECONDS)
async def reordering_links(scene: Scene) -> AsyncIterator[str]:
    """Let 30 % of the packets between nodes overtake others, and deliver 5 % twice."""
    await _worsen(scene, permutations(scene.nodes, 2), _REORDERING)
    yield "all"
    await scene.heal_links()


@fault(Need.SLOW_LINKS, hold_seconds=_HOLD_SECONDS)
async def narrow_leader(scene: Scene) -> AsyncIterator[str]:
    """Let 64 kB/s pass on each link from and to the leader."""
    leader, others = await scene.leader_and_others()
    await _worsen(scene, _around(leader, others), _NARROW)
    yield leader.id
    await scene.heal_links()


@fault(Need.SLOW_LINKS, hold_seconds=_HOLD_SECONDS)
async def delay_leader(scene: Scene) -> AsyncIterator[str]:
    """Let each packet from and to the leader take 400 ms more: longer than its timeouts allow."""
    leader, others = await scene.leader_and_others()
    await _worsen(scene, _around(leader, others), _TOO_SLOW)
    yield leader.id
    await scene.heal_links()


@fault(Need.SLOW_LINKS, hold_seconds=_HOLD_SECONDS)
async def resets(scene: Scene) -> AsyncIterator[str]:
    """Break the connections of one pair of nodes after the other with RST."""

    async def step() -> AsyncIterator[float]:
        one, other = scene.random.choice(list(combinations(scene.nodes, 2)))
        await scene.backend.reset(one.number, other.number)
        yield _RESET_SECONDS

    async with scene.meanwhile(again_and_again(step)):
        yield "all"
    await scene.heal_links()


def _around(leader: Node, others: Iterable[Node]) -> list[tuple[Node, Node]]:
    return [pair for other in others for pair in ((leader, other), (other, leader))]


async def _worsen(scene: Scene, links: Iterable[tuple[Node, Node]], quality: Quality) -> None:
    await scene.backend.worsen({(sender.number, receiver.number): quality for sender, receiver in links})
