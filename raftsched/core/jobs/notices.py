"""Record the events of a schedule, and submit the jobs that notify its owner: its notices.

Theory of operation. The operation that causes an event records it: the end of a run, a failed attempt and a late start by
`workflows.cascade`, a skipped fire time by `schedules.fire`, the time without success by `maintenance.deadlines`. It
stores the alarm on the schedule and the jobs of its notices in the same log entry. So each event has its notices once,
whatever leader, and a repeated operation has none.

A problem opens an alarm of its kind. While that is open, further problems of the kind have no notices. A success closes
all alarms, except that a late run leaves the alarm about lateness open.

A schedule whose owner expects nothing has no alarms. Backfills cause no events, since whoever started them watches them.
A job that an event submitted is no run of a schedule, and has no hooks, so notices never cause each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.facts import error_part, facts_of_run, failure_text, filled, for_executor, run_subject
from raftsched.core.jobs.hooks import event_job_id
from raftsched.core.jobs.submit import new_job
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import FINISHED, MEETS, Condition, Job
from raftsched.core.records.notices import SERIOUS, Alarm, Notice, NoticeEvent, NoticeForm, Watch
from raftsched.core.records.schedule import FiringKind, Schedule, ScheduleId
from raftsched.core.records.spec import with_options
from raftsched.core.records.texts import span_text, time_text
from raftsched.core.state.audit import audited
from raftsched.core.state.results import Context
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutJob, PutSchedule, Write
from raftsched.errors import InvariantBroken

_NOTHING: Final = Watch()
_SLACK: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Happening(NamedTuple):
    """An event of a schedule."""

    event: NoticeEvent
    since_ms: TimeMs
    """The beginning of the problem."""
    job: Job | None = None
    """The run that caused it; None = a fire time without a run, or the time without success."""
    fire_time_ms: TimeMs | None = None
    """The skipped fire time."""
    reason: str = ""
    """The reason of the skip."""


# -- what is an event -------------------------------------------------------------------------------------------------


def may_happen(view: View, old: Job, new: Job) -> bool:
    """Return whether a change of a job other than its end may be an event: a failed attempt or a late start."""
    options = new.spec.options
    if options is None or not options.schedule_id or options.is_backfill:
        return False
    if not (_has_failed(old, new) or _lateness_ms(old, new) >= limits.LATE_MS_MIN):
        return False
    schedule = view.schedule(ScheduleId(options.schedule_id))
    return schedule is not None and schedule.watch is not None


def happening_of(view: View, schedule: Schedule, old: Job, new: Job, context: Context) -> Happening | None:
    """Return the event that the change of a run is; None if it is none."""
    options = new.spec.options
    if options is None or options.is_backfill:
        return None
    if old.status not in FINISHED and new.status in FINISHED:
        if new.status in MEETS[Condition.SUCCESS]:
            return Happening(NoticeEvent.SUCCESS, context.now_ms, new)
        return (
            Happening(NoticeEvent.DEAD_LETTER, context.now_ms, new) if new.status in MEETS[Condition.FAILURE] else None
        )
    if _has_failed(old, new):
        return Happening(NoticeEvent.FAILED, context.now_ms, new)
    late_after_ms = 0 if schedule.watch is None else schedule.watch.late_after_ms
    if late_after_ms and _lateness_ms(old, new) > late_after_ms and _is_planned(view, schedule, new):
        return Happening(NoticeEvent.LATE, context.now_ms, new)
    return None


def _has_failed(old: Job, new: Job) -> bool:
    """Return whether an attempt failed and will be repeated."""
    return old.lease is not None and new.status not in FINISHED and new.failure_count > old.failure_count


def _lateness_ms(old: Job, new: Job) -> int:
    """Return how long after its fire time a run started; 0 for other changes."""
    is_start = old.lease is None and new.lease is not None and new.attempt_number == new.run_number == 1
    return new.started_at_ms - _fire_time_ms(new) if is_start else 0


def _fire_time_ms(job: Job) -> int:
    fire_time_ms = None if job.spec.options is None else job.spec.options.fire_time_ms
    return job.started_at_ms if fire_time_ms is None else fire_time_ms


def _is_planned(view: View, schedule: Schedule, job: Job) -> bool:
    """Return whether the schedule started the run itself: a run by hand may be for any time of the past."""
    line = view.firing(schedule.id, TimeMs(_fire_time_ms(job)), FiringKind.PLANNED)
    return line is not None and line.job_id == job.id


# -- what follows from it ---------------------------------------------------------------------------------------------


def success_within_ms(schedule: Schedule) -> int:
    """Return the longest time without success that the owner allows; 0 = any."""
    return 0 if schedule.watch is None else schedule.watch.success_within_ms


def counted_from_now(schedule: Schedule, context: Context) -> Schedule:
    """Return the schedule with the time without success counted from now, or from its start if that is later."""
    starts = (schedule.timing.start_at_ms, schedule.timing.at_ms)
    from_ms = max(context.now_ms, *(start_ms for start_ms in starts if start_ms is not None), 0)
    return replace(schedule, health=replace(schedule.health, counted_from_ms=TimeMs(from_ms)))


def without_success(view: View, schedule: Schedule, context: Context) -> tuple[Write, ...]:
    """Return the writes for a schedule of which no run has succeeded in time; () if there is time left."""
    if not 0 < schedule.success_by_ms <= context.now_ms:
        return ()
    happening = Happening(NoticeEvent.MISSED, schedule.health.quiet_since_ms)
    new, writes = recorded(view, schedule, (happening,), context)
    return (PutSchedule(schedule, new), *writes)


def recorded(
    view: View, schedule: Schedule, happenings: Sequence[Happening], context: Context
) -> tuple[Schedule, tuple[Write, ...]]:
    """Return the schedule after its events, and the other writes: its notices, and lines of the audit trail."""
    record = _Record(view, schedule, context)
    for happening in happenings:
        if happening.event is NoticeEvent.SUCCESS:
            record.succeeded(happening)
        elif schedule.watch is not None:
            record.alarmed(happening)
    return record.schedule, tuple(record.writes)


class _Record:
    """Collect what follows from the events of one operation."""

    def __init__(self, view: View, schedule: Schedule, context: Context) -> None:
        self.schedule = schedule
        self.writes: list[Write] = []
        self._view = view
        self._watch = schedule.watch or _NOTHING
        self._context = context

    def alarmed(self, happening: Happening) -> None:
        health = self.schedule.health
        if health.has_alarm(happening.event):
            return
        alarm = Alarm(happening.event, happening.since_ms)
        self.schedule = replace(self.schedule, health=replace(health, alarms=(*health.alarms, alarm)))
        if happening.event in SERIOUS:
            self._audit(happening)
        self._notify(happening)

    def succeeded(self, success: Happening) -> None:
        alarms = self.schedule.health.alarms
        kept = tuple(alarm for alarm in alarms if alarm.event is NoticeEvent.LATE and self._was_late(success.job))
        health = replace(self.schedule.health, success_at_ms=self._context.now_ms, alarms=kept)
        self.schedule = replace(self.schedule, health=health)
        serious = [alarm.since_ms for alarm in alarms if alarm.event in SERIOUS]
        recovery = success._replace(event=NoticeEvent.RECOVERED, since_ms=min(serious)) if serious else None
        if recovery is not None:
            self._audit(recovery)
        self._notify(*(each for each in (recovery, success) if each is not None))

    def _was_late(self, job: Job | None) -> bool:
        if job is None or not job.attempts or not self._watch.late_after_ms:
            return False
        return job.attempts[0].started_at_ms - _fire_time_ms(job) > self._watch.late_after_ms

    def _audit(self, happening: Happening) -> None:
        subject = f"schedule:{self.schedule.name}"
        detail = summary_of(self.schedule, happening)
        action = f"schedule.{happening.event.label}"
        self.writes.append(audited(self._context, action, subject, tenant=self.schedule.tenant, detail=detail))

    def _notify(self, *happenings: Happening) -> None:
        """Submit each notice that is about one of the events, for the first of them."""
        for position, notice in enumerate(self._watch.notices):
            wanted = next((each for each in happenings if each.event in notice.events), None)
            if wanted is not None:
                self.writes.append(self._notice(notice, position, wanted))

    def _notice(self, notice: Notice, position: int, happening: Happening) -> PutJob:
        schedule, now_ms = self.schedule, self._context.now_ms
        notice_id = event_job_id(_cause(schedule, happening, position), now_ms)
        if self._view.job(notice_id) is not None:
            raise InvariantBroken(f"schedule {schedule.id.hex()}: notice {notice_id.hex()} is stored before its event")
        operation = SubmitJob(
            id=notice_id,
            tenant=schedule.tenant,
            spec=with_options(notice.hook.spec, notice_of=schedule.id),
            due_at_ms=now_ms,
            payload=_payload(notice, facts_of_event(schedule, happening)),
        )
        stored = new_job(operation, self._context, actor=f"schedule:{schedule.name}")
        return PutJob(None, stored, payload=operation.payload)


def _cause(schedule: Schedule, happening: Happening, position: int) -> bytes:
    """Return a text that no other notice of this moment has."""
    job = happening.job
    what = b"%d" % happening.since_ms if job is None else b"%s.%d.%d" % (job.id, job.run_number, job.attempt_number)
    return b"%s.%d.%d.%s" % (schedule.id, happening.event, position, what)


def _payload(notice: Notice, facts: Mapping[str, object]) -> bytes:
    if notice.form is NoticeForm.SLACK:
        facts = {name: value.translate(_SLACK) if isinstance(value, str) else value for name, value in facts.items()}
    if notice.hook.spec.options is not None and notice.hook.spec.options.call is not None:
        facts = for_executor(facts)
    own = filled(notice.hook.payload, facts)
    if not own:
        return msgspec.json.encode(facts)
    return b"%b,%b" % (own[:-1], msgspec.json.encode(facts)[1:]) if notice.form is NoticeForm.EMAIL else own


# -- the content of a notice -------------------------------------------------------------------------------------------


def facts_of_event(schedule: Schedule, happening: Happening) -> dict[str, object]:
    """Return what is known of an event, by the names of placeholders."""
    spec, fire_time_ms = schedule.template.spec, happening.fire_time_ms
    of_run = {
        "job_id": None,
        "run_id": None,
        "name": spec.name,
        "queue": spec.queue,
        "status": None,
        "reason": happening.reason or "no_success",
        "error": None,
        "attempts": 0,
        "schedule": schedule.name,
        "fire_time": None if fire_time_ms is None else time_text(fire_time_ms),
    }
    return {
        **(of_run if happening.job is None else facts_of_run(happening.job, schedule)),
        "event": happening.event.label,
        "since": time_text(happening.since_ms),
        "summary": summary_of(schedule, happening),
    }


def summary_of(schedule: Schedule, happening: Happening) -> str:
    """Return the event as a sentence of one line."""
    job, since = happening.job, time_text(happening.since_ms)
    if job is None and happening.fire_time_ms is None:
        return f"Schedule {schedule.name}: no run has succeeded since {since}"
    if job is None:
        return f"{run_subject(schedule, happening.fire_time_ms)} was skipped: {happening.reason}"
    match happening.event:
        case NoticeEvent.FAILED:
            told = f"failed in attempt {job.attempt_number} and is tried again{error_part(job)}"
        case NoticeEvent.LATE:
            told = f"started {span_text(job.started_at_ms - _fire_time_ms(job))} after its fire time"
        case NoticeEvent.RECOVERED:
            told = f"succeeded; there were problems since {since}"
        case NoticeEvent.SUCCESS:
            told = "succeeded"
        case _:
            told = failure_text(job)
    return f"{run_subject(schedule, _fire_time_ms(job))} {told}"
