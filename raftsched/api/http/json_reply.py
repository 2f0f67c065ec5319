"""Encode JSON replies, and the times, durations and ids in them."""

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
    """Return stored JSON text for a reply; null if there is none."""
    return msgspec.Raw(stored) if stored else _NULL


def time_text(ms: int) -> str:
    """Return the time in RFC 3339, in UTC with milliseconds."""
    return f"{_text_of_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=4096)
def _text_of_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def time_or_none(ms: int) -> str | None:
    """Return the time in RFC 3339; None for 0, which means no time."""
    return time_text(ms) if ms else None


def requested_time_or_none(ms: int | None) -> str | None:
    """Return the time in RFC 3339; None for None."""
    return None if ms is None else time_text(ms)


def seconds_or_none(ms: int) -> float | None:
    """Return a duration in seconds; None for 0, which means none."""
    return ms / 1000 if ms else None


def id_text(id_bytes: bytes) -> str | None:
    """Return the text of an id of any kind; None for b"", which means none."""
    return job_id_text(JobId(id_bytes)) if id_bytes else None
