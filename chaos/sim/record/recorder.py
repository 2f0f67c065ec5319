"""Record a run, as the checkers read it (`chaos.checkers.history.events`), and the run's fingerprint.

The recorder is outside the system: it sees what nodes apply, what their disks keep and how their clients are answered, and
writes it down in virtual time. Changes of the log are derived from each entry's operations and results when it is applied
for the first time.

The fingerprint is a running hash over everything that happens, so that two runs of a seed can be compared: each frame,
entry and leader, the answers to clients, every fault, and the digests of states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, get_args

import msgspec

from chaos.checkers.history.events import (
    AnyEvent,
    Applied,
    Configured,
    Downstream,
    Durable,
    Effect,
    FinalState,
    Granted,
    HandedBack,
    Healed,
    Installed,
    Invoke,
    Leader,
    Members,
    Nemesis,
    Reply,
    Setup,
    Started,
    StateDigest,
    Truncated,
)
from chaos.checkers.history.views import Placed
from chaos.sim.machine.clock import Timeline
from chaos.sim.record.log_changes import Deed, events_of, final_job, job_name
from chaos.sim.record.replay import LoggedEntry
from chaos.sim.record.trace import Trace
from raftsched.consensus.journal.journal import BASE_COMMAND, Journal
from raftsched.consensus.ports import CONFIGURATION
from raftsched.consensus.raft.messages import Message
from raftsched.core.operations.codec import RecordOutcome
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import Row, Rows, Table, all_rows
from raftsched.storage.store.seals import SEAL_AT

_encode = msgspec.msgpack.Encoder().encode
_EVENTS: dict[str, Callable[..., AnyEvent]] = {kind.__name__: kind for kind in get_args(Placed)}
DIGEST_EVERY = 64
"""A node's whole state is hashed at each index that this divides."""
_HASHED = tuple(table for table in Table if table not in (Table.META, Table.COUNTERS))


def digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def state_digest(state: State) -> str:
    """Return a digest of all that the log has done to a state; what checkpoints alone write is left out."""
    whole = blake2b(digest_size=8)
    state.digest()  # the store gets what is written behind
    whole.update(repr((state.applied_index, state.applied_term, state.cluster_time_ms, state.fence)).encode())
    whole.update(repr((state.configuration, state.operation_version)).encode())
    for table in _HASHED:
        whole.update(_encode((table, _rows(state._store, table))))  # noqa: SLF001  # rows as they lie there
    whole.update(repr(sorted(state.counters().items())).encode())
    return whole.hexdigest()


def _rows(store: Rows, table: Table) -> list[Row]:
    """Return all rows of a table; seals are not checked in memory, because a damaged row changes the digest anyway."""
    if not isinstance(store, MemoryStore) or store._codec.any_encrypted:  # noqa: SLF001
        return list(all_rows(store, table))
    rows = store._tables[table]  # noqa: SLF001  # a third of what a scan costs
    return [(key, rows[key][:SEAL_AT]) for key in rows]


class Disk:
    """The durable part of a node's journal, as far as it is known."""

    def __init__(self) -> None:
        self.terms: dict[int, int] = {}
        self.last = 0


class Recorder:
    """Collects the events of one run; `events` begins with the setup."""

    def __init__(self, timeline: Timeline, setup: Setup, trace: Trace) -> None:
        self._timeline = timeline
        self._start = timeline.now
        self.trace = trace
        self.events: list[AnyEvent] = [setup]
        self._last_applied = 0
        self.acknowledged_index = 0
        """The newest log index that a client knows by a current answer."""
        self._disks: dict[str, Disk] = {}
        self._op_count = 0
        self._fingerprint = blake2b(digest_size=16)
        self._stale_ops: set[int] = set()
        self._held: set[int] = set()
        """Tokens whose lease has not ended in the log."""
        self.leases_before_heal: set[int] = set()
        """Those of them that were held when all faults were over, and still are."""
        self.commands: dict[int, tuple[int, bytes | None]] = {}
        """Index -> (term, command) of every entry, as it was first applied."""
        self.configurations: dict[int, bytes] = {}
        """Index -> content of the entries, without a command, that say who the members are."""

    def entry(self, index: int) -> LoggedEntry:
        """An entry that was applied."""
        return LoggedEntry(index, *self.commands[index], self.configurations.get(index))

    def log(self) -> list[LoggedEntry]:
        """All entries that were applied, from the first on."""
        return [self.entry(index) for index in range(1, self._last_applied + 1)]

    @property
    def t(self) -> int:
        return round((self._timeline.now - self._start) * 1e6)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint.hexdigest()

    def _add(self, event: AnyEvent) -> None:
        self.events.append(event)
        self.trace.event(event)

    def mark(self, what: bytes) -> None:
        """Let something count for the fingerprint."""
        self._fingerprint.update(b"%d %b" % (self.t, what))

    def frame(self, sender: str, receiver: str, message: Message) -> None:
        """A frame is delivered."""
        self.mark(_encode((sender, receiver, message)))

    # -- clients ------------------------------------------------------------------------------------------------------

    def new_op(self) -> int:
        self._op_count += 1
        return self._op_count

    def invoke(self, process: str, op: int, f: str, **fields: Any) -> None:
        if fields.get("stale"):
            self._stale_ops.add(op)
        self._add(Invoke(t=self.t, process=process, op=op, f=f, **fields))

    def reply(self, process: str, op: int, kind: Any, **fields: Any) -> None:
        self.mark(_encode((op, kind, fields)))
        if op not in self._stale_ops:
            self.acknowledged_index = max(self.acknowledged_index, fields.get("applied", 0), fields.get("revision", 0))
        self._add(Reply(t=self.t, process=process, op=op, type=kind, **fields))

    def effect(self, phase: Any, grant: Granted, worker: str) -> None:
        self._add(
            Effect(
                t=self.t,
                phase=phase,
                job=grant.job,
                run=grant.run,
                attempt=grant.attempt,
                token=grant.token,
                worker=worker,
            )
        )

    def downstream(self, resource: str, token: int, *, accepted: bool) -> None:
        self._add(Downstream(t=self.t, resource=resource, token=token, accepted=accepted))

    # -- nodes --------------------------------------------------------------------------------------------------------

    def started(self, node: str, index: int, journal: Journal) -> None:
        """A node begins a life; what its journal holds now is durable, whoever wrote it."""
        self.mark(b"start %b %d" % (node.encode(), index))
        disk = self._disks.setdefault(node, Disk())
        for entry in journal.entries(journal.first_index, 1 << 40) if len(journal) else ():
            command, entry_index, term = entry
            is_base = entry_index == journal.first_index and command == BASE_COMMAND
            if not is_base and disk.terms.get(entry_index) != term:
                self.durable(node, entry_index, term, command)
        if disk.last > journal.last_index:
            self.truncated(node, journal.last_index + 1)
        self._add(Started(t=self.t, node=node, index=index))

    def leads(self, node: str, term: int) -> None:
        self.mark(b"leads %b %d" % (node.encode(), term))
        self._add(Leader(t=self.t, node=node, term=term))

    def durable(self, node: str, index: int, term: int, command: bytes) -> None:
        disk = self._disks.setdefault(node, Disk())
        disk.terms[index] = term
        disk.last = index
        self._add(Durable(t=self.t, node=node, index=index, term=term, digest=digest(command)))

    def truncated(self, node: str, index: int, *, wiped: bool = False) -> None:
        disk = self._disks.setdefault(node, Disk())
        if wiped:
            self._disks[node] = Disk()
        disk.last = min(disk.last, index - 1)
        self._add(Truncated(t=self.t, node=node, index=index, wiped=wiped))

    def installed(self, node: str, state: State) -> None:
        index, term = state.applied_index, state.applied_term
        self._add(Installed(t=self.t, node=node, index=index, term=term, state=self._digest(node, state)))

    def applied(
        self,
        node: str,
        state: State,
        entry: tuple[int, int, bytes | None],
        deeds: Sequence[Deed],
    ) -> None:
        """A node applied an entry; `deeds` are its operations and their results."""
        index, term, command = entry
        whole = b"\x01" if command is None else b"\x00" + command
        name = digest(whole)
        self.mark(b"applied %b %d %d %b" % (node.encode(), index, term, name.encode()))
        self._add(Applied(t=self.t, node=node, index=index, term=term, digest=name, now_ms=state.cluster_time_ms))
        if index > self._last_applied:
            self._last_applied = index
            self.commands[index] = (term, command)
            self._log_deeds(index, state.cluster_time_ms, deeds)
        if index % DIGEST_EVERY == 0:
            self._add(StateDigest(t=self.t, node=node, index=index, state=self._digest(node, state)))

    def applied_configuration(self, node: str, state: State, entry: tuple[int, int, bytes]) -> None:
        """A node applied an entry that says who the members are."""
        index, term, content = entry
        name = digest(CONFIGURATION + content)
        self.mark(b"applied %b %d %d %b" % (node.encode(), index, term, name.encode()))
        self._add(Applied(t=self.t, node=node, index=index, term=term, digest=name, now_ms=state.cluster_time_ms))
        if index > self._last_applied:
            self._last_applied = index
            self.commands[index] = (term, None)
            self.configurations[index] = content
        if index % DIGEST_EVERY == 0:
            self._add(StateDigest(t=self.t, node=node, index=index, state=self._digest(node, state)))

    def configured(self, node: str, place: tuple[int, int], voters: Sequence[str]) -> None:
        """A node goes by another configuration, whose entry is at `place`: (index, term)."""
        index, term = place
        self._add(Configured(t=self.t, node=node, index=index, term=term, voters=tuple(voters)))

    def handed_back(self, node: str, operation: RecordOutcome) -> None:
        """A leader asks to end a lease by itself."""
        self._add(HandedBack(t=self.t, node=node, job=job_name(operation.job_id), token=operation.token))

    # -- the log ------------------------------------------------------------------------------------------------------

    def _log_deeds(self, index: int, now_ms: int, deeds: Sequence[Deed]) -> None:
        position = 0
        for deed in deeds:
            for kind, fields in events_of(deed):
                if kind == "Change":
                    self._follow_lease(fields)
                if kind != "BackgroundWorkChanged":
                    fields["now_ms"] = now_ms
                self._add(_EVENTS[kind](t=self.t, index=index, position=position, **fields))
                position += 1

    def _follow_lease(self, fields: dict[str, Any]) -> None:
        if fields["f"] == "lease":
            self._held.add(fields["token"])
        elif fields["f"] in ("outcome", "expire", "lapse", "abort") and "token" in fields:
            self._held.discard(fields["token"])
            self.leases_before_heal.discard(fields["token"])

    # -- faults, the end ----------------------------------------------------------------------------------------------

    def nemesis(self, fault: str, target: str = "", phase: Any = "once") -> None:
        self.mark(fault.encode() + target.encode())
        self._add(Nemesis(t=self.t, fault=fault, phase=phase, target=target))

    def members(self, nodes: Sequence[str]) -> None:
        """Of these something may be demanded; the others were removed, or have lost their data."""
        self._add(Members(t=self.t, nodes=tuple(nodes)))

    def healed(self) -> None:
        self.leases_before_heal = set(self._held)
        self._add(Healed(t=self.t))

    def final(self, node: str, state: State) -> None:
        """Record the state of a node at the end."""
        jobs = {job_name(job.id): final_job(job) for job in state.all_jobs()}
        overdue = {
            f"{deadline.kind.name.lower()} {deadline.subject.hex()}": late_ms
            for deadline in state.all_deadlines()
            if (late_ms := state.cluster_time_ms - deadline.at_ms) > 0
        }
        whole = self._digest(node, state)
        self._add(FinalState(t=self.t, node=node, index=state.applied_index, state=whole, jobs=jobs, overdue=overdue))

    def _digest(self, node: str, state: State) -> str:
        whole = state_digest(state)
        self.mark(b"state %b %d %b" % (node.encode(), state.applied_index, whole.encode()))
        return whole
