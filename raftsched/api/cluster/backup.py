"""Send backups, and record those that were verified and stored.

A backup is of the node that is asked. Whoever has received one, verified it and stored it records it: only then is it
something to rely on. `raftsched cluster backup` does both. That somebody reads a backup is logged by the node.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from aiohttp import web

from raftsched import limits
from raftsched.api.access.principal import check_again
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.consistency import REVISION_HEADER
from raftsched.api.http.json_reply import json_response, time_text
from raftsched.api.http.proposals import propose
from raftsched.api.http.routes import BACKUP_TYPE, Answered, Route, change, route
from raftsched.api.json.decode import StructDecoder
from raftsched.api.json.times import moment_ms_or_none
from raftsched.core.operations.backup import RecordBackup
from raftsched.core.records.backup import LastBackup
from raftsched.core.records.ids import TimeMs
from raftsched.core.state.results import Counted
from raftsched.errors import BackupUnderWay, RaftschedError
from raftsched.storage.backup import OpenBackup, stream_bytes
from raftsched.wire.cluster import BackupRequest, BackupStatus

_STALLED_SECONDS: Final = 30.0
"""A reader that accepts nothing for this long is disconnected."""
_log = structlog.get_logger()


class BackupRoutes:
    """The routes of backups."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._request = StructDecoder(BackupRequest)
        self._sending_count = 0

    def routes(self) -> tuple[Route, ...]:
        return (
            route(
                Access.CLUSTER,
                "GET",
                "/cluster/backup",
                self.read_backup,
                None,
                answered=Answered.HERE,
                reply_type=BACKUP_TYPE,
            ),
            change(Access.CLUSTER, "POST", "/cluster/backups", self.record_backup, BackupStatus, body=BackupRequest),
        )

    async def read_backup(self, request: web.Request) -> web.StreamResponse:
        """Read a backup of the asked node: its whole state as of one log index (see the documentation of backups)."""
        if self._sending_count >= limits.BACKUP_STREAMS_MAX:
            raise BackupUnderWay(self._backend.node_id)
        self._sending_count += 1
        try:
            return await self._sent(request, await self._backend.backup())
        finally:
            self._sending_count -= 1

    async def _sent(self, request: web.Request, made: OpenBackup) -> web.StreamResponse:
        """Send a backup to its end, or cut the connection."""
        manifest = made.manifest
        actor = actor_of(request)
        try:
            name = f"{manifest.cluster}-{manifest.node}-{manifest.applied_index}.backup"
            response = web.StreamResponse(headers={"Content-Type": BACKUP_TYPE})
            response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
            response.headers[REVISION_HEADER] = str(manifest.applied_index)
            response.content_length = stream_bytes(manifest)
            await response.prepare(request)
            try:
                await self._send(request, response, made)
            except (OSError, TimeoutError, RaftschedError) as error:
                reason = str(error) or type(error).__name__
                _log.warning("backup_cut_off", actor=actor, index=manifest.applied_index, reason=reason)
                if request.transport is not None:
                    request.transport.abort()
            else:
                _log.info("backup_sent", actor=actor, index=manifest.applied_index, bytes=response.content_length)
            return response
        finally:
            made.close()

    async def _send(self, request: web.Request, response: web.StreamResponse, made: OpenBackup) -> None:
        loop = asyncio.get_running_loop()
        parts = made.parts()
        while part := await loop.run_in_executor(None, next, parts, b""):
            check_again(request)
            async with asyncio.timeout(_STALLED_SECONDS):
                await response.write(part)
        await response.write_eof()

    async def record_backup(self, request: web.Request) -> web.Response:
        """Record a backup that was verified and stored; the reply is the latest one that is recorded."""
        stored, _ = self._request.read(await self._bodies.read_json(request))
        taken_at_ms = moment_ms_or_none(stored.taken_at, "taken_at")
        assert taken_at_ms is not None, "it is required"
        backup = LastBackup(
            TimeMs(taken_at_ms), stored.applied_index, stored.node, stored.content_bytes, stored.content_sha256
        )
        await propose(self._backend, RecordBackup(backup, actor_of(request)), Counted)
        latest = self._backend.last_backup()
        assert latest is not None, "one was recorded"
        return json_response(backup_status(latest))


def backup_status(backup: LastBackup) -> BackupStatus:
    """Return the document of a recorded backup."""
    return BackupStatus(
        node=backup.node,
        applied_index=backup.applied_index,
        taken_at=time_text(backup.taken_at_ms),
        content_bytes=backup.byte_count,
        content_sha256=backup.sha256,
    )
