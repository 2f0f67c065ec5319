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
from raftsched.worker.handlers.progress import Piece, Telling
from raftsched.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)


_encode = msgspec.json.Encoder().encode


class LogShipper:
    """Send the reports that wait."""

    def __init__(self, connection: Connection, settings: WorkerSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._shipping: dict[Telling, asyncio.Task[None]] = {}
        self._hurry: dict[Telling, asyncio.Event] = {}

    def note_lines(self, telling: Telling) -> None:
        """Note that `telling` has lines; called in the handler's thread."""
        with suppress(RuntimeError):  # the worker is gone; this was a hung handler
            self._loop.call_soon_threadsafe(self._begin, telling)

    def holds(self, telling: Telling) -> bool:
        """Return whether something of `telling` is not at the cluster yet."""
        return telling.has_lines or telling.has_sign or telling in self._shipping

    async def flush(self, telling: Telling) -> None:
        """Send the rest, progress included, as far as `flush_seconds` allow, and close `telling`."""
        try:
            async with asyncio.timeout(self._settings.flush_seconds):
                await self._send_progress(telling)
                await self._send_rest(telling)
        except TimeoutError:
            _log.warning("log_not_sent", run_id=telling.run_id, reason="no answer in time")
        finally:
            telling.close()

    async def close(self) -> None:
        """End the sending."""
        tasks = list(self._shipping.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _begin(self, telling: Telling) -> None:
        if telling in self._shipping or telling.is_closed:
            return
        self._hurry[telling] = asyncio.Event()
        self._shipping[telling] = task = self._loop.create_task(self._ship(telling))
        task.add_done_callback(lambda _: self._ended(telling))

    def _ended(self, telling: Telling) -> None:
        del self._shipping[telling], self._hurry[telling]
        if telling.has_lines:  # logged after the last check
            self._begin(telling)

    async def _ship(self, telling: Telling) -> None:
        while telling.has_lines:
            if not telling.is_filling:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.log_seconds):
                        await self._hurry[telling].wait()
            piece = telling.take_piece()
            if piece is not None:
                await self._send(telling, piece)

    async def _send_rest(self, telling: Telling) -> None:
        if telling.has_lines:
            self._begin(telling)
        while (shipping := self._shipping.get(telling)) is not None:
            self._hurry[telling].set()
            await asyncio.wait([shipping])

    async def _send(self, telling: Telling, piece: Piece) -> None:
        body = LogRequest(telling.fencing_token, piece.lines, piece.sequence)
        if not await self._post(telling, "logs", body):
            telling.end_log()

    async def _send_progress(self, telling: Telling) -> None:
        progress = telling.take_sign().progress
        if isinstance(progress, msgspec.Raw):
            await self._post(telling, "progress", ProgressRequest(telling.fencing_token, progress))

    async def _post(self, telling: Telling, what: str, body: Any) -> bool:
        path = f"/runs/{quote(telling.run_id, safe='')}/{what}"
        try:
            await self._connection.call("POST", path, _encode(body))
        except RaftschedError as error:
            _log.warning("telling_refused", what=what, code=error.code, run_id=telling.run_id, reason=str(error))
            return False
        return True
