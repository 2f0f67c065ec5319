"""A stopped node with work in every state, and a backup of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.machine import ReplicatedState
from raftsched.consensus.ports import COMMAND, CONFIGURATION, NO_OP
from raftsched.consensus.raft.membership.members import Member, Membership, encode_membership
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import LeaseJobs, RecordOutcome, encode_batch
from raftsched.core.operations.schedules import SaveSchedule
from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.core.records.job import AttemptEnd
from raftsched.core.records.schedule import Misfire, Overlap
from raftsched.disk import SystemDisk
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.node.identity import DirectoryClaim
from raftsched.node.new_cluster.founder import Founder
from raftsched.storage import backup
from raftsched.storage.state import State
from tests.core.scene import START_MS, job_id, submit_operation
from tests.core.schedule_scene import OWN_ID, TEMPLATE, TENANT, TIMING

MAP_BYTES = 1 << 24
NOW_MS = START_MS + 86_400_000
FOUNDER = Founder(
    cluster="c-2",
    node_id="n1",
    raft="127.0.0.1:8401",
    api="127.0.0.1:8400",
    actor="restore",
    detail="restored from a test",
    pauses_schedules=True,
)
HISTORY: tuple[Operation, ...] = (
    *(submit_operation(number) for number in range(1, 5)),
    LeaseJobs("w1", 10_000, (job_id(1), job_id(2))),
    RecordOutcome(job_id(1), 1, FencingToken(1), AttemptEnd.COMPLETED),
    SaveSchedule(
        OWN_ID, TENANT, "report", TIMING, TEMPLATE, Overlap.SKIP, Misfire.RUN_ONCE, 0, TimeMs(START_MS + 60_000), b"f"
    ),
)
MEMBERS = Membership.of(Member(f"n{n}", f"127.0.0.1:840{n}", f"127.0.0.1:841{n}", f"disk{n}") for n in (1, 2, 3))


def make_node(directory: Path, *, applied: int | None = None, cipher: Cipher = NO_KEYS) -> Path:
    """Make the directory of a stopped node, whose state holds the first `applied` entries; None = all."""
    claim = DirectoryClaim(directory, node_id="n1", cluster="c", keys=cipher.keys)
    if cipher:
        claim.need_key(cipher.checks[0])
    journal = Journal(SystemDisk(directory / "journal"), register=claim, cipher=cipher)
    machine = ReplicatedState(directory / "state", map_bytes=MAP_BYTES, cipher=cipher)
    configuration = CONFIGURATION + encode_membership(MEMBERS)
    commands = [NO_OP, configuration, *(COMMAND + encode_batch(TimeMs(START_MS), (each,)) for each in HISTORY)]
    for index, command in enumerate(commands, 1):
        journal.add(command, index, 1)
        if applied is not None and index > applied:
            continue
        if command is configuration:
            machine.configure(index, 1, command[1:])
        else:
            machine.apply(index, 1, command[1:] or None)
    journal.setCurrentTerm(1, "n1")
    journal.sync()
    journal._destroy()
    machine.close()
    claim.release()
    return directory


def make_backup(directory: Path, cipher: Cipher = NO_KEYS) -> Path:
    """Make a backup of such a node's state."""
    state = make_node(directory / "node", cipher=cipher) / "state"
    machine = ReplicatedState(state, map_bytes=MAP_BYTES, cipher=cipher)
    machine.copy_to(directory / "copy")
    machine.state.close()
    manifest = backup.describe(directory / "copy", cipher, cluster="c", node="n1", taken_at_ms=NOW_MS, release="1")
    with (directory / "copy").open("rb") as copy:
        (directory / "backup").write_bytes(b"".join(backup.stream(manifest, copy)))
    return directory / "backup"


def founder_of(**fields: object) -> Founder:
    return replace(FOUNDER, **fields)


@contextmanager
def opened(directory: Path, cipher: Cipher = NO_KEYS) -> Iterator[State]:
    """Open the state of a stopped node."""
    machine = ReplicatedState(directory / "state", map_bytes=MAP_BYTES, cipher=cipher)
    try:
        yield machine.state
    finally:
        machine.state.close()


def content(directory: Path) -> set[str]:
    """Return the files and directories below `directory`."""
    return {str(path.relative_to(directory)) for path in directory.rglob("*")} if directory.exists() else set()


@contextmanager
def photographed(
    monkeypatch: pytest.MonkeyPatch, directory: Path, photos: Path, fails: Callable[[int], bool] = lambda _: False
) -> Iterator[None]:
    """Copy `directory` before each of its moves, as a crash would leave it; `fails` breaks the move with this number."""
    rename, number = Path.rename, 0

    def move(path: Path, target: Path) -> Path:
        nonlocal number
        if directory in path.parents:
            shutil.copytree(directory, photos / str(number))
            number += 1
            if fails(number):
                raise OSError("no move")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", move)
        yield
