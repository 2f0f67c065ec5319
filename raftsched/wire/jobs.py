"""Define the documents of jobs: requests of clients, and replies of the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Generic, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.calls import HttpCall, ShellCommand
from raftsched.wire.common import (
    ABSENT,
    STATUS_NAMES,
    BackoffSeconds,
    Cursor,
    DeadLetterReasonName,
    DelaySeconds,
    ErrorReply,
    IdempotencyKey,
    IdText,
    J,
    Json,
    LostWorkers,
    Moment,
    Name,
    PageLimit,
    PauseDocument,
    Priority,
    Problem,
    ReadQuery,
    Reply,
    Request,
    SpanSeconds,
    StatusName,
    T,
    Tag,
    Time,
    TimeoutSeconds,
    Traceparent,
    or_null,
)
from raftsched.wire.parameters import PARAMETERS_SCHEMA

MAX_ATTEMPTS_DEFAULT: Final = 3
PRIORITY_DEFAULT: Final = 5

ErrorTypes = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]], Meta(max_length=limits.ERROR_TYPES_MAX)
]
ConcurrencyKey = Annotated[str, Meta(min_length=1, max_length=limits.CONCURRENCY_KEY_CHARS_MAX)]
ConditionName = Literal["success", "failure", "completion"]


class RetryPolicyRequest(Request, frozen=True):
    """Delays before further attempts; omitted fields have the cluster's defaults."""

    backoff: Literal["exponential", "linear", "fixed", "list"] = "exponential"
    base_seconds: BackoffSeconds = 1.0
    factor: Annotated[float, Meta(ge=1, le=1_000)] = 2.0
    cap_seconds: Annotated[float, Meta(ge=0.001, le=limits.BACKOFF_MS_MAX / 1000)] = 3_600.0
    jitter: Annotated[float, Meta(ge=0, le=1, description="The delay is spread over ± this share.")] = 0.2
    delays_seconds: Annotated[Sequence[BackoffSeconds], Meta(max_length=limits.RETRY_DELAYS_MAX)] | None = None
    """For `list`: the delay after each failure; the last one repeats."""


class HookBody(Request, frozen=True):
    """The options of a job that do not depend on its time, and that a job submitted by another's end can have."""

    name: Name = ""
    """Required, except with `http` or `shell`: there it is `http` or `shell` by default."""
    payload: msgspec.Raw | UnsetType = UNSET
    """JSON of any kind for the handler of a worker."""
    http: HttpCall | None = None
    """A request to send, in place of a handler."""
    shell: ShellCommand | None = None
    """A command to run, in place of a handler."""
    queue: Name | None = None
    """Default: the queue with the job's name; with `http` or `shell` the queue of that name."""
    priority: Priority = PRIORITY_DEFAULT
    """Higher first; `low` = 2, `normal` = 5, `high` = 8."""
    timeout_seconds: TimeoutSeconds | None = None
    """Longest run time of one attempt; none by default."""
    heartbeat_timeout_seconds: TimeoutSeconds | None = None
    """Longest time without a sign of life from the handler itself: progress or an explicit beat. No limit by
    default."""
    max_attempts: (
        Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX, extra_json_schema={"default": MAX_ATTEMPTS_DEFAULT})]
        | UnsetType
    ) = UNSET
    """Failures, timeouts included, until the dead-letter queue."""
    max_retries: Annotated[int, Meta(ge=0, le=limits.ATTEMPTS_MAX - 1)] | None = None
    """`max_attempts` minus one. Give one of the two."""
    max_lost_workers: LostWorkers | None = None
    """Lost workers until the dead-letter queue, counted apart from failures. Default: the queue's setting, else 3. The
    largest value means no limit."""
    retry_policy: RetryPolicyRequest | None = None
    retry_on: ErrorTypes | None = None
    """Error types that are retried; all by default."""
    no_retry: ErrorTypes | None = None
    """Error types that go to the dead-letter queue at once."""
    start: Literal["at_least_once", "at_most_once"] = "at_least_once"
    """`at_most_once`: once the worker has announced its start, the job is never leased again."""
    concurrency_key: ConcurrencyKey | None = None
    """Jobs of a queue with the same key share the queue's `key_concurrency`, 1 by default."""
    on_dependency_failure: Literal["skip", "fail"] = "skip"
    """The job ends `skipped`, or in the dead-letter queue, if a parent's end does not meet its condition."""
    tags: Annotated[list[Tag], Meta(max_length=limits.TAGS_MAX)] | None = None
    region: Name | None = None
    expires_in_seconds: SpanSeconds | None = None
    """The job ends as `expired` if it has not started this long after it was due."""
    deadline_in_seconds: SpanSeconds | None = None
    """The job ends as `expired` if it has not finished this long after it was due, even while it runs."""
    retention_seconds: SpanSeconds | None = None
    """Time to keep the finished job. Default: the setting of its queue or of the cluster. It is kept longer until its
    idempotency key expires, its workflow ends, and the jobs that depend on it end."""


class JobBody(HookBody, frozen=True):
    """The options of a job that do not depend on its time."""

    on_failure: HookBody | None = None
    """A job to submit if this one ends in the dead-letter queue. Its payload is what is known of that end, unless it has
    one. Default: the queue's setting."""
    on_success: HookBody | None = None
    """The same for a job that completes."""


class TimedJobBody(JobBody, frozen=True):
    """The options of a job, with its times."""

    run_at: Moment | None = None
    """A past time means now."""
    delay_seconds: DelaySeconds | None = None
    expires_at: Moment | None = None
    """The job ends as `expired` if it has not started by then. Give this or `expires_in_seconds`."""
    deadline: Moment | None = None
    """The job ends as `expired` if it has not finished by then, even while it runs. Give this or
    `deadline_in_seconds`."""
    paused: bool = False
    """Store the job `paused`, to be resumed by hand."""


class DependencyRequest(Request, frozen=True):
    """A job that must end first."""

    job: IdText
    condition: ConditionName = "success"
    """`success` = completed, `failure` = dead-lettered, `completion` = ended in any way."""


class UniqueRequest(Request, frozen=True):
    """A limit of one job at a time with the same properties within its tenant."""

    by: Annotated[Sequence[Literal["name", "key", "payload"]], Meta(min_length=1, max_length=3)] | None = None
    """Properties that must be equal. Default: `name` and `key` if a key is given, else `name` and `payload`."""
    key: Annotated[str, Meta(min_length=1, max_length=limits.IDEMPOTENCY_KEY_CHARS_MAX)] | None = None
    for_seconds: SpanSeconds | None = None
    """Duration of the limit, even if the job finishes earlier. Default: until the job is finished."""
    on_conflict: Literal["return", "reject"] = "return"
    """Reply to a second submission: 200 with the existing job, or 409."""


class JobRequest(TimedJobBody, frozen=True):
    """A job to run: now, at `run_at`, or after `delay_seconds`."""

    tenant: Name | None = None
    unique: UniqueRequest | None = None
    depends_on: Annotated[list[IdText | DependencyRequest], Meta(max_length=limits.DEPENDENCIES_MAX)] | None = None
    """Jobs that must end first; an id alone means that it must succeed."""
    idempotency_key: IdempotencyKey | None = None
    """A second submission with the same key and job finds the first. For single jobs the Idempotency-Key header does
    the same."""
    idempotency_ttl_seconds: SpanSeconds | None = None
    """Lifetime of the key; the job is kept at least as long. Default: as long as the job exists."""
    traceparent: Traceparent | None = None
    """The span that submits it. For single jobs the header `traceparent` does the same. It does not count for keys."""


class BatchRequest(Request, frozen=True):
    """Jobs, each stored or rejected on its own."""

    jobs: Annotated[
        list[Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/JobRequest"})]],
        Meta(max_length=limits.BATCH_JOBS_MAX),
    ]


class LegacyJobRequest(Request, frozen=True):
    """A job as older clients submit it; `task` is its name."""

    task: Name
    payload: msgspec.Raw | UnsetType = UNSET
    priority: Priority = PRIORITY_DEFAULT
    run_at: Moment | None = None
    delay_seconds: DelaySeconds | None = None
    timeout_seconds: TimeoutSeconds | None = None
    max_retries: Annotated[int, Meta(ge=0, le=limits.ATTEMPTS_MAX - 1)] | None = None
    idempotency_key: IdempotencyKey | None = None


class ListQuery(ReadQuery, frozen=True):
    """A filter of jobs, and a page of them."""

    status: Annotated[list[StatusName], Meta(min_length=1, max_length=len(STATUS_NAMES))] | None = None
    """One or more, separated by commas. Without `queue`, `name`, `tag`, `schedule` and `workflow`, or with `queue` and
    only statuses that wait for a time, the jobs are listed one status after another."""
    queue: Name | None = None
    name: Name | None = None
    tag: Tag | None = None
    tenant: Name | None = None
    schedule: IdText | None = None
    """Id of the schedule that submitted them."""
    workflow: IdText | None = None
    """Id of the workflow that they belong to."""
    reason: DeadLetterReasonName | None = None
    """Reason of their failure. Selects from the dead-letter queue, unless `status` is given."""
    created_after: Moment | None = None
    """Submitted at or after this time."""
    created_before: Moment | None = None
    limit: PageLimit = 100
    """Maximum number of jobs on the page. A page may hold fewer, or none, although `next_cursor` leads to more: if few of
    many jobs match all filters, each page searches 5,000 of them."""
    order: Literal["asc", "desc"] = "asc"
    """`asc`: the oldest first; `desc`: the latest first. The order is that of submission. If jobs are listed one status
    after another, it is that of the status: by the time of finishing, or by the due time."""
    cursor: Cursor | None = None
    """`next_cursor` of the previous page."""


class RetryPolicyReply(Reply, frozen=True):
    """The delays of a job before further attempts."""

    backoff: str = ""
    base_seconds: float = 0.0
    factor: float = 0.0
    cap_seconds: float = 0.0
    jitter: float = 0.0
    delays_seconds: Sequence[float] = ()


class DependencyReply(Reply, frozen=True):
    """A job that must end first, and the required end."""

    job: str
    condition: str = "success"


class JobDocument(Reply, Generic[T, J], frozen=True):
    """A job as it was when it was read."""

    id: str
    name: str = ""
    queue: str = ""
    tenant: str = ""
    status: str = ""
    """`queued` is a waiting job that is due."""
    priority: int = 0
    payload: Json[J] = ABSENT
    """null for requests and commands: it is their body or input."""
    http: Annotated[J, or_null("HttpCall")] = ABSENT
    shell: Annotated[J, or_null("ShellCommand")] = ABSENT
    on_failure: Annotated[J, or_null("HookBody")] = ABSENT
    """The job that its end in the dead-letter queue submits; null: its queue's."""
    on_success: Annotated[J, or_null("HookBody")] = ABSENT
    parameters: Annotated[J, Meta(extra_json_schema=PARAMETERS_SCHEMA)] = ABSENT
    """Values of its schedule's parameters by their names; a secret is `{"secret": NAME}`."""
    schedule_id: str | None = None
    """The schedule that submitted it."""
    instant: T | None = None
    """The nominal fire time of its schedule."""
    workflow_id: str | None = None
    task: str | None = None
    """Its name within its workflow."""
    run_at: T = ABSENT
    """The requested time; retries and snoozes do not change it."""
    next_run_at: T | None = None
    """The next time to run, while it waits."""
    expires_at: T | None = None
    deadline: T | None = None
    timeout_seconds: float | None = None
    heartbeat_timeout_seconds: float | None = None
    max_attempts: int = 0
    max_lost_workers: int = 0
    """Lost workers until the dead-letter queue; its queue's setting if it has none of its own."""
    attempt_number: int = 0
    """Attempts started so far in this run."""
    retry_policy: Annotated[J, Meta(extra_json_schema={"$ref": "#/components/schemas/RetryPolicyReply"})] = ABSENT
    retry_on: Sequence[str] = ()
    no_retry: Sequence[str] = ()
    start: str = ""
    concurrency_key: str | None = None
    unique_until: T | None = None
    """End of its unique key, if that has a fixed end."""
    depends_on: Sequence[DependencyReply] = ()
    """Its dependencies; in lists the first 100 of them."""
    dependency_count: int = 0
    pending_dependencies: int = 0
    """Jobs that it still waits for, and 1 more while its workflow is incomplete."""
    on_dependency_failure: str = ""
    pause: PauseDocument[T] | None = None
    tags: Sequence[str] = ()
    region: str | None = None
    retention_seconds: float | None = None
    revision: int = 0
    """Log index of its latest change; also its ETag, for `If-Match`, and for `Job.update` in the client."""
    created_at: T = ABSENT
    updated_at: T = ABSENT
    queued_at: T | None = None
    """The time at which it became due."""
    started_at: T | None = None
    """Start of its latest attempt."""
    completed_at: T | None = None
    """The time at which it finished, in any status."""
    execution_time_ms: int | None = None
    """Duration of the last attempt of a finished job."""
    failure_reason: str | None = None
    """The reason for the dead-letter queue, or the type of the latest failure."""
    result: Json[J] = ABSENT
    progress: Json[J] = ABSENT
    run_id: str = ""
    """Idempotency key for receivers; equal for all attempts of the run."""
    failure_count: int = 0
    lost_count: int = 0
    worker: str | None = None
    """The worker that holds its lease."""
    error: ErrorReply | None = None
    """Error of the latest attempt, if that failed."""
    idempotency_key: str | None = None
    replay_of: str | None = None
    """The original of this clone."""
    traceparent: str | None = None
    """The span that submitted it."""
    hook_of: str | None = None
    """The job whose end submitted this one."""
    notice_of: str | None = None
    """The schedule about which this job tells its owner (`notify`)."""


class JobReply(JobDocument[Time, msgspec.Raw], frozen=True):
    """A job as it was when it was read."""

    duplicate: Literal[True] | UnsetType = UNSET
    """Present if a submission found this job instead of storing a new one."""


class JobsPage(Reply, frozen=True):
    """Jobs in a stable order; a page may hold few jobs, or none, although `next_cursor` leads to more."""

    jobs: list[JobReply] = []
    next_cursor: str | None = None
    """null at the end of the list."""


class ResultDocument(Reply, Generic[J], frozen=True):
    """A job's result; its status shows whether there can be one yet."""

    id: str = ""
    status: str = ""
    result: Json[J] = ABSENT
    error: ErrorReply | None = None
    revision: int = 0


class ResultReply(ResultDocument[msgspec.Raw], frozen=True):
    """A job's result; its status shows whether there can be one yet."""


class LegacyJobReply(Reply, frozen=True):
    """A job as older clients read it."""

    id: str
    job_id: str
    """The same as `id`."""
    task: str
    status: str
    duplicate: Literal[True] | UnsetType = UNSET


class BatchItem(Reply, frozen=True):
    """The result for one job of a batch: 201 stored, 200 known before, otherwise a problem."""

    status: int = 0
    id: str | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    duplicate: Literal[True] | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


class BatchReply(Reply, frozen=True):
    """The result for each job, in the order of the request."""

    results: list[BatchItem]
