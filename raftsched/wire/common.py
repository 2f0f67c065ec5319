"""Names, keys, durations and times that documents share, the bases of requests and replies, and problem documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits

NAME_RULE: Final = f"1 to {limits.NAME_CHARS_MAX} letters, digits and _ . : @ -, the first a letter or digit"
NAME_PATTERN: Final = rf"^[A-Za-z0-9][A-Za-z0-9_.:@-]{{0,{limits.NAME_CHARS_MAX - 1}}}$(?!\n)"
"""`$` alone would let a line feed pass at the end."""
is_name: Final = re.compile(NAME_PATTERN).match
"""Whether a text of a path may name anything: what is longer than a key of the store must not get there."""
QUEUE_PATTERN_RULE: Final = "the name of a queue; or the beginning of names with a * behind it; or * alone, for all"
QUEUE_PATTERN_PATTERN: Final = (
    rf"^([A-Za-z0-9][A-Za-z0-9_.:@-]{{0,{limits.NAME_CHARS_MAX - 1}}}|([A-Za-z0-9][A-Za-z0-9_.:@-]{{0,"
    rf"{limits.NAME_CHARS_MAX - 1}}})?\*)$(?!\n)"
)
KEY_RULE: Final = f"1 to {limits.IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters"
KEY_PATTERN: Final = rf"^[ -~]{{1,{limits.IDEMPOTENCY_KEY_CHARS_MAX}}}$(?!\n)"
COMPLETION_ID_RULE: Final = f"1 to {limits.COMPLETION_ID_CHARS_MAX} printable ASCII characters"
COMPLETION_ID_PATTERN: Final = rf"^[ -~]{{1,{limits.COMPLETION_ID_CHARS_MAX}}}$(?!\n)"

MEMBER_ID_RULE: Final = "1 to 64 letters, digits and _ . -, the first a letter or digit"
MEMBER_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$(?!\n)"

PATTERN_RULES: Final = {
    MEMBER_ID_PATTERN: MEMBER_ID_RULE,
    NAME_PATTERN: NAME_RULE,
    QUEUE_PATTERN_PATTERN: QUEUE_PATTERN_RULE,
    KEY_PATTERN: KEY_RULE,
    COMPLETION_ID_PATTERN: COMPLETION_ID_RULE,
}
"""What a pattern means, for people."""

_TOKEN_MAX: Final = (1 << 63) - 1

Name = Annotated[str, Meta(pattern=NAME_PATTERN, description=NAME_RULE)]
QueuePattern = Annotated[str, Meta(pattern=QUEUE_PATTERN_PATTERN, description=QUEUE_PATTERN_RULE)]
Tag = Annotated[str, Meta(min_length=1, max_length=limits.TAG_CHARS_MAX)]
IdempotencyKey = Annotated[str, Meta(pattern=KEY_PATTERN, description=KEY_RULE)]
CompletionId = Annotated[str, Meta(pattern=COMPLETION_ID_PATTERN, description=COMPLETION_ID_RULE)]
IdText = Annotated[str, Meta(max_length=64, extra_json_schema={"format": "uuid"})]
LostWorkers = Annotated[int, Meta(ge=1, le=limits.LOST_WORKERS_MAX)]
DelaySeconds = Annotated[float, Meta(ge=0, le=limits.DELAY_MS_MAX / 1000)]
SpanSeconds = Annotated[float, Meta(gt=0, le=limits.DELAY_MS_MAX / 1000)]
TimeoutSeconds = Annotated[float, Meta(gt=0, le=limits.TIMEOUT_MS_MAX / 1000)]
BackoffSeconds = Annotated[float, Meta(ge=0, le=limits.BACKOFF_MS_MAX / 1000)]
Moment = Annotated[datetime, Meta(tz=True)]
"""RFC 3339 with its offset."""
Token = Annotated[int, Meta(ge=1, le=_TOKEN_MAX)]
Cursor = Annotated[str, Meta(max_length=1_000)]
Priority = Annotated[int, Meta(ge=0, le=9)] | Literal["low", "normal", "high"]
"""Higher first; `low` = 2, `normal` = 5, `high` = 8."""
StatusName = Literal[
    "scheduled",
    "waiting_dependencies",
    "queued",
    "running",
    "cancelling",
    "paused",
    "retrying",
    "completed",
    "failed",
    "dead_letter",
    "cancelled",
    "skipped",
]
FINISHED: Final = frozenset({"completed", "failed", "dead_letter", "cancelled", "skipped"})
"""Statuses that only an explicit request changes."""
DeadLetterReasonName = Literal[
    "attempts_exhausted", "timeout", "worker_lost", "rejected", "expired", "dependency_failed"
]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A request body, or a part of one. What is as by default is left out, so that an older server knows every field."""


PageLimit = Annotated[int, Meta(ge=1, le=limits.PAGE_JOBS_MAX)]


class ReadQuery(Request, frozen=True):
    """How fresh an answer must be: `stale` is answered by any node from what it has, and says how old that is."""

    consistency: Literal["linearizable", "quorum", "stale"] = "linearizable"
    """`linearizable`: as new as any answer so far, by the leader, which a majority has answered within the election
    timeout. `quorum`: the same, but the leader asks a majority for this very request first, so that no clock is involved;
    it costs one round trip between nodes. `stale`: by any node from what it has."""


T = TypeVar("T")
"""How a document has its times: as text where it is written, as `datetime` where it is read."""
J = TypeVar("J")
"""How a document has JSON of any kind: as text where it is written, decoded where it is read."""
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Json = Annotated[J, Meta(description="JSON of any kind; null where there is none.")]
ABSENT: Final[Any] = None
"""The default of a field that every server writes and only a document from elsewhere may leave out."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply body, or a part of one.

    Every field has a default, so that a client can read what a server of another version leaves out; the fields that a
    client doesn't know are ignored. The server writes every field, and the OpenAPI document says so.
    """


class ErrorReply(Reply, frozen=True):
    """What an attempt's handler reported."""

    type: str = ""
    message: str = ""
    trace: str = ""


class PauseDocument(Reply, Generic[T], frozen=True):
    """Since when something is paused, until when, and why."""

    since: T = ABSENT
    until: T | None = None
    """null: until somebody resumes it."""
    reason: str | None = None


class Problem(Reply, frozen=True):
    """An RFC 9457 problem document."""

    type: str = ""
    title: str = ""
    status: int = 0
    detail: str = ""
    code: str = ""
    """Stable and machine-readable."""
    retryable: bool = False
    """Whether the same request, with the same idempotency key, may succeed later."""
    advice: str | UnsetType = UNSET
    """What to do next."""
    field: str | UnsetType = UNSET
    """Path of the field at fault."""
    job_id: str | UnsetType = UNSET
    """The job that stands in the way."""
    members: Sequence[str] | UnsetType = UNSET
    """What is in the cycle, in order, each waiting for the next."""
    outcomes: list[Any] | UnsetType = UNSET
    """What became of each outcome, where outcomes were reported."""
