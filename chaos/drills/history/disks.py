"""Read the log back from the disks of stopped nodes, with the state of each.

Theory of operation. Nodes of a drill are watched from outside only. But each keeps its log on its disk, from the first
entry on as long as nothing was compacted. The longest of these logs, up to the newest index that a node applied, is
applied once more, to an empty state in memory: that gives a `Change` for each effect of the log, and settles what became
of operations whose outcome nobody learned. Each node's own entries and its own state are recorded beside it, so that
checkers compare them: with one another, and with the replay.

Times of these events are that of the end. Changes have the time at which the first observed node applied their entry
(`observed`), -1 if none was observed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final, get_args

from chaos.checkers.history.events import AnyEvent, Applied, Configured, Durable, FinalState, HandedBack, Started
from chaos.checkers.history.views import Placed
from chaos.sim.record.log_changes import events_of, final_job, job_name
from chaos.sim.record.recorder import digest, state_digest
from chaos.sim.record.replay import LoggedEntry, LogReplay
from raftsched.consensus.journal.replay import recover
from raftsched.consensus.journal.segment_files import read_entries
from raftsched.consensus.ports import COMMAND, CONFIGURATION
from raftsched.consensus.raft.membership.members import decode_membership
from raftsched.disk import SystemDisk
from raftsched.storage.directory import open_readonly
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore

FIRST_INDEX: Final = 2
"""The entry before is the same in every log: the cluster was founded with it."""
_EVENTS: Final[dict[str, Callable[..., AnyEvent]]] = {kind.__name__: kind for kind in get_args(Placed)}


@dataclass(frozen=True, slots=True)
class NodeDisk:
    """The log and the state of one stopped node."""

    node: str
    entries: Sequence[tuple[bytes, int, int]]
    """(command, index, term), consecutive."""
    final: FinalState

    @property
    def first_index(self) -> int:
        return self.entries[0][1] if self.entries else 0

    @property
    def is_cut(self) -> bool:
        """Return whether the log was compacted, or replaced by a snapshot."""
        return self.first_index >= FIRST_INDEX

    @property
    def own_entries(self) -> Sequence[tuple[bytes, int, int]]:
        """Return the entries without the first one of a log that was cut: it has no content if there was a snapshot."""
        return self.entries[1:] if self.is_cut else self.entries


@dataclass(slots=True)
class ReadBack:
    """The contents of the disks of all nodes."""

    events: list[AnyEvent] = field(default_factory=list)
    digests: dict[int, str] = field(default_factory=dict)
    """Index -> digest of the replayed state, if a node has one to compare."""
    is_whole: bool = False
    """The log was there from its first entry on, so that its changes are among the events."""

    def replay(self, log: Sequence[Applied]) -> Iterator[str]:
        """As `chaos.checkers.history.views.Replay`."""
        return (self.digests.get(entry.index, "") for entry in log)


def read_disk(node: str, directory: Path, *, t: int) -> NodeDisk:
    """Read the data directory of a stopped node."""
    disk = SystemDisk(directory / "journal", create=False)
    table = recover(disk, cache_bytes=0).table
    state = open_readonly(directory / "state")
    try:
        final = FinalState(
            t=t,
            node=node,
            index=state.applied_index,
            state=state_digest(state),  # type: ignore[arg-type]  # it only reads
            jobs={job_name(job.id): final_job(job) for job in state.all_jobs()},
            overdue={
                f"{deadline.kind.name.lower()} {deadline.subject.hex()}": late_ms
                for deadline in state.all_deadlines()
                if (late_ms := state.cluster_time_ms - deadline.at_ms) > 0
            },
        )
    finally:
        state.close()
    return NodeDisk(node, read_entries(disk, table, 0, len(table)), final)


def read_back(
    disks: Sequence[NodeDisk], *, t: int, applied_at: Mapping[int, int], former: Collection[str] = ()
) -> ReadBack:
    """Return what the disks tell of the log, at the time `t`; states of `former` members are of no account.

    `applied_at` is the time of each index, if anybody saw it.
    """
    found = ReadBack()
    if not disks:
        return found
    log = _whole_log(disks)
    for each in disks:
        found.events += _durable(each, log, t)
    for each in disks:
        found.events += _applied(each, t)
    wanted = {each.final.index for each in disks}
    found.is_whole = 0 < log.first_index < FIRST_INDEX
    if found.is_whole:
        found.events += _changes(log, wanted, found.digests, applied_at)
    found.events += [each.final for each in disks if each.node not in former]
    return found


def _whole_log(disks: Sequence[NodeDisk]) -> NodeDisk:
    """Return the newest log, continued backward by the one that begins first; that of the newest state."""
    newest = max(disks, key=lambda each: (each.final.index, -each.first_index))
    oldest = min(disks, key=lambda each: each.first_index or inf)
    if oldest.first_index >= newest.first_index or oldest.entries[-1][1] < newest.first_index:
        return newest
    older = [entry for entry in oldest.entries if entry[1] <= newest.first_index]
    return NodeDisk(newest.node, [*older, *newest.own_entries], newest.final)


def _durable(disk: NodeDisk, log: NodeDisk, t: int) -> Iterator[AnyEvent]:
    """Yield the entries on a disk; its state holds those that its log has no more, as `log` has them."""
    older = [entry for entry in log.entries if entry[1] <= disk.first_index] if disk.is_cut else []
    for command, index, term in (*older, *disk.own_entries):
        if index >= FIRST_INDEX:
            yield Durable(t=t, node=disk.node, index=index, term=term, digest=digest(command))
            if command[:1] == CONFIGURATION:
                voters = tuple(sorted(decode_membership(command[1:]).voters))
                yield Configured(t=t, node=disk.node, index=index, term=term, voters=voters)


def _applied(disk: NodeDisk, t: int) -> Iterator[AnyEvent]:
    yield Started(t=t, node=disk.node, index=disk.first_index if disk.is_cut else FIRST_INDEX - 1)
    for command, index, term in disk.own_entries:
        if FIRST_INDEX <= index <= disk.final.index:
            yield Applied(t=t, node=disk.node, index=index, term=term, digest=digest(command))


def _changes(
    disk: NodeDisk, wanted: set[int], digests: dict[int, str], applied_at: Mapping[int, int]
) -> Iterator[AnyEvent]:
    """Yield every effect of the log up to the state of its node; note the digest of each index in `wanted`."""
    replay = LogReplay(State(MemoryStore()))
    for whole, index, term in disk.entries:
        if index > disk.final.index:
            return
        kind, content = whole[:1], whole[1:]
        command = content if kind == COMMAND else None
        configuration = content if kind == CONFIGURATION else None
        position = 0
        for deed in replay.deeds(LoggedEntry(index, term, command, configuration)):
            for name, fields in events_of(deed):
                stamped = {} if name == "BackgroundWorkChanged" else {"now_ms": replay.state.cluster_time_ms}
                t = applied_at.get(index, -1)
                yield _EVENTS[name](t=t, index=index, position=position, **fields, **stamped)
                yield from _handed_back(disk.node, t, name, fields)
                position += 1
        if index in wanted:
            digests[index] = state_digest(replay.state)


def _handed_back(node: str, t: int, name: str, fields: dict[str, object]) -> Iterator[AnyEvent]:
    """Workers of drills never snooze: then the leader ended the lease of a worker that had hung up."""
    if name == "Change" and (fields["f"], fields.get("outcome")) == ("outcome", "snoozed"):
        yield HandedBack(t=t, node=node, job=str(fields["job"]), token=int(str(fields["token"])))
