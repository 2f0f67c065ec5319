"""What a value must be so that the state can hold it.

The API refuses bad requests long before, with texts for people. These are the last guard, inside the state machine:
one operation whose key LMDB can't take would stop every node that applies it, again after each restart.

The numbers here and in `limits` that `apply` consults are part of the replicated behaviour. Two nodes that apply the
same entry with different limits end in different states, so a change of one goes with a new codec version.
"""

from __future__ import annotations

from typing import Final

from raftsched import limits

JOB_ID_BYTES: Final = 16
PRIORITY_MAX: Final = 9
ANONYMOUS: Final = "anonymous"
"""The actor who did not say who he is."""
TIME_MS_MAX: Final = (1 << 48) - 1
"""The year 10889: what the time part of a job id can hold. How far ahead a user may plan is the API's question."""


def utf8_bytes(text: str) -> int:
    """Return the length of `text` in UTF-8: keys are bounded in bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def is_name(text: str) -> bool:
    """Whether `text` may be a part of a key: 1 to `limits.NAME_CHARS_MAX` bytes of UTF-8, without NUL."""
    return 0 < utf8_bytes(text) <= limits.NAME_CHARS_MAX and "\0" not in text


def name_problem(field: str, text: str) -> str:
    """Return what is wrong with the name in `field`, or ""."""
    if is_name(text):
        return ""
    return f"{field}: must be 1 to {limits.NAME_CHARS_MAX} bytes of UTF-8, without NUL"


def key_problem(idempotency_key: str) -> str:
    """Return what is wrong with an idempotency key, or ""; the empty one means that there is none."""
    if utf8_bytes(idempotency_key) > limits.IDEMPOTENCY_KEY_CHARS_MAX or "\0" in idempotency_key:
        return f"idempotency_key: must be at most {limits.IDEMPOTENCY_KEY_CHARS_MAX} bytes of UTF-8, without NUL"
    return ""


def requested_time_problem(field: str, at_ms: int | None, least: int = 0) -> str:
    """Return what is wrong with a time that somebody may have asked for, or ""."""
    return "" if at_ms is None else range_problem(field, at_ms, least, TIME_MS_MAX)


def text_problem(field: str, text: str, bytes_max: int) -> str:
    """Return what is wrong with the length of a text that is part of no key, or ""."""
    return range_problem(f"{field} bytes", utf8_bytes(text), 0, bytes_max)


def actor_problem(actor: str) -> str:
    """Return what is wrong with the name of who asked for something, or ""; the empty one means that it is not known."""
    return text_problem("actor", actor, limits.ACTOR_CHARS_MAX)


def id_problem(field: str, value: bytes) -> str:
    """Return what is wrong with an id that need not be given (b""), or ""."""
    return "" if not value else range_problem(f"{field} bytes", len(value), JOB_ID_BYTES, JOB_ID_BYTES)


def tags_problem(tags: tuple[str, ...]) -> str:
    """Return what is wrong with a job's tags, or ""."""
    if not tags:
        return ""
    return range_problem("tags", len(tags), 0, limits.TAGS_MAX) or range_problem(
        "tag bytes", max(map(utf8_bytes, tags)), 1, limits.TAG_CHARS_MAX
    )


def range_problem(field: str, value: int, low: int, high: int) -> str:
    """Return the text for a number outside `low` to `high`, both included, or ""."""
    return "" if low <= value <= high else f"{field}: must be {low} to {high}, not {value}"
