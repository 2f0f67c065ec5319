"""Faults of a node's disk as a whole: its power is cut, its device is gone, it is read-only, frozen or full.

Those that take the disk from its process strike alone: another fault would start the process without it, or wait for its
end.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from chaos.drills.backends import Need
from chaos.drills.faults.registry import Scene, fault, require_stopped
from chaos.drills.faults.snapshots import fall_behind
from chaos.drills.nodes import Node

_CHECKPOINT_SECONDS_MAX: Final = 10.0
_STATE_FILE: Final = "/data.mdb$"
_BETWEEN_SYNCS_SECONDS: Final = 0.02
_START_SECONDS_MAX: Final = 60.0
_STEPS_OF_INSTALLATION: Final = (
    ("/incoming-",),  # the copy is there, and not synced
    ("/installing.json$",),  # the marker is there, and not synced
    ("/snapshots$",),  # the marker's name is not synced
    ("/installing.json$", "/state$"),  # the state was replaced, its name is not synced
    ("/installing.json$", "/state$", ".segment$"),  # the log was not replaced yet
)
"""Syncs at which the power is cut; the ones before pass."""


# -- power ------------------------------------------------------------------------------------------------------------


@fault(Need.DISKS, is_alone=True)
async def power_leader(scene: Scene) -> AsyncIterator[str]:
    """Cut the power of the leader: what its disk was not asked to keep is lost. Switch it on again at the end."""
    leader = await scene.leader()
    await scene.cut_power(leader)
    yield leader.id
    await scene.restore_power(leader)


@fault(Need.DISKS, hold_seconds=1.0, is_single=False, is_alone=True)
async def power_all(scene: Scene) -> AsyncIterator[str]:
    """Cut the power of all nodes at one moment; switch it on again at the end."""
    await scene.cut_power(*scene.nodes)
    yield "all"
    await scene.restore_power(*scene.nodes)


@fault(Need.DISKS, Need.SHIMS, is_alone=True)
async def power_in_checkpoint(scene: Scene) -> AsyncIterator[str]:
    """Cut the power of the leader while it writes a checkpoint: before its state is synced, or just after."""
    leader = await scene.leader()
    shims = scene.shims(leader)
    await shims.hold_sync(_STATE_FILE, seconds=_CHECKPOINT_SECONDS_MAX)
    is_synced = scene.random.random() < 0.5  # a coin
    if is_synced:
        shims.set_syncs("")
        await asyncio.sleep(scene.random.uniform(0.0, _BETWEEN_SYNCS_SECONDS))
    await scene.cut_power(leader)
    shims.set_syncs("")
    yield f"{leader.id} {'after' if is_synced else 'before'} the sync"
    await scene.restore_power(leader)


@fault(Need.DISKS, hold_seconds=1.0, is_single=False, at_founding=True)
async def power_at_founding(scene: Scene) -> AsyncIterator[str]:
    """Cut the power of all nodes of an empty cluster while they found it; switch it on again at the end."""
    after_seconds = await scene.begin_founding()
    await scene.cut_power(*scene.nodes)
    yield f"all, {after_seconds:.2f} s"
    await scene.restore_power(*scene.nodes)


@fault(Need.DISKS, Need.SHIMS, hold_seconds=2.0, is_alone=True, short_logs=True)
async def power_in_snapshot(scene: Scene) -> AsyncIterator[str]:
    """Cut the power of a follower while it installs a snapshot; switch it on again at the end."""
    receiver = await fall_behind(scene)
    shims = scene.shims(receiver)
    steps = scene.random.choice(_STEPS_OF_INSTALLATION)
    receiver.start()
    for step in steps:
        await shims.hold_sync(step, seconds=_START_SECONDS_MAX)
    await scene.cut_power(receiver)
    shims.set_syncs("")
    yield f"{receiver.id} at {steps[-1]}"
    await scene.restore_power(receiver)


# -- devices ----------------------------------------------------------------------------------------------------------


@fault(Need.DISKS, is_alone=True)
async def gone_leader(scene: Scene) -> AsyncIterator[str]:
    """Let the leader's device vanish, so that the node must stop; put it back at the end, and start the node."""
    leader = await scene.leader()
    await asyncio.to_thread(scene.disk(leader).cut_power, is_journal_flushed=False)
    yield leader.id
    await require_stopped(leader)
    await scene.restore_power(leader)


@fault(Need.READ_ONLY, is_alone=True)
async def read_only_leader(scene: Scene) -> AsyncIterator[str]:
    """Let the leader's file system become read-only after an error; repair it at the end, and start the node."""
    leader = await scene.leader()
    await asyncio.to_thread(scene.disk(leader).become_read_only)
    yield leader.id
    await require_stopped(leader)
    await scene.restore_power(leader)


@fault(Need.DISKS, is_alone=True)
async def freeze_leader(scene: Scene) -> AsyncIterator[str]:
    """Freeze the leader's file system, as for a snapshot of its volume; thaw it at the end."""
    leader = await scene.leader()
    disk = scene.disk(leader)
    await asyncio.to_thread(disk.freeze)
    try:
        yield leader.id
    finally:
        disk.thaw()  # in any case: until then the process can't be ended


# -- space ------------------------------------------------------------------------------------------------------------


@fault(Need.SMALL_DISK, hold_seconds=10.0)
async def full_leader(scene: Scene) -> AsyncIterator[str]:
    """Fill the leader's disk; free it at the end, and start the node again if it ended."""
    leader = await scene.leader()
    _fill(leader)
    yield leader.id
    _free(leader)


@fault(Need.SMALL_DISK, hold_seconds=10.0, is_single=False)
async def full_followers(scene: Scene) -> AsyncIterator[str]:
    """Fill the disks of all nodes but the leader; free them at the end, and start again who has ended."""
    followers = await scene.followers()
    for node in followers:
        _fill(node)
    yield ", ".join(node.id for node in followers)
    for node in followers:
        _free(node)


@fault(Need.SMALL_DISK, hold_seconds=10.0, is_single=False)
async def full_all(scene: Scene) -> AsyncIterator[str]:
    """Fill all disks; free them at the end, and start again who has ended."""
    for node in scene.nodes:
        _fill(node)
    yield "all"
    for node in scene.nodes:
        _free(node)


def _fill(node: Node) -> None:
    """Take all that is free on a disk, while its node writes to it as well; never that of this machine."""
    path = _filling(node)
    node.was_full = True
    if not os.path.ismount(node.disk):
        raise RuntimeError(f"{node.id} has no disk of its own any more: a fault before this one was not healed")
    free = os.statvfs(node.disk)
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


def _free(node: Node) -> None:
    _filling(node).unlink(missing_ok=True)  # another fault may have filled it, too
    if not node.is_running:
        node.start()


def _filling(node: Node) -> Path:
    return node.disk / "filling"
