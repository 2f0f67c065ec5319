"""Jobs as clients ask for them: alone, in a batch, as the seed did."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.requests.common import (
    BackoffSeconds,
    DelaySeconds,
    IdempotencyKey,
    IdText,
    LostWorkers,
    Moment,
    Name,
    Priority,
    Request,
    SpanSeconds,
    Tag,
    TimeoutSeconds,
)

MAX_ATTEMPTS_DEFAULT: Final = 3
PRIORITY_DEFAULT: Final = 5

ErrorTypes = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]], Meta(max_length=limits.ERROR_TYPES_MAX)
]
ConcurrencyKey = Annotated[str, Meta(min_length=1, max_length=limits.CONCURRENCY_KEY_CHARS_MAX)]
ConditionName = Literal["success", "failure", "completion"]


class RetryPolicyRequest(Request, frozen=True):
    """How long to wait before the next attempt; `raftsched.core.records.job.RetryPolicy` in seconds and shares."""

    backoff: Literal["exponential", "linear", "fixed", "list"] = "exponential"
    base_seconds: BackoffSeconds = 1.0
    factor: Annotated[float, Meta(ge=1, le=1_000)] = 2.0
    cap_seconds: Annotated[float, Meta(ge=0.001, le=limits.BACKOFF_MS_MAX / 1000)] = 3_600.0
    jitter: Annotated[float, Meta(ge=0, le=1, description="The delay is spread over ± this share.")] = 0.2
    delays_seconds: Annotated[list[BackoffSeconds], Meta(max_length=limits.RETRY_DELAYS_MAX)] | None = None


class JobBody(Request, frozen=True):
    """What to run and how, whenever that is."""

    name: Name
    payload: msgspec.Raw | UnsetType = UNSET
    queue: Name | None = None
    """Default: the queue that is called like the job."""
    priority: Priority = PRIORITY_DEFAULT
    """Higher first; `low` = 2, `normal` = 5, `high` = 8."""
    timeout_seconds: TimeoutSeconds | None = None
    """Longest run time of one attempt; none by default."""
    heartbeat_timeout_seconds: TimeoutSeconds | None = None
    """Longest silence of the handler itself, in progress or explicit beats; not asked for by default."""
    max_attempts: (
        Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX, extra_json_schema={"default": MAX_ATTEMPTS_DEFAULT})]
        | UnsetType
    ) = UNSET
    """Failures, timeouts included, that end in the dead letters."""
    max_retries: Annotated[int, Meta(ge=0, le=limits.ATTEMPTS_MAX - 1)] | None = None
    """Another way to say `max_attempts`: one less. Give either."""
    max_lost_workers: LostWorkers | None = None
    """Lost workers that end in the dead letters, counted apart from failures; by default as its queue says, else 3. The
    largest value stands for any number."""
    retry_policy: RetryPolicyRequest | None = None
    retry_on: ErrorTypes | None = None
    """Error types that are tried again; all by default."""
    no_retry: ErrorTypes | None = None
    """Error types that go to the dead letters at once."""
    start: Literal["at_least_once", "at_most_once"] = "at_least_once"
    """`at_most_once`: once the worker has said that it starts, the job is never leased again."""
    concurrency_key: ConcurrencyKey | None = None
    """Jobs of a queue with the same key share the queue's `key_concurrency`, which is 1 unless it is set."""
    on_dependency_failure: Literal["skip", "fail"] = "skip"
    """Whether it ends `skipped` or in the dead letters where a parent ends otherwise than it should."""
    tags: Annotated[list[Tag], Meta(max_length=limits.TAGS_MAX)] | None = None
    region: Name | None = None
    expires_in_seconds: SpanSeconds | None = None
    """Not started so long after it was due, it ends as `expired`."""
    deadline_in_seconds: SpanSeconds | None = None
    """Not finished so long after it was due, it ends as `expired`, whatever it does."""
    retention_seconds: SpanSeconds | None = None
    """How long it is kept once finished; by default as its queue or the cluster says. It is kept longer while the time of
    its idempotency key lasts, its workflow has not ended, or a job that depends on it has not."""


class TimedJobBody(JobBody, frozen=True):
    """A job with times of its own."""

    run_at: Moment | None = None
    """A past time means now."""
    delay_seconds: DelaySeconds | None = None
    expires_at: Moment | None = None
    """Not started by then, it ends as `expired`. Give it or `expires_in_seconds`."""
    deadline: Moment | None = None
    """Not finished by then, it ends as `expired`, whatever it does. Give it or `deadline_in_seconds`."""
    paused: bool = False
    """It is stored `paused`, to be resumed by hand."""


class DependencyRequest(Request, frozen=True):
    """A job that must end first."""

    job: IdText
    condition: ConditionName = "success"
    """`success` = completed, `failure` = dead-lettered, `completion` = in whatever way."""


class UniqueRequest(Request, frozen=True):
    """What makes a job unique within its tenant: there is at most one like it at a time."""

    by: Annotated[list[Literal["name", "key", "payload"]], Meta(min_length=1, max_length=3)] | None = None
    """What must be equal; default: `name` and `key` where a key is given, else `name` and `payload`."""
    key: Annotated[str, Meta(min_length=1, max_length=limits.IDEMPOTENCY_KEY_CHARS_MAX)] | None = None
    for_seconds: SpanSeconds | None = None
    """How long it counts, also once the job is finished; by default until it is finished."""
    on_conflict: Literal["return", "reject"] = "return"
    """What a second submission gets: 200 with the job that is there, or 409."""


class JobRequest(TimedJobBody, frozen=True):
    """A job to run: now, at `run_at`, or after `delay_seconds`."""

    tenant: Name | None = None
    unique: UniqueRequest | None = None
    depends_on: Annotated[list[IdText | DependencyRequest], Meta(max_length=limits.DEPENDENCIES_MAX)] | None = None
    """Jobs that must end first; an id alone means that it must succeed."""
    idempotency_key: IdempotencyKey | None = None
    """The same key and job a second time finds the first; for single jobs the Idempotency-Key header does the same."""
    idempotency_ttl_seconds: SpanSeconds | None = None
    """How long the key counts, and the job is kept for it; by default as long as the job is there."""


class BatchRequest(Request, frozen=True):
    """Jobs, each stored or refused on its own."""

    jobs: Annotated[
        list[Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/JobRequest"})]],
        Meta(max_length=limits.BATCH_JOBS_MAX),
    ]


class SeedRequest(Request, frozen=True):
    """A job as older clients submit it; `task` is its name."""

    task: Name
    payload: msgspec.Raw | UnsetType = UNSET
    priority: Priority = PRIORITY_DEFAULT
    run_at: Moment | None = None
    delay_seconds: DelaySeconds | None = None
    timeout_seconds: TimeoutSeconds | None = None
    max_retries: Annotated[int, Meta(ge=0, le=limits.ATTEMPTS_MAX - 1)] | None = None
    idempotency_key: IdempotencyKey | None = None
