"""Rounds of regions: nothing but load, as much load as can be, and a region that is cut off from the world."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from chaos.drills.backends import Need
from chaos.drills.faults import Fault, Scene
from chaos.drills.regions.world import NODES, REGIONS, USERS, region_of

_FLAT_OUT_SECONDS: Final = 15.0
_CUT_SECONDS: Final = 15.0
_STARTED_SECONDS: Final = 6.0
"""Time for processes to start, and to connect."""
_ASKED: Final = 3


@dataclass(slots=True)
class Notes:
    """Facts that rounds note beside the history."""

    terms: list[tuple[str, int, int]] = field(default_factory=list)
    """(fault, term at its begin, term at its end) of rounds that must elect nobody."""
    problems: set[str] = field(default_factory=set)
    """Problems that a node sees in a cluster without any."""


def calm(seconds: float, leader: int, notes: Notes) -> Fault:
    """Return the round in which nothing happens, while `leader`, a position among `REGIONS`, leads."""

    async def strike(scene: Scene) -> AsyncIterator[str]:
        await scene.cluster.transfer(scene.nodes[leader])
        before = await _term(scene)
        yield REGIONS[leader]
        notes.terms.append(("calm", before, await _term(scene)))
        notes.problems |= await _problems(scene)

    return _fault(strike, "calm", seconds)


def flat_out(notes: Notes) -> Fault:
    """Return the round in which users of all regions wait for nothing but their answers."""

    async def strike(scene: Scene) -> AsyncIterator[str]:
        before = await _term(scene)
        for crowd in scene.crowds:
            crowd.start()
        await asyncio.sleep(_STARTED_SECONDS)
        yield "all"
        await asyncio.gather(*(asyncio.to_thread(crowd.stop) for crowd in scene.crowds))
        notes.terms.append(("flat_out", before, await _term(scene)))

    return _fault(strike, "flat_out", _FLAT_OUT_SECONDS)


def cut_region() -> Fault:
    """Return the round in which a region that does not lead is cut off, with its users and its worker."""

    async def strike(scene: Scene) -> AsyncIterator[str]:
        (follower, *_) = await scene.followers()
        await _cut(scene, region_of(follower.number))
        yield REGIONS[region_of(follower.number)]
        await scene.heal_links()

    return _fault(strike, "cut_region", _CUT_SECONDS)


def cut_leader_region() -> Fault:
    """Return the round in which the region that leads is cut off, with its users and its worker."""

    async def strike(scene: Scene) -> AsyncIterator[str]:
        leader = await scene.leader()
        await _cut(scene, region_of(leader.number))
        yield REGIONS[region_of(leader.number)]
        await scene.heal_links()

    return _fault(strike, "cut_leader_region", _CUT_SECONDS)


def _fault(strike: Callable[[Scene], AsyncIterator[str]], name: str, hold_seconds: float) -> Fault:
    needs = frozenset({Need.PROCESSES, Need.LINKS, Need.LOSSY_LINKS})
    return Fault(name, asynccontextmanager(strike), needs, name, hold_seconds, nodes_min=len(NODES), is_single=False)


async def _cut(scene: Scene, region: int) -> None:
    hosts = (*NODES, *USERS)
    inside = [host for host in hosts if region_of(host) == region]
    outside = [host for host in hosts if region_of(host) != region]
    for receiver, senders in (*((host, outside) for host in inside), *((host, inside) for host in outside)):
        for sender in senders:
            await scene.backend.cut(sender, receiver)


async def _term(scene: Scene) -> int:
    leader = await scene.leader()
    _, document = await scene.cluster.get(leader, "/api/v1/cluster")
    return int(document["term"])


async def _problems(scene: Scene) -> set[str]:
    """Return the problems that nodes tell of each time when they are asked: a lost packet may cause one once."""
    told = []
    for _ in range(_ASKED):
        answers = [await scene.cluster.get(node, "/api/v1/cluster") for node in scene.nodes]
        told.append({problem["text"] for _, document in answers for problem in document.get("problems", ())})
    return set.intersection(*told)
