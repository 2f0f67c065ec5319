"""Hold the runs that this worker has leases for, and until when it may act on them.

The worker's own clock decides when it must stop (RELIABILITY G3b): a lease is counted from *before* the request left
that got or renewed it. It is shortened by the drift that two clocks may have, and by a margin for stopping. So the
worker stops before the cluster can have given the run to another, unless the process is paused; then fencing refuses
it.

Written by the event loop; the heartbeat thread reads it, renews leases and condemns runs. Each of these is one
assignment to one slot, so no lock is needed. A lock decides whether the handler or the heartbeat thread, which gives
runs back, claims a run.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from raftsched.wire.calls import KINDS, Kind
from raftsched.wire.workers import LeaseDocument
from raftsched.worker.handlers.context import Context, ReportSink
from raftsched.worker.handlers.progress import AttemptReports
from raftsched.worker.handlers.registry import Handler

_claims = threading.Lock()
AT_MOST_ONCE = "at_most_once"
_CALLBACK_TOKEN_BYTES = 24
CLOCK_DRIFT = 0.01
"""Monotonic clocks of two machines run at most this share apart."""
STOP_MARGIN = 0.05
"""Share of the lease kept for stopping the handler."""


class Grant(LeaseDocument[datetime, Any], frozen=True):
    """A leased job as it arrives; fields unknown to this version are ignored."""

    @property
    def kind(self) -> Kind | None:
        """Return its kind if it needs no handler, else None."""
        return next((kind for kind in KINDS if getattr(self, kind) is not None), None)

    @property
    def starts_at_most_once(self) -> bool:
        """Return whether its start must be committed before its handler begins."""
        return self.start == AT_MOST_ONCE

    @property
    def may_be_accepted(self) -> bool:
        """Return whether the target of its request may report the outcome itself."""
        return isinstance(self.http, dict) and self.http.get("completion") == "callback"

    @property
    def is_last_attempt(self) -> bool:
        """Return whether its number reaches the failures that the job may have, or these are not known."""
        return self.attempt_number >= self.max_attempts


class StopReason(Enum):
    """Reason for which a run must stop; logs contain the value."""

    LEASE_OVER = "lease_over"
    LEASE_LOST = "lease_lost"
    TIMEOUT = "timeout"
    HANDLER_TIMEOUT = "handler_timeout"
    CANCELLED = "cancelled"
    DRAINED = "drained"
    ABORTED = "aborted"


SILENT = frozenset({StopReason.LEASE_OVER, StopReason.LEASE_LOST, StopReason.TIMEOUT, StopReason.ABORTED})
"""The cluster has ended, or will end, these by itself: nothing is reported for them."""


def lease_end(asked_at: float, lease_seconds: float) -> float:
    """Return the monotonic time at which a worker that asked at `asked_at` must have stopped."""
    return asked_at + lease_seconds * (1 - CLOCK_DRIFT - STOP_MARGIN)


class Run:
    """One leased run, from its grant until its outcome is recorded."""

    __slots__ = (
        "asked_at", "context", "goes_on", "grant", "handler", "is_begun", "is_ended", "is_taken_back", "lease_end",
        "reports", "started_at", "stop", "task", "timers",
    )  # fmt: skip

    def __init__(
        self,
        grant: Grant,
        asked_at: float,
        context: Context,
        handler: Handler | None,
        reports: AttemptReports | None = None,
    ) -> None:
        self.grant = grant
        self.reports = reports
        """Reports of its handler; None if nothing takes them."""
        self.context = context
        self.handler = handler
        """None if no handler has the job's name."""
        self.asked_at = asked_at
        """Departure of the request that got or last renewed the lease."""
        self.lease_end = lease_end(asked_at, grant.lease_seconds)
        self.goes_on = False
        """It continues beyond its lease, until an answer says that it is lost: it may then run elsewhere, too."""
        self.stop: StopReason | None = None
        self.is_begun = False
        """Its handler has begun, or its start was requested."""
        self.is_taken_back = False
        """The heartbeat thread gives it back: its handler must not begin, and nothing else is reported for it."""
        self.is_ended = False
        """Its slot is free; the outcome, if any, is being sent."""
        self.started_at = 0.0
        self.task: asyncio.Task[Any] | None = None
        """The task of an async handler."""
        self.timers: list[asyncio.TimerHandle] = []

    def renew(self, asked_at: float) -> None:
        """Note that a heartbeat that left at `asked_at` was acknowledged."""
        self.asked_at = asked_at
        self.lease_end = lease_end(asked_at, self.grant.lease_seconds)

    def must_stop(self, now: float) -> bool:
        """Return whether its lease is over by this worker's clock, and it may not continue beyond that."""
        return self.lease_end <= now and not (self.goes_on and self.is_begun)

    def begin(self) -> bool:
        """Claim it for its handler; return False if it was taken back."""
        with _claims:
            self.is_begun = not self.is_taken_back
            return self.is_begun

    def take_back(self) -> bool:
        """Claim it for another worker; return False if it has begun, was taken back before, or has ended."""
        with _claims:
            if self.is_begun or self.is_taken_back or self.is_ended:
                return False
            self.is_taken_back = True
            return True

    def condemn(self, reason: StopReason) -> bool:
        """Note why the run must stop and notify the handler; return False if it was notified before, or has ended."""
        if self.stop is not None or self.is_ended:
            return False
        self.stop = reason
        self.context.cancelled.set()
        return True


def deadline_of(grant: Grant, wall_ms: int) -> datetime | None:
    """Return when the attempt must be over; its timeout counts from now, a little after the cluster's own count began."""
    if not grant.timeout_seconds:
        return grant.deadline
    timeout = datetime.fromtimestamp(wall_ms / 1000, UTC) + timedelta(seconds=grant.timeout_seconds)
    return timeout if grant.deadline is None else min(grant.deadline, timeout)


def context_of(grant: Grant, sink: ReportSink, deadline: datetime | None) -> Context:
    """Return the context of `grant`, an attempt that must be over by `deadline`."""
    return Context(
        job_id=grant.job_id,
        run_id=grant.run_id,
        fencing_token=grant.fencing_token,
        attempt_number=grant.attempt_number,
        name=grant.name,
        queue=grant.queue,
        deadline=deadline,
        tenant=grant.tenant,
        max_attempts=grant.max_attempts,
        schedule_id=grant.schedule_id,
        instant=grant.instant,
        run_at=grant.run_at,
        retry_cap_seconds=grant.retry_cap_seconds,
        workflow_id=grant.workflow_id,
        task=grant.task,
        replay_of=grant.replay_of,
        traceparent=grant.traceparent,
        call=None if grant.kind is None else getattr(grant, grant.kind),
        starts_at_most_once=grant.starts_at_most_once,
        callback_token=secrets.token_urlsafe(_CALLBACK_TOKEN_BYTES) if grant.may_be_accepted else None,
        parameters=grant.parameters,
        sink=sink,
    )


RunTable = dict[int, Run]
"""By fencing token, which is unique in the cluster."""
