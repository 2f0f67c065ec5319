"""Define the types that documents share: names, keys, durations, times, problems, the bases of requests and replies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits

NAME_RULE: Final = f"1 to {limits.NAME_CHARS_MAX} letters, digits and _ . : @ -, the first a letter or digit"
NAME_PATTERN: Final = rf"^[A-Za-z0-9][A-Za-z0-9_.:@-]{{0,{limits.NAME_CHARS_MAX - 1}}}$(?!\n)"
"""`$` alone would let a line feed pass at the end."""
is_name: Final = re.compile(NAME_PATTERN).match
"""Match a valid name. Names in paths are checked by it, since a longer text does not fit into a key of the store."""
QUEUE_PATTERN_RULE: Final = "the name of a queue; or a prefix of names followed by *; or * alone, for all"
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
LABEL_FILTER_RULE: Final = "the name of a label, =, and its text"
LABEL_FILTER_PATTERN: Final = rf"^[A-Za-z0-9][A-Za-z0-9_.:@-]{{0,{limits.NAME_CHARS_MAX - 1}}}="
PARAMETER_NAME_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$(?!\n)"
PARAMETER_NAME_RULE: Final = "1 to 64 letters, digits and _, the first not a digit"
TRACEPARENT_PATTERN: Final = r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$(?!\n)"
TRACEPARENT_RULE: Final = "a traceparent of W3C Trace Context, version 00, as in 00-<32 hex>-<16 hex>-01"

PATTERN_RULES: Final = {
    TRACEPARENT_PATTERN: TRACEPARENT_RULE,
    MEMBER_ID_PATTERN: MEMBER_ID_RULE,
    NAME_PATTERN: NAME_RULE,
    QUEUE_PATTERN_PATTERN: QUEUE_PATTERN_RULE,
    KEY_PATTERN: KEY_RULE,
    LABEL_FILTER_PATTERN: LABEL_FILTER_RULE,
    PARAMETER_NAME_PATTERN: PARAMETER_NAME_RULE,
    COMPLETION_ID_PATTERN: COMPLETION_ID_RULE,
}
"""The rule that each pattern enforces, as readable text."""

_TOKEN_MAX: Final = (1 << 63) - 1

Name = Annotated[str, Meta(pattern=NAME_PATTERN, description=NAME_RULE)]
QueuePattern = Annotated[str, Meta(pattern=QUEUE_PATTERN_PATTERN, description=QUEUE_PATTERN_RULE)]
Tag = Annotated[str, Meta(min_length=1, max_length=limits.TAG_CHARS_MAX)]
IdempotencyKey = Annotated[str, Meta(pattern=KEY_PATTERN, description=KEY_RULE)]
Traceparent = Annotated[str, Meta(pattern=TRACEPARENT_PATTERN, description=TRACEPARENT_RULE)]
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
STATUS_NAMES: Final[tuple[StatusName, ...]] = get_args(StatusName)
LEASED: Final[tuple[StatusName, ...]] = ("running", "cancelling")
"""Statuses in which a worker has the job."""
FINISHED: Final = frozenset({"completed", "failed", "dead_letter", "cancelled", "skipped"})
"""Statuses that only an explicit request changes."""
UNLEASED: Final = tuple(each for each in STATUS_NAMES if each not in LEASED and each not in FINISHED)
"""Statuses in which the job waits: for time, for a parent or for a user."""
DeadLetterReasonName = Literal[
    "attempts_exhausted", "timeout", "worker_lost", "rejected", "expired", "dependency_failed", "target_refused"
]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A request body, or a part of one.

    Default values are not encoded, so that an older server knows every field that is sent.
    """


PageLimit = Annotated[int, Meta(ge=1, le=limits.PAGE_JOBS_MAX)]


class ReadQuery(Request, frozen=True):
    """The freshness that a read requires."""

    consistency: Literal["linearizable", "quorum", "stale"] = "linearizable"
    """`linearizable`: at least as new as any earlier answer. The leader answers, if a majority has responded to it
    within the election timeout. `quorum`: the same, but the leader first asks a majority for this request. It depends
    on no clock, and costs one round trip between nodes. `stale`: any node answers from its own state; the reply states
    how old that is."""


T = TypeVar("T")
"""Type of a document's times: text in the server, `datetime` in the client."""
J = TypeVar("J")
"""Type of JSON of any kind: text in the server, decoded in the client."""
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Json = Annotated[J, Meta(description="JSON of any kind; null if there is none.")]
ABSENT: Final[Any] = None
"""The default of a field that every server writes; only a document of another origin may lack it."""


def or_null(document: str) -> Meta:
    """Return the schema of a field that holds a document of this name, or null."""
    return Meta(extra_json_schema={"anyOf": [{"$ref": f"#/components/schemas/{document}"}, {"type": "null"}]})


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply body, or a part of one.

    Every field has a default, so that a client can read the reply of a server whose version lacks the field. Clients
    ignore unknown fields. The server writes every field, and the OpenAPI document marks each as required.
    """


class ErrorReply(Reply, frozen=True):
    """An error that an attempt's handler reported."""

    type: str = ""
    message: str = ""
    trace: str = ""


class PauseDocument(Reply, Generic[T], frozen=True):
    """A pause: its start, its end and its reason."""

    since: T = ABSENT
    until: T | None = None
    """null: until it is resumed."""
    reason: str | None = None
    by: str | None = None
    """The actor who paused a queue; null for jobs and schedules, whose history has it."""


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
    """A suggested next step."""
    field: str | UnsetType = UNSET
    """Path of the field at fault."""
    job_id: str | UnsetType = UNSET
    """The job that prevents the request."""
    members: Sequence[str] | UnsetType = UNSET
    """The members of the cycle, in order; each waits for the next."""
    retry_after_seconds: float | UnsetType = UNSET
    """The time after which the same request may be accepted, if it is known; the header `Retry-After` has it, too."""
    request_id: str | UnsetType = UNSET
    """The id of the request, also in the header `X-Request-Id` and in the logs of the nodes."""
    outcomes: list[Any] | UnsetType = UNSET
    """The result for each reported outcome, if the request reported outcomes."""
