"""Faults of membership: nodes come, go, and are replaced under load, also while the leader is killed.

After each fault the cluster has as many members as before; a node in place of another has a new id on the same host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Final

from chaos.drills import members
from chaos.drills.backends import Need
from chaos.drills.faults.registry import Scene, fault
from chaos.drills.nodes import Node, remove_durably

_HOLD_SECONDS: Final = 1.0
_KILL_SECONDS_MAX: Final = 1.0
"""Drawn time from the start of a change to the kill in its midst."""


@fault(hold_seconds=_HOLD_SECONDS, is_alone=True)
async def add_node(scene: Scene) -> AsyncIterator[str]:
    """Add a node with an empty disk, and wait until it votes; remove it at the end."""
    node = scene.cluster.new_node(scene.cluster.spare)
    await members.add(scene.cluster, node)
    yield node.id
    await members.remove(scene.cluster, node)


@fault(hold_seconds=_HOLD_SECONDS, is_alone=True)
async def add_node_with_kill(scene: Scene) -> AsyncIterator[str]:
    """As `add_node`, and kill the leader while the node joins."""
    node = scene.cluster.new_node(scene.cluster.spare)
    killed = await _with_kill(scene, members.add(scene.cluster, node))
    yield f"{node.id}, {killed}"
    await members.remove(scene.cluster, node)


@fault(hold_seconds=_HOLD_SECONDS, is_alone=True)
async def remove_node(scene: Scene) -> AsyncIterator[str]:
    """Remove a follower; add a node with an empty disk in its place at the end."""
    node = (await scene.followers())[0]
    await members.remove(scene.cluster, node)
    yield node.id
    await _add_at(scene, node)


@fault(hold_seconds=_HOLD_SECONDS, is_single=False, is_alone=True)
async def remove_node_with_kill(scene: Scene) -> AsyncIterator[str]:
    """As `remove_node`, and kill the leader while the node leaves: 1 of 2 members then runs, if there were 3."""
    node = (await scene.followers())[0]
    killed = await _with_kill(scene, members.remove(scene.cluster, node))
    yield f"{node.id}, {killed}"
    await _add_at(scene, node)


@fault(hold_seconds=_HOLD_SECONDS, is_alone=True)
async def remove_leader(scene: Scene) -> AsyncIterator[str]:
    """Remove the leader; add a node with an empty disk in its place at the end."""
    leader = await scene.leader()
    await members.remove(scene.cluster, leader)
    yield leader.id
    await _add_at(scene, leader)


@fault(hold_seconds=_HOLD_SECONDS, is_single=False, is_alone=True)
async def remove_leader_with_kill(scene: Scene) -> AsyncIterator[str]:
    """As `remove_leader`, and kill its successor while it leaves."""
    leader = await scene.leader()
    killed = await _with_kill(scene, members.remove(scene.cluster, leader))
    yield f"{leader.id}, {killed}"
    await _add_at(scene, leader)


@fault(hold_seconds=_HOLD_SECONDS, is_alone=True)
async def replace_node(scene: Scene) -> AsyncIterator[str]:
    """Kill a follower and lose its disk; replace it by a node with an empty disk and a new id."""
    node = await _lose_disk(scene)
    await _replace(scene, node)
    yield node.id


@fault(hold_seconds=_HOLD_SECONDS, is_single=False, is_alone=True)
async def replace_node_with_kill(scene: Scene) -> AsyncIterator[str]:
    """As `replace_node`, and kill the leader meanwhile."""
    node = await _lose_disk(scene)
    killed = await _with_kill(scene, _replace(scene, node))
    yield f"{node.id}, {killed}"


@fault(Need.DISKS, hold_seconds=_HOLD_SECONDS, is_alone=True)
async def power_in_change(scene: Scene) -> AsyncIterator[str]:
    """As `add_node`, and cut the leader's power while the node joins; switch it on again at once."""

    async def cut_power(leader: Node) -> None:
        await scene.cut_power(leader)
        await scene.restore_power(leader)

    node = scene.cluster.new_node(scene.cluster.spare)
    struck = await _meanwhile(scene, members.add(scene.cluster, node), cut_power)
    yield f"{node.id}, power of {struck} cut"
    await members.remove(scene.cluster, node)


async def _lose_disk(scene: Scene) -> Node:
    node = (await scene.followers())[0]
    node.kill()
    remove_durably(node.data)
    return node


async def _replace(scene: Scene, node: Node) -> None:
    await members.remove(scene.cluster, node)
    await _add_at(scene, node)


async def _add_at(scene: Scene, former: Node) -> None:
    await members.add(scene.cluster, scene.cluster.new_node(former.number))


async def _with_kill(scene: Scene, change: Coroutine[None, None, None]) -> str:
    """Make a change, kill whoever leads meanwhile, and start it again at once; return whom, in words."""

    async def kill(leader: Node) -> None:
        leader.kill()
        leader.start()

    return f"{await _meanwhile(scene, change, kill)} killed"


async def _meanwhile(
    scene: Scene, change: Coroutine[None, None, None], strike: Callable[[Node], Awaitable[None]]
) -> str:
    """Make a change, strike whoever leads in its midst, and return who that was; both are done then."""
    changing = asyncio.create_task(change)
    try:
        await asyncio.sleep(_KILL_SECONDS_MAX * scene.random.random())
        leader = await scene.leader()
        await strike(leader)
        await changing
    finally:
        changing.cancel()
    return leader.id
