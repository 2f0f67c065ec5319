"""What clients send: a strict struct for each request, with its bounds in its types.

Decoding checks them and the OpenAPI document is generated from them, so what is published is what is enforced. Unknown
fields are refused: a misspelt `max_attempts` must not turn a limited job into an unlimited one. `null` means the same
as leaving an optional field out. A `Raw` field is JSON of any kind, kept byte for byte.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits

NAME_RULE: Final = f"1 to {limits.NAME_CHARS_MAX} letters, digits and _ . : @ -, the first a letter or digit"
NAME_PATTERN: Final = rf"^[A-Za-z0-9][A-Za-z0-9_.:@-]{{0,{limits.NAME_CHARS_MAX - 1}}}$(?!\n)"
"""`$` alone would let a line feed pass at the end."""
KEY_RULE: Final = f"1 to {limits.IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters"
KEY_PATTERN: Final = rf"^[ -~]{{1,{limits.IDEMPOTENCY_KEY_CHARS_MAX}}}$(?!\n)"
COMPLETION_ID_RULE: Final = f"1 to {limits.COMPLETION_ID_CHARS_MAX} printable ASCII characters"
COMPLETION_ID_PATTERN: Final = rf"^[ -~]{{1,{limits.COMPLETION_ID_CHARS_MAX}}}$(?!\n)"

MEMBER_ID_RULE: Final = "1 to 64 letters, digits and _ . -, the first a letter or digit"
MEMBER_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$(?!\n)"

PATTERN_RULES: Final = {
    MEMBER_ID_PATTERN: MEMBER_ID_RULE,
    NAME_PATTERN: NAME_RULE,
    KEY_PATTERN: KEY_RULE,
    COMPLETION_ID_PATTERN: COMPLETION_ID_RULE,
}
"""What a pattern means, for people."""

_TOKEN_MAX: Final = (1 << 63) - 1

Name = Annotated[str, Meta(pattern=NAME_PATTERN, description=NAME_RULE)]
Tag = Annotated[str, Meta(min_length=1, max_length=limits.TAG_CHARS_MAX)]
IdempotencyKey = Annotated[str, Meta(pattern=KEY_PATTERN, description=KEY_RULE)]
CompletionId = Annotated[str, Meta(pattern=COMPLETION_ID_PATTERN, description=COMPLETION_ID_RULE)]
DelaySeconds = Annotated[float, Meta(ge=0, le=limits.DELAY_MS_MAX / 1000)]
BackoffSeconds = Annotated[float, Meta(ge=0, le=limits.BACKOFF_MS_MAX / 1000)]
Token = Annotated[int, Meta(ge=1, le=_TOKEN_MAX)]

MAX_ATTEMPTS_DEFAULT: Final = 3
PRIORITY_DEFAULT: Final = 5


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request body, or a part of one."""


class RetryPolicyRequest(Request, frozen=True):
    """How long to wait before the next attempt; `raftsched.core.job.RetryPolicy` in seconds and shares."""

    backoff: Literal["exponential", "linear", "fixed", "list"] = "exponential"
    base_seconds: BackoffSeconds = 1.0
    factor: Annotated[float, Meta(ge=1, le=1_000)] = 2.0
    cap_seconds: Annotated[float, Meta(ge=0.001, le=limits.BACKOFF_MS_MAX / 1000)] = 3_600.0
    jitter: Annotated[float, Meta(ge=0, le=1, description="The delay is spread over ± this share.")] = 0.2
    delays_seconds: Annotated[list[BackoffSeconds], Meta(max_length=limits.RETRY_DELAYS_MAX)] | None = None


class JobRequest(Request, frozen=True):
    """A job to run: now, at `run_at`, or after `delay_seconds`."""

    name: Name
    payload: msgspec.Raw | UnsetType = UNSET
    queue: Name | None = None
    """Default: the queue that is called like the job."""
    priority: Annotated[int, Meta(ge=0, le=9)] | Literal["low", "normal", "high"] = PRIORITY_DEFAULT
    """Higher first; `low` = 2, `normal` = 5, `high` = 8."""
    run_at: Annotated[datetime, Meta(tz=True)] | None = None
    """A past time means now."""
    delay_seconds: DelaySeconds | None = None
    timeout_seconds: Annotated[float, Meta(gt=0, le=limits.TIMEOUT_MS_MAX / 1000)] | None = None
    """Longest run time of one attempt; none by default."""
    max_attempts: Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)] = MAX_ATTEMPTS_DEFAULT
    """Failures, timeouts included, that end in the dead letters."""
    retry_policy: RetryPolicyRequest | None = None
    tags: Annotated[list[Tag], Meta(max_length=limits.TAGS_MAX)] | None = None
    region: Name | None = None
    idempotency_key: IdempotencyKey | None = None
    """The same key and job a second time finds the first; for single jobs the Idempotency-Key header does the same."""


class BatchRequest(Request, frozen=True):
    """Jobs, each stored or refused on its own."""

    jobs: Annotated[
        list[Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/JobRequest"})]],
        Meta(max_length=limits.BATCH_JOBS_MAX),
    ]


class ReadQuery(Request, frozen=True):
    """How fresh an answer must be: `stale` is answered by any node from what it has, and says how old that is."""

    consistency: Literal["linearizable", "stale"] = "linearizable"


class ListQuery(ReadQuery, frozen=True):
    """Which jobs, and which page of them."""

    status: (
        Literal[
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
        | None
    ) = None
    queue: Name | None = None
    name: Name | None = None
    tag: Tag | None = None
    limit: Annotated[int, Meta(ge=1, le=limits.PAGE_JOBS_MAX)] = 100
    """Most jobs on the page; there may be fewer on it although `next_cursor` leads to more."""
    order: Literal["asc", "desc"] = "asc"
    """By submission; with `status`, by what that status is kept in order of: when it was finished, or when it is due."""
    cursor: Annotated[str, Meta(max_length=1_000)] | None = None
    """`next_cursor` of the page before."""


class LeaseRequest(Request, frozen=True):
    """A worker asks for jobs, and waits for them if there are none."""

    worker: Name
    queues: Annotated[list[Name], Meta(min_length=1, max_length=limits.QUEUES_PER_LEASE_MAX)]
    capacity: Annotated[int, Meta(ge=1, le=limits.LEASE_CAPACITY_MAX)] = 1
    wait_seconds: Annotated[float, Meta(ge=0, le=limits.LEASE_WAIT_SECONDS_MAX)] = 0.0
    request_id: Annotated[str, Meta(max_length=limits.REQUEST_ID_CHARS_MAX)] = ""
    """The worker's own name for this request: repeated because the reply was lost, it gets the same leases."""


class HeldLease(Request, frozen=True):
    """A lease that its worker still works on."""

    run_id: str
    fencing_token: Token
    progress: msgspec.Raw | UnsetType = UNSET
    """JSON of any kind; checked, but not kept by this version."""


class HeartbeatRequest(Request, frozen=True):
    """A worker lives, and so do these leases of it."""

    worker: Name
    leases: Annotated[list[HeldLease], Meta(max_length=limits.HEARTBEAT_LEASES_MAX)]


class ErrorReport(Request, frozen=True):
    """What went wrong in a handler. Over-long texts are cut: the head of the message, the tail of the trace is kept."""

    type: str = ""
    message: str = ""
    trace: str = ""


class OutcomeReport(Request, frozen=True):
    """How one attempt ended."""

    run_id: str
    fencing_token: Token
    status: Literal["completed", "failed", "snoozed"]
    result: msgspec.Raw | UnsetType = UNSET
    """JSON of any kind; of completed runs only."""
    error: ErrorReport | None = None
    """Of failed runs only."""
    completion_id: CompletionId | None = None
    """The worker's own name for this report: the same one again gets the recorded answer."""
    retryable: bool = True
    """False: no further attempt, whatever `max_attempts` says. Of failed runs only."""
    retry_after_seconds: DelaySeconds | None = None
    """The handler's own wish for the next attempt. Of failed runs only."""
    snooze_seconds: DelaySeconds | None = None
    """When to run again, without using an attempt. Of snoozed runs, and required there."""


class MemberRequest(Request, frozen=True):
    """A node that is to join the cluster; it must be started with an empty data directory and this id."""

    id: Annotated[str, Meta(pattern=MEMBER_ID_PATTERN, description=MEMBER_ID_RULE)]
    raft: Annotated[str, Meta(max_length=300)]
    """host:port at which the other nodes reach it."""
    api: Annotated[str, Meta(max_length=300)]
    """host:port of its API."""


class OutcomesRequest(Request, frozen=True):
    """Reports of one worker, each recorded or refused on its own."""

    worker: Name
    outcomes: Annotated[
        list[Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/OutcomeReport"})]],
        Meta(max_length=limits.OUTCOMES_MAX),
    ]
