"""Define operations on schedules. Rules of the codec: see `codec`."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from raftsched.core.operations.base import Operation
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.notices import Watch
from raftsched.core.records.parameters import Parameter
from raftsched.core.records.schedule import About, FiringKind, Misfire, Overlap, ScheduleId, Template, Timing


class SaveSchedule(Operation, frozen=True, tag=18):
    """Store a new schedule, or change the one of the same tenant and name; a repeat changes nothing.

    Only a change of the timing makes a new generation, which begins now: passed fire times of the new timing are not made
    up. Result: `ScheduleSaved`. Rejected: `stale_revision`, `not_found` (`if_revision` is given and there is no such
    schedule), `stale_decision` (fire times from `next_at_ms` on have passed), `exists` (`create_only`).
    """

    id: ScheduleId
    """The id of a new schedule."""
    tenant: str
    name: str
    timing: Timing
    template: Template
    overlap: Overlap
    misfire: Misfire
    catchup_window_ms: int
    next_at_ms: TimeMs
    """First fire time of this timing after the leader's now; used if the timing is new."""
    fingerprint: bytes
    payload: bytes = b""
    """The template's; JSON text, b"" = none."""
    passed_count: int = 0
    """Undecided fire times of the old timing, which are never decided if the timing changes."""
    if_revision: int = 0
    """Change only a schedule of this revision; 0 = any revision."""
    create_only: bool = False
    actor: str = ""
    pause_until_ms: TimeMs = TimeMs(0)
    """If this is in the future, pause until then, even if nothing else changes; 0 = do not change the pause."""
    source: str = ""
    """The file or program that applies it; "" = unchanged."""
    about: About = About()
    parameters: tuple[Parameter, ...] = ()
    watch: Watch | None = None


class ScheduleAction(IntEnum):
    PAUSE = 1
    RESUME = 2
    DELETE = 3
    END_PAUSE = 4
    """Resume if the pause ends by now; the leader proposes it."""


class ControlSchedule(Operation, frozen=True, tag=19):
    """Pause, resume or delete a schedule. A repeat succeeds, but a deleted schedule is not found.

    Its jobs continue. Result: `ScheduleSaved`. Rejected: `not_found`, `stale_revision` (another `source` applied it).
    """

    id: ScheduleId
    tenant: str
    action: ScheduleAction
    until_ms: TimeMs = TimeMs(0)
    reason: str = ""
    actor: str = ""
    source: str = ""
    """Change only a schedule that this source applied; "" = any."""


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """Propose a run for one fire time, or skip one or a range of them."""

    fire_time_ms: TimeMs
    job_id: JobId = JobId(b"")
    """The id of the job to submit; b"" = skip."""
    due_at_ms: TimeMs = TimeMs(0)
    """The fire time, with jitter."""
    reason: str = ""
    count: int = 1
    last_fire_time_ms: TimeMs = TimeMs(0)


class FireSchedule(Operation, frozen=True, tag=20):
    """Decide fire times of a schedule, in order, beginning with its `next_at_ms`. Overlap is decided when it is applied.

    Result: `Fired`. Rejected, with nothing written: `not_found`, `stale_decision` (another generation, another first
    fire time, or a fire time after the cluster's time), `paused`.
    """

    id: ScheduleId
    generation: int
    decisions: tuple[Decision, ...]
    next_at_ms: TimeMs
    """The first fire time after the last decision; 0 = there are no more."""


class RunSchedule(Operation, frozen=True, tag=21):
    """Submit a run by hand (`MANUAL`), or runs for past fire times (`BACKFILL`); planned fire times are unchanged.

    A fire time that is in the ledger with this kind keeps its decision. Result: `Fired`. Rejected, with nothing written:
    `not_found`; `idempotency_mismatch` (`key` or the trigger's fire time belongs to another call); `limit_reached` (too
    many triggers need a fire time of their own at once); `invalid` (the message names the parameter at fault).
    """

    id: ScheduleId
    tenant: str
    kind: FiringKind
    decisions: tuple[Decision, ...]
    overlap: Overlap
    """`ALLOW` = in parallel with all other runs."""
    payload: bytes | None = None
    """Replaces the template's payload; None = the template's."""
    actor: str = ""
    call: bytes = b""
    """Digest that identifies a backfill, or of a trigger's request; it is stored in their lines."""
    key: str = ""
    """Idempotency key of a trigger's job: while the job is stored, the same key finds it."""
    any_fire_time: bool = False
    """The trigger has no given fire time: it gets the first free one from its decision's on."""
    parameters: bytes = b""
    """Values of a trigger by the names of parameters, as a JSON object; b"" = none, so all have their defaults."""


class TrimLedger(Operation, frozen=True, tag=22):
    """Remove lines of a schedule's ledger, except those that a repeated call needs. Result: `Counted`."""

    id: ScheduleId
    lines: tuple[tuple[TimeMs, FiringKind], ...]
    """Fire times and kinds, at most `limits.BACKGROUND_STEP_ITEMS_MAX`."""


class NextFireTime(msgspec.Struct, frozen=True, array_like=True):
    """Change the next fire time of a schedule because of other time zone rules."""

    schedule_id: ScheduleId
    generation: int
    was_ms: TimeMs
    """The next fire time before the change; if the schedule has another one, nothing is changed."""
    next_at_ms: TimeMs
    """0 = there are no more."""


class AdoptZoneRules(Operation, frozen=True, tag=29):
    """Change next fire times to those by the time zone rules of this version. Result: `Counted` (changed schedules)."""

    version: str
    changes: tuple[NextFireTime, ...]
    is_last: bool
    """All schedules have been examined: from now on the state has this version."""
