"""Nothing that a node has promised is lost with the power, on a real disk: each sync of files and names is needed.

One life of a node is played by production code, from an empty directory to an installed snapshot: claim, journal, state,
engine, marks. The power is lost at every promise and before every sync, in the worst way (`tests.lost_power`). What is left
must start again and hold all that was promised by then. Played without any one of the syncs, it must not.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from zlib import crc32

import pytest
from pysyncobj.node import Node

from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.recovery import DifferenceMark, FormedMark, InstallMarker, align
from raftsched.consensus.machine import ReplicatedState
from raftsched.consensus.ports import Sizes
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.raft.clocks.step_clock import StepClock
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.membership.members import Member, Membership
from raftsched.consensus.raft.messages import APPEND, CHUNK, VOTE_REQUEST
from raftsched.disk import SystemDisk, make_directory
from raftsched.errors import RaftschedError
from raftsched.node.identity import DirectoryClaim
from tests.consensus.subjects import TIMING, HandClock, Recorder
from tests.lost_power import Killed, Shadow, Tree, write_tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are reopened through /proc")

LEADER, CANDIDATE = Node("n2"), Node("n3")
NO_OP = b"\x01"
MAP_BYTES = 16 << 20
SEGMENT_BYTES = 300
SIZES = Sizes(tail_bytes=100, hold_bytes=10_000)
SNAPSHOT_INDEX, SNAPSHOT_TERM = 200, 3

_RECENT = 10
"""Moments that are compared with a new one: from one sync to the next little changes."""

_BEGUN = "SegmentWriter.__init__: disk.sync_directory() #2"
_CHECKED, _REPLACED = "CheckWork.run: _sync(incoming.path)", "replace_state_file: os.fsync(copy.fileno())"
NEEDLESS = {
    _CHECKED: "done again when the copy takes the state's place; here it is done in a thread, before anybody waits for it",
    _REPLACED: "done before, when the copy was checked; for callers that have not",
    "open_store: sync_directory(directory.parent)": "done by whoever makes the data directory; for callers that do not",
    "FormedMark.set: os.fsync(file.fileno())": "an empty file, whose name says all; that a file needs no sync for it is Linux",
}
"""Sites whose sync another one repeats, and why it is done all the same."""


@dataclass(frozen=True, slots=True)
class Promises:
    """What a node has said, or relies upon from now on."""

    incarnation: str = ""
    entries: tuple[tuple[int, int], ...] = ()
    """(index, term) of what was acknowledged; a snapshot stands for all up to its own."""
    vote: tuple[int, str] = (0, "")
    is_formed: bool = False
    difference: str | None = ""
    """Why its state is not to be trusted, "" if it is; None while that changes."""


@dataclass
class Life:
    """The life of one node in `directory`, and every moment at which its power may go."""

    directory: Path
    donor: bytes
    """A snapshot of another node."""
    shadow: Shadow
    promises: Promises = field(default_factory=Promises)
    moments: list[tuple[Tree, Promises]] = field(default_factory=list)
    clock: HandClock = field(default_factory=HandClock)

    def moment(self) -> None:
        """The power may go now."""
        for tree in self.shadow.survivors():
            if (tree, self.promises) not in self.moments[-_RECENT:]:
                self.moments.append((tree, self.promises))

    def promise(self, **news: object) -> None:
        self.promises = replace(self.promises, **news)  # type: ignore[arg-type]  # the fields' own types
        self.moment()

    # -- the parts, as `raftsched.node.node` opens them ----------------------------------------------------------------

    def begin(self) -> None:
        """Open all parts; what the journal holds at a start counts as durable for whoever asks."""
        self.claim = claim = DirectoryClaim(self.directory, node_id="n1", cluster="c")
        self.promise(incarnation=claim.incarnation)
        disk = SystemDisk(self.directory / "journal", create=claim.newest is None)
        self.journal = Journal(disk, segment_bytes=SEGMENT_BYTES, register=claim)
        self._promise_log()
        for part in ("state", "snapshots"):
            make_directory(self.directory / part)
        self.machine = ReplicatedState(self.directory / "state", map_bytes=MAP_BYTES)
        self._trust_state()
        self.engine = RaftEngine(
            EnginePorts(
                node_id="n1",
                log=self.journal,
                machine=self.machine,
                transport=Recorder(),
                clock=StepClock(self.clock),
                randomness=Random(1),
                timing=TIMING,
                sizes=SIZES,
            ),
            Membership.of(map(Member, ("n1", "n2", "n3"))),
            snapshot_directory=self.directory / "snapshots",
            cluster_clock=ClusterClock(self.clock),
        )
        self.clock.now += 2 * TIMING.election_max_seconds

    def _trust_state(self) -> None:
        """LMDB has made its file durable."""
        self.shadow.trust(self.directory / "state" / "data.mdb")

    def _promise_log(self) -> None:
        log = self.journal
        held = {(index, log.term_at(index)) for index in range(log.first_index, log.last_index + 1) if len(log)}
        self.promise(
            entries=(*(each for each in self.promises.entries if each[0] < log.first_index), *sorted(held)),
            vote=(log.getCurrentTerm(), log.getVotedForNodeId() or ""),
        )

    # -- what happens -------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """What the pump does between two flushes; then answers leave."""
        self.engine.step()
        self.journal.write()
        self.engine.written()
        self.journal.datasync()
        self.journal.synced()
        self.engine.synced()
        self._promise_log()
        self.engine.step()

    def append(self, count: int, *, term: int) -> None:
        """A leader sends entries, and says that all before them is committed."""
        last = self.journal.last_index
        self.engine.on_message(
            LEADER,
            {
                "type": APPEND,
                "term": term,
                "commit_index": last,
                "prevLogIdx": last,
                "prevLogTerm": self.journal.term_at(last),
                "entries": [(NO_OP, last + 1 + number, term) for number in range(count)],
                "sent_us": 1,
                "wall_ms": 1,
            },
        )
        self.engine.step()

    def checkpoint(self) -> None:
        self.machine.checkpoint()
        self._trust_state()
        self.moment()
        self.engine.checkpointed()

    def vote(self, term: int) -> None:
        self.clock.now += TIMING.election_max_seconds
        last = self.journal.last_index
        self.engine.on_message(
            CANDIDATE,
            {"type": VOTE_REQUEST, "term": term, "last_log_index": last + 9, "last_log_term": term, "force": False},
        )
        self.sync()

    def receive_snapshot(self) -> None:
        data = self.donor
        self.engine.on_message(
            LEADER,
            {
                "type": CHUNK,
                "term": SNAPSHOT_TERM,
                "transfer": 7,
                "index": SNAPSHOT_INDEX,
                "index_term": SNAPSHOT_TERM,
                "size": len(data),
                "crc": crc32(data),
                "offset": 0,
                "data": data,
                "sent_us": 1,
                "wall_ms": 1,
            },
        )
        work = self.engine.take_work()
        assert work is not None
        work.run()
        work.finish(self.clock.now)
        self.promise(difference=None)
        self.sync()
        self.promise(difference="")

    def kill(self) -> None:
        """The process ends; what it wrote is in the page cache."""
        self.machine.state.close()
        self.claim.release()

    def begin_in_vain(self) -> None:
        """The process is killed when its new segment has got its name, before that is durable."""
        self.shadow.kills_at = _BEGUN
        with pytest.raises(Killed):
            self.begin()
        self.claim.release()


def play(life: Life) -> None:
    """Everything that a node relies upon after a crash comes into being, or is changed, at least once."""
    life.begin()
    FormedMark(life.directory / "snapshots").set()
    life.promise(is_formed=True)
    life.promise(difference=None)
    DifferenceMark(life.directory / "snapshots").write("one bit is not like the others'")
    life.promise(difference="one bit is not like the others'")
    life.append(3, term=1)
    life.sync()
    for _ in range(4):  # each more than a segment
        life.append(9, term=1)
        life.sync()
    life.checkpoint()
    life.append(2, term=1)
    life.sync()
    life.vote(term=2)
    life.append(9, term=2)
    life.sync()
    life.append(9, term=2)
    life.journal.write()  # into a new segment, and never synced
    life.kill()
    life.begin_in_vain()
    life.begin()
    life.append(2, term=2)
    life.sync()
    life.receive_snapshot()
    life.append(9, term=3)
    life.sync()
    life.kill()


def broken_promise(directory: Path, promises: Promises) -> str:
    """Start from what is left; return the first promise that is not kept, "" if all are."""
    try:
        claim = DirectoryClaim(directory, node_id="n1", cluster="c")
    except RaftschedError as error:
        return f"the directory is refused: {error}"
    try:
        return _broken_promise(directory, claim, promises)
    except (RaftschedError, OSError) as error:
        return f"the node does not start: {error}"
    finally:
        claim.release()


def _broken_promise(directory: Path, claim: DirectoryClaim, promises: Promises) -> str:
    if promises.incarnation not in ("", claim.incarnation):
        return "it is another directory"
    disk = SystemDisk(directory / "journal", create=claim.newest is None)
    journal = Journal(disk, segment_bytes=SEGMENT_BYTES, register=claim)
    snapshots = directory / "snapshots"
    for part in (directory / "state", snapshots):
        make_directory(part)
    machine = ReplicatedState(directory / "state", map_bytes=MAP_BYTES)
    try:
        align(journal, machine, InstallMarker(snapshots))
        for index, term in promises.entries:
            if index > machine.applied_index and not (
                journal.first_index <= index <= journal.last_index and journal.term_at(index) == term
            ):
                return f"entry {index} of term {term} is gone"
        voted = (journal.getCurrentTerm(), journal.getVotedForNodeId() or "")
        if voted[0] < promises.vote[0] or (voted[0] == promises.vote[0] and promises.vote[1] not in ("", voted[1])):
            return f"the vote {promises.vote} is gone, {voted} is there"
        if promises.is_formed and not FormedMark(snapshots).is_set:
            return "that the cluster was formed is gone"
        if promises.difference is not None and DifferenceMark(snapshots).read() != promises.difference:
            return "whether the state differs is forgotten"
        return ""
    finally:
        machine.state.close()


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("donor")
    machine = ReplicatedState(directory / "state", map_bytes=MAP_BYTES)
    for index in range(1, SNAPSHOT_INDEX + 1):
        machine.apply(index, SNAPSHOT_TERM, None)
    machine.checkpoint()
    machine.copy_to(directory / "copy")
    machine.state.close()
    return (directory / "copy").read_bytes()


Lived = Callable[..., "tuple[set[str], str]"]


@pytest.fixture
def fast_path() -> Iterator[Path]:
    """A directory in memory where there is one, for LMDB's own syncs."""
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def lived(fast_path: Path, donor: bytes, monkeypatch: pytest.MonkeyPatch) -> Lived:
    """Play a life without the syncs of some sites; return (all sites, the first promise that a power loss breaks)."""
    numbers = iter(range(1_000_000))

    def live(*without: str) -> tuple[set[str], str]:
        root = fast_path / f"disk-{next(numbers)}"
        root.mkdir()
        shadow = Shadow(root, without=frozenset(without))
        life = Life(root / "n1" / "data", donor, shadow)
        shadow.before_sync = life.moment
        with monkeypatch.context() as patch:
            shadow.listen(patch)
            play(life)
        shadow.close()
        for tree, promises in life.moments:
            left = fast_path / f"left-{next(numbers)}"
            write_tree(tree, left)
            broken = broken_promise(left / "n1" / "data", promises)
            shutil.rmtree(left)
            if broken:
                return shadow.sites, broken
        return shadow.sites, ""

    return live


def test_a_power_loss_at_any_moment_keeps_every_promise_and_no_sync_can_be_left_out(lived: Lived) -> None:
    sites, broken = lived()
    assert not broken
    assert {site for site in sites if not lived(site)[1]} == set(NEEDLESS)
    assert lived(_CHECKED, _REPLACED)[1]
