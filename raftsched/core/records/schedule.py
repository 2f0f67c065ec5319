"""Define a schedule's record: its job, its timing, and how far its fire times are decided.

Every fire time gets exactly one decision, in order. `next_at_ms` is the first without a decision, and an operation that
decides must begin there. The leader computes the next fire time, since nodes may have different zone data.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NewType

import msgspec

from raftsched import limits
from raftsched.core.records.calendar import Calendar
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.notices import Health, NoticeEvent, Watch
from raftsched.core.records.parameters import Parameter
from raftsched.core.records.spec import JobSpec

ScheduleId = NewType("ScheduleId", bytes)
"""16 bytes, UUIDv7."""


class Overlap(IntEnum):
    """Enumerate the actions at a fire time if an earlier run is not finished."""

    SKIP = 1
    BUFFER_ONE = 2
    """One more run waits for the earlier one to end; further fire times are skipped."""
    BUFFER_ALL = 3
    ALLOW = 4
    CANCEL_PREVIOUS = 5
    """Earlier runs are cancelled; the new one starts when they have ended."""
    TERMINATE_PREVIOUS = 6
    """Earlier runs lose their lease at once; the new one starts at once."""

    @property
    def label(self) -> str:
        return self.name.lower()


class Misfire(IntEnum):
    """Enumerate the actions for fire times that passed without a decision, in an outage or a pause."""

    RUN_ONCE = 1
    """The latest fires, the others are skipped."""
    SKIP = 2
    RUN_ALL = 3

    @property
    def label(self) -> str:
        return self.name.lower()


class Timing(msgspec.Struct, frozen=True, array_like=True):
    """Define fire times by one of `cron`, `every` or `at_ms`, with limits. Texts are as the user wrote them.

    A schedule whose runs must be given a value of a parameter has none of the three.
    """

    cron: str = ""
    every: str = ""
    at_ms: TimeMs | None = None
    timezone: str = "UTC"
    start_at_ms: TimeMs | None = None
    end_at_ms: TimeMs | None = None
    jitter_ms: int = 0
    """Each run is due up to this long after its fire time; the leader draws the delay."""
    dst_gap: str = "shift"
    dst_overlap: str = "first"
    max_firings: int = 0
    """0 = no limit; skipped fire times do not count."""
    calendar: Calendar | None = None
    """The fire times to skip; None = none."""
    anchor_ms: TimeMs | None = None
    """The start of a fixed interval without `start_at_ms`: the leader's time at its first save. None for other timings."""

    @property
    def is_by_hand(self) -> bool:
        """Return whether it has no fire times at all: each run is triggered by hand."""
        return not (self.cron or self.every) and self.at_ms is None

    def begins_ms(self, otherwise: int) -> int:
        """Return the start of a fixed interval: `start_at_ms`, or `anchor_ms`, or `otherwise`."""
        if self.start_at_ms is not None:
            return self.start_at_ms
        return otherwise if self.anchor_ms is None else self.anchor_ms


class Template(msgspec.Struct, frozen=True, array_like=True):
    """Define the job that each firing submits."""

    spec: JobSpec
    """Its options have no times, schedule or workflow."""
    expires_after_ms: int = 0
    """The time from the due time to `expires_at`; 0 = none."""
    deadline_after_ms: int = 0


class About(msgspec.Struct, frozen=True, array_like=True):
    """Tell people about a schedule. It has no effect on what runs."""

    description: str = ""
    owner: str = ""
    """The name or e-mail address of a person or team."""
    labels: tuple[tuple[str, str], ...] = ()
    """Names and texts, sorted by name; each name once."""


class Schedule(msgspec.Struct, frozen=True, array_like=True):
    id: ScheduleId
    tenant: str
    name: str
    """Unique within the tenant: a second save under this name changes this schedule."""
    timing: Timing
    template: Template
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.RUN_ONCE
    catchup_window_ms: int = 0
    """Fire times older than this when they are decided are skipped (`catchup_expired`); 0 = `limits.CATCHUP_MS`."""
    paused: bool = False
    paused_at_ms: TimeMs = TimeMs(0)
    pause_until_ms: TimeMs = TimeMs(0)
    pause_reason: str = ""
    resumed_at_ms: TimeMs = TimeMs(0)
    """Undecided fire times up to here passed in a pause."""
    generation: int = 1
    """Rises with each change of the timing: decisions made for an older one are rejected."""
    next_at_ms: TimeMs = TimeMs(0)
    """The first fire time without a decision; 0 = there are no more."""
    last_at_ms: TimeMs = TimeMs(0)
    """The last fire time with a decision."""
    fired_count: int = 0
    skipped_count: int = 0
    active: tuple[JobId, ...] = ()
    """Unfinished runs of fire times and triggers, oldest first, at most `limits.SCHEDULE_ACTIVE_MAX`."""
    backfilling: tuple[JobId, ...] = ()
    """The same for backfills. Overlap is decided separately for them, so a backfill never blocks a planned run."""
    fingerprint: bytes = b""
    """Digest of the user's request; the same request again changes nothing."""
    created_at_ms: TimeMs = TimeMs(0)
    updated_at_ms: TimeMs = TimeMs(0)
    revision: int = 0
    """Log index of its latest change: a save, a pause or its end, a decision."""
    changed_revision: int = 0
    """Log index of its latest change by a user: a save, a pause, a resume. Runs and the end of a pause by time are not
    such changes. `If-Match` compares it."""
    source: str = ""
    """The file or program that applied it last; "" = none. Only that source prunes it."""
    about: About = About()
    parameters: tuple[Parameter, ...] = ()
    watch: Watch | None = None
    """The expectations of its owner; None = none."""
    health: Health = Health()

    @property
    def next_deadline_ms(self) -> int:
        """Return the time at which the leader must examine it; 0 = never.

        It is the end of its pause, or the next fire time, or the time by which a run must have succeeded.
        """
        if self.paused:
            return self.pause_until_ms
        success_by_ms = self.success_by_ms
        return min(self.next_at_ms or success_by_ms, success_by_ms or self.next_at_ms)

    @property
    def success_by_ms(self) -> int:
        """Return the time by which a run must have succeeded; 0 = never.

        There is none without such a rule, while the alarm is open, during a pause, and after the schedule's end.
        """
        if self.watch is None or not self.watch.success_within_ms or self.paused:
            return 0
        if not (self.next_at_ms or self.active) or self.health.has_alarm(NoticeEvent.MISSED):
            return 0
        return min(self.health.quiet_since_ms + self.watch.success_within_ms, limits.MOMENT_MS_MAX)

    @property
    def has_reached_max_firings(self) -> bool:
        """Return whether it has ended by its number of firings."""
        return 0 < self.timing.max_firings <= self.fired_count


class FiringKind(IntEnum):
    """Enumerate the origins of decisions; part of the ledger's key."""

    PLANNED = 1
    MANUAL = 2
    BACKFILL = 3

    @property
    def label(self) -> str:
        return self.name.lower()


class Firing(msgspec.Struct, frozen=True, array_like=True):
    """Record in the ledger the decision on one fire time, or on a range of skipped ones."""

    fire_time_ms: TimeMs
    kind: FiringKind = FiringKind.PLANNED
    job_id: JobId = JobId(b"")
    """b"" = skipped."""
    reason: str = ""
    """The reason of a skip: `overlap`, `misfire`, `paused`, `catchup_expired`, `max_firings`, `overlap_limit`, `quota`,
    `changed`, the calendar's reason, or the reason why the job was rejected."""
    count: int = 1
    """Fire times in this line; not 1 only for skipped ones, 0 = too many to count."""
    last_fire_time_ms: TimeMs = TimeMs(0)
    """The last of them if `count` is not 1."""
    decided_at_ms: TimeMs = TimeMs(0)
    generation: int = 1
    revision: int = 0
    call: bytes = b""
    """The call by hand that made it (`RunSchedule.call`), so that a repeat finds it; b"" if no fire time was given."""

    def prevents_repeat(self, now_ms: int) -> bool:
        """Return whether it must be kept because a repeated call finds its run by it.

        Planned runs are found by the schedule, and triggers without a given fire time by the job.
        """
        by_hand = self.kind is FiringKind.BACKFILL or bool(self.call)
        return by_hand and now_ms - self.decided_at_ms < limits.LEDGER_CALLS_KEPT_MS


_decoder = msgspec.msgpack.Decoder(Schedule)
_firing_decoder = msgspec.msgpack.Decoder(Firing)
_encode = msgspec.msgpack.Encoder().encode


def encode_schedule(schedule: Schedule) -> bytes:
    return _encode(schedule)


def decode_schedule(data: bytes | memoryview) -> Schedule:
    return _decoder.decode(data)


def encode_firing(firing: Firing) -> bytes:
    return _encode(firing)


def decode_firing(data: bytes | memoryview) -> Firing:
    return _firing_decoder.decode(data)
