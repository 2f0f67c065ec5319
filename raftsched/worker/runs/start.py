"""Record the start of a run that may begin at most once (RELIABILITY G5), or whose target may report its outcome: its
handler waits until the start is committed.

The request may be repeated with the same fencing token until an answer comes, but no longer than the lease lasts.
Without an answer the handler never begins. Whether the start was recorded is unknown then; the run is handed back, and
the cluster knows: a run that had begun by its record ends for a human to decide, any other is leased again.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import msgspec
import structlog

from raftsched.client.http.connection import Connection
from raftsched.client.http.hedge import HedgedRequest, Request
from raftsched.client.http.problems import TooLargeForProxy
from raftsched.client.http.retries import Failure, Retries
from raftsched.errors import Unavailable
from raftsched.wire.workers import StartRequest
from raftsched.worker.runs.runs import Run, StopReason

_log = structlog.get_logger(__name__)


_encode = msgspec.json.Encoder().encode


class Starter:
    """Ask the cluster whether runs may begin; belongs to the worker's event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def start(self, run: Run) -> bool:
        """Return whether the handler of `run` may begin: its start is committed and its lease still holds.

        A refusal condemns the run: the cluster has ended it.
        """
        connection = self._connection
        path = f"/runs/{quote(run.grant.run_id, safe='')}/start"
        body = _encode(StartRequest(fencing_token=run.grant.fencing_token, callback_token=run.context.callback_token))
        retries = Retries(connection.settings, connection.randomness)
        while self._may_begin(run):
            try:
                reply = await HedgedRequest(connection, Request("POST", path, body)).answer()
            except Unavailable:  # the worker has closed its connections
                return False
            if not isinstance(reply, Failure):
                return self._may_begin(run)
            if not reply.error.retryable and not isinstance(reply.error, TooLargeForProxy):
                _log.warning("start_refused", code=reply.error.code, run_id=run.grant.run_id, reason=str(reply.error))
                run.condemn(StopReason.CANCELLED if reply.error.code == "cancelled" else StopReason.LEASE_LOST)
                return False
            await asyncio.sleep(retries.next_pause(reply.retry_after_seconds))
        return False

    def _may_begin(self, run: Run) -> bool:
        return run.stop is None and self._connection.clock.monotonic() < run.lease_end
