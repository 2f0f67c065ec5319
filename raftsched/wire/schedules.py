"""Schedules: what they submit and when, what people ask of them, and their ledgers."""

from __future__ import annotations

from typing import Annotated, Any, Final, Generic, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import (
    ABSENT,
    Cursor,
    DelaySeconds,
    IdempotencyKey,
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
)
from raftsched.wire.jobs import JobBody

OverlapName = Literal["skip", "buffer_one", "buffer_all", "allow", "cancel_previous", "terminate_previous"]
WeekdayName = Literal["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
Dates = Annotated[
    list[Annotated[str, Meta(max_length=10, extra_json_schema={"format": "date"})]],
    Meta(max_length=limits.CALENDAR_DATES_MAX),
]
ClockTime = Annotated[str, Meta(max_length=8, description="HH:MM or HH:MM:SS; 24:00 is the end of a day.")]
ZoneName = Annotated[str, Meta(description="IANA name, such as Europe/Berlin.")]
FireTimeCount = Annotated[int, Meta(ge=1, le=limits.PREVIEW_FIRE_TIMES_MAX)]


class BlackoutRequest(Request, frozen=True):
    """When nothing fires: between two instants, or by the wall clock, week after week; the end is not part of it."""

    from_: Moment | None = msgspec.field(name="from", default=None)
    to: Moment | None = None
    start: ClockTime | None = None
    end: ClockTime | None = None
    """Not later than `start`: it lies on the next day."""
    weekdays: Annotated[list[WeekdayName], Meta(min_length=1, max_length=7)] | None = None
    """On which it begins; every day by default."""
    timezone: ZoneName | None = None
    """Whose wall clock; default: the calendar's."""
    reason: Annotated[str, Meta(max_length=limits.CALENDAR_REASON_CHARS_MAX)] | None = None


class BusinessDaysRequest(Request, frozen=True):
    """Working days of a country, by its public holidays and its weekend, or all days but a weekend."""

    country: Annotated[str, Meta(max_length=2, description="ISO 3166-1 code in capitals, such as DE.")] | None = None
    subdivision: Annotated[str, Meta(max_length=64, description="ISO 3166-2 code without the country.")] | None = None
    weekend: Annotated[list[WeekdayName], Meta(max_length=6)] | None = None
    """Where no country is given, which brings its own; default: Saturday and Sunday."""


class CalendarRequest(Request, frozen=True):
    """What keeps instants from firing; they are skipped, and the ledger says why."""

    skip_dates: Dates | None = None
    only_dates: Dates | None = None
    """If there are any, no other date fires."""
    blackouts: Annotated[list[BlackoutRequest], Meta(max_length=2 * limits.CALENDAR_WINDOWS_MAX)] | None = None
    business_days: bool | BusinessDaysRequest | None = None
    """`true`: Monday to Friday."""
    timezone: ZoneName | None = None
    """In which instants have dates and times of day; default: the schedule's."""


class TimingBody(Request, frozen=True):
    """When: exactly one of `cron`, `every` and `at`, within limits."""

    cron: str | None = None
    """Five fields, or six with the seconds first; `@daily` and the like; `@every 90s`."""
    every: str | None = None
    """A fixed grid, such as `90s` or `1h30m`, from `start_at` on."""
    at: Moment | None = None
    """Once."""
    timezone: ZoneName = "UTC"
    dst_gap: Literal["shift", "skip"] = "shift"
    """A wall time that a clock change leaps over fires right after the gap, or not at all."""
    dst_overlap: Literal["first", "both"] = "first"
    """A wall time that is shown twice fires at the first, or at both."""
    start_at: Moment | None = None
    """No instant before it. A grid begins there; by default when it is saved."""
    end_at: Moment | None = None
    """No instant after it."""
    calendar: CalendarRequest | None = None


class ScheduleRequest(TimingBody, frozen=True, kw_only=True):
    """A job that is submitted again and again; its name is its identity within the tenant."""

    name: Name
    job: JobBody
    """What each firing submits."""
    tenant: Name | None = None
    jitter_seconds: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    """Each run is due up to this much after its instant."""
    overlap: OverlapName = "skip"
    """What happens at an instant at which an earlier run is not finished."""
    misfire: Literal["run_once", "skip", "run_all"] = "run_once"
    """What happens to instants that passed undecided, in an outage or a pause: the latest fires, none, or all.

    What is at most 30 seconds late, as after the loss of a leader, is not missed, and fires.
    """
    catchup_window_seconds: DelaySeconds | None = None
    """Missed instants older than this are skipped; a day by default."""
    max_firings: Annotated[int, Meta(ge=1, le=(1 << 48) - 1)] | None = None
    """It ends after so many runs; skipped instants do not count."""
    pause_until: Moment | None = None
    """Where this is to come: paused until then, each time this is sent. `POST …/resume` ends the pause, null does not."""


def _with_all_optional(name: str, kind: type[Request], told: str, *, but: tuple[str, ...] = ()) -> Any:
    """Return a struct with the fields of `kind`, each of which may be left out, or be null to take it away."""
    fields: list[tuple[str, Any, Any]] = [
        (field.name, field.type if field.name == "payload" else field.type | None | UnsetType, UNSET)
        for field in msgspec.structs.fields(kind)
        if field.name not in but
    ]
    namespace = {"__doc__": told}
    return msgspec.defstruct(name, fields, bases=(Request,), namespace=namespace, frozen=True, kw_only=True)


JobPatch: Final = _with_all_optional("JobPatch", JobBody, "What to change of the job that firings submit.")
_PATCH = "What to change of a schedule: RFC 7396, but one of `cron`, `every` and `at` takes the place of another."
SchedulePatch: Final = msgspec.defstruct(
    "SchedulePatch",
    [("job", JobPatch | UnsetType, UNSET)],
    bases=(_with_all_optional("ScheduleFields", ScheduleRequest, _PATCH, but=("name", "tenant", "job")),),
    namespace={"__doc__": _PATCH},
    frozen=True,
    kw_only=True,
)
"""Made from the request itself, so that the two can't differ."""


SOURCE_DEFAULT: Final = "default"
"""The source of files that name none. It may be many teams', so these files can't prune."""


class ApplyRequest(Request, frozen=True):
    """All schedules of a tenant as they shall be, from a file for instance."""

    schedules: Annotated[
        list[Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/ScheduleRequest"})]],
        Meta(max_length=limits.APPLY_SCHEDULES_MAX),
    ]
    tenant: Name | None = None
    """Of all of them, and of those that are pruned."""
    source: Name | None = None
    """What these schedules belong to, a team's repository for instance; `default` if it is not given.

    Schedules of another source are never pruned.
    """
    prune: bool = False
    """Delete every schedule of the tenant that was applied from the same source and is not among them; needs `source`."""
    dry_run: bool = False
    """Only say what would change."""


class PreviewRequest(TimingBody, frozen=True):
    """Instants that a schedule would have; nothing is stored."""

    after: Moment | None = None
    """Now by default."""
    count: FireTimeCount = 10


class TriggerRequest(Request, frozen=True):
    """A run by hand, beside the planned ones."""

    payload: msgspec.Raw | UnsetType = UNSET
    """In place of the schedule's."""
    overlap: OverlapName | None = None
    """Default: the schedule's, so the run may be skipped; `allow` runs it beside whatever runs."""
    instant: Moment | None = None
    """What it is a run for; now by default. The same a second time finds the first run, for 30 days, and is refused with
    another payload or overlap."""
    idempotency_key: IdempotencyKey | None = None
    """The same key and trigger a second time finds the run of the first while its job is there, and is refused if it asks
    for something else; one that was skipped has made none. The Idempotency-Key header does the same."""


class BackfillRequest(Request, frozen=True):
    """Runs for past instants, whatever was decided for them at their time; sent again, it goes on where it stands.

    What backfills have decided for an instant is known for 30 days.
    """

    from_: Moment = msgspec.field(name="from")
    to: Moment
    """Not part of the range; not later than now."""
    overlap: Literal["sequential", "allow"] = "sequential"
    """`sequential`: each run waits for the end of the one before, also of those that run now."""
    order: Literal["asc", "desc"] = "asc"
    """The oldest first, or the latest."""
    per_minute: Annotated[int, Meta(ge=1, le=60_000)] | None = None
    """Spreads the runs: so many come due in a minute."""
    dry_run: bool = False
    """Only say what would happen."""
    idempotency_key: IdempotencyKey | None = None
    """What it made when it was sent before with the same key counts as made by it, instead of known, which changes no run.
    The Idempotency-Key header does the same."""


class TenantQuery(Request, frozen=True):
    """Whose schedule, where the path has its name."""

    tenant: Name | None = None


class ScheduleQuery(ReadQuery, frozen=True):
    """Whose schedule."""

    tenant: Name | None = None


class SchedulesQuery(ReadQuery, frozen=True):
    """Which schedules, and which page of them."""

    tenant: Name | None = None
    queue: Name | None = None
    """Of the jobs they make."""
    paused: bool | None = None
    source: Name | None = None
    """What applied them."""
    limit: PageLimit = 100
    order: Literal["asc", "desc"] = "asc"
    """By name."""
    cursor: Cursor | None = None


class NextQuery(ScheduleQuery, frozen=True):
    """How many instants to show."""

    count: FireTimeCount = 10


class FiringsQuery(ScheduleQuery, frozen=True):
    """Which lines of the ledger."""

    kind: Literal["planned", "manual", "backfill"] | None = None
    fired: bool | None = None
    """Only those that made a job, or only those that were skipped."""
    limit: PageLimit = 100
    order: Literal["asc", "desc"] = "desc"
    """By instant."""
    cursor: Cursor | None = None


class ScheduleDocument(Reply, Generic[T, J], frozen=True):
    """A schedule as it was when it was read."""

    id: str
    name: str = ""
    tenant: str = ""
    status: Annotated[str, Meta(extra_json_schema={"enum": ["active", "ended", "paused"]})] = ""
    """`ended`: no instant is to come."""
    source: str | None = None
    """What it was applied from, as by `raftsched apply`; only that prunes it."""
    cron: str | None = None
    every: str | None = None
    at: T | None = None
    timezone: str = "UTC"
    dst_gap: str = ""
    dst_overlap: str = ""
    start_at: T | None = None
    end_at: T | None = None
    calendar: Annotated[
        J, Meta(extra_json_schema={"anyOf": [{"$ref": "#/components/schemas/CalendarRequest"}, {"type": "null"}]})
    ] = ABSENT
    jitter_seconds: float | None = None
    overlap: str = ""
    misfire: str = ""
    catchup_window_seconds: float | None = None
    """null: a day."""
    max_firings: int | None = None
    job: Annotated[J, Meta(extra_json_schema={"$ref": "#/components/schemas/JobBody"})] = ABSENT
    """What each firing submits."""
    pause: PauseDocument[T] | None = None
    next_at: T | None = None
    """When it fires next: the first undecided instant that the calendar lets fire; in the past while a pause lasts, or an
    outage. null: none is to come, or the calendar skips thousands before it; `GET …/next` says which."""
    last_at: T | None = None
    """The last instant that was decided."""
    fired_count: int = 0
    skipped_count: int = 0
    active: list[str] = []
    """Jobs that its instants and triggers made and that are not finished, oldest first."""
    backfilling: list[str] = []
    """The like of backfills; an instant takes no notice of these."""
    generation: int = 0
    """Rises with each change of the timing."""
    revision: int = 0
    """Log index of its latest change; decisions change it, too."""
    changed_revision: int = 0
    """Log index of its latest change by somebody: when it was saved, paused or resumed, not when it ran. Also its ETag,
    for `If-Match`."""
    created_at: T = ABSENT
    updated_at: T = ABSENT


class ScheduleReply(ScheduleDocument[Time, msgspec.Raw], frozen=True):
    """A schedule as it was when it was read."""


class SchedulesPage(Reply, frozen=True):
    """Schedules by name; a page may hold few, or none, although `next_cursor` leads to more."""

    schedules: list[ScheduleReply]
    next_cursor: str | None


class DeletedReply(Reply, frozen=True):
    """What was deleted; jobs that it has made go on."""

    id: str
    name: str
    deleted: Literal[True]


class ChangeDocument(Reply, Generic[J], frozen=True):
    """A field that differs; payloads are named without their values."""

    field: str
    before: Json[J] | None = None
    after: Json[J] | None = None


class ChangedDocument(Reply, Generic[J], frozen=True):
    """A schedule that changes."""

    name: str
    changes: list[ChangeDocument[J]] = []


class ApplyDocument(Reply, Generic[J], frozen=True):
    """What became of each schedule of a file, or would."""

    created: list[str] = []
    changed: list[ChangedDocument[J]] = []
    unchanged: list[str] = []
    pruned: list[str] = []
    dry_run: bool = False


class ApplyReply(ApplyDocument[msgspec.Raw], frozen=True):
    """What became of each schedule of a file, or would."""


class SkippedDocument(Reply, Generic[T], frozen=True):
    """An instant that will not fire, and why."""

    instant: T
    reason: str = ""


class PreviewDocument(Reply, Generic[T], frozen=True):
    """Instants that a timing has."""

    firings: list[T] = []
    skipped: list[SkippedDocument[T]] = []
    """Instants up to the last of `firings` that the calendar skips."""
    complete: bool = True
    """False: the calendar skips so many instants that not all were looked at."""


class PreviewReply(PreviewDocument[Time], frozen=True):
    """Instants that a timing has."""


class NextReply(PreviewReply, frozen=True, kw_only=True):
    """Instants to come of a schedule, undecided ones of the past included."""

    id: str
    name: str
    paused: bool
    """While it is paused none of them is decided."""


class FiringDocument(Reply, Generic[T], frozen=True):
    """A line of the ledger: what was decided for one instant, or for several that were skipped together."""

    instant: T
    kind: str = "planned"
    """`planned`, `manual` or `backfill`."""
    fired: bool = False
    job_id: str | None = None
    reason: str | None = None
    """Why it was skipped."""
    count: int | None = None
    """Instants that this line stands for; null: too many to be counted."""
    last_instant: T | None = None
    """The last of them, where there are several."""
    decided_at: T = ABSENT
    lateness_ms: int | None = None
    """How long after its instant it was decided; null for what was not planned."""
    generation: int = 0
    revision: int = 0


class FiringReply(FiringDocument[Time], frozen=True):
    """A line of the ledger: what was decided for one instant, or for several that were skipped together."""


class FiringsPage(Reply, frozen=True):
    """Lines of a ledger by instant: the latest 1,000, and those of backfills and of triggers for an instant for 30 days."""

    firings: list[FiringReply]
    next_cursor: str | None


class BackfillItemDocument(Reply, Generic[T], frozen=True):
    """What becomes of one instant of a backfill."""

    instant: T
    action: Annotated[str, Meta(extra_json_schema={"enum": ["known", "run", "skip"]})] = ""
    """`known`: another backfill has decided it."""
    run_at: T | None = None
    """Null also where an earlier attempt of this request made it."""
    job_id: str | None = None
    reason: str | None = None
    planned: Annotated[str, Meta(extra_json_schema={"enum": ["fired", "skipped"]})] | None = None
    """What was decided for it at its time, as far as that is still kept."""


class BackfillDocument(Reply, Generic[T], frozen=True):
    """A backfill, in the order of its runs."""

    dry_run: bool = False
    run_count: int = 0
    """Runs that this request made, or would make; with its earlier attempts, if they had the same idempotency key."""
    skipped_count: int = 0
    """The like of instants that were skipped."""
    known_count: int = 0
    """Instants that another backfill has decided."""
    remaining_count: int = 0
    """Instants for which there was no room or no time: send the request again, once some of its runs have ended."""
    next_instant: T | None = None
    """The first that remains, in the order of the runs: nothing before it does; null in a dry run."""
    instants: list[BackfillItemDocument[T]] = []


class BackfillReply(BackfillDocument[Time], frozen=True):
    """A backfill, in the order of its runs."""
