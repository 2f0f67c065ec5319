"""Combine the outcome of a run's handler and the reason to stop it into one outcome, or none."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import structlog

from raftsched.tracing import span
from raftsched.wire.workers import Outcome
from raftsched.worker.execution.capture import captured
from raftsched.worker.handlers.registry import Handler
from raftsched.worker.handlers.result import ACCEPTED, COMPLETED, FAILED, completed, failed, outcome_of, raised, snoozed
from raftsched.worker.runs.runs import SILENT, Run, StopReason

_log = structlog.get_logger(__name__)
_UNKNOWN_JOB_SECONDS = 15.0
"""Delay after the first attempt on a worker without a handler, doubling: three attempts outlast the start of a new
worker."""
_UNKNOWN_JOB_SECONDS_MAX = 300.0


def note(run: Run, reason: StopReason) -> bool:
    """Condemn `run`; return False if it was condemned before, or has ended."""
    is_new = run.condemn(reason)
    if is_new:
        _log.warning("run_stopped", reason=reason.value, name=run.grant.name, run_id=run.grant.run_id)
    return is_new


async def awaited(handler: Handler, run: Run) -> Outcome:
    """Run an async handler; it ends in an `Outcome` whatever it raises, or its task could end the whole worker.

    That includes what would end a program: on a worker's event loop it ends this attempt.
    """
    if not run.begin():
        return snoozed(0)
    try:
        with _traced(run), captured(run.context.log if handler.captures_stdout else None):
            value = await handler.function(*_arguments(handler, run))
    except asyncio.CancelledError:
        return failed("CancelledError", "the handler, or something that it called, cancelled its task")
    except BaseException as error:  # noqa: BLE001  # whatever a handler raises is its outcome
        return raised(error, handler.rules)
    return completed(value)


def called(handler: Handler, run: Run) -> Outcome:
    """Run a plain handler in this thread."""
    with _traced(run), captured(run.context.log if handler.captures_stdout else None):
        return outcome_of(handler.function, _arguments(handler, run), handler.rules)


def _traced(run: Run) -> AbstractContextManager[None]:
    ctx = run.context
    attributes: dict[str, str | int] = {"messaging.message.id": ctx.run_id, "messaging.destination.name": ctx.queue}
    attributes |= {"raftsched.job_id": ctx.job_id, "raftsched.attempt": ctx.attempt_number}
    return span(f"run {ctx.name}", "CONSUMER", parent=ctx.traceparent, attributes=attributes)


def unknown_job(run: Run) -> Outcome:
    """Return a failed attempt, since no handler has the job's name: while a release rolls out, a newer worker may have
    it.

    The delay is the worker's own: the job's policy and lists of error types are about its handler, which never began. A
    run that begins at most once is handed back while it has attempts, since to fail it would have to begin.
    """
    grant = run.grant
    _log.warning("unknown_job", name=grant.name, run_id=grant.run_id)
    delay = min(_UNKNOWN_JOB_SECONDS * 2.0 ** min(grant.attempt_number - 1, 30), _UNKNOWN_JOB_SECONDS_MAX)
    if grant.starts_at_most_once and not grant.is_last_attempt:
        return snoozed(delay)
    what = f"has no handler for {grant.name!r}" if grant.kind is None else f"executes no {grant.kind} jobs"
    return failed("UnknownJob", f"this worker {what}", delay=delay)


def reported_outcome(run: Run, outcome: Outcome) -> Outcome | None:
    """Return the outcome to report for a handler with this `outcome`: a reason to stop the run overrides it."""
    stop = run.stop
    if stop is None or (stop is StopReason.DRAINED and _has_finished(run, outcome)):
        return _limited(run, outcome)
    if stop in SILENT:
        return None
    if stop is StopReason.CANCELLED:
        return failed("Cancelled", "the job was cancelled while it ran", retryable=False)
    if stop is StopReason.HANDLER_TIMEOUT:
        return _limited(run, failed("Timeout", "the handler took longer than its timeout_seconds"))
    return snoozed(0)


def _has_finished(run: Run, outcome: Outcome) -> bool:
    """Return whether the handler ended by itself: one that saw `ctx.cancelled` may have returned half way."""
    return outcome.status == ACCEPTED or (outcome.status == COMPLETED and not run.context.cancelled.was_seen)


def _arguments(handler: Handler, run: Run) -> tuple[Any, ...]:
    return (run.context, run.grant.payload) if handler.takes_context else (run.grant.payload,)


def _limited(run: Run, outcome: Outcome) -> Outcome:
    """Make a failure of the handler's last attempt final."""
    most = run.handler.max_attempts if run.handler is not None else None
    if most is None or outcome.status != FAILED or run.grant.attempt_number < most:
        return outcome
    return msgspec.structs.replace(outcome, retryable=False)
