"""Handle SaveSchedule and ControlSchedule: create, change, pause, resume and delete schedules.

A schedule is identified by its name within its tenant, so an application can save it at every start: a repeat changes
nothing. Only a change of the timing changes fire times. It begins a new generation, which counts from now: past fire
times of the new timing are not made up, and undecided ones of the old timing are skipped in the ledger. A late save is
rejected if fire times of the old timing have passed the first of the new one: no fire time is decided twice.

A pause leaves fire times undecided. They are decided when it ends, by the misfire policy. The time without success is
counted from the end of a pause, from a change of the timing or of the time that is allowed, or from the first save.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.changes import invalid, refused
from raftsched.core.jobs.notices import counted_from_now, success_within_ms
from raftsched.core.jobs.quotas import schedules_refusal
from raftsched.core.jobs.submit import submit_problem
from raftsched.core.operations.codec import RejectCode, SubmitJob
from raftsched.core.operations.control import BackgroundKind
from raftsched.core.operations.schedules import ControlSchedule, SaveSchedule, ScheduleAction
from raftsched.core.records.bounds import (
    JOB_ID_BYTES,
    TIME_MS_MAX,
    name_problem,
    range_problem,
    requested_time_problem,
    text_problem,
    utf8_bytes,
)
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.notices import watch_problem
from raftsched.core.records.parameters import parameters_problem
from raftsched.core.records.schedule import About, Firing, Schedule, ScheduleId, Template, Timing
from raftsched.core.records.spec import with_options
from raftsched.core.state.audit import audited, schedule_changes
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, ScheduleSaved
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutBackgroundWork, PutFiring, PutSchedule, RemoveSchedule, Write
from raftsched.errors import InvariantBroken

_TEXT_BYTES_MAX: Final = 1_000
"""Length of a cron expression, an interval or a zone; the API has lower limits, with better texts."""


# -- saving -----------------------------------------------------------------------------------------------------------


@handles(SaveSchedule)
def save_schedule(view: View, operation: SaveSchedule, context: Context) -> Applied:
    problem = _problem(operation)
    if problem:
        return invalid(problem)
    known_id = view.schedule_id_for_name(operation.tenant, operation.name)
    if known_id is None:
        return _create(view, operation, context)
    known = find_schedule(view, known_id, operation.tenant)
    if known is None:
        raise InvariantBroken(f"the name {operation.name!r} leads to schedule {known_id.hex()}, which is not there")
    if operation.if_revision not in (0, known.revision):
        return refused(RejectCode.STALE_REVISION, f"the schedule is at revision {known.revision} by now")
    if known.fingerprint == operation.fingerprint:
        return (
            Applied(ScheduleSaved(known, changed=False))
            if operation.create_only
            else _unchanged(known, operation, context)
        )
    if operation.create_only:
        return refused(RejectCode.EXISTS, f"name: schedule {operation.name!r} exists and is another one")
    return _change(view, known, operation, context)


def _create(view: View, operation: SaveSchedule, context: Context) -> Applied:
    if operation.if_revision:
        return refused(RejectCode.NOT_FOUND, "there is no such schedule")
    if view.schedule(operation.id) is not None:
        return refused(RejectCode.INVALID, "id: belongs to another schedule")
    if view.schedule_count() >= limits.SCHEDULES_MAX:
        return refused(RejectCode.LIMIT_REACHED, f"there are {limits.SCHEDULES_MAX} schedules, and no more may be")
    if refusal := schedules_refusal(view, operation.tenant):
        return Applied(refusal)
    schedule = Schedule(
        id=operation.id,
        tenant=operation.tenant,
        name=operation.name,
        timing=operation.timing,
        template=operation.template,
        overlap=operation.overlap,
        misfire=operation.misfire,
        catchup_window_ms=operation.catchup_window_ms,
        next_at_ms=operation.next_at_ms,
        fingerprint=operation.fingerprint,
        created_at_ms=context.now_ms,
        updated_at_ms=context.now_ms,
        revision=context.index,
        changed_revision=context.index,
        source=operation.source,
        about=operation.about,
        parameters=operation.parameters,
        watch=operation.watch,
    )
    schedule = _paused_until(counted_from_now(schedule, context), operation, context)
    audit = audited_schedule(schedule, "create", operation.actor, context)
    return Applied(
        ScheduleSaved(schedule, created=True), (PutSchedule(None, schedule, payload=operation.payload), audit)
    )


def _unchanged(known: Schedule, operation: SaveSchedule, context: Context) -> Applied:
    """Handle a save of the stored document; its pause or source may be new."""
    new = _paused_until(known, operation, context)
    action, detail = "pause", ""
    if operation.source not in ("", known.source):
        new = _changed(new, context, source=operation.source)
        action, detail = "change", schedule_changes(known, new, payload_changed=False)
    if new is known:
        return Applied(ScheduleSaved(known, changed=False))
    audit = audited_schedule(new, action, operation.actor, context, detail)
    return Applied(ScheduleSaved(new), (PutSchedule(known, new), audit))


def _paused_until(schedule: Schedule, operation: SaveSchedule, context: Context) -> Schedule:
    """Return the schedule with the operation's pause; unchanged if there is none, or it has the same pause already."""
    until_ms = operation.pause_until_ms
    if until_ms <= context.now_ms or (schedule.paused and schedule.pause_until_ms == until_ms):
        return schedule
    return _changed(
        schedule,
        context,
        paused=True,
        paused_at_ms=schedule.paused_at_ms if schedule.paused else context.now_ms,
        pause_until_ms=until_ms,
    )


def _change(view: View, known: Schedule, operation: SaveSchedule, context: Context) -> Applied:
    new = _changed(
        known,
        context,
        template=operation.template,
        overlap=operation.overlap,
        misfire=operation.misfire,
        catchup_window_ms=operation.catchup_window_ms,
        fingerprint=operation.fingerprint,
        source=operation.source or known.source,
        about=operation.about,
        parameters=operation.parameters,
        watch=operation.watch,
    )
    if success_within_ms(new) != success_within_ms(known):
        new = counted_from_now(new, context)
    writes: list[Write] = []
    if not _same_timing(operation.timing, known.timing):
        new = replace(new, timing=operation.timing, generation=known.generation + 1, next_at_ms=operation.next_at_ms)
        new = counted_from_now(new, context)
        if 0 < known.next_at_ms <= context.now_ms:
            new = replace(new, skipped_count=known.skipped_count + operation.passed_count, last_at_ms=context.now_ms)
            writes.append(PutFiring(known.id, _passed(known, operation, context)))
        if new.has_reached_max_firings:
            new = replace(new, next_at_ms=TimeMs(0))
        if 0 < new.next_at_ms <= new.last_at_ms:
            return refused(RejectCode.STALE_DECISION, f"instants up to {new.last_at_ms} have passed meanwhile")
    new = _paused_until(new, operation, context)
    writes.append(PutSchedule(known, new, payload=operation.payload))
    other_payload = operation.payload != view.payload(known.id)
    detail = schedule_changes(known, new, payload_changed=other_payload)
    writes.append(audited_schedule(new, "change", operation.actor, context, detail))
    return Applied(ScheduleSaved(new), tuple(writes))


def _changed(schedule: Schedule, context: Context, **fields: Any) -> Schedule:
    """Return the schedule after a user's change."""
    marks = {"updated_at_ms": context.now_ms, "revision": context.index, "changed_revision": context.index}
    return replace(schedule, **fields, **marks)


def _same_timing(timing: Timing, known: Timing) -> bool:
    """Return whether both are equal; a fixed interval that is saved again keeps its anchor."""
    return replace(timing, anchor_ms=known.anchor_ms) == known


def _passed(known: Schedule, operation: SaveSchedule, context: Context) -> Firing:
    """Return the line for past fire times of the old timing, which are never decided."""
    return Firing(
        fire_time_ms=known.next_at_ms,
        reason="changed",
        count=operation.passed_count,
        last_fire_time_ms=context.now_ms if operation.passed_count != 1 else TimeMs(0),
        decided_at_ms=context.now_ms,
        generation=known.generation,
        revision=context.index,
    )


# -- control ----------------------------------------------------------------------------------------------------------


@handles(ControlSchedule)
def control_schedule(view: View, operation: ControlSchedule, context: Context) -> Applied:
    problem = (
        range_problem("until_ms", operation.until_ms, 0, TIME_MS_MAX)
        or range_problem("reason bytes", utf8_bytes(operation.reason), 0, limits.PAUSE_REASON_CHARS_MAX * 4)
        or range_problem("actor bytes", utf8_bytes(operation.actor), 0, limits.ACTOR_CHARS_MAX * 4)
    )
    if problem:
        return invalid(problem)
    known = find_schedule(view, operation.id, operation.tenant)
    if known is None:
        return refused(RejectCode.NOT_FOUND, "there is no such schedule")
    if operation.source not in ("", known.source):
        return refused(RejectCode.STALE_REVISION, f"schedule {known.name!r} is of another source by now")
    match operation.action:
        case ScheduleAction.PAUSE:
            return _pause(known, operation, context)
        case ScheduleAction.RESUME:
            return _resume(known, operation, context) if known.paused else Applied(ScheduleSaved(known, changed=False))
        case ScheduleAction.END_PAUSE:
            over = known.paused and 0 < known.pause_until_ms <= context.now_ms
            return _resume(known, operation, context) if over else Applied(ScheduleSaved(known, changed=False))
        case ScheduleAction.DELETE:
            writes = (RemoveSchedule(known), PutBackgroundWork(BackgroundKind.DROP_LEDGER, known.id))
            audit = audited_schedule(known, "delete", operation.actor, context)
            return Applied(ScheduleSaved(known), (*writes, audit))


def _pause(known: Schedule, operation: ControlSchedule, context: Context) -> Applied:
    same = known.paused and (known.pause_until_ms, known.pause_reason) == (operation.until_ms, operation.reason)
    if same:
        return Applied(ScheduleSaved(known, changed=False))
    new = _changed(
        known,
        context,
        paused=True,
        paused_at_ms=known.paused_at_ms if known.paused else context.now_ms,
        pause_until_ms=operation.until_ms,
        pause_reason=operation.reason,
    )
    audit = audited_schedule(new, "pause", operation.actor, context, operation.reason)
    return Applied(ScheduleSaved(new), (PutSchedule(known, new), audit))


def _resume(known: Schedule, operation: ControlSchedule, context: Context) -> Applied:
    new = _changed(
        known,
        context,
        paused=False,
        paused_at_ms=TimeMs(0),
        pause_until_ms=TimeMs(0),
        pause_reason="",
        resumed_at_ms=context.now_ms,
    )
    if operation.action is ScheduleAction.END_PAUSE:
        new = replace(new, changed_revision=known.changed_revision)  # time ended it, as its pause said
    new = counted_from_now(new, context)
    audit = audited_schedule(new, "resume", operation.actor, context)
    return Applied(ScheduleSaved(new), (PutSchedule(known, new), audit))


# -- for other modules, too -------------------------------------------------------------------------------------------


def find_schedule(view: View, schedule_id: ScheduleId, tenant: str) -> Schedule | None:
    """Return the schedule; None if there is none, or it is another tenant's."""
    if len(schedule_id) != JOB_ID_BYTES:
        return None
    schedule = view.schedule(schedule_id)
    return schedule if schedule is not None and schedule.tenant == tenant else None


def audited_schedule(schedule: Schedule, action: str, actor: str, context: Context, detail: str = "") -> Write:
    subject = f"schedule:{schedule.name}"
    return audited(context, f"schedule.{action}", subject, tenant=schedule.tenant, actor=actor, detail=detail)


def job_of(
    schedule: Schedule,
    payload: bytes,
    *,
    job_id: JobId,
    fire_time_ms: TimeMs,
    due_at_ms: TimeMs,
    is_backfill: bool = False,
    parameters: bytes = b"",
) -> SubmitJob:
    """Return the submission for a firing at `fire_time_ms`."""
    template = schedule.template
    spec = with_options(
        template.spec,
        expires_at_ms=_after(due_at_ms, template.expires_after_ms),
        deadline_ms=_after(due_at_ms, template.deadline_after_ms),
        schedule_id=schedule.id,
        fire_time_ms=fire_time_ms,
        is_backfill=is_backfill,
        parameters=parameters,
    )
    return SubmitJob(job_id, schedule.tenant, spec, due_at_ms, payload)


def _after(time_ms: TimeMs, ms: int) -> TimeMs | None:
    return TimeMs(min(time_ms + ms, limits.MOMENT_MS_MAX)) if ms else None


# -- validation -------------------------------------------------------------------------------------------------------


def _problem(operation: SaveSchedule) -> str:
    return (
        range_problem("id bytes", len(operation.id), JOB_ID_BYTES, JOB_ID_BYTES)
        or name_problem("tenant", operation.tenant)
        or name_problem("name", operation.name)
        or parameters_problem(operation.parameters)
        or _timing_problem(operation)
        or _template_problem(operation)
        or watch_problem(operation.watch)
        or range_problem("catchup_window_ms", operation.catchup_window_ms, 0, limits.DELAY_MS_MAX)
        or range_problem("next_at_ms", operation.next_at_ms, 0, TIME_MS_MAX)
        or range_problem("fingerprint bytes", len(operation.fingerprint), 1, 64)
        or range_problem("passed_count", operation.passed_count, 0, TIME_MS_MAX)
        or range_problem("pause_until_ms", operation.pause_until_ms, 0, TIME_MS_MAX)
        or (name_problem("source", operation.source) if operation.source else "")
        or _about_problem(operation.about)
        or range_problem("actor bytes", utf8_bytes(operation.actor), 0, limits.ACTOR_CHARS_MAX * 4)
    )


def _about_problem(about: About) -> str:
    names = [name for name, _ in about.labels]
    return (
        text_problem("description", about.description, 4 * limits.SCHEDULE_DESCRIPTION_CHARS_MAX)
        or text_problem("owner", about.owner, 4 * limits.SCHEDULE_OWNER_CHARS_MAX)
        or range_problem("labels", len(names), 0, limits.LABELS_MAX)
        or next(filter(None, (name_problem("labels", name) for name in names)), "")
        or text_problem(
            "labels", max((text for _, text in about.labels), key=utf8_bytes, default=""), 4 * limits.LABEL_CHARS_MAX
        )
        or ("" if names == sorted(set(names)) else "labels: must be sorted by name, each name once")
    )


def _timing_problem(operation: SaveSchedule) -> str:
    timing = operation.timing
    is_by_hand = any(parameter.must_be_given for parameter in operation.parameters)
    if sum((bool(timing.cron), bool(timing.every), timing.at_ms is not None)) != (0 if is_by_hand else 1):
        return "timing: needs one of cron, every and at, or none if a required parameter has no default"
    texts = (timing.cron, timing.every, timing.timezone, timing.dst_gap, timing.dst_overlap)
    return (
        range_problem("timing text bytes", max(map(utf8_bytes, texts)), 0, _TEXT_BYTES_MAX)
        or requested_time_problem("start_at_ms", timing.start_at_ms)
        or requested_time_problem("end_at_ms", timing.end_at_ms)
        or requested_time_problem("at_ms", timing.at_ms)
        or requested_time_problem("anchor_ms", timing.anchor_ms)
        or range_problem("jitter_ms", timing.jitter_ms, 0, limits.DELAY_MS_MAX)
        or range_problem("max_firings", timing.max_firings, 0, TIME_MS_MAX)
        or range_problem("calendar bytes", _calendar_bytes(timing), 0, limits.CALENDAR_BYTES_MAX)
    )


def _calendar_bytes(timing: Timing) -> int:
    return 0 if timing.calendar is None else len(msgspec.msgpack.encode(timing.calendar))


def _template_problem(operation: SaveSchedule) -> str:
    """Return why the first job could not be stored, or "", so that no schedule is stored that can't fire."""
    template: Template = operation.template
    own = template.spec.options
    if own is not None and (
        own.schedule_id
        or own.workflow_id
        or own.parameters
        or own.expires_at_ms is not None
        or own.deadline_ms is not None
    ):
        return "template.options: holds what only a job of its own can have"
    problem = range_problem("expires_after_ms", template.expires_after_ms, 0, limits.DELAY_MS_MAX) or range_problem(
        "deadline_after_ms", template.deadline_after_ms, 0, limits.DELAY_MS_MAX
    )
    if problem:
        return problem
    schedule = Schedule(operation.id, operation.tenant, operation.name, operation.timing, template)
    soon = TimeMs(1)
    return submit_problem(
        job_of(schedule, operation.payload, job_id=JobId(bytes(JOB_ID_BYTES)), fire_time_ms=soon, due_at_ms=soon)
    )
