"""Planted into the state machine: what an operation does to the state, and what a state forgets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from raftsched import limits
from raftsched.consensus import machine as machine_module
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.core.jobs import attempts as attempts_module
from raftsched.core.jobs import lease as lease_module
from raftsched.core.jobs import submit as submit_module
from raftsched.core.jobs.cancel import cancel_job
from raftsched.core.operations.codec import CancelJob, LeaseJobs, RecordOutcome
from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.core.records.job import Job, Status
from raftsched.core.state.handlers import HANDLERS
from raftsched.core.state.results import Applied, Cancelled, Context, OutcomeRecorded
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutFence, Write
from raftsched.storage import reader as reader_module
from raftsched.storage.reader import StateReader
from raftsched.storage.state import State
from raftsched.storage.store.port import Store
from raftsched.storage.tables.counters import Counters
from raftsched.storage.tables.position import Position, read_position


def gives_tokens_again(patch: Any) -> None:
    original = State.execute

    def execute(self: State, writes: Iterable[Write]) -> None:
        original(self, [write for write in writes if not isinstance(write, PutFence)])

    patch.setattr(State, "execute", execute)


def forgets_the_fence(patch: Any) -> None:
    """After a restart, tokens begin again."""
    original = read_position

    def read(store: Any) -> Position:
        return msgspec.structs.replace(original(store), fence=FencingToken(0))

    patch.setattr(reader_module, "read_position", read)


def ignores_cancels(patch: Any) -> None:
    """A running job's cancellation is acknowledged and forgotten."""
    original = cancel_job

    def cancel(view: View, operation: CancelJob, context: Context) -> Applied:
        job = view.job(operation.job_id)
        if job is not None and job.status is Status.RUNNING:
            return Applied(Cancelled(job))
        return original(view, operation, context)

    patch.setitem(HANDLERS, CancelJob, cancel)


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

    patch.setitem(HANDLERS, RecordOutcome, record)


def accepts_reports_twice(patch: Any) -> None:
    """Whatever completion id a late report has, it is taken for a repeat."""

    def late(job: Job, _operation: RecordOutcome) -> Applied:
        return Applied(OutcomeRecorded(job, repeated=True))

    patch.setattr(attempts_module, "_late", late)


def ignores_what_jobs_say_of_lost_workers(patch: Any) -> None:
    """The default number of lost workers ends every job, whatever it or its queue says."""
    patch.setattr(attempts_module, "lost_workers_max", lambda _job, _queue: limits.LOST_WORKERS_DEFAULT)


def drops_idempotency(patch: Any) -> None:
    patch.setattr(submit_module, "holder_of_idempotency_key", lambda _view, _tenant, _key: None)


def grants_before_due(patch: Any) -> None:
    original = StateReader.waiting

    def waiting(self: StateReader, queue: str, tenant: str, *place: Any, **bounds: Any) -> Any:
        bounds["due_until_ms"] += 2_000
        return original(self, queue, tenant, *place, **bounds)

    patch.setattr(StateReader, "waiting", waiting)
    admits = lease_module._may_have  # noqa: SLF001  # what is patched

    def may_have(view: View, job: Job, operation: LeaseJobs, gates: Any, now_ms: TimeMs) -> bool:
        return admits(view, job, operation, gates, TimeMs(now_ms + 2_000))

    patch.setattr(lease_module, "_may_have", may_have)


def lets_time_run_backward(patch: Any) -> None:
    """The leader's stamp is cluster time, also where it is behind."""
    original = State.advance

    def advance(self: State, *, now_ms: int, **position: Any) -> None:
        original(self, now_ms=now_ms, **position)
        self.cluster_time_ms = TimeMs(now_ms)

    patch.setattr(State, "advance", advance)
    patch.setattr(machine_module, "max", lambda _state_ms, stamp_ms: stamp_ms, raising=False)
    patch.setattr(ClusterClock, "stamp_ms", lambda self: TimeMs(self._clock.wall_ms()))


def lets_counters_drift(patch: Any) -> None:
    original = Counters.move

    def move(self: Counters, old: Job | None, new: Job | None) -> None:
        if new is None or new.status is not Status.CANCELLED:
            original(self, old, new)

    patch.setattr(Counters, "move", move)


def writes_counters_in_the_order_of_a_set(patch: Any) -> None:
    """The counters that changed are written as their set has it, which each process orders in its own way."""
    original = Counters.save

    def save(self: Counters, store: Store) -> None:
        for key in tuple(self._changed):
            self._changed = {key}
            original(self, store)

    patch.setattr(Counters, "save", save)
