"""What happened in a run, as the checkers read it (`chaos.checkers.history`), and the run's fingerprint.

The recorder is outside the system: it hears what nodes apply, what their disks keep and what their clients are told, and
writes it down in virtual time. Changes of the log are derived from each entry's operations and results when it is applied
for the first time.

The fingerprint is a running hash over everything that happens, so that two runs of a seed can be compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, TypeGuard

from chaos.checkers.history import (
    AnyEvent,
    Applied,
    Change,
    Downstream,
    Durable,
    Effect,
    FinalJob,
    FinalState,
    Granted,
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
from chaos.sim.trace import Trace
from raftsched.consensus.journal import BASE_COMMAND, Journal
from raftsched.core.ids import JobId
from raftsched.core.job import AttemptEnd, Job
from raftsched.core.operations import (
    CancelJob,
    ExpireLeases,
    LeaseJobs,
    Operation,
    PurgeJobs,
    RecordOutcome,
    SubmitJob,
    decode_batch,
)
from raftsched.core.view import (
    Cancelled,
    Expired,
    Leased,
    OutcomeRecorded,
    Refused,
    Result,
    Submitted,
)
from raftsched.storage.state import State
from raftsched.storage.store import Table, all_rows
from tests.simulated.clock import Timeline

DIGEST_EVERY = 64
"""A node's whole state is hashed at each index that this divides."""
_HASHED = tuple(table for table in Table if table not in (Table.META, Table.COUNTERS))
OP_TAG = "op:"
ChangeOfJob = tuple[Job | None, Job | None]


def job_name(job_id: JobId) -> str:
    return job_id.hex()


def digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def state_digest(state: State) -> str:
    """A digest of all that the log has made of a state; what checkpoints alone write is left out."""
    whole = blake2b(digest_size=8)
    whole.update(repr((state.applied_index, state.applied_term, state.cluster_time_ms, state.fence)).encode())
    for table in _HASHED:
        for key, value in all_rows(state._store, table):  # noqa: SLF001  # rows as they lie there
            whole.update(b"%d %d %b %b" % (table, len(key), key, value))
    whole.update(repr(sorted(state.counters().items())).encode())
    return whole.hexdigest()


class Disk:
    """What a node's journal holds for good, as far as it was told."""

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
        """The newest log index that a client was told of by a current answer."""
        self._disks: dict[str, Disk] = {}
        self._op_count = 0
        self._fingerprint = blake2b(digest_size=16)
        self._stale_ops: set[int] = set()
        self._reported: set[int] = set()
        """Tokens that a worker has reported about."""
        self.commands: dict[int, tuple[int, bytes | None]] = {}
        """Index -> (term, command) of every entry, as it was first applied."""

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
        self._fingerprint.update(b"%d " % self.t)
        self._fingerprint.update(what)

    # -- clients ------------------------------------------------------------------------------------------------------

    def new_op(self) -> int:
        self._op_count += 1
        return self._op_count

    def invoke(self, process: str, op: int, f: str, **fields: Any) -> None:
        if fields.get("stale"):
            self._stale_ops.add(op)
        if f == "outcome":
            self._reported.add(fields["token"])
        self._add(Invoke(t=self.t, process=process, op=op, f=f, **fields))

    def reply(self, process: str, op: int, kind: Any, **fields: Any) -> None:
        self.mark(b"%d %b" % (op, kind.encode()))
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
        self.mark(b"installed %b %d" % (node.encode(), state.applied_index))
        index, term = state.applied_index, state.applied_term
        self._add(Installed(t=self.t, node=node, index=index, term=term, state=state_digest(state)))

    def applied(
        self,
        node: str,
        state: State,
        entry: tuple[int, int, bytes | None],
        results: Sequence[Result],
        changes: Sequence[ChangeOfJob],
    ) -> None:
        """A node applied an entry; `changes` are the jobs that it wrote."""
        index, term, command = entry
        whole = b"\x01" if command is None else b"\x00" + command
        name = digest(whole)
        self.mark(b"applied %b %d %d %b" % (node.encode(), index, term, name.encode()))
        self._add(Applied(t=self.t, node=node, index=index, term=term, digest=name))
        if index > self._last_applied:
            self._last_applied = index
            self.commands[index] = (term, command)
            if command is not None:
                self._log_changes(index, command, state.cluster_time_ms, results, changes)
        if index % DIGEST_EVERY == 0:
            self._add(StateDigest(t=self.t, node=node, index=index, state=state_digest(state)))

    # -- the log ------------------------------------------------------------------------------------------------------

    def _log_changes(
        self, index: int, command: bytes, now_ms: int, results: Sequence[Result], changes: Sequence[ChangeOfJob]
    ) -> None:
        waiting = deque(changes)
        position = 0
        for operation, result in zip(decode_batch(command).operations, results, strict=True):
            for fields in _effects(operation, result, waiting):
                if _is_hand_back(operation) and operation.token not in self._reported:
                    self._handed_back(fields)
                self._add(Change(t=self.t, index=index, position=position, now_ms=now_ms, **fields))
                position += 1

    def _handed_back(self, fields: dict[str, Any]) -> None:
        """The leader gives back a lease whose worker hung up before it heard of it: a report in the worker's name."""
        op = self.new_op()
        asked = {name: fields[name] for name in ("job", "token", "worker", "outcome")}
        self.invoke(f"hand-back-{op}", op, "outcome", run=1, **asked)

    # -- faults, the end ----------------------------------------------------------------------------------------------

    def nemesis(self, fault: str, target: str = "", phase: Any = "once") -> None:
        self.mark(fault.encode() + target.encode())
        self._add(Nemesis(t=self.t, fault=fault, phase=phase, target=target))

    def members(self, nodes: Sequence[str]) -> None:
        """Of these something may be demanded; the others have lost their data."""
        self._add(Members(t=self.t, nodes=tuple(nodes)))

    def healed(self) -> None:
        self._add(Healed(t=self.t))

    def final(self, node: str, state: State) -> None:
        jobs = {job_name(job.id): _final_job(job) for job in state.all_jobs()}
        self._add(FinalState(t=self.t, node=node, index=state.applied_index, state=state_digest(state), jobs=jobs))


def _effects(operation: Operation, result: Result, waiting: deque[ChangeOfJob]) -> list[dict[str, Any]]:
    """The fields of each change that an operation made, taken from the front of `waiting`."""
    match operation, result:
        case SubmitJob(), Submitted(duplicate=False):
            _, new = waiting.popleft()
            return [_submitted(operation, new)] if new is not None else []
        case LeaseJobs(), Leased():
            return [_leased(waiting.popleft()[1]) for _ in result.grants]
        case RecordOutcome(), OutcomeRecorded(repeated=False):
            return [_reported(operation, waiting.popleft()[1])]
        case RecordOutcome(), Refused() if _closes(operation, waiting):
            return [_reported(operation, waiting.popleft()[1])]
        case ExpireLeases(), Expired():
            causes = {suspect.job_id: suspect.cause.label for suspect in operation.leases}
            return [_expired(waiting.popleft()[1], causes) for _ in result.jobs]
        case CancelJob(), Cancelled() if waiting and waiting[0][1] is result.job:
            return [_base("cancel", waiting.popleft()[1])]
        case PurgeJobs(), _:
            purged = []
            while waiting and waiting[0][1] is None:
                old = waiting.popleft()[0]
                assert old is not None
                purged.append({"f": "purge", "job": job_name(old.id), "status": "purged"})
            return purged
        case _:
            return []


def _is_hand_back(operation: Operation) -> TypeGuard[RecordOutcome]:
    """Whether this may be `raftsched.leader.duties.hand_back`."""
    if not isinstance(operation, RecordOutcome):
        return False
    return (operation.end, operation.completion_id, operation.delay_ms) == (AttemptEnd.SNOOZED, "", 0)


def _closes(operation: RecordOutcome, waiting: deque[ChangeOfJob]) -> bool:
    """Whether a refused report is the one that ended a cancelled job's lease."""
    if not waiting:
        return False
    old, new = waiting[0]
    if old is None or new is None or old.lease is None:
        return False
    return new.id == operation.job_id and old.lease.token == operation.token and new.lease is None


def _base(f: str, job: Job | None, **fields: Any) -> dict[str, Any]:
    assert job is not None
    return {"f": f, "job": job_name(job.id), "status": job.status.label, "attempt": job.attempt_number, **fields}


def _submitted(operation: SubmitJob, job: Job) -> dict[str, Any]:
    return _base(
        "submit",
        job,
        due_ms=job.due_at_ms,
        tenant=job.tenant,
        key=job.idempotency_key,
        body=job.fingerprint.hex(),
        max_attempts=operation.max_attempts,
        timeout_ms=operation.timeout_ms,
        op=_op(job),
    )


def _leased(job: Job | None) -> dict[str, Any]:
    assert job is not None
    assert job.lease is not None
    return _base("lease", job, token=job.lease.token, worker=job.lease.worker, ttl_ms=job.lease.ttl_ms)


def _reported(operation: RecordOutcome, job: Job | None) -> dict[str, Any]:
    assert job is not None
    return _base(
        "outcome",
        job,
        token=operation.token,
        worker=job.attempts[-1].worker if job.attempts else "",
        outcome=operation.end.label,
        completion_id=operation.completion_id,
        retryable=operation.retryable,
        due_ms=job.due_at_ms,
    )


def _expired(job: Job | None, causes: dict[JobId, str]) -> dict[str, Any]:
    assert job is not None
    token = job.attempts[-1].token if job.attempts else 0
    return _base("expire", job, token=token, outcome=causes[job.id], due_ms=job.due_at_ms)


def _final_job(job: Job) -> FinalJob:
    return FinalJob(
        status=job.status.label,
        attempt=job.attempt_number,
        token=job.lease.token if job.lease is not None else 0,
        revision=job.revision,
        tenant=job.tenant,
        key=job.idempotency_key,
        body=job.fingerprint.hex(),
        op=_op(job),
    )


def _op(job: Job) -> int:
    return next((int(tag[len(OP_TAG) :]) for tag in job.tags if tag.startswith(OP_TAG)), 0)
