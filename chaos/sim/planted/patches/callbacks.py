"""Planted into runs whose targets report the outcome: whose token counts, for how long, and who ends what is awaited."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from raftsched.api.workers import outcomes as outcomes_module
from raftsched.core.jobs import attempts as attempts_module
from raftsched.core.jobs.callbacks import fencing_token_of
from raftsched.core.operations.codec import ExpiredLease, RecordOutcome
from raftsched.core.operations.control import AwaitCallback
from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.core.records.job import Attempt, AttemptEnd, Job, Lease
from raftsched.core.state.handlers import HANDLERS
from raftsched.core.state.results import Applied, Context, OutcomeRecorded
from raftsched.core.state.view import ForkableView
from raftsched.leader.leases.keeper import _Lease
from raftsched.leader.now import NEVER_MS


def takes_the_token_of_any_attempt(patch: Any) -> None:
    """Whoever has had a token may report the outcome of the run that is current."""

    def fencing_token(job: Job, run_number: int, token: str) -> FencingToken | None:
        lease = job.lease
        is_current = lease is not None and lease.callback_digest and job.run_number == run_number
        return lease.token if is_current and lease is not None else fencing_token_of(job, run_number, token)

    patch.setattr(outcomes_module, "fencing_token_of", fencing_token)


def accepts_callbacks_after_the_timeout(patch: Any) -> None:
    """A report of an attempt that its timeout has ended is acknowledged, and nothing comes of it."""
    end, late = attempts_module._attempt, attempts_module._late  # noqa: SLF001  # what is patched

    def attempt(job: Job, lease: Lease, how: AttemptEnd, context: Context, **fields: Any) -> Attempt:
        if how is AttemptEnd.TIMEOUT and lease.callback_digest:
            fields["completion_id"] = f"callback-{lease.callback_digest.hex()}"
        return end(job, lease, how, context, **fields)

    def answer(job: Job, operation: RecordOutcome) -> Applied:
        ended = next((kept for kept in job.attempts if kept.token == operation.token), None)
        if ended is not None and ended.end is AttemptEnd.TIMEOUT and ended.completion_id == operation.completion_id:
            return Applied(OutcomeRecorded(job, repeated=True))
        return late(job, operation)

    patch.setattr(attempts_module, "_attempt", attempt)
    patch.setattr(attempts_module, "_late", answer)


def awaits_callbacks_only_in_memory(patch: Any) -> None:
    """The executor is answered that its run awaits a callback, and nobody keeps that."""
    original = HANDLERS[AwaitCallback]

    def await_callback(view: ForkableView, operation: AwaitCallback, context: Context) -> Applied:
        return Applied(original(view, operation, context).result)

    patch.setitem(HANDLERS, AwaitCallback, await_callback)


def counts_awaited_runs_as_lost(patch: Any) -> None:
    """Nobody sends heartbeats for a run that awaits a callback, so its worker counts as lost."""
    original = attempts_module._is_over  # noqa: SLF001  # what is patched

    def is_over(job: Job, lease: Lease, suspect: ExpiredLease, now_ms: TimeMs) -> bool:
        return original(job, replace(lease, awaits_callback=False), suspect, now_ms)

    patch.setattr(attempts_module, "_is_over", is_over)
    patch.setattr(_Lease, "await_callback", lambda _self: None)


def awaits_callbacks_for_ever(patch: Any) -> None:
    """The timeout of a job does not count while its run awaits a callback."""
    original = _Lease.await_callback

    def await_callback(self: _Lease) -> None:
        original(self)
        self.timeout_at_ms = NEVER_MS

    patch.setattr(_Lease, "await_callback", await_callback)
