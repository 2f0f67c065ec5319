"""What a client reads about schedules and their ledgers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from raftsched.client.records import PauseInfo


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stood when it was read."""

    id: str
    name: str = ""
    tenant: str = ""
    status: str = ""
    """`active`, `paused`, or `ended`: no instant is to come."""
    source: str | None = None
    """What it was applied from; only that prunes it."""
    cron: str | None = None
    every: str | None = None
    at: datetime | None = None
    timezone: str = "UTC"
    dst_gap: str = ""
    dst_overlap: str = ""
    start_at: datetime | None = None
    end_at: datetime | None = None
    calendar: dict[str, Any] | None = None
    jitter_seconds: float | None = None
    overlap: str = ""
    misfire: str = ""
    catchup_window_seconds: float | None = None
    max_firings: int | None = None
    job: dict[str, Any] = {}
    """What each firing submits."""
    pause: PauseInfo | None = None
    next_at: datetime | None = None
    """When it fires next: the first undecided instant that the calendar lets fire; in the past while a pause lasts, or an
    outage. None: none is to come, or the calendar skips thousands before it; `next` says which."""
    last_at: datetime | None = None
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
    """Rises with each change, and each time it runs."""
    changed_revision: int = 0
    """Rises when somebody saves, pauses or resumes it."""
    created_at: datetime | None = None
    updated_at: datetime | None = None


class SkippedInstant(msgspec.Struct, frozen=True):
    """An instant that will not fire, and why."""

    instant: datetime
    reason: str = ""


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """Instants to come."""

    firings: list[datetime] = []
    skipped: list[SkippedInstant] = []
    """Instants up to the last of `firings` that the calendar skips."""
    complete: bool = True
    """False: the calendar skips so many instants that not all were looked at."""
    paused: bool = False
    """While the schedule is paused none of them is decided."""


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the ledger: what was decided for one instant, or for several that were skipped together."""

    instant: datetime
    kind: str = "planned"
    """`planned`, `manual` or `backfill`."""
    fired: bool = False
    job_id: str | None = None
    reason: str | None = None
    """Why it was skipped."""
    count: int | None = None
    """Instants that this line stands for; None: too many to be counted."""
    last_instant: datetime | None = None
    decided_at: datetime | None = None
    lateness_ms: int | None = None
    generation: int = 0
    revision: int = 0


class BackfillItem(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one instant of a backfill."""

    instant: datetime
    action: str = ""
    """`run`, `skip`, or `known`: another backfill has decided it."""
    run_at: datetime | None = None
    job_id: str | None = None
    reason: str | None = None
    planned: str | None = None
    """`fired` or `skipped`: what was decided for it at its time, as far as that is still kept."""


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill, in the order of its runs."""

    dry_run: bool = False
    run_count: int = 0
    """Runs that this call made, or would make."""
    skipped_count: int = 0
    known_count: int = 0
    """Instants that another backfill has decided."""
    remaining_count: int = 0
    """Instants for which there was no room: ask again, once some of its runs have ended."""
    next_instant: datetime | None = None
    """The first that remains, in the order of the runs: nothing before it does; None in a dry run."""
    instants: list[BackfillItem] = []


class FieldChange(msgspec.Struct, frozen=True):
    """A field that differs; payloads are named without their values."""

    field: str
    before: Any = None
    after: Any = None


class ScheduleChange(msgspec.Struct, frozen=True):
    """A schedule that changes."""

    name: str
    changes: list[FieldChange] = []


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each schedule of a file, or would."""

    created: list[str] = []
    changed: list[ScheduleChange] = []
    unchanged: list[str] = []
    pruned: list[str] = []
    dry_run: bool = False
