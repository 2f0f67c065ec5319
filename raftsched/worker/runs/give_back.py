"""Give runs back that never began, from the heartbeat thread, while the worker's event loop is blocked.

A run that was taken back (`Run.take_back`) belongs to this thread: it is reported as snoozed for no time, so another
worker gets it at once and no attempt is used. The event loop only forgets it. If no node answers before the lease ends,
the cluster offers the job again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from raftsched.client.http.connection import Connection
from raftsched.client.http.hedge import HedgedRequest, Request
from raftsched.client.http.idempotency_keys import KeyFactory
from raftsched.client.http.retries import Failure, Retries
from raftsched.ports import Clock
from raftsched.wire.workers import OutcomeReport, OutcomesRequest
from raftsched.worker.handlers.result import SNOOZED
from raftsched.worker.runs.runs import Run

_log = structlog.get_logger(__name__)


_encode = msgspec.json.Encoder().encode


class Returns:
    """Report runs over `connection`, whose event loop it belongs to; its tasks are those of `tasks`."""

    def __init__(self, connection: Connection, tasks: asyncio.TaskGroup, *, worker: str, clock: Clock) -> None:
        self._connection = connection
        self._tasks = tasks
        self._worker = worker
        self._clock = clock
        self._keys = KeyFactory(clock, connection.randomness)

    def add(self, runs: Sequence[Run]) -> None:
        """Give back `runs`, each of which was taken back."""
        if runs:
            self._tasks.create_task(self._report(runs))

    async def _report(self, runs: Sequence[Run]) -> None:
        body = _encode(OutcomesRequest(self._worker, [self._given_back(run) for run in runs]))
        retries = Retries(self._connection.settings, self._connection.randomness)
        lease_end = max(run.lease_end for run in runs)
        while self._clock.monotonic() < lease_end:
            reply = await HedgedRequest(self._connection, Request("POST", "/leases/outcomes", body)).answer()
            if not isinstance(reply, Failure):
                _log.info("runs_given_back", count=len(runs), reason="event_loop_blocked")
                return
            await asyncio.sleep(retries.next_pause(reply.retry_after_seconds))

    def _given_back(self, run: Run) -> msgspec.Raw:
        report = OutcomeReport(
            run_id=run.grant.run_id,
            fencing_token=run.grant.fencing_token,
            completion_id=self._keys.next(),
            status=SNOOZED,
            snooze_seconds=0.0,
        )
        return msgspec.Raw(_encode(report))
