"""Start the cluster of a drill; faults of the founding strike before there is any load.

Each of these has a cluster of its own to strike: an empty one, which it starts. All but the last are forgotten, and the
last one becomes that of the drill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chaos.checkers.history.events import Nemesis
from chaos.drills.faults import Fault, Scene
from chaos.drills.history.recorder import Recorder
from chaos.drills.names import KEPT
from chaos.drills.nodes import remove_durably
from chaos.drills.observed_node import observed_file
from chaos.drills.rounds import Round

_US = 1_000_000
_START_SECONDS_MAX = 180.0
"""Long, since it judges the machine, not the nodes."""


async def found(scene: Scene, faults: Sequence[Fault], recorder: Recorder) -> list[Round]:
    """Start all nodes, or let faults do so; return a round for each fault. Raises `TimeoutError` if there is no cluster."""
    rounds = []
    for fault in faults:
        _forget(scene)
        rounds.append(await _round(scene, fault, recorder))
    if not faults:
        for node in scene.nodes:
            node.start()
    if missing := await scene.cluster.healthy(seconds=_START_SECONDS_MAX):
        raise TimeoutError(f"the cluster did not start: {missing}; see {scene.nodes[0].log.parent}/n*.log")
    return rounds


async def _round(scene: Scene, fault: Fault, recorder: Recorder) -> Round:
    """Let a fault strike. Its figure is the time from the heal until the cluster is there."""
    begin = recorder.add(Nemesis, fault=fault.name, phase="start")
    violations: list[str] = []
    target = ""
    try:
        async with fault.strike(scene) as target:
            await asyncio.sleep(fault.hold_seconds)
    except (OSError, RuntimeError) as error:
        violations.append(f"the fault could not be made, or not be healed: {error}")
    heal = recorder.add(Nemesis, fault=fault.name, phase="stop", target=target)
    if missing := await scene.cluster.healthy():
        violations.append(f"no cluster was founded: {missing}")
    end = recorder.t
    return Round(
        asked=fault.parts,
        faults=fault.parts,
        target=target,
        begin=begin,
        heal=heal,
        end=end,
        write_gap_seconds=(end - heal) / _US,
        sdk_wait_seconds=0.0,
        violations=tuple(violations),
    )


def _forget(scene: Scene) -> None:
    for node in scene.nodes:
        node.kill()
        for part in (node.data, node.disk / KEPT):
            remove_durably(part)
        observed_file(node.id, node.log.parent).unlink(missing_ok=True)
