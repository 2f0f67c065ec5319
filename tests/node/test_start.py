"""A node whose data directory has lost a part refuses to start, says the way out, and leaves everything as it was."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import lmdb
import pytest

from raftsched.cli.local.cluster import free_ports
from raftsched.config import Member, NodeConfig
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.recovery import StateLost
from raftsched.consensus.journal.register import JournalLost
from raftsched.consensus.machine import ReplicatedState
from raftsched.disk import SystemDisk, make_directory
from raftsched.errors import RaftschedError
from raftsched.node.check import check_directory
from raftsched.node.identity import DirectoryClaim, WrongDirectory
from raftsched.node.node import Node
from raftsched.system import SystemClock

MAP_BYTES = 64 << 20
NO_OP = b"\x01"


def make(directory: Path, *, compacted: bool = False, term: int = 1) -> Path:
    """A stopped node's directory: a log of some segments, the state that it makes, and a copy that was on its way."""
    claim = DirectoryClaim(directory, node_id="n1", cluster="raftsched")
    journal = Journal(SystemDisk(directory / "journal"), segment_bytes=300, register=claim)
    machine = ReplicatedState(directory / "state", map_bytes=MAP_BYTES)
    journal.setCurrentTerm(term, "n1")
    for index in range(1, 31):
        journal.add(NO_OP, index, term)
        machine.apply(index, term, None)
        journal.sync()
    if compacted:
        machine.checkpoint()
        journal.compact_to(20)
        journal.sync()
    journal._destroy()
    machine.close()
    claim.release()
    make_directory(directory / "snapshots")
    (directory / "snapshots" / "formed").touch()
    return directory


def lose(*names: str) -> Callable[[Path], None]:
    """Return what removes these parts."""

    def damage(directory: Path) -> None:
        for name in names:
            path = directory / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def empty_journal(directory: Path) -> None:
    for path in (directory / "journal").iterdir():
        path.unlink()


def lose_newest(directory: Path) -> None:
    max((directory / "journal").glob("*.segment")).unlink()


def lose_newest_and_state(directory: Path) -> None:
    lose_newest(directory)
    shutil.rmtree(directory / "state")


def take_anothers_journal(directory: Path) -> None:
    other = make(directory.parent / "other", term=2)
    shutil.rmtree(directory / "journal")
    shutil.copytree(other / "journal", directory / "journal")
    shutil.rmtree(other)


def empty_state(directory: Path) -> None:
    """What a power loss at the very first start leaves; but this state held something."""
    (directory / "state" / "data.mdb").write_bytes(b"")


def first_pages(directory: Path) -> None:
    """The same, a moment later."""
    shutil.rmtree(directory / "state")
    lmdb.open(str(directory / "state"), lib_version=0).close()


def cut_name(directory: Path) -> None:
    (directory / "node.json").write_bytes(b"")


def listing(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b"" for path in directory.rglob("*")
    }


def start(directory: Path) -> None:
    """Start the node, in this process."""
    config = NodeConfig(
        node_id="n1",
        data_dir=str(directory),
        nodes=(Member("n1", *map("127.0.0.1:{}".format, free_ports(2))),),
        auth="none",
    )
    asyncio.run(Node(config, clock=SystemClock(), randomness=Random(1)).run())


REFUSED: dict[str, tuple[Callable[[Path], None], type[RaftschedError], bool]] = {
    "journal": (lose("journal"), JournalLost, False),
    "journal's files": (empty_journal, JournalLost, False),
    "journal and state": (lose("journal", "state"), JournalLost, False),
    "all but node.json": (lose("journal", "state", "snapshots"), JournalLost, False),
    "newest segment": (lose_newest, JournalLost, False),
    "newest segment and state": (lose_newest_and_state, JournalLost, False),
    "another node's journal": (take_anothers_journal, JournalLost, False),
    "state behind a cut journal": (lose("state"), StateLost, True),
    "state's bytes behind a cut journal": (empty_state, StateLost, True),
    "all commits of the state behind a cut journal": (first_pages, StateLost, True),
    "node.json": (lose("node.json"), WrongDirectory, False),
    "node.json and state": (lose("node.json", "state"), WrongDirectory, False),
    "node.json and journal": (lose("node.json", "journal"), WrongDirectory, False),
    "node.json's bytes": (cut_name, WrongDirectory, False),
}


@pytest.mark.parametrize("lost", REFUSED)
def test_a_directory_of_which_a_part_is_gone_is_refused_and_left_as_it_was(tmp_path: Path, lost: str) -> None:
    damage, error, compacted = REFUSED[lost]
    directory = make(tmp_path / "data", compacted=compacted)
    damage(directory)
    before = listing(directory)
    for _ in range(2):  # what was refused once is refused for ever
        with pytest.raises(error, match=r"NEW id|new id"):
            start(directory)
    if error is not StateLost:  # there the journal, which is whole, was opened, and began a segment
        assert listing(directory) == before
    assert not (directory / "state").exists() or any((directory / "state").iterdir())


@pytest.mark.parametrize("lost", [lost for lost, (_, error, _) in REFUSED.items() if error is JournalLost])
def test_check_tells_what_a_start_would_refuse(tmp_path: Path, lost: str) -> None:
    directory = make(tmp_path / "data")
    assert check_directory(directory).violations == ()
    REFUSED[lost][0](directory)
    if not (directory / "state").exists():
        make_directory(directory / "state")
        ReplicatedState(directory / "state", map_bytes=MAP_BYTES).close()
    assert any("NEW id" in violation for violation in check_directory(directory).violations)
