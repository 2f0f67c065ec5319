"""Planted bugs: drills whose nodes break a promise, each of which the verdict must find."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.drills.backends import Backend, Need
from chaos.drills.drill import Plan, Result, Say, run
from chaos.drills.faults import FAULTS, Fault, Scene
from chaos.drills.names_node import NO_DIRECTORY_SYNCS
from chaos.drills.observed_node import OBSERVED_NODE

_UNSYNCED_SECONDS: Final = 3.0
"""Shorter than a kernel leaves changes in memory by itself."""


@asynccontextmanager
async def _power_after_lies(scene: Scene) -> AsyncIterator[str]:
    """Sync all disks for real, then cut the power of all a few seconds later: all since then is lost."""
    for node in scene.nodes:
        await asyncio.to_thread(subprocess.run, ["sync", "--file-system", str(node.disk)], check=True)
    await asyncio.sleep(_UNSYNCED_SECONDS)
    await scene.cut_power(*scene.nodes)
    yield "all"
    await scene.restore_power(*scene.nodes)


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, and the fault that shows it."""

    name: str
    about: str
    fault: Fault
    entry: Sequence[str] = OBSERVED_NODE
    bug: str = ""
    """As `Plan.bug`."""
    syncs: str = ""
    """Mode of all syncs from the first start on (`shims/sync.c`)."""
    round_count: int = 1
    """More than one if a single fault need not show it."""


PLANTED: Final = (
    Planted(
        "no_fsync",
        "no sync is done; then the power of all nodes is cut",
        Fault(
            "power_after_lies",
            _power_after_lies,
            frozenset({Need.PROCESSES, Need.DISKS, Need.SHIMS}),
            "",
            hold_seconds=1.0,
            is_single=False,
        ),
        syncs="lie",
    ),
    Planted(
        "no_directory_sync",
        "no directory is synced; then all nodes lose the names that were not",
        FAULTS["names_all"],
        entry=NO_DIRECTORY_SYNCS,
    ),
    Planted(
        "local_read",
        "a node answers reads from its own state, whoever leads; then the leader is cut off",
        FAULTS["isolate_leader"],
        bug="reads_without_a_majority",
        round_count=3,
    ),
    Planted(
        "no_term_wait",
        "a new leader ends leases at once, and does not wait for a term; then the leader is killed",
        FAULTS["kill_leader"],
        bug="expires_early_after_an_election",
        round_count=4,
    ),
)


async def find(planted: Planted, seed: int, out: Path, backend: Backend, say: Say) -> Result:
    """Run a drill with a planted bug. What keeps the cluster from being healthy again is among its violations."""
    out.mkdir(parents=True)
    plan = Plan(
        [planted.fault] * planted.round_count, 3, seed, out, planted.entry, syncs=planted.syncs, bug=planted.bug
    )
    return await run(plan, backend, say)


def found_by(result: Result) -> str:
    """Return what has found the bug, with the number of violations."""
    properties = {name: len(found) for name, found in (result.report.violations if result.report else {}).items()}
    others = len(result.violations) - sum(properties.values())
    parts = [f"{name} {count}" for name, count in properties.items() if count]
    parts += [f"{others} of the drill itself"] if others else []
    return f"found by {', '.join(parts)}" if parts else "MISSED"
