"""Faults of our own making, each taken into production code by one patch: a simulator that misses them proves nothing.

Where it stands in PYSYNCOBJ.md or RELIABILITY.md is said at each. Those of `tests.simulated.planted`, which the engine's own
tests must find too, are planted here as well. Most are met by random faults; where a bug needs five nodes, or worlds of a
certain kind, its entry says so.

Not found here so far; tests in tests/consensus are written for these defects: `forgets_its_promise_at_a_restart` (it needs
a follower that is deserted while nobody writes), `acknowledges_the_log_behind_a_snapshot` and `believes_old_answers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from chaos.sim.network import LinkRates, SimulatedTransport
from chaos.sim.rates import Rates
from raftsched.consensus import machine as machine_module
from raftsched.consensus import segments, snapshots
from raftsched.consensus.applying import Applying
from raftsched.consensus.cluster_clock import ClusterClock
from raftsched.consensus.engine import RaftEngine
from raftsched.consensus.journal import Journal
from raftsched.consensus.messages import Message
from raftsched.consensus.proposals import Proposals
from raftsched.consensus.recovery import InstallMarker
from raftsched.consensus.replication import Replication
from raftsched.core import apply as apply_module
from raftsched.core import attempts as attempts_module
from raftsched.core import lease as lease_module
from raftsched.core import submit as submit_module
from raftsched.core.cancel import cancel_job
from raftsched.core.ids import FencingToken, TimeMs
from raftsched.core.job import Job, Status
from raftsched.core.operations import CancelJob, RecordOutcome
from raftsched.core.view import Applied, Cancelled, Context, OutcomeRecorded, PutFence, View, Write
from raftsched.disk import DiskFailed
from raftsched.leader.lease_keeper import LeaseKeeper
from raftsched.leader.now import Now
from raftsched.node import Node
from raftsched.storage import reader as reader_module
from raftsched.storage import state as state_module
from raftsched.storage.counters import Counters
from raftsched.storage.position import Position, read_position, write_position
from raftsched.storage.reader import StateReader
from raftsched.storage.state import State
from tests.simulated import planted as engine_bugs


def _whole_snapshots(rates: Rates) -> Rates:
    """Snapshots that fit into one message, which links repeat and deliver late."""
    rates = _snapshots(rates)
    return replace(rates, sizes=replace(rates.sizes, chunk_bytes=1_000_000), links=LinkRates(reorder=0.3, repeat=0.3))


_ABSENT: Any = object()


class Patch:
    """Replaces attributes, as pytest's monkeypatch, and puts them back."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def setattr(self, target: Any, name: str, value: Any) -> None:
        self._undo.append((target, name, vars(target).get(name, _ABSENT)))
        setattr(target, name, value)

    def undo(self) -> None:
        while self._undo:
            target, name, value = self._undo.pop()
            if value is _ABSENT:
                delattr(target, name)
            else:
                setattr(target, name, value)


Plant = Callable[[Any], None]


def _as_drawn(rates: Rates) -> Rates:
    return rates


def _many_elections(rates: Rates) -> Rates:
    """Leaders come and go, and links repeat and reorder, so that answers of one term arrive in another."""
    return replace(
        rates,
        links=LinkRates(delay_seconds=(0.001, 0.06), reorder=0.3, repeat=0.5),
        election=(0.3, 0.36),
        heartbeat=0.09,
        fault_weights={
            "crash_all": 1.0,
            "part": 2.0,
            "reset_link": 1.0,
            "transfer": 2.0,
            "pause_deaf": 2.0,
            "crash": 1.0,
        },
        fault_pause=0.25,
        wall_error_ms=20,
        is_harsh=True,
    )


def _reads_under_partitions(rates: Rates) -> Rates:
    """Leaders are deserted, stopped and cut off while others write: who goes on to serve, and for how long?"""
    return replace(
        rates,
        links=LinkRates(),
        fault_weights={"desert_leader": 3.0, "pause_deaf": 3.0, "transfer": 2.0, "cut_pair": 1.0, "part": 1.0},
        fault_pause=0.6,
        election=(0.3, 0.9),
        heartbeat=0.075,
        probe=0.05,
        sync=0.001,
        wall_error_ms=20,
    )


def _snapshots(rates: Rates) -> Rates:
    """Short logs and long absences, so that many followers need a snapshot, over links that reorder."""
    sizes = replace(rates.sizes, tail_bytes=600, hold_bytes=60_000, chunk_bytes=700)
    weights = {"crash_point": 3.0, "part": 3.0, "power_loss": 2.0, "pause_deaf": 1.0, "slow_link": 1.0, "transfer": 1.0}
    links = LinkRates(reorder=0.1, repeat=0.1)
    return replace(
        rates, sizes=sizes, checkpoint=0.05, fault_weights=weights, links=links, wall_error_ms=20, is_harsh=True
    )


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug; `node_count` and `alter` say in which worlds it is looked for."""

    plant: Plant
    source: str
    node_count: int = 3
    alter: Callable[[Rates], Rates] = _as_drawn

    @property
    def name(self) -> str:
        return self.plant.__name__


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Have the bug in production code within this block."""
    patch = Patch()
    try:
        bug.plant(patch)
        yield
    finally:
        patch.undo()


# -- durability -------------------------------------------------------------------------------------------------------


def answers_before_the_sync(patch: Any) -> None:
    original = SimulatedTransport.flush
    patch.setattr(
        SimulatedTransport, "flush", lambda self, *, early: original(self, early=early and self.node_id == "")
    )


def no_fsync(patch: Any) -> None:
    patch.setattr(Journal, "datasync", lambda _self: None)


def goes_on_after_a_failed_sync(patch: Any) -> None:
    original = Journal.datasync

    def datasync(self: Journal) -> None:
        try:
            original(self)
        except DiskFailed:
            self._failure = None

    patch.setattr(Journal, "datasync", datasync)


def commits_alone(patch: Any) -> None:
    """The leader answers as soon as its own disk has the entry."""
    original = Applying.synced

    def synced(self: Applying) -> None:
        original(self)
        if self.leads:
            self._commit_index = max(self._commit_index, self.durable_index)

    patch.setattr(Applying, "synced", synced)


def forgets_votes_at_a_restart(patch: Any) -> None:
    def set_term(self: Journal, term: int, voted: str | None) -> None:
        self._term, self._voted = term, voted

    patch.setattr(Journal, "setCurrentTerm", set_term)


def cuts_the_log_before_the_checkpoint(patch: Any) -> None:
    original = Replication.checkpointed

    def checkpointed(self: Replication) -> None:
        original(self)
        self.log.compact_to(self.commit_index)

    patch.setattr(Replication, "checkpointed", checkpointed)
    patch.setattr(machine_module.ReplicatedState, "checkpoint", lambda self: self.state.durable_index)


def restores_a_commit_index(patch: Any) -> None:
    """A node that starts takes its whole log for committed."""
    original = Applying.__init__

    def init(self: Applying, **values: Any) -> None:
        original(self, **values)
        self._commit_index = max(1, self.durable_index)

    patch.setattr(Applying, "__init__", init)


def ignores_checksums(patch: Any) -> None:
    """A record is believed whatever its checksum says."""
    patch.setattr(segments, "crc32", lambda _data, _value=0: 0)


def writes_no_marker(patch: Any) -> None:
    patch.setattr(InstallMarker, "write", lambda _self, _index, _term: None)


def applies_again_after_a_restart(patch: Any) -> None:
    """The state's position is one entry behind its contents."""
    original = write_position

    def write(store: Any, position: Position) -> None:
        original(
            store,
            Position(
                max(0, position.applied_index - 1), position.applied_term, position.cluster_time_ms, position.fence
            ),
        )

    patch.setattr(state_module, "write_position", write)


# -- replication ------------------------------------------------------------------------------------------------------


def loses_a_piece_of_a_snapshot(patch: Any) -> None:
    """One piece is not written, and nobody compares what came with what was sent."""
    original = snapshots.SnapshotReceiver._take  # noqa: SLF001  # what is patched

    def take(self: snapshots.SnapshotReceiver, chunk: Message) -> int:
        data = chunk["data"]
        spoiled = bytes(len(data)) if chunk["offset"] else data
        return original(self, {**chunk, "data": spoiled})

    patch.setattr(snapshots.SnapshotReceiver, "_take", take)
    patch.setattr(snapshots, "_checksum", lambda path: (path.stat().st_size, 0))


def installs_what_is_covered(patch: Any) -> None:
    """An older snapshot replaces a newer log."""
    patch.setattr(Replication, "_covers", lambda _self, _index, _term: False)


def believes_old_answers(patch: Any) -> None:
    """An acknowledgement of an earlier term counts."""

    def is_current(self: Replication, message: Message) -> bool:
        if message["term"] > self.term:
            self.step_down(message["term"])
        return True

    patch.setattr(Replication, "_is_current", is_current)


def counts_votes_twice(patch: Any) -> None:
    """A voter counts as often as it answers, of whatever term."""
    patch.setattr(
        RaftEngine, "_on_vote", lambda self, node, message: self.stock_message(node, {**message, "term": self.term})
    )


def never_walks_back(patch: Any) -> None:
    """A refusal doesn't move the leader behind the mismatch."""
    original = Replication._refused  # noqa: SLF001  # what is patched

    def refused(self: Replication, progress: Any, rejected: int, hint: int) -> None:
        original(self, progress, rejected, hint)
        progress.next = rejected + 1

    patch.setattr(Replication, "_refused", refused)


def answers_by_index_alone(patch: Any) -> None:
    """A proposal is answered by whatever entry stands at its index."""
    original = Proposals.applied

    def applied(self: Proposals, index: int, _term: int, result: object) -> None:
        for waiting in self._by_index.get(index, ()):
            original(self, index, waiting.term, result)

    patch.setattr(Proposals, "applied", applied)


# -- the leader -------------------------------------------------------------------------------------------------------


def leads_without_contact(patch: Any) -> None:
    """A leader that was cut off goes on to renew leases."""
    original = Node.leadership

    def leadership(self: Node) -> Any:
        return self._leadership if self._leadership is not None else original(self)

    patch.setattr(Node, "leadership", leadership)


def expires_early_after_an_election(patch: Any) -> None:
    """A new leader counts from the grant, not from its own start."""
    original = LeaseKeeper.start

    def start(self: LeaseKeeper, leased: Iterable[Job], now: Now) -> None:
        original(self, leased, now)
        for lease in self._leases.values():
            lease.silent_at_ms = now.monotonic_ms
            self._set_timer(lease)

    patch.setattr(LeaseKeeper, "start", start)


def never_expires(patch: Any) -> None:
    patch.setattr(LeaseKeeper, "step", lambda _self, _now: None)


def renews_what_it_expires(patch: Any) -> None:
    """A heartbeat is answered "valid" while the lease's end is on its way."""
    original = LeaseKeeper.heartbeat

    def heartbeat(self: LeaseKeeper, worker: str, runs: Any, now: Now) -> Any:
        for job_id, _, _ in runs:
            if job_id in self._leases:
                self._leases[job_id].expiring = False
        return original(self, worker, runs, now)

    patch.setattr(LeaseKeeper, "heartbeat", heartbeat)


# -- the state machine ------------------------------------------------------------------------------------------------


def gives_tokens_again(patch: Any) -> None:
    original = State.execute

    def execute(self: State, writes: Iterable[Write]) -> None:
        original(self, [write for write in writes if not isinstance(write, PutFence)])

    patch.setattr(State, "execute", execute)


def forgets_the_fence(patch: Any) -> None:
    """After a restart, tokens begin anew."""
    original = read_position

    def read(store: Any) -> Position:
        position = original(store)
        return Position(position.applied_index, position.applied_term, position.cluster_time_ms, FencingToken(0))

    patch.setattr(reader_module, "read_position", read)


def ignores_cancels(patch: Any) -> None:
    """A running job's cancellation is acknowledged and forgotten."""
    original = cancel_job

    def cancel(view: View, operation: CancelJob, context: Context) -> Applied:
        job = view.job(operation.job_id)
        if job is not None and job.status is Status.RUNNING:
            return Applied(Cancelled(job))
        return original(view, operation, context)

    patch.setattr(apply_module, "cancel_job", cancel)


def takes_outcomes_of_old_tokens(patch: Any) -> None:
    original = attempts_module.record_outcome

    def record(view: View, operation: RecordOutcome, context: Context) -> Applied:
        job = view.job(operation.job_id)
        if job is not None and job.lease is not None:
            operation = RecordOutcome(
                job_id=operation.job_id,
                run_number=operation.run_number,
                token=job.lease.token,
                end=operation.end,
                completion_id=operation.completion_id,
                result=operation.result,
                error=operation.error,
                retryable=operation.retryable,
                delay_ms=operation.delay_ms,
                jitter=operation.jitter,
            )
        return original(view, operation, context)

    patch.setattr(apply_module, "record_outcome", record)


def accepts_reports_twice(patch: Any) -> None:
    """Whatever completion id a late report has, it is taken for a repeat."""

    def late(job: Job, _operation: RecordOutcome) -> Applied:
        return Applied(OutcomeRecorded(job, repeated=True))

    patch.setattr(attempts_module, "_late", late)


def drops_idempotency(patch: Any) -> None:
    patch.setattr(submit_module, "_job_of_key", lambda _view, _operation: None)


def grants_before_due(patch: Any) -> None:
    original = StateReader.waiting

    def waiting(self: StateReader, queue: str, priority: int, **bounds: Any) -> Any:
        bounds["due_until_ms"] += 2_000
        return original(self, queue, priority, **bounds)

    patch.setattr(StateReader, "waiting", waiting)
    patch.setattr(lease_module, "_is_ready", lambda job, _now_ms: job.status in (Status.SCHEDULED, Status.QUEUED))


def lets_time_run_backward(patch: Any) -> None:
    """The leader's stamp is cluster time, also where it is behind."""
    original = State.advance

    def advance(self: State, *, index: int, term: int, now_ms: int) -> None:
        original(self, index=index, term=term, now_ms=now_ms)
        self.cluster_time_ms = TimeMs(now_ms)

    patch.setattr(State, "advance", advance)
    patch.setattr(machine_module, "max", lambda _state_ms, stamp_ms: stamp_ms)
    patch.setattr(ClusterClock, "stamp_ms", lambda self: TimeMs(self._clock.wall_ms()))


def lets_counters_drift(patch: Any) -> None:
    original = Counters.move

    def move(self: Counters, old: Job | None, new: Job | None) -> None:
        if new is None or new.status is not Status.CANCELLED:
            original(self, old, new)

    patch.setattr(Counters, "move", move)


_TAKEN: Sequence[tuple[Plant, str]] = (
    (engine_bugs.cuts_what_matches, "PYSYNCOBJ defect 2, notrunc"),
    (engine_bugs.pieces_of_snapshots_commit, "P4, PYSYNCOBJ defect 1, snapcommit"),
    (engine_bugs.calls_unknown_outcomes_failures, "P10"),
    (engine_bugs.votes_twice, "P2, one vote a term"),
    (engine_bugs.applies_before_matching, "P4, PYSYNCOBJ defect 1"),
)

_LEASE_BUGS: Sequence[Plant] = (
    engine_bugs.counts_contact_from_the_answer,
    engine_bugs.votes_against_its_promise,
    engine_bugs.serves_while_it_hands_over,
    engine_bugs.reads_without_contact,
)

BUGS: Sequence[Bug] = (
    Bug(
        engine_bugs.forgets_its_promise_at_a_restart,
        "leader lease",
        alter=_reads_under_partitions,
    ),
    *(Bug(plant, source) for plant, source in _TAKEN),
    *(Bug(plant, "leader lease, read without quorum contact", alter=_reads_under_partitions) for plant in _LEASE_BUGS),
    Bug(engine_bugs.acknowledges_the_log_behind_a_snapshot, "PYSYNCOBJ seed 100530", node_count=3, alter=_snapshots),
    Bug(engine_bugs.commits_before_the_sync, "PYSYNCOBJ defect 3, selfsync", node_count=1),
    Bug(answers_before_the_sync, "P1, PYSYNCOBJ sendsync"),
    Bug(no_fsync, "P1"),
    Bug(goes_on_after_a_failed_sync, "RELIABILITY 0, consequence 6"),
    Bug(commits_alone, "ack before commit"),
    Bug(forgets_votes_at_a_restart, "P2"),
    Bug(cuts_the_log_before_the_checkpoint, "P3"),
    Bug(restores_a_commit_index, "PYSYNCOBJ commitclamp"),
    Bug(ignores_checksums, "P8"),
    Bug(writes_no_marker, "snapshot installation", alter=_snapshots),
    Bug(applies_again_after_a_restart, "non-idempotent replay"),
    Bug(loses_a_piece_of_a_snapshot, "PYSYNCOBJ defect 6, lost snapshot chunk"),
    Bug(installs_what_is_covered, "PYSYNCOBJ snapstale", alter=_whole_snapshots),
    Bug(believes_old_answers, "PYSYNCOBJ defect 4, ackterm", node_count=5, alter=_many_elections),
    Bug(counts_votes_twice, "PYSYNCOBJ defect 12, votededup", node_count=5, alter=_many_elections),
    Bug(never_walks_back, "P5, PYSYNCOBJ rejhint"),
    Bug(answers_by_index_alone, "P10"),
    Bug(leads_without_contact, "lease on a stale leader", alter=_reads_under_partitions),
    Bug(expires_early_after_an_election, "early expiry after election"),
    Bug(never_expires, "L1"),
    Bug(renews_what_it_expires, "I9"),
    Bug(gives_tokens_again, "token reuse"),
    Bug(forgets_the_fence, "token reuse, P11"),
    Bug(ignores_cancels, "cancel ignored"),
    Bug(takes_outcomes_of_old_tokens, "outcome accepted with an old token"),
    Bug(accepts_reports_twice, "I10"),
    Bug(drops_idempotency, "idempotency dropped"),
    Bug(grants_before_due, "grant before due"),
    Bug(lets_time_run_backward, "cluster time running backward"),
    Bug(lets_counters_drift, "counter drift"),
)
