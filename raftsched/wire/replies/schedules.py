"""What the API answers about schedules, their instants and ledgers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from raftsched.wire.replies.common import Json, Reply, Time
from raftsched.wire.replies.jobs import PauseReply

_JobJson = Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/JobBody"})]
_CalendarJson = Annotated[
    msgspec.Raw,
    Meta(extra_json_schema={"anyOf": [{"$ref": "#/components/schemas/CalendarRequest"}, {"type": "null"}]}),
]


# -- schedules --------------------------------------------------------------------------------------------------------


class ScheduleReply(Reply, frozen=True):
    """A schedule as it stands."""

    id: str
    name: str
    tenant: str
    status: Literal["active", "paused", "ended"]
    """`ended`: no instant is to come."""
    source: str | None
    """What it was applied from, as by `raftsched apply`; only that prunes it."""
    cron: str | None
    every: str | None
    at: Time | None
    timezone: str
    dst_gap: str
    dst_overlap: str
    start_at: Time | None
    end_at: Time | None
    calendar: _CalendarJson
    jitter_seconds: float | None
    overlap: str
    misfire: str
    catchup_window_seconds: float | None
    """null: a day."""
    max_firings: int | None
    job: _JobJson
    pause: PauseReply | None
    next_at: Time | None
    """When it fires next: the first undecided instant that the calendar lets fire; in the past while a pause lasts, or an
    outage. null: none is to come, or the calendar skips thousands before it; `GET …/next` says which."""
    last_at: Time | None
    """The last instant that was decided."""
    fired_count: int
    skipped_count: int
    active: list[str]
    """Jobs that its instants and triggers made and that are not finished, oldest first."""
    backfilling: list[str]
    """The like of backfills; an instant takes no notice of these."""
    generation: int
    """Rises with each change of the timing."""
    revision: int
    """Log index of its latest change; decisions change it, too."""
    changed_revision: int
    """Log index of its latest change by somebody: when it was saved, paused or resumed, not when it ran. Also its ETag,
    for `If-Match`."""
    created_at: Time
    updated_at: Time


class SchedulesPage(Reply, frozen=True):
    """Schedules by name; a page may hold few, or none, although `next_cursor` leads to more."""

    schedules: list[ScheduleReply]
    next_cursor: str | None


class DeletedReply(Reply, frozen=True):
    """What was deleted; jobs that it has made go on."""

    id: str
    name: str
    deleted: Literal[True]


class ChangeReply(Reply, frozen=True):
    """A field that differs; payloads are named without their values."""

    field: str
    before: Json | None
    after: Json | None


class ChangedReply(Reply, frozen=True):
    """A schedule that changes."""

    name: str
    changes: list[ChangeReply]


class ApplyReply(Reply, frozen=True):
    """What became of each schedule of a file, or would."""

    created: list[str]
    changed: list[ChangedReply]
    unchanged: list[str]
    pruned: list[str]
    dry_run: bool


# -- instants and the ledger ------------------------------------------------------------------------------------------


class SkippedInstant(Reply, frozen=True):
    """An instant that will not fire, and why."""

    instant: Time
    reason: str


class PreviewReply(Reply, frozen=True):
    """Instants that a timing has."""

    firings: list[Time]
    skipped: list[SkippedInstant]
    """Instants up to the last of `firings` that the calendar skips."""
    complete: bool
    """False: the calendar skips so many instants that not all were looked at."""


class NextReply(Reply, frozen=True):
    """Instants to come of a schedule, undecided ones of the past included."""

    id: str
    name: str
    paused: bool
    """While it is paused none of them is decided."""
    firings: list[Time]
    skipped: list[SkippedInstant]
    complete: bool


class FiringReply(Reply, frozen=True):
    """A line of the ledger: what was decided for one instant, or for several that were skipped together."""

    instant: Time
    kind: str
    """`planned`, `manual` or `backfill`."""
    fired: bool
    job_id: str | None
    reason: str | None
    """Why it was skipped."""
    count: int | None
    """Instants that this line stands for; null: too many to be counted."""
    last_instant: Time | None
    """The last of them, where there are several."""
    decided_at: Time
    lateness_ms: int | None
    """How long after its instant it was decided; null for what was not planned."""
    generation: int
    revision: int


class FiringsPage(Reply, frozen=True):
    """Lines of a ledger by instant: the latest 1,000, and those of backfills and of triggers for an instant for 30 days."""

    firings: list[FiringReply]
    next_cursor: str | None


class BackfillItem(Reply, frozen=True):
    """What becomes of one instant of a backfill."""

    instant: Time
    action: Literal["run", "skip", "known"]
    """`known`: another backfill has decided it."""
    run_at: Time | None
    """Null also where an earlier attempt of this request made it."""
    job_id: str | None
    reason: str | None
    planned: Literal["fired", "skipped"] | None
    """What was decided for it at its time, as far as that is still kept."""


class BackfillReply(Reply, frozen=True):
    """A backfill, in the order of its runs."""

    dry_run: bool
    run_count: int
    """Runs that this request made, or would make; with its earlier attempts, if they had the same idempotency key."""
    skipped_count: int
    """The like of instants that were skipped."""
    known_count: int
    """Instants that another backfill has decided."""
    remaining_count: int
    """Instants for which there was no room or no time: send the request again, once some of its runs have ended."""
    next_instant: Time | None
    """The first that remains, in the order of the runs: nothing before it does; null in a dry run."""
    instants: list[BackfillItem]
