"""FireSchedule and RunSchedule: one decision for each instant of a schedule, and the jobs that follow from it.

The leader proposes what it wants for the instants that are due; whether an earlier run stands in the way is judged
here, in the order of the log. A decision begins at the schedule's first undecided instant and belongs to one
generation, so of two leaders that propose the same instants one is refused and no instant is decided twice.

Buffering needs no memory of its own: the new job depends on the end of the earlier one, in whatever way it ends.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.bounds import JOB_ID_BYTES, TIME_MS_MAX, range_problem, utf8_bytes
from raftsched.core.cancel import cancel_job
from raftsched.core.changes import invalid, refused
from raftsched.core.ids import JobId, TimeMs
from raftsched.core.job import FINISHED, Condition, Dependency
from raftsched.core.operations import CancelJob, RejectCode
from raftsched.core.overlay import Overlay
from raftsched.core.schedule import Firing, FiringKind, Overlap, Schedule
from raftsched.core.schedule_operations import Decision, FireSchedule, RunSchedule, TrimLedger
from raftsched.core.schedules import audited_schedule, find_schedule, job_of
from raftsched.core.submit import submit_job
from raftsched.core.view import (
    Applied,
    Context,
    Counted,
    Fired,
    PutFiring,
    PutSchedule,
    Refused,
    RemoveFirings,
    Submitted,
    View,
)

OVERLAP_LIMIT: Final = "overlap_limit"
"""Why an instant is skipped for which there was no room among the unfinished runs."""
_REASON_BYTES_MAX: Final = 4 * limits.SKIP_REASON_CHARS_MAX


# -- planned instants -------------------------------------------------------------------------------------------------


def fire_schedule(view: View, operation: FireSchedule, context: Context) -> Applied:
    problem = _problem(operation.decisions) or range_problem("next_at_ms", operation.next_at_ms, 0, TIME_MS_MAX)
    if problem:
        return invalid(problem)
    schedule = view.schedule(operation.id) if len(operation.id) == JOB_ID_BYTES else None
    if schedule is None:
        return refused(RejectCode.NOT_FOUND, "there is no such schedule")
    if schedule.paused:
        return refused(RejectCode.PAUSED, "the schedule is paused")
    if stale := _stale(schedule, operation, context):
        return refused(RejectCode.STALE_DECISION, stale)
    round_ = _Round(
        view,
        schedule,
        context,
        kind=FiringKind.PLANNED,
        overlap=schedule.overlap,
        payload=view.payload(schedule.id),
    )
    for decision in operation.decisions:
        round_.decide(decision)
    last = operation.decisions[-1]
    ended = _has_fired_enough(round_.schedule)
    return round_.close(
        last_at_ms=TimeMs(max(last.instant_ms, last.last_instant_ms)),
        next_at_ms=TimeMs(0) if ended else operation.next_at_ms,
    )


def _stale(schedule: Schedule, operation: FireSchedule, context: Context) -> str:
    """Return why the decisions are not the next ones of this schedule, or ""."""
    decisions = operation.decisions
    if operation.generation != schedule.generation:
        return f"the timing changed: generation {schedule.generation}, not {operation.generation}"
    if not schedule.next_at_ms or decisions[0].instant_ms != schedule.next_at_ms:
        return f"the next instant to decide is {schedule.next_at_ms}, not {decisions[0].instant_ms}"
    end_ms = max(decisions[-1].instant_ms, decisions[-1].last_instant_ms)
    if end_ms > context.now_ms:
        return f"instant {end_ms} is yet to come"
    if 0 < operation.next_at_ms <= end_ms:
        return "next_at_ms: must be behind the last decision"
    return ""


def _has_fired_enough(schedule: Schedule) -> bool:
    return 0 < schedule.timing.max_firings <= schedule.fired_count


# -- by hand ----------------------------------------------------------------------------------------------------------


def run_schedule(view: View, operation: RunSchedule, context: Context) -> Applied:
    problem = _problem(operation.decisions, rising=False) or range_problem(
        "actor bytes", utf8_bytes(operation.actor), 0, limits.ACTOR_CHARS_MAX * 4
    )
    if operation.kind is FiringKind.PLANNED:
        problem = problem or "kind: planned instants are fired, not run by hand"
    if problem:
        return invalid(problem)
    schedule = find_schedule(view, operation.id, operation.tenant)
    if schedule is None:
        return refused(RejectCode.NOT_FOUND, "there is no such schedule")
    payload = view.payload(schedule.id) if operation.payload is None else operation.payload
    if problem := range_problem("payload bytes", len(payload), 0, limits.PAYLOAD_BYTES_MAX):
        return invalid(problem)
    round_ = _Round(view, schedule, context, kind=operation.kind, overlap=operation.overlap, payload=payload)
    for decision in operation.decisions:
        # A backfill that is sent again finds what it has decided, and goes on with what there was no room for.
        known = view.firing(schedule.id, decision.instant_ms, operation.kind)
        if known is None or known.reason == OVERLAP_LIMIT:
            round_.decide(decision)
        else:
            round_.firings.append(known)
    runs = sum(1 for firing in round_.firings if firing.job_id)
    action = "trigger" if operation.kind is FiringKind.MANUAL else "backfill"
    round_.overlay.put(audited_schedule(schedule, action, operation.actor, context, f"{runs} runs"))
    return round_.close()


# -- one operation's decisions ----------------------------------------------------------------------------------------


class _Round:
    """The decisions of one operation; each sees what those before it have done."""

    def __init__(
        self, view: View, schedule: Schedule, context: Context, *, kind: FiringKind, overlap: Overlap, payload: bytes
    ) -> None:
        self.overlay = Overlay(view)
        self.schedule = schedule
        self.firings: list[Firing] = []
        self._old = schedule
        self._kind = kind
        self._overlap = overlap
        self._payload = payload
        self._context = context
        self._active = self._unfinished(schedule.active)

    def decide(self, decision: Decision) -> None:
        """Fire or skip; write the line of the ledger."""
        reason = decision.reason if not decision.job_id else self._fire(decision)
        fired = not reason
        line = Firing(
            instant_ms=decision.instant_ms,
            kind=self._kind,
            job_id=decision.job_id if fired else JobId(b""),
            reason=reason,
            count=1 if fired else decision.count,
            last_instant_ms=TimeMs(0) if fired else decision.last_instant_ms,
            decided_at_ms=self._context.now_ms,
            generation=self.schedule.generation,
            revision=self._context.index,
        )
        self.firings.append(line)
        self.overlay.put(PutFiring(self.schedule.id, line))
        if self._kind is FiringKind.PLANNED:
            self._count(line)

    def _count(self, line: Firing) -> None:
        fired = bool(line.job_id)
        self.schedule = replace(
            self.schedule,
            fired_count=self.schedule.fired_count + fired,
            skipped_count=self.schedule.skipped_count + (0 if fired else line.count),
        )

    def _fire(self, decision: Decision) -> str:
        """Submit the job of this instant; return why not, or ""."""
        if self._kind is FiringKind.PLANNED and _has_fired_enough(self.schedule):
            return "max_firings"
        active = self._active
        if len(active) >= limits.SCHEDULE_ACTIVE_MAX:
            return OVERLAP_LIMIT
        if active and not self._may_join(active):
            return "overlap"
        waits_for = self._make_room(active) if active else ()
        submit = job_of(
            self.schedule,
            self._payload,
            job_id=decision.job_id,
            instant_ms=decision.instant_ms,
            due_at_ms=decision.due_at_ms,
        )
        depends_on = tuple(Dependency(parent, Condition.COMPLETION) for parent in waits_for)
        result, writes = submit_job(self.overlay, replace(submit, depends_on=depends_on), self._context)
        if isinstance(result, Refused):
            return result.code.label
        assert isinstance(result, Submitted)
        self.overlay.put(*writes)
        self._active = (*self._active, result.job.id)
        return ""

    def _unfinished(self, job_ids: tuple[JobId, ...]) -> tuple[JobId, ...]:
        """Those of the jobs that are not finished, as of the writes so far."""
        jobs = ((job_id, self.overlay.job(job_id)) for job_id in job_ids)
        return tuple(job_id for job_id, job in jobs if job is not None and job.status not in FINISHED)

    def _may_join(self, active: tuple[JobId, ...]) -> bool:
        match self._overlap:
            case Overlap.SKIP:
                return False
            case Overlap.BUFFER_ONE:
                return len(active) == 1
            case _:
                return True

    def _make_room(self, active: tuple[JobId, ...]) -> tuple[JobId, ...]:
        """Do to earlier runs what the policy says; return those whose end the new run must wait for."""
        match self._overlap:
            case Overlap.BUFFER_ONE | Overlap.BUFFER_ALL:
                return active[-1:]
            case Overlap.CANCEL_PREVIOUS:
                self._cancel(active, force=False)
                return self._active
            case Overlap.TERMINATE_PREVIOUS:
                self._cancel(active, force=True)
                return ()
            case _:
                return ()

    def _cancel(self, active: tuple[JobId, ...], *, force: bool) -> None:
        actor = f"schedule:{self.schedule.name}"
        for job_id in active:
            operation = CancelJob(job_id, self.schedule.tenant, force=force, actor=actor)
            self.overlay.put(*cancel_job(self.overlay, operation, self._context).writes)
        self._active = self._unfinished(active)

    def close(self, *, last_at_ms: TimeMs | None = None, next_at_ms: TimeMs | None = None) -> Applied:
        """Return what was decided, with the schedule as it stands then."""
        new = replace(
            self.schedule,
            active=self._active,
            last_at_ms=self.schedule.last_at_ms if last_at_ms is None else last_at_ms,
            next_at_ms=self.schedule.next_at_ms if next_at_ms is None else next_at_ms,
            updated_at_ms=self._context.now_ms,
            revision=self._context.index,
        )
        self.overlay.put(PutSchedule(self._old, new))
        return Applied(Fired(new, tuple(self.firings)), self.overlay.writes)


# -- the ledger -------------------------------------------------------------------------------------------------------


def trim_ledger(view: View, operation: TrimLedger, _context: Context) -> Applied:
    problem = range_problem("id bytes", len(operation.id), JOB_ID_BYTES, JOB_ID_BYTES) or range_problem(
        "before_ms", operation.before_ms, 0, TIME_MS_MAX
    )
    if problem:
        return invalid(problem)
    lines = view.firings(operation.id, after=None, until_ms=operation.before_ms, limit=limits.CHORE_STEPS_MAX)
    if not lines:
        return Applied(Counted(0))
    return Applied(Counted(len(lines)), (RemoveFirings(operation.id, tuple(lines)),))


# -- what the state can hold ------------------------------------------------------------------------------------------


def _problem(decisions: tuple[Decision, ...], *, rising: bool = True) -> str:
    """What is wrong with the decisions, or ""; runs by hand may come in any order, each instant once."""
    problem = range_problem("decisions", len(decisions), 1, limits.DECISIONS_MAX)
    end_ms = -1
    for decision in decisions:
        problem = problem or _decision_problem(decision)
        if not problem and rising and decision.instant_ms <= end_ms:
            problem = "decisions: instants must rise"
        end_ms = max(decision.instant_ms, decision.last_instant_ms)
    if not problem and len({decision.instant_ms for decision in decisions}) < len(decisions):
        return "decisions: an instant stands there twice"
    return problem


def _decision_problem(decision: Decision) -> str:
    problem = (
        range_problem("instant_ms", decision.instant_ms, 0, TIME_MS_MAX)
        or range_problem("due_at_ms", decision.due_at_ms, 0, TIME_MS_MAX)
        or range_problem("count", decision.count, 0, TIME_MS_MAX)
        or range_problem("reason bytes", utf8_bytes(decision.reason), 0, _REASON_BYTES_MAX)
    )
    if problem:
        return problem
    if decision.job_id:
        if decision.count != 1 or decision.last_instant_ms or decision.reason:
            return "decisions: one that fires stands for one instant, without a reason"
        return range_problem("job_id bytes", len(decision.job_id), JOB_ID_BYTES, JOB_ID_BYTES)
    if not decision.reason:
        return "reason: a decision to skip needs one"
    if decision.count != 1:
        return range_problem("last_instant_ms", decision.last_instant_ms, decision.instant_ms, TIME_MS_MAX)
    return range_problem("last_instant_ms", decision.last_instant_ms, 0, 0)
