"""Format times and spans for reasons and the audit trail, as the API does.

Integer arithmetic only: the audit trail is part of the state, and must be the same on every node.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

NONE: Final = "none"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(ms: int | None) -> str:
    """Return RFC 3339 in UTC with milliseconds; "none" for None."""
    if ms is None:
        return NONE
    return f"{(_EPOCH + timedelta(seconds=ms // 1000)).strftime('%Y-%m-%dT%H:%M:%S')}.{ms % 1000:03d}Z"


def seconds_text(ms: int) -> str:
    """Return seconds, with milliseconds if there are any, as in 90 or 0.25."""
    whole, rest = divmod(ms, 1000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


def span_text(ms: int) -> str:
    """Return a span with its unit, as in 0.25 s."""
    return f"{seconds_text(ms)} s"


def optional_seconds(ms: int) -> str:
    """Return seconds, or "none" for 0."""
    return seconds_text(ms) if ms else NONE


def optional_count(number: int) -> str:
    """Return the number, or "none" for 0."""
    return str(number) if number else NONE


def optional_text(text: str) -> str:
    """Return the text, or "none" for an empty one."""
    return text or NONE


def list_text(texts: tuple[str, ...]) -> str:
    """Return the texts with commas between them, or "none"."""
    return ", ".join(texts) or NONE
