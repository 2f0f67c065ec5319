"""Operations on schedules. Rules of the codec: see `operations`."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from raftsched.core.operations.base import Operation
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.schedule import FiringKind, Misfire, Overlap, ScheduleId, Template, Timing


class SaveSchedule(Operation, frozen=True, tag=18):
    """Store a new schedule, or change the one of the same tenant and name; sent again it changes nothing.

    Only a change of the timing makes a new generation, which counts from now: instants of the new timing in the past
    are not made up. Result: `ScheduleSaved`. Rejected: `stale_revision`, `not_found` (`if_revision` of a schedule
    that is not there), `stale_decision` (instants have passed that are not before `next_at_ms`), `exists`
    (`create_only`).
    """

    id: ScheduleId
    """Of a new one."""
    tenant: str
    name: str
    timing: Timing
    template: Template
    overlap: Overlap
    misfire: Misfire
    catchup_window_ms: int
    next_at_ms: TimeMs
    """First instant of this timing after the leader's now; taken over where the timing is new."""
    fingerprint: bytes
    payload: bytes = b""
    """The template's; JSON text, b"" = none."""
    passed_count: int = 0
    """Instants of the old timing that have no decision and never will, where the timing changes."""
    if_revision: int = 0
    """Change only a schedule of this revision; 0 = whatever it is."""
    create_only: bool = False
    actor: str = ""
    pause_until_ms: TimeMs = TimeMs(0)
    """Where this is to come, it is paused until then, also where nothing else changes; 0 = leave the pause as it is."""
    source: str = ""
    """What it is applied from; "" = as it was."""


class ScheduleAction(IntEnum):
    PAUSE = 1
    RESUME = 2
    DELETE = 3
    END_PAUSE = 4
    """Resume where the pause was to end by now; the leader's own doing."""


class ControlSchedule(Operation, frozen=True, tag=19):
    """Pause, resume or delete a schedule; each twice succeeds, but a deleted one is not found.

    Jobs it has made go on. Result: `ScheduleSaved`. Rejected: `not_found`, `stale_revision` (it is of another `source`).
    """

    id: ScheduleId
    tenant: str
    action: ScheduleAction
    until_ms: TimeMs = TimeMs(0)
    reason: str = ""
    actor: str = ""
    source: str = ""
    """Do it only to a schedule that this source applied; "" = to any."""


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """What the leader wants for one instant, or for a range of instants that are skipped."""

    fire_time_ms: TimeMs
    job_id: JobId = JobId(b"")
    """Of the job to make; b"" = skip."""
    due_at_ms: TimeMs = TimeMs(0)
    """The instant, with jitter."""
    reason: str = ""
    count: int = 1
    last_fire_time_ms: TimeMs = TimeMs(0)


class FireSchedule(Operation, frozen=True, tag=20):
    """Decide instants of a schedule, in order, the first being its `next_at_ms`; overlap is judged as it is applied.

    Result: `Fired`. Rejected, with nothing written: `not_found`, `stale_decision` (another generation, another first
    instant, or an instant that the cluster's time has not reached), `paused`.
    """

    id: ScheduleId
    generation: int
    decisions: tuple[Decision, ...]
    next_at_ms: TimeMs
    """The first instant behind the last decision; 0 = none any more."""


class RunSchedule(Operation, frozen=True, tag=21):
    """Make a run by hand (`MANUAL`), or runs for past instants (`BACKFILL`); the planned instants are not touched.

    An instant that the ledger knows of this kind is left as it is decided. Result: `Fired`. Rejected, with nothing
    written: `not_found`; `idempotency_mismatch`, where `key` or the trigger's instant belongs to another call; and
    `limit_reached`, where too many triggers want an instant of their own at once.
    """

    id: ScheduleId
    tenant: str
    kind: FiringKind
    decisions: tuple[Decision, ...]
    overlap: Overlap
    """`ALLOW` = beside whatever runs."""
    payload: bytes | None = None
    """In place of the template's; None = the template's."""
    actor: str = ""
    call: bytes = b""
    """Of a backfill: digest that tells it from others; of a trigger: of what it asks for. It stands on their lines."""
    key: str = ""
    """Idempotency key of a trigger's job: while the job is there, the same key finds it."""
    any_fire_time: bool = False
    """Of a trigger: it is for no instant in particular, and gets the first from its decision's on that is free."""


class TrimLedger(Operation, frozen=True, tag=22):
    """Remove lines of a schedule's ledger, but for those that keep a call from repeating. Result: `Counted`."""

    id: ScheduleId
    lines: tuple[tuple[TimeMs, FiringKind], ...]
    """Instants and kinds, at most `limits.BACKGROUND_STEP_ITEMS_MAX`."""


class NextFireTime(msgspec.Struct, frozen=True, array_like=True):
    """Where the next instant of a schedule moves to by other zone rules."""

    schedule_id: ScheduleId
    generation: int
    was_ms: TimeMs
    """Nothing is changed unless the schedule still stands here."""
    next_at_ms: TimeMs
    """0 = none any more."""


class AdoptZoneRules(Operation, frozen=True, tag=29):
    """Move next instants to where time zone rules of this version have them. Result: `Counted` (schedules moved)."""

    version: str
    changes: tuple[NextFireTime, ...]
    is_last: bool
    """All schedules have been looked at: from now on the state goes by this version."""
