"""A node makes backups of its state while it is written, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from raftsched.consensus.machine import ReplicatedState
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import encode_batch
from raftsched.core.records.ids import TimeMs
from raftsched.encryption.cipher import NO_KEYS
from raftsched.errors import BackupUnderWay, InvariantBroken, StorageFull, Unavailable
from raftsched.node.backups import Backups
from raftsched.storage import backup
from raftsched.storage.directory import open_readonly
from raftsched.storage.store.lmdb_store import DATA_FILE
from tests.core.scene import START_MS, submit_operation

FREE_BYTES = 1 << 30


class World:
    def __init__(self, directory: Path) -> None:
        (directory / "snapshots").mkdir()
        self.directory = directory
        self.machine = ReplicatedState(directory / "state", map_bytes=1 << 24)
        self.free_bytes = FREE_BYTES
        self.backups = Backups(
            self.machine,
            cluster="c",
            node_id="n1",
            directory=directory / "snapshots",
            cipher=NO_KEYS,
            reserve_bytes=1 << 20,
            now_ms=lambda: START_MS,
            free_bytes=lambda: self.free_bytes,
        )

    def apply(self, operation: Operation) -> None:
        index = self.machine.applied_index + 1
        self.machine.apply(index, 1, encode_batch(TimeMs(START_MS), (operation,)))

    def submit(self, numbers: range) -> None:
        for number in numbers:
            self.apply(submit_operation(number))

    def left(self) -> list[str]:
        return [path.name for path in (self.directory / "snapshots").iterdir()]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.machine.state.close()


@pytest.fixture
async def checkpoints(world: World) -> AsyncIterator[None]:
    """Make checkpoints, as the replica does."""

    async def keep() -> None:
        while True:
            world.machine.checkpoint()
            await asyncio.sleep(0.01)

    task = asyncio.create_task(keep())
    yield
    task.cancel()


async def test_backup_holds_all_that_was_applied_before_it_was_asked_for(
    world: World, checkpoints: None, tmp_path: Path
) -> None:
    world.submit(range(1, 51))
    taking = asyncio.create_task(world.backups.take())
    while not taking.done():
        world.submit(range(world.machine.applied_index + 1, world.machine.applied_index + 3))
        await asyncio.sleep(0.005)
    made = taking.result()
    (tmp_path / "backup").write_bytes(b"".join(made.parts()))
    made.close()
    manifest = backup.extract(tmp_path / "backup", tmp_path / DATA_FILE)
    assert 50 <= manifest.applied_index < world.machine.applied_index, "it went on while the copy was made"
    state = open_readonly(tmp_path / DATA_FILE)
    assert state.applied_index == sum(1 for _ in state.all_jobs()) == manifest.applied_index
    state.close()
    assert world.left() == []


async def test_one_backup_is_made_at_a_time_and_one_that_nobody_waits_for_is_dropped(
    world: World, checkpoints: None
) -> None:
    world.submit(range(1, 3))
    copying, go_on = threading.Event(), threading.Event()
    copy_to = world.machine.copy_to

    def slow_copy(path: Path) -> None:
        copying.set()
        go_on.wait(30)
        copy_to(path)

    world.machine.copy_to = slow_copy  # type: ignore[method-assign]  # a large state
    taking = asyncio.create_task(world.backups.take())
    await asyncio.get_running_loop().run_in_executor(None, copying.wait, 30)
    with pytest.raises(BackupUnderWay):
        await world.backups.take()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    with pytest.raises(BackupUnderWay):
        await world.backups.take()
    go_on.set()
    async with asyncio.timeout(30):
        while world.backups._is_busy:
            await asyncio.sleep(0.01)
    assert world.left() == []
    (await world.backups.take()).close()


async def test_backup_is_refused_if_the_disk_has_no_room_or_the_node_holds_nothing(
    world: World, checkpoints: None
) -> None:
    with pytest.raises(Unavailable, match="empty"):
        await world.backups.take()
    world.submit(range(1, 3))
    world.free_bytes = (1 << 20) + 4_096
    with pytest.raises(StorageFull, match="reserve of 1 MiB"):
        await world.backups.take()
    world.free_bytes = FREE_BYTES
    (await world.backups.take()).close()


async def test_damaged_state_stops_the_node_and_becomes_no_backup(world: World, checkpoints: None) -> None:
    world.submit(range(1, 3))
    copy_to = world.machine.copy_to

    def rotten_copy(path: Path) -> None:
        copy_to(path)
        data = bytearray(path.read_bytes())
        data[data.index(b"a@example.org")] ^= 1
        path.write_bytes(data)

    world.machine.copy_to = rotten_copy  # type: ignore[method-assign]  # a disk that has changed a bit
    with pytest.raises(InvariantBroken, match="damaged"):
        await world.backups.take()
    assert world.left() == []
