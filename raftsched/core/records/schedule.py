"""A schedule's record: what it makes jobs of, when, and how far its instants are decided.

Every instant gets exactly one decision, in order: `next_at_ms` is the first that has none, and an operation that
decides must begin there. When the next one is comes from the leader, since nodes may have different zone data.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NewType

import msgspec

from raftsched import limits
from raftsched.core.records.calendar import Calendar
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.spec import JobSpec

ScheduleId = NewType("ScheduleId", bytes)
"""16 bytes, UUIDv7."""


class Overlap(IntEnum):
    """What happens at an instant at which an earlier run is not finished."""

    SKIP = 1
    BUFFER_ONE = 2
    """One more waits for the earlier one to end; further instants are skipped."""
    BUFFER_ALL = 3
    ALLOW = 4
    CANCEL_PREVIOUS = 5
    """Earlier ones are cancelled; the new one starts when they have ended."""
    TERMINATE_PREVIOUS = 6
    """Earlier ones lose their lease at once; the new one starts at once."""

    @property
    def label(self) -> str:
        return self.name.lower()


class Misfire(IntEnum):
    """What happens to instants that passed while nobody could decide them, or while the schedule was paused."""

    RUN_ONCE = 1
    """The latest one fires, the others are skipped."""
    SKIP = 2
    RUN_ALL = 3

    @property
    def label(self) -> str:
        return self.name.lower()


class Timing(msgspec.Struct, frozen=True, array_like=True):
    """When: one of `cron`, `every` or `at_ms`, with its limits. Texts are as the user wrote them."""

    cron: str = ""
    every: str = ""
    at_ms: TimeMs | None = None
    timezone: str = "UTC"
    start_at_ms: TimeMs | None = None
    end_at_ms: TimeMs | None = None
    jitter_ms: int = 0
    """Each run is due up to this much after its instant, drawn by the leader."""
    dst_gap: str = "shift"
    dst_overlap: str = "first"
    max_firings: int = 0
    """0 = no limit; skipped instants do not count."""
    calendar: Calendar | None = None
    """What is to be skipped; None = nothing."""
    anchor_ms: TimeMs | None = None
    """Where a grid without a start of its own begins: the leader's time when it was first saved. None for the others."""

    def begins_ms(self, otherwise: int) -> int:
        """Return where a grid begins: at its start, at its anchor, or as the caller says."""
        if self.start_at_ms is not None:
            return self.start_at_ms
        return otherwise if self.anchor_ms is None else self.anchor_ms


class Template(msgspec.Struct, frozen=True, array_like=True):
    """The job that each firing submits."""

    spec: JobSpec
    """Its options have none of what only a job of its own can have: times, schedule, workflow."""
    expires_after_ms: int = 0
    """Becomes `expires_at` counted from the due time; 0 = none."""
    deadline_after_ms: int = 0


class Schedule(msgspec.Struct, frozen=True, array_like=True):
    id: ScheduleId
    tenant: str
    name: str
    """Unique within the tenant: a second submit under it changes this one."""
    timing: Timing
    template: Template
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.RUN_ONCE
    catchup_window_ms: int = 0
    """Instants older than this when they are decided are skipped (`catchup_expired`); 0 = `limits.CATCHUP_MS`."""
    paused: bool = False
    paused_at_ms: TimeMs = TimeMs(0)
    pause_until_ms: TimeMs = TimeMs(0)
    pause_reason: str = ""
    resumed_at_ms: TimeMs = TimeMs(0)
    """Undecided instants up to here fell into a pause."""
    generation: int = 1
    """Rises with each change of the timing: a decision made for an older one is refused."""
    next_at_ms: TimeMs = TimeMs(0)
    """The first instant without a decision; 0 = there is none any more."""
    last_at_ms: TimeMs = TimeMs(0)
    """The last instant with a decision."""
    fired_count: int = 0
    skipped_count: int = 0
    active: tuple[JobId, ...] = ()
    """Jobs of its instants and of triggers that are not finished, oldest first, at most `limits.SCHEDULE_ACTIVE_MAX`."""
    backfilling: tuple[JobId, ...] = ()
    """The like of backfills; overlap is judged among these apart, so that a backfill stands in no instant's way."""
    fingerprint: bytes = b""
    """Digest of what the user sent: sent again it changes nothing."""
    created_at_ms: TimeMs = TimeMs(0)
    updated_at_ms: TimeMs = TimeMs(0)
    revision: int = 0
    """Log index of its latest change: a save, a pause or its end, a decision."""
    changed_revision: int = 0
    """Log index of its latest change by somebody: a save, a pause, a resumption. Runs are none, nor is a pause's end by
    time. `If-Match` goes by it."""
    source: str = ""
    """Which file, or program, it was applied from last; "" = none. Only that one prunes it."""

    @property
    def next_deadline_ms(self) -> int:
        """When the leader must look at it: the next instant, or the end of its pause; 0 = never."""
        return self.pause_until_ms if self.paused else self.next_at_ms

    @property
    def has_reached_max_firings(self) -> bool:
        """Whether it has ended by its number of firings."""
        return 0 < self.timing.max_firings <= self.fired_count


class FiringKind(IntEnum):
    """Where a decision came from; part of the ledger's key."""

    PLANNED = 1
    MANUAL = 2
    BACKFILL = 3

    @property
    def label(self) -> str:
        return self.name.lower()


class Firing(msgspec.Struct, frozen=True, array_like=True):
    """A line of the ledger: what was decided for one instant, or for a range of them that were skipped together."""

    fire_time_ms: TimeMs
    kind: FiringKind = FiringKind.PLANNED
    job_id: JobId = JobId(b"")
    """b"" = skipped."""
    reason: str = ""
    """Why skipped: `overlap`, `misfire`, `paused`, `catchup_expired`, `max_firings`, `overlap_limit`, `changed`, what the
    calendar says, or why the job was refused."""
    count: int = 1
    """Instants that this line stands for; other than 1 only where skipped, 0 = too many to be counted."""
    last_fire_time_ms: TimeMs = TimeMs(0)
    """The last of them, where `count` is not 1."""
    decided_at_ms: TimeMs = TimeMs(0)
    generation: int = 1
    revision: int = 0
    call: bytes = b""
    """Which call by hand it is of, so that the call finds it again: `RunSchedule.call`, where the instant was asked for."""

    def prevents_repeat(self, now_ms: int) -> bool:
        """Whether it must stay, since a call that comes again finds by it what it has made.

        That of planned instants is known from the schedule, and of triggers for no instant in particular from the job.
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
