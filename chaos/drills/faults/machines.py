"""Faults of a machine: its disk and its clock."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from chaos.drills.backends import Need
from chaos.drills.faults.registry import Scene, fault
from chaos.drills.nodes import Node
from chaos.drills.shims import NodeShims

_HOUR_SECONDS: Final = 3600.0


@fault(Need.SMALL_DISK, hold_seconds=10.0)
async def full_leader(scene: Scene) -> AsyncIterator[str]:
    """Fill the leader's disk; free it at the end, and start the node again if it ended."""
    leader = await scene.leader()
    filling = leader.disk / "filling"
    _fill(filling)
    yield leader.id
    filling.unlink()
    if not leader.is_running:
        leader.start()


def _fill(path: Path) -> None:
    """Take all that is free on a disk, while others write to it as well."""
    free = os.statvfs(path.parent)
    end, size = 0, free.f_bavail * free.f_frsize
    with path.open("wb") as file:
        while size >= free.f_frsize:
            try:
                os.posix_fallocate(file.fileno(), end, size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
            else:
                end += size


@fault(Need.SHIMS, hold_seconds=10.0)
async def clock_leader(scene: Scene) -> AsyncIterator[str]:
    """Put the leader's wall clock an hour ahead or back, and right again at the end."""
    leader = await scene.leader()
    ahead = scene.random.choice((_HOUR_SECONDS, -_HOUR_SECONDS))
    _shims(leader).set_clock(ahead)
    yield f"{leader.id} {ahead:+.0f} s"
    _shims(leader).set_clock(0.0)


@fault(Need.SHIMS, hold_seconds=10.0)
async def fsync_hang_leader(scene: Scene) -> AsyncIterator[str]:
    """Let every sync of the leader's disk hang until the end."""
    leader = await scene.leader()
    _shims(leader).hang_syncs()
    yield leader.id
    _shims(leader).free_syncs()


def _shims(node: Node) -> NodeShims:
    assert node.shims is not None, "the fault needs shims"
    return node.shims
