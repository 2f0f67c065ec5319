"""Send the logs of running attempts in pieces, and the rest before the outcome.

One piece of an attempt at a time, in order, each with its own number, so that a repeat is stored once. Lines wait up to
`log_seconds` for more. A refusal by the cluster ends the log of that attempt: the lease was lost, or the log is full;
that is noted and never retried. An outcome never waits for a log longer than `flush_seconds`.

Belongs to the worker's event loop; only `note_lines` is called from handlers' threads.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec
import structlog

from raftsched.client.http.connection import Connection
from raftsched.errors import RaftschedError
from raftsched.wire.workers import LogRequest, ProgressRequest
from raftsched.worker.handlers.progress import AttemptReports, Piece
from raftsched.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)


_encode = msgspec.json.Encoder().encode


class LogShipper:
    """Send the reports that wait."""

    def __init__(self, connection: Connection, settings: WorkerSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._shipping: dict[AttemptReports, asyncio.Task[None]] = {}
        self._hurry: dict[AttemptReports, asyncio.Event] = {}
        """Set to send early what waits for more lines."""
        self._ending: set[AttemptReports] = set()
        """No more lines will come, so none wait for more."""

    def note_lines(self, reports: AttemptReports) -> None:
        """Note that `reports` has lines; called in the handler's thread."""
        with suppress(RuntimeError):  # the worker is gone; this was a hung handler
            self._loop.call_soon_threadsafe(self._begin, reports)

    def holds(self, reports: AttemptReports) -> bool:
        """Return whether something of `reports` is not at the cluster yet."""
        return reports.has_lines or reports.last_progress is not None or reports in self._shipping

    async def flush(self, reports: AttemptReports) -> None:
        """Send the rest, progress included, as far as `flush_seconds` allow, and close `reports`."""
        try:
            async with asyncio.timeout(self._settings.flush_seconds):
                await self._send_progress(reports)
                await self._send_rest(reports)
        except TimeoutError:
            _log.warning("log_not_sent", run_id=reports.run_id, reason="no answer in time")
        finally:
            self._ending.discard(reports)
            reports.close()

    async def close(self) -> None:
        """End the sending."""
        tasks = list(self._shipping.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _begin(self, reports: AttemptReports) -> None:
        if reports in self._shipping:
            if reports.is_filling:
                self._hurry[reports].set()
            return
        if reports.is_closed:
            return
        self._hurry[reports] = asyncio.Event()
        self._shipping[reports] = task = self._loop.create_task(self._ship(reports))
        task.add_done_callback(lambda _: self._ended(reports))

    def _ended(self, reports: AttemptReports) -> None:
        del self._shipping[reports], self._hurry[reports]
        if reports.has_lines:  # logged after the last check
            self._begin(reports)

    async def _ship(self, reports: AttemptReports) -> None:
        while reports.has_lines:
            if not reports.is_filling and reports not in self._ending:
                self._hurry[reports].clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.log_seconds):
                        await self._hurry[reports].wait()
            piece = reports.take_piece()
            if piece is not None:
                await self._send(reports, piece)

    async def _send_rest(self, reports: AttemptReports) -> None:
        self._ending.add(reports)
        if reports.has_lines:
            self._begin(reports)
        while (shipping := self._shipping.get(reports)) is not None:
            self._hurry[reports].set()
            await asyncio.wait([shipping])

    async def _send(self, reports: AttemptReports, piece: Piece) -> None:
        body = LogRequest(reports.fencing_token, piece.lines, piece.sequence)
        if not await self._post(reports, "logs", body):
            reports.end_log()

    async def _send_progress(self, reports: AttemptReports) -> None:
        if (progress := reports.last_progress) is not None:
            await self._post(reports, "progress", ProgressRequest(reports.fencing_token, msgspec.Raw(progress)))

    async def _post(self, reports: AttemptReports, what: str, body: Any) -> bool:
        path = f"/runs/{quote(reports.run_id, safe='')}/{what}"
        try:
            await self._connection.call("POST", path, _encode(body))
        except RaftschedError as error:
            _log.warning("report_refused", what=what, code=error.code, run_id=reports.run_id, reason=str(error))
            return False
        return True
