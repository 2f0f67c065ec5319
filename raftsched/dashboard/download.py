"""Send a file to the browser while it arrives from the API, in bounded memory."""

from __future__ import annotations

import structlog
from aiohttp import web

from raftsched.dashboard.page import Download
from raftsched.errors import RaftschedError

log = structlog.get_logger()


async def sent(request: web.Request, download: Download) -> web.StreamResponse:
    """Send the file. One that is cut off ends before its announced length, so that the browser reports it as failed."""
    async with download.open() as file:
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.headers["Content-Disposition"] = f'attachment; filename="{file.name}"'
        response.content_length = file.size_bytes
        await response.prepare(request)
        try:
            async for part in file.parts:
                await response.write(part)
            await response.write_eof()
        except (OSError, RaftschedError) as error:
            log.warning("download_cut_off", file=file.name, reason=str(error) or type(error).__name__)
            if request.transport is not None:
                request.transport.abort()
        return response
