"""Define the documents of schedules: what is saved, applied, listed and shown."""

from __future__ import annotations

from typing import Annotated, Any, Final, Generic, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import (
    ABSENT,
    LABEL_FILTER_PATTERN,
    LABEL_FILTER_RULE,
    Cursor,
    DelaySeconds,
    J,
    Json,
    Moment,
    Name,
    PageLimit,
    PauseDocument,
    ReadQuery,
    Reply,
    Request,
    T,
    Time,
    or_null,
)
from raftsched.wire.jobs import JobBody
from raftsched.wire.notices import AlarmDocument, ExpectedSeconds, NoticeBody
from raftsched.wire.parameters import ParameterBody
from raftsched.wire.timings import TimingBody

OverlapName = Literal["skip", "buffer_one", "buffer_all", "allow", "cancel_previous", "terminate_previous"]
Description = Annotated[str, Meta(max_length=limits.SCHEDULE_DESCRIPTION_CHARS_MAX)]
Owner = Annotated[str, Meta(min_length=1, max_length=limits.SCHEDULE_OWNER_CHARS_MAX)]
"""The name or e-mail address of a person or team."""
LabelText = Annotated[str, Meta(max_length=limits.LABEL_CHARS_MAX)]


class ScheduleRequest(TimingBody, frozen=True, kw_only=True):
    """A job that is submitted repeatedly; its name identifies it within the tenant."""

    name: Name
    job: JobBody
    """The job that is submitted at each fire time."""
    tenant: Name | None = None
    jitter_seconds: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    """Each run is due at most this long after its fire time."""
    overlap: OverlapName = "skip"
    """The action at a fire time if an earlier run is not finished."""
    misfire: Literal["run_once", "skip", "run_all"] = "run_once"
    """The misfires that run: the latest one, none, or all. A misfire is a fire time that passed in an outage or a
    pause.

    A fire time that is at most 30 seconds late, as after the loss of a leader, is not a misfire, and runs.
    """
    catchup_window_seconds: DelaySeconds | None = None
    """Misfires older than this are skipped; a day by default."""
    max_firings: Annotated[int, Meta(ge=1, le=(1 << 48) - 1)] | None = None
    """The schedule ends after this many runs; skipped fire times do not count."""
    pause_until: Moment | None = None
    """If it is in the future, the schedule is paused until then, each time this is sent. `POST …/resume` ends the
    pause; null does not."""
    description: Description | None = None
    """A text for people: the purpose of the schedule."""
    owner: Owner | None = None
    """The name or e-mail address of the person or team to ask."""
    labels: Annotated[dict[Name, LabelText], Meta(max_length=limits.LABELS_MAX)] = {}
    """Names and texts by which schedules are found, as `{"team": "shop"}`."""
    parameters: Annotated[list[ParameterBody], Meta(max_length=limits.PARAMETERS_MAX)] = []
    """Values that its runs get."""
    expect_success_within_seconds: ExpectedSeconds | None = None
    """The event `missed` happens if no run succeeds for this long: counted from the last success, the end of a pause, the
    start of the schedule, or a change of this rule or the timing. No time counts in a pause and after the last fire time."""
    late_after_seconds: ExpectedSeconds | None = None
    """The event `late` happens if a run starts this long after its fire time."""
    notify: Annotated[list[NoticeBody], Meta(max_length=limits.NOTICES_MAX)] = []
    """Messages about its events. Backfills cause none."""


def _with_all_optional(name: str, kind: type[Request], description: str, *, but: tuple[str, ...] = ()) -> Any:
    """Return a struct with the fields of `kind`. Each may be left out, or be null to remove its value."""
    fields: list[tuple[str, Any, Any]] = [
        (field.name, field.type if field.name == "payload" else field.type | None | UnsetType, UNSET)
        for field in msgspec.structs.fields(kind)
        if field.name not in but
    ]
    namespace = {"__doc__": description}
    return msgspec.defstruct(name, fields, bases=(Request,), namespace=namespace, frozen=True, kw_only=True)


JobPatch: Final = _with_all_optional("JobPatch", JobBody, "Changes of the job that a schedule submits.")
_PATCH = "Changes of a schedule, as in RFC 7396; but one of `cron`, `every` and `at` replaces another."
SchedulePatch: Final = msgspec.defstruct(
    "SchedulePatch",
    [
        ("job", JobPatch | UnsetType, UNSET),
        (
            "labels",
            Annotated[dict[Name, LabelText | None], Meta(max_length=limits.LABELS_MAX)] | None | UnsetType,
            UNSET,
        ),
    ],
    bases=(_with_all_optional("ScheduleFields", ScheduleRequest, _PATCH, but=("name", "tenant", "job", "labels")),),
    namespace={"__doc__": _PATCH},
    frozen=True,
    kw_only=True,
)
"""Built from the request, so that the two cannot differ."""


SOURCE_DEFAULT: Final = "default"
"""The source of files that name none. Several teams may share it, so these files can't prune."""


class ApplyRequest(Request, frozen=True):
    """The desired schedules of a tenant, for example from a file."""

    schedules: Annotated[
        list[Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/ScheduleRequest"})]],
        Meta(max_length=limits.APPLY_SCHEDULES_MAX),
    ]
    tenant: Name | None = None
    """Tenant of these schedules, and of those that are pruned."""
    source: Name | None = None
    """Owner of these schedules, for example a team's repository; `default` if it is not given.

    Schedules of another source are never pruned.
    """
    prune: bool = False
    """Delete the tenant's other schedules that were applied from the same source; needs `source`."""
    dry_run: bool = False
    """Only report what would change."""


class TenantQuery(Request, frozen=True):
    """The tenant of a schedule, if the path has the schedule's name."""

    tenant: Name | None = None


class ScheduleQuery(ReadQuery, frozen=True):
    """The tenant of a schedule that is read."""

    tenant: Name | None = None


class SchedulesQuery(ReadQuery, frozen=True):
    """A filter of schedules, and a page of them."""

    tenant: Name | None = None
    queue: Name | None = None
    """Queue of the jobs that they submit."""
    paused: bool | None = None
    source: Name | None = None
    """Source that they were applied from."""
    owner: Owner | None = None
    label: Annotated[str, Meta(pattern=LABEL_FILTER_PATTERN, description=LABEL_FILTER_RULE)] | None = None
    """A label that they have, as `team=shop`."""
    limit: PageLimit = 100
    order: Literal["asc", "desc"] = "asc"
    """By name."""
    cursor: Cursor | None = None


class LatestDocument(Reply, Generic[T], frozen=True):
    """The latest ledger entry of a schedule, and what became of its run."""

    instant: T
    kind: Annotated[str, Meta(extra_json_schema={"enum": ["planned", "manual", "backfill"]})] = "planned"
    job_id: str | None = None
    """null: it was skipped."""
    status: str | None = None
    """Status of the run's job; null if it was skipped, or if the job is no longer kept."""
    reason: str | None = None
    """The reason why it was skipped, or why the job failed."""
    lateness_ms: int | None = None
    """Delay of the decision after the fire time; null for triggers and backfills."""


class ScheduleDocument(Reply, Generic[T, J], frozen=True):
    """A schedule as it was when it was read."""

    id: str
    name: str = ""
    tenant: str = ""
    status: Annotated[str, Meta(extra_json_schema={"enum": ["active", "ended", "manual", "paused"]})] = ""
    """`ended`: it has no further fire time. `manual`: it has no timing, and runs only by hand."""
    source: str | None = None
    """The source that it was applied from, as by `raftsched apply`; only the same source prunes it."""
    description: str | None = None
    owner: str | None = None
    labels: dict[str, str] = {}
    parameters: Annotated[
        J, Meta(extra_json_schema={"type": "array", "items": {"$ref": "#/components/schemas/ParameterBody"}})
    ] = ABSENT
    """Values that its runs get."""
    expect_success_within_seconds: float | None = None
    late_after_seconds: float | None = None
    notify: Annotated[
        J, Meta(extra_json_schema={"type": "array", "items": {"$ref": "#/components/schemas/NoticeBody"}})
    ] = ABSENT
    """Messages about its events."""
    alarms: list[AlarmDocument[T]] = []
    """Problems since the last success, if it has `notify` or another expectation."""
    last_success_at: T | None = None
    """The end of the last run that succeeded, other than backfills."""
    cron: str | None = None
    every: str | None = None
    at: T | None = None
    timezone: str = "UTC"
    dst_gap: str = ""
    dst_overlap: str = ""
    start_at: T | None = None
    end_at: T | None = None
    calendar: Annotated[J, or_null("CalendarRequest")] = ABSENT
    jitter_seconds: float | None = None
    overlap: str = ""
    misfire: str = ""
    catchup_window_seconds: float | None = None
    """null: a day."""
    max_firings: int | None = None
    job: Annotated[J, Meta(extra_json_schema={"$ref": "#/components/schemas/JobBody"})] = ABSENT
    """The job that is submitted at each fire time."""
    pause: PauseDocument[T] | None = None
    next_at: T | None = None
    """Its next fire time: the first undecided one that the calendar does not exclude. It is in the past during a pause
    or an outage. null: there is none, or the calendar excludes thousands before it; `GET …/next` shows which."""
    last_at: T | None = None
    """The last fire time that was decided."""
    latest: LatestDocument[T] | None = None
    """null: it has no ledger entry."""
    fired_count: int = 0
    skipped_count: int = 0
    active: list[str] = []
    """Unfinished jobs of its fire times and triggers, oldest first."""
    backfilling: list[str] = []
    """Unfinished jobs of its backfills; the overlap policy ignores them."""
    generation: int = 0
    """Rises with each change of the timing."""
    revision: int = 0
    """Log index of its latest change; decisions count as changes."""
    changed_revision: int = 0
    """Log index of its latest change by a user: a save, pause or resume, not a run. Also its ETag, for `If-Match`."""
    created_at: T = ABSENT
    updated_at: T = ABSENT


class ScheduleReply(ScheduleDocument[Time, msgspec.Raw], frozen=True):
    """A schedule as it was when it was read."""


class SchedulesPage(Reply, frozen=True):
    """Schedules by name; a page may hold few, or none, although `next_cursor` leads to more."""

    schedules: list[ScheduleReply]
    next_cursor: str | None


class DeletedReply(Reply, frozen=True):
    """The deleted schedule; the jobs that it submitted continue."""

    id: str
    name: str
    deleted: Literal[True]


class ChangeDocument(Reply, Generic[J], frozen=True):
    """A field that differs; values of payloads are not shown."""

    field: str
    before: Json[J] | None = None
    after: Json[J] | None = None


class ChangedDocument(Reply, Generic[J], frozen=True):
    """A schedule that changes."""

    name: str
    changes: list[ChangeDocument[J]] = []


class ApplyDocument(Reply, Generic[J], frozen=True):
    """The schedules of a file by the effect of applying it; in a dry run by the effect that it would have."""

    created: list[str] = []
    changed: list[ChangedDocument[J]] = []
    unchanged: list[str] = []
    pruned: list[str] = []
    dry_run: bool = False


class ApplyReply(ApplyDocument[msgspec.Raw], frozen=True):
    """The schedules of a file by the effect of applying it; in a dry run by the effect that it would have."""
