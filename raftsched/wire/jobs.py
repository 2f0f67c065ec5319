"""Jobs: what clients ask for and change, and what the API answers about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Generic, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import (
    ABSENT,
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
)

MAX_ATTEMPTS_DEFAULT: Final = 3
PRIORITY_DEFAULT: Final = 5

ErrorTypes = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]], Meta(max_length=limits.ERROR_TYPES_MAX)
]
ConcurrencyKey = Annotated[str, Meta(min_length=1, max_length=limits.CONCURRENCY_KEY_CHARS_MAX)]
ConditionName = Literal["success", "failure", "completion"]


class RetryPolicyRequest(Request, frozen=True):
    """How long to wait before the next attempt; what is left out is the cluster's default."""

    backoff: Literal["exponential", "linear", "fixed", "list"] = "exponential"
    base_seconds: BackoffSeconds = 1.0
    factor: Annotated[float, Meta(ge=1, le=1_000)] = 2.0
    cap_seconds: Annotated[float, Meta(ge=0.001, le=limits.BACKOFF_MS_MAX / 1000)] = 3_600.0
    jitter: Annotated[float, Meta(ge=0, le=1, description="The delay is spread over ± this share.")] = 0.2
    delays_seconds: Annotated[Sequence[BackoffSeconds], Meta(max_length=limits.RETRY_DELAYS_MAX)] | None = None
    """For `list`: the delay after each failure; the last one repeats."""


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

    by: Annotated[Sequence[Literal["name", "key", "payload"]], Meta(min_length=1, max_length=3)] | None = None
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


PauseReason = Annotated[str, Meta(max_length=limits.PAUSE_REASON_CHARS_MAX)]


class AmendRequest(Request, frozen=True):
    """What to change of a job that does not run. `null` takes away what it had; what is left out stays as it is."""

    run_at: Moment | UnsetType = UNSET
    """A past time means now."""
    delay_seconds: DelaySeconds | UnsetType = UNSET
    """From now; 0 = now."""
    priority: Priority | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    payload: msgspec.Raw | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)] | UnsetType = UNSET
    max_retries: Annotated[int, Meta(ge=0, le=limits.ATTEMPTS_MAX - 1)] | UnsetType = UNSET
    max_lost_workers: LostWorkers | UnsetType | None = UNSET
    timeout_seconds: TimeoutSeconds | UnsetType | None = UNSET
    expires_at: Moment | UnsetType | None = UNSET
    expires_in_seconds: SpanSeconds | UnsetType = UNSET
    """After its time as it then is; as `deadline_in_seconds`."""
    deadline: Moment | UnsetType | None = UNSET
    deadline_in_seconds: SpanSeconds | UnsetType = UNSET
    tags: Annotated[list[Tag], Meta(max_length=limits.TAGS_MAX)] | UnsetType | None = UNSET


class PauseRequest(Request, frozen=True):
    """How long to pause, and why."""

    until: Moment | None = None
    """It goes on by itself then; by default only once it is resumed."""
    for_seconds: SpanSeconds | None = None
    reason: PauseReason | None = None


class RetryRequest(Request, frozen=True):
    """When to run again; now by default."""

    run_at: Moment | None = None
    delay_seconds: DelaySeconds | None = None


class ReplayRequest(Request, frozen=True):
    """What the clone has otherwise than its original."""

    run_at: Moment | None = None
    """When it runs; now by default."""
    delay_seconds: DelaySeconds | None = None
    payload: msgspec.Raw | UnsetType = UNSET
    queue: Name | None = None
    priority: Priority | None = None


class CancelQuery(Request, frozen=True):
    """How to cancel a job that runs."""

    force: bool = False
    """End its attempt at once instead of asking its worker first."""


class ListQuery(ReadQuery, frozen=True):
    """Which jobs, and which page of them."""

    status: Annotated[list[StatusName], Meta(min_length=1, max_length=12)] | None = None
    """One or more, with commas between. Without `queue`, `name`, `tag`, `schedule` and `workflow`, or with `queue` and
    statuses that wait for time only, their jobs come one status after another."""
    queue: Name | None = None
    name: Name | None = None
    tag: Tag | None = None
    tenant: Name | None = None
    schedule: IdText | None = None
    """Id of the schedule that they are runs of."""
    workflow: IdText | None = None
    """Id of the workflow that they belong to."""
    reason: DeadLetterReasonName | None = None
    """Why they failed: of the dead letters, unless `status` says otherwise."""
    created_after: Moment | None = None
    """Submitted at or after then."""
    created_before: Moment | None = None
    limit: PageLimit = 100
    """Most jobs on the page. There may be fewer on it although `next_cursor` leads to more, where few of many match by
    `tenant`, `reason` or `status`; a page without jobs is the last one, unless 5 seconds of search found none."""
    order: Literal["asc", "desc"] = "asc"
    """`asc`: the oldest first; `desc`: the latest first. By submission; where jobs come one status after another, by
    what that status is kept in order of: when it was finished, or when it is due."""
    cursor: Cursor | None = None
    """`next_cursor` of the page before."""


class RetryPolicyReply(Reply, frozen=True):
    """How long a job waits before its next attempt."""

    backoff: str = ""
    base_seconds: float = 0.0
    factor: float = 0.0
    cap_seconds: float = 0.0
    jitter: float = 0.0
    delays_seconds: Sequence[float] = ()


class DependencyReply(Reply, frozen=True):
    """A job that must end first, and how."""

    job: str
    condition: str = "success"


class JobDocument(Reply, Generic[T, J], frozen=True):
    """A job as it was when it was read."""

    id: str
    name: str = ""
    queue: str = ""
    tenant: str = ""
    status: str = ""
    """A waiting job whose time has come is `queued`."""
    priority: int = 0
    payload: Json[J] = ABSENT
    schedule_id: str | None = None
    """The schedule that it is a run of."""
    instant: T | None = None
    """The nominal instant of the schedule that it is for."""
    workflow_id: str | None = None
    task: str | None = None
    """Its name within its workflow."""
    run_at: T = ABSENT
    """The time that was asked for; retries and snoozes leave it as it is."""
    next_run_at: T | None = None
    """When it runs next, while it waits."""
    expires_at: T | None = None
    deadline: T | None = None
    timeout_seconds: float | None = None
    heartbeat_timeout_seconds: float | None = None
    max_attempts: int = 0
    max_lost_workers: int = 0
    """Lost workers that end in the dead letters; its queue's setting where it has none of its own."""
    attempt_number: int = 0
    """Attempts begun so far in this run."""
    retry_policy: Annotated[J, Meta(extra_json_schema={"$ref": "#/components/schemas/RetryPolicyReply"})] = ABSENT
    retry_on: Sequence[str] = ()
    no_retry: Sequence[str] = ()
    start: str = ""
    concurrency_key: str | None = None
    unique_until: T | None = None
    """How long its claim to be unique counts where that has a time."""
    depends_on: Sequence[DependencyReply] = ()
    """What it depends on; in lists the first 100 of it."""
    dependency_count: int = 0
    pending_dependencies: int = 0
    """Jobs that it still waits for, and 1 more while its workflow is not whole."""
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
    """When its time came."""
    started_at: T | None = None
    """When its latest attempt began."""
    completed_at: T | None = None
    """When it finished, however it ended."""
    execution_time_ms: int | None = None
    """How long the last attempt of a finished job took."""
    failure_reason: str | None = None
    """Why it is in the dead letters, or the type of the latest failure."""
    result: Json[J] = ABSENT
    progress: Json[J] = ABSENT
    run_id: str = ""
    """The run's idempotency key for receivers; the same for all its attempts."""
    failure_count: int = 0
    lost_count: int = 0
    worker: str | None = None
    """Who holds its lease."""
    error: ErrorReply | None = None
    """Of the latest attempt, where it failed."""
    idempotency_key: str | None = None
    replay_of: str | None = None
    """The job that it is a clone of."""


class JobReply(JobDocument[Time, msgspec.Raw], frozen=True):
    """A job as it was when it was read."""

    duplicate: Literal[True] | UnsetType = UNSET
    """Present where a submission found this job instead of storing a new one."""


class JobsPage(Reply, frozen=True):
    """Jobs in a stable order; a page may hold few jobs, or none, although `next_cursor` leads to more."""

    jobs: list[JobReply] = []
    next_cursor: str | None = None
    """null at the end of the list."""


class ResultDocument(Reply, Generic[J], frozen=True):
    """A job's result, and whether there can be one yet."""

    id: str = ""
    status: str = ""
    result: Json[J] = ABSENT
    error: ErrorReply | None = None
    revision: int = 0


class ResultReply(ResultDocument[msgspec.Raw], frozen=True):
    """A job's result, and whether there can be one yet."""


class SeedReply(Reply, frozen=True):
    """A job as older clients know it."""

    id: str
    job_id: str
    """The same as `id`."""
    task: str
    status: str
    duplicate: Literal[True] | UnsetType = UNSET


class BatchItem(Reply, frozen=True):
    """What became of one job of a batch: 201 stored, 200 known before, otherwise a problem."""

    status: int = 0
    id: str | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    duplicate: Literal[True] | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


class BatchReply(Reply, frozen=True):
    """What became of each job, in the order of the request."""

    results: list[BatchItem]
