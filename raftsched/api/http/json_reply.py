"""JSON replies: bodies, and the texts of times, spans and ids in them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from aiohttp import web

from raftsched.core.records.ids import JobId, job_id_text

encode: Final = msgspec.json.Encoder().encode


_NULL: Final = msgspec.Raw(b"null")


def json_response(reply: msgspec.Struct | dict[str, Any], *, status: int = 200) -> web.Response:
    """Return the HTTP reply with `reply` as its JSON body."""
    return web.Response(body=encode(reply), status=status, content_type="application/json")


def json_text(stored: bytes) -> msgspec.Raw:
    """Return stored JSON text for a reply, null where there is none."""
    return msgspec.Raw(stored) if stored else _NULL


def time_text(ms: int) -> str:
    """Return RFC 3339 in UTC with milliseconds."""
    return f"{_text_of_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=4096)
def _text_of_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def time_or_none(ms: int) -> str | None:
    """Return RFC 3339; None for 0, which stands for no time."""
    return time_text(ms) if ms else None


def requested_time_or_none(ms: int | None) -> str | None:
    """Return RFC 3339 of a time that somebody may have asked for; None for None."""
    return None if ms is None else time_text(ms)


def seconds_or_none(ms: int) -> float | None:
    """Return a duration in seconds; None for 0, which stands for none."""
    return ms / 1000 if ms else None


def id_text(id_bytes: bytes) -> str | None:
    """Return the text of an id of whatever kind; None for b"", which stands for none."""
    return job_id_text(JobId(id_bytes)) if id_bytes else None
