"""Define the documents of fire times: previews, runs by hand, backfills and ledgers."""

from __future__ import annotations

from typing import Annotated, Generic, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import (
    ABSENT,
    Cursor,
    IdempotencyKey,
    Moment,
    PageLimit,
    Reply,
    Request,
    T,
    Time,
)
from raftsched.wire.parameters import ParameterName, ParameterValue
from raftsched.wire.schedules import OverlapName, ScheduleQuery
from raftsched.wire.timings import TimingBody

FireTimeCount = Annotated[int, Meta(ge=1, le=limits.PREVIEW_FIRE_TIMES_MAX)]


class PreviewRequest(TimingBody, frozen=True):
    """A timing whose fire times are computed; nothing is stored."""

    after: Moment | None = None
    """Now by default."""
    count: FireTimeCount = 10


class TriggerRequest(Request, frozen=True):
    """A manual run, in addition to the planned ones."""

    payload: msgspec.Raw | UnsetType = UNSET
    """Replaces the schedule's payload."""
    parameters: Annotated[dict[ParameterName, ParameterValue], Meta(max_length=limits.PARAMETERS_MAX)] = {}
    """Values of the schedule's parameters; others have their defaults."""
    overlap: OverlapName | None = None
    """Default: the schedule's policy, so the run may be skipped; `allow` starts it even if other runs are
    unfinished."""
    instant: Moment | None = None
    """The fire time that it is a run for; now by default. For 30 days a second trigger for the same one finds the first
    run; with another payload, overlap or parameters it is rejected."""
    idempotency_key: IdempotencyKey | None = None
    """A second trigger with the same key finds the run of the first, as long as its job exists; it is rejected if the
    two requests differ. A trigger that was skipped has no run to find. The Idempotency-Key header does the same."""


class BackfillRequest(Request, frozen=True):
    """Runs for past fire times, independent of the schedule's decisions for them.

    The same request sent again continues after its last run. Decisions of backfills are kept for 30 days.
    """

    from_: Moment = msgspec.field(name="from")
    to: Moment
    """Exclusive; not later than now."""
    overlap: Literal["sequential", "allow"] = "sequential"
    """`sequential`: each run waits for the end of the one before it, and for those that run now."""
    order: Literal["asc", "desc"] = "asc"
    """`asc`: the oldest first; `desc`: the latest first."""
    per_minute: Annotated[int, Meta(ge=1, le=60_000)] | None = None
    """Spread the runs: this many become due in a minute."""
    dry_run: bool = False
    """Only report what would happen."""
    idempotency_key: IdempotencyKey | None = None
    """Runs of an earlier request with the same key count as made by this one, instead of as known. It changes only
    these counts. The Idempotency-Key header does the same."""


class NextQuery(ScheduleQuery, frozen=True):
    """The number of fire times to show."""

    count: FireTimeCount = 10


class FiringsQuery(ScheduleQuery, frozen=True):
    """A filter of ledger entries, and a page of them."""

    kind: Literal["planned", "manual", "backfill"] | None = None
    fired: bool | None = None
    """true: only those that submitted a job; false: only those that were skipped."""
    limit: PageLimit = 100
    order: Literal["asc", "desc"] = "desc"
    """By fire time."""
    cursor: Cursor | None = None


class SkippedDocument(Reply, Generic[T], frozen=True):
    """A fire time that will be skipped, and the reason."""

    instant: T
    reason: str = ""


class PreviewDocument(Reply, Generic[T], frozen=True):
    """The fire times of a timing."""

    firings: list[T] = []
    skipped: list[SkippedDocument[T]] = []
    """Fire times up to the last of `firings` that the calendar excludes."""
    complete: bool = True
    """False: the calendar excludes too many fire times to examine them all."""


class PreviewReply(PreviewDocument[Time], frozen=True):
    """The fire times of a timing."""


class NextReply(PreviewReply, frozen=True, kw_only=True):
    """The next fire times of a schedule, undecided ones of the past included."""

    id: str
    name: str
    paused: bool
    """While it is paused, no fire time is decided."""


class FiringDocument(Reply, Generic[T], frozen=True):
    """A ledger entry: the decision for one fire time, or for several that were skipped together."""

    instant: T
    kind: str = "planned"
    """`planned`, `manual` or `backfill`."""
    fired: bool = False
    job_id: str | None = None
    reason: str | None = None
    """Reason why it was skipped."""
    count: int | None = None
    """Number of fire times in this entry; null: too many to be counted."""
    last_instant: T | None = None
    """The last of them, if there are several."""
    decided_at: T = ABSENT
    lateness_ms: int | None = None
    """Delay of the decision after the fire time; null for triggers and backfills."""
    generation: int = 0
    revision: int = 0


class FiringReply(FiringDocument[Time], frozen=True):
    """A ledger entry: the decision for one fire time, or for several that were skipped together."""


class FiringsPage(Reply, frozen=True):
    """Ledger entries by fire time: the latest 1,000, and for 30 days those of backfills and of triggers with
    `instant`.
    """

    firings: list[FiringReply]
    next_cursor: str | None


class BackfillItemDocument(Reply, Generic[T], frozen=True):
    """The decision for one fire time of a backfill."""

    instant: T
    action: Annotated[str, Meta(extra_json_schema={"enum": ["known", "run", "skip"]})] = ""
    """`known`: another backfill has decided it."""
    run_at: T | None = None
    """Null also if an earlier attempt of this request made the run."""
    job_id: str | None = None
    reason: str | None = None
    planned: Annotated[str, Meta(extra_json_schema={"enum": ["fired", "skipped"]})] | None = None
    """The schedule's decision at the time, if that is still kept."""


class BackfillDocument(Reply, Generic[T], frozen=True):
    """A backfill, in the order of its runs."""

    dry_run: bool = False
    run_count: int = 0
    """Runs that this request made, or would make; with its earlier attempts, if they had the same idempotency key."""
    skipped_count: int = 0
    """Fire times that were skipped, counted likewise."""
    known_count: int = 0
    """Fire times that another backfill has decided."""
    remaining_count: int = 0
    """Fire times left for lack of capacity or time: send the request again, once some of its runs have ended."""
    next_instant: T | None = None
    """The first remaining fire time, in the order of the runs; null in a dry run."""
    instants: list[BackfillItemDocument[T]] = []


class BackfillReply(BackfillDocument[Time], frozen=True):
    """A backfill, in the order of its runs."""
