"""Check that the state can store a value.

The API rejects bad requests earlier, with texts for people. These checks are the last ones, inside the state machine: an
operation with a key that LMDB can't store would stop every node that applies it, again after each restart.

The numbers here and in `limits` that `apply` uses are part of the replicated behaviour. Two nodes that apply the same
entry with different limits get different states. So changing one needs a new codec version.
"""

from __future__ import annotations

from typing import Final

from raftsched import limits

JOB_ID_BYTES: Final = 16
PRIORITY_MAX: Final = 9
ANONYMOUS: Final = "anonymous"
"""The actor of requests without a name."""
TIME_MS_MAX: Final = (1 << 48) - 1
"""The year 10889: the largest time part of a job id. The API limits how far ahead users can plan."""


def utf8_bytes(text: str) -> int:
    """Return the length of `text` in UTF-8; keys are limited in bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def is_name(text: str) -> bool:
    """Return whether `text` can be part of a key: 1 to `limits.NAME_CHARS_MAX` bytes of UTF-8, without NUL."""
    return 0 < utf8_bytes(text) <= limits.NAME_CHARS_MAX and "\0" not in text


def name_problem(field: str, text: str) -> str:
    """Return the fault of the name in `field`, or ""."""
    if is_name(text):
        return ""
    return f"{field}: must be 1 to {limits.NAME_CHARS_MAX} bytes of UTF-8, without NUL"


def key_problem(idempotency_key: str) -> str:
    """Return the fault of an idempotency key, or ""; the empty key means none."""
    if utf8_bytes(idempotency_key) > limits.IDEMPOTENCY_KEY_CHARS_MAX or "\0" in idempotency_key:
        return f"idempotency_key: must be at most {limits.IDEMPOTENCY_KEY_CHARS_MAX} bytes of UTF-8, without NUL"
    return ""


def requested_time_problem(field: str, at_ms: int | None, least: int = 0) -> str:
    """Return the fault of a requested time, or ""; None = not requested."""
    return "" if at_ms is None else range_problem(field, at_ms, least, TIME_MS_MAX)


def text_problem(field: str, text: str, bytes_max: int) -> str:
    """Return the fault in the length of a text that is not part of a key, or ""."""
    return range_problem(f"{field} bytes", utf8_bytes(text), 0, bytes_max)


def actor_problem(actor: str) -> str:
    """Return the fault of an actor's name, or ""; the empty name means that the actor is not known."""
    return text_problem("actor", actor, limits.ACTOR_CHARS_MAX)


def id_problem(field: str, value: bytes) -> str:
    """Return the fault of an optional id (b"" = none), or ""."""
    return "" if not value else range_problem(f"{field} bytes", len(value), JOB_ID_BYTES, JOB_ID_BYTES)


def tags_problem(tags: tuple[str, ...]) -> str:
    """Return the fault of a job's tags, or ""."""
    if not tags:
        return ""
    return range_problem("tags", len(tags), 0, limits.TAGS_MAX) or range_problem(
        "tag bytes", max(map(utf8_bytes, tags)), 1, limits.TAG_CHARS_MAX
    )


def range_problem(field: str, value: int, low: int, high: int) -> str:
    """Return the fault of a number outside `low` to `high` (both included), or ""."""
    return "" if low <= value <= high else f"{field}: must be {low} to {high}, not {value}"
