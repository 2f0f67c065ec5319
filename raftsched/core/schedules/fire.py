"""Handle FireSchedule and RunSchedule: make one decision for each fire time of a schedule, and submit the jobs.

The leader proposes decisions for due fire times. Overlap with earlier runs is decided here, in the order of the log. A
decision begins at the schedule's first undecided fire time and belongs to one generation. So if two leaders propose the
same fire times, one is rejected, and no fire time is decided twice.

Buffering needs no state of its own: the new job depends on the end of the earlier one.

A call by hand can be repeated, if its reply was lost. Its decisions for given fire times are found in the ledger, whose
lines have the digest of the call. A trigger without a given fire time is found by the idempotency key of its job. Lines
that a repeated call needs are kept longer (`Firing.prevents_repeat`).

Runs of backfills and all other runs are independent: a chain of backfilled runs, which may take days, skips no planned
fire time, and no fire time cancels it.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.cancel import cancel_job
from raftsched.core.jobs.changes import invalid, refused
from raftsched.core.jobs.notices import Happening, recorded
from raftsched.core.jobs.quotas import SKIP_REASON, jobs_refusal
from raftsched.core.jobs.submit import submit_job
from raftsched.core.jobs.unique_keys import holder_of_idempotency_key, holds_idempotency_key
from raftsched.core.operations.codec import CancelJob, RejectCode
from raftsched.core.operations.schedules import Decision, FireSchedule, RunSchedule, TrimLedger
from raftsched.core.records.bounds import (
    JOB_ID_BYTES,
    TIME_MS_MAX,
    range_problem,
)
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, Condition, Dependency, Job
from raftsched.core.records.notices import NoticeEvent
from raftsched.core.records.parameters import values_of, values_problem
from raftsched.core.records.schedule import Firing, FiringKind, Overlap, Schedule
from raftsched.core.schedules.decision_rules import by_hand_problem, decisions_problem
from raftsched.core.schedules.save import audited_schedule, find_schedule, job_of
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Counted, Fired, Refused, Submitted
from raftsched.core.state.view import ForkableView, View
from raftsched.core.state.writes import PutFiring, PutSchedule, RemoveFirings

OVERLAP_LIMIT: Final = "overlap_limit"
"""The reason of a skip because the schedule has too many unfinished runs."""
UNDECIDED: Final = frozenset({OVERLAP_LIMIT, SKIP_REASON})
"""Reasons of a skipped run by hand that leave its fire time open: the same call decides it again."""
_MISSED_REASONS: Final = frozenset({"misfire", "catchup_expired"})
"""The reasons of the leader to skip fire times that were missed."""
_WANTED_SKIPS: Final = frozenset({"overlap", "max_firings"})


# -- planned fire times -----------------------------------------------------------------------------------------------


@handles(FireSchedule)
def fire_schedule(view: ForkableView, operation: FireSchedule, context: Context) -> Applied:
    problem = decisions_problem(operation.decisions) or range_problem(
        "next_at_ms", operation.next_at_ms, 0, TIME_MS_MAX
    )
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
        parameters=values_of(schedule.parameters),
    )
    for decision in operation.decisions:
        round_.decide(decision)
    last = operation.decisions[-1]
    ended = round_.schedule.has_reached_max_firings
    return round_.close(
        last_at_ms=TimeMs(max(last.fire_time_ms, last.last_fire_time_ms)),
        next_at_ms=TimeMs(0) if ended else operation.next_at_ms,
    )


def _stale(schedule: Schedule, operation: FireSchedule, context: Context) -> str:
    """Return why the decisions are not the next ones of this schedule, or ""."""
    decisions = operation.decisions
    if operation.generation != schedule.generation:
        return f"the timing changed: generation {schedule.generation}, not {operation.generation}"
    if not schedule.next_at_ms or decisions[0].fire_time_ms != schedule.next_at_ms:
        return f"the next instant to decide is {schedule.next_at_ms}, not {decisions[0].fire_time_ms}"
    end_ms = max(decisions[-1].fire_time_ms, decisions[-1].last_fire_time_ms)
    if end_ms > context.now_ms:
        return f"instant {end_ms} is yet to come"
    if 0 < operation.next_at_ms <= end_ms:
        return "next_at_ms: must be behind the last decision"
    return ""


# -- by hand ----------------------------------------------------------------------------------------------------------


@handles(RunSchedule)
def run_schedule(view: ForkableView, operation: RunSchedule, context: Context) -> Applied:
    problem = by_hand_problem(operation)
    if problem:
        return invalid(problem)
    schedule = find_schedule(view, operation.id, operation.tenant)
    if schedule is None:
        return refused(RejectCode.NOT_FOUND, "there is no such schedule")
    payload = view.payload(schedule.id) if operation.payload is None else operation.payload
    if problem := range_problem("payload bytes", len(payload), 0, limits.PAYLOAD_BYTES_MAX):
        return invalid(problem)
    holder = holder_of_idempotency_key(view, schedule.tenant, operation.key)
    if holder is not None and holds_idempotency_key(holder, context.now_ms):
        return _triggered_before(view, schedule, operation, holder)
    decisions = operation.decisions
    if operation.any_fire_time:
        free_ms = _free_fire_time(view, schedule, decisions[0].fire_time_ms)
        if free_ms is None:
            return refused(RejectCode.LIMIT_REACHED, "too many triggers in the same moment; send it again")
        decisions = (replace(decisions[0], fire_time_ms=free_ms),)
    problem = values_problem(schedule.parameters, operation.parameters)
    round_ = _Round(
        view,
        schedule,
        context,
        kind=operation.kind,
        overlap=operation.overlap,
        payload=payload,
        parameters=b"" if problem else values_of(schedule.parameters, operation.parameters),
        by_hand=operation,
    )
    asked = [(each, round_.known(each.fire_time_ms)) for each in decisions]
    if problem and any(known is None for _, known in asked):  # a repeat finds its run, whatever has changed since
        return invalid(problem)
    return _decide_by_hand(round_, operation, asked, context)


def _decide_by_hand(
    round_: _Round, operation: RunSchedule, asked: list[tuple[Decision, Firing | None]], context: Context
) -> Applied:
    """Decide what no earlier call has; each decision is paired with the known line of its fire time.

    All of these are rejected if the tenant's quota allows no job; if it allows some, the others are left undecided.
    """
    if any(known is None and decision.job_id for decision, known in asked):
        refusal = jobs_refusal(round_.fork, round_.schedule.tenant)
        if refusal is not None:
            return Applied(refusal)
    is_trigger = operation.kind is FiringKind.MANUAL
    made: list[Firing] = []
    for decision, known in asked:
        if known is None:
            made.append(round_.decide(decision))
        elif is_trigger and known.call != operation.call:
            told = "instant: has a run by hand already, with another payload, overlap or parameters"
            return refused(RejectCode.IDEMPOTENCY_MISMATCH, told)
        else:
            round_.firings.append(known)
    if not made:
        return Applied(Fired(round_.schedule, tuple(round_.firings)))
    action = "trigger" if is_trigger else "backfill"
    runs = sum(1 for firing in made if firing.job_id)
    round_.fork.execute((audited_schedule(round_.schedule, action, operation.actor, context, f"{runs} runs"),))
    return round_.close()


def _triggered_before(view: View, schedule: Schedule, operation: RunSchedule, job: Job) -> Applied:
    """Answer with the run that the key made; reject if the key was used for another request."""
    fire_time_ms = job.spec.options.fire_time_ms if job.spec.options is not None else None
    other_instant = not operation.any_fire_time and operation.decisions[0].fire_time_ms != fire_time_ms
    if job.fingerprint != operation.call or other_instant or fire_time_ms is None:
        told = "idempotency_key: was used before with another payload, overlap, instant or parameters"
        return refused(RejectCode.IDEMPOTENCY_MISMATCH, told)
    line = view.firing(schedule.id, fire_time_ms, FiringKind.MANUAL)
    if line is None or line.job_id != job.id:  # the job is kept for longer than its line
        line = Firing(fire_time_ms, FiringKind.MANUAL, job.id, decided_at_ms=job.created_at_ms, revision=job.revision)
    return Applied(Fired(schedule, (line,)))


def _free_fire_time(view: View, schedule: Schedule, from_ms: TimeMs) -> TimeMs | None:
    """Return the first fire time from `from_ms` on without a trigger; None if very many are taken."""
    for offset_ms in range(limits.TRIGGERS_PER_MOMENT_MAX):
        if view.firing(schedule.id, TimeMs(from_ms + offset_ms), FiringKind.MANUAL) is None:
            return TimeMs(from_ms + offset_ms)
    return None


# -- one operation's decisions ----------------------------------------------------------------------------------------


class _Round:
    """Make the decisions of one operation; each sees the effects of those before it."""

    def __init__(
        self,
        view: ForkableView,
        schedule: Schedule,
        context: Context,
        *,
        kind: FiringKind,
        overlap: Overlap,
        payload: bytes,
        parameters: bytes,
        by_hand: RunSchedule | None = None,
    ) -> None:
        self.fork = view.fork()
        self.schedule = schedule
        self.firings: list[Firing] = []
        self._missed: list[Happening] = []
        self._old = schedule
        self._kind = kind
        self._overlap = overlap
        self._payload = payload
        self._parameters = parameters
        self._by_hand = by_hand
        self._context = context
        self._is_backfill = kind is FiringKind.BACKFILL
        # None of these is finished: the operation that ends a run removes it.
        self._active = schedule.backfilling if self._is_backfill else schedule.active

    def known(self, fire_time_ms: TimeMs) -> Firing | None:
        """Return the line of a decided fire time, or None; one that is `UNDECIDED` can be decided again."""
        line = self.fork.firing(self.schedule.id, fire_time_ms, self._kind)
        return None if line is None or line.reason in UNDECIDED else line

    def decide(self, decision: Decision) -> Firing:
        """Fire or skip, write the line of the ledger, and return it."""
        reason = decision.reason if not decision.job_id else self._fire(decision)
        fired = not reason
        line = Firing(
            fire_time_ms=decision.fire_time_ms,
            kind=self._kind,
            job_id=decision.job_id if fired else JobId(b""),
            reason=reason,
            count=1 if fired else decision.count,
            last_fire_time_ms=TimeMs(0) if fired else decision.last_fire_time_ms,
            decided_at_ms=self._context.now_ms,
            generation=self.schedule.generation,
            revision=self._context.index,
            call=b"" if self._by_hand is None or self._by_hand.any_fire_time else self._by_hand.call,
        )
        self.firings.append(line)
        self.fork.execute((PutFiring(self.schedule.id, line),))
        if self._kind is FiringKind.PLANNED:
            self._count(line)
            if self._is_missed(decision, line):
                self._missed.append(
                    Happening(NoticeEvent.MISSED, line.fire_time_ms, fire_time_ms=line.fire_time_ms, reason=line.reason)
                )
        return line

    def _is_missed(self, decision: Decision, line: Firing) -> bool:
        """Return whether the fire time is missed: skipped, but not by the overlap policy, a pause or a calendar."""
        if not line.reason:
            return False
        if decision.job_id:
            return line.reason not in _WANTED_SKIPS
        is_in_pause = max(line.fire_time_ms, line.last_fire_time_ms) <= self.schedule.resumed_at_ms
        return line.reason in _MISSED_REASONS and not is_in_pause

    def _count(self, line: Firing) -> None:
        fired = bool(line.job_id)
        self.schedule = replace(
            self.schedule,
            fired_count=self.schedule.fired_count + fired,
            skipped_count=self.schedule.skipped_count + (0 if fired else line.count),
        )

    def _fire(self, decision: Decision) -> str:
        """Submit the job of this fire time; return why not, or ""."""
        if self._kind is FiringKind.PLANNED and self.schedule.has_reached_max_firings:
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
            fire_time_ms=decision.fire_time_ms,
            due_at_ms=decision.due_at_ms,
            is_backfill=self._is_backfill,
            parameters=self._parameters,
        )
        if self._by_hand is not None and self._by_hand.key:
            submit = replace(submit, idempotency_key=self._by_hand.key, fingerprint=self._by_hand.call)
        depends_on = tuple(Dependency(parent, Condition.COMPLETION) for parent in waits_for)
        actor = self._by_hand.actor if self._by_hand is not None else ""
        submit = replace(submit, depends_on=depends_on, actor=actor)
        result, writes = submit_job(self.fork, submit, self._context)
        if isinstance(result, Refused):
            return SKIP_REASON if result.code is RejectCode.QUOTA_EXCEEDED else result.code.label
        assert isinstance(result, Submitted)
        self.fork.execute(writes)
        self._active = (*self._active, result.job.id)
        return ""

    def _unfinished(self, job_ids: tuple[JobId, ...]) -> tuple[JobId, ...]:
        """Return the unfinished ones of the jobs, as of the writes so far."""
        jobs = ((job_id, self.fork.job(job_id)) for job_id in job_ids)
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
        """Apply the overlap policy to earlier runs; return those whose end the new run must wait for."""
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
            self.fork.execute(cancel_job(self.fork, operation, self._context).writes)
        self._active = self._unfinished(active)

    def close(self, *, last_at_ms: TimeMs | None = None, next_at_ms: TimeMs | None = None) -> Applied:
        """Return the decisions and the changed schedule."""
        runs = {"backfilling" if self._is_backfill else "active": self._active}
        new = replace(
            self.schedule,
            **runs,
            last_at_ms=self.schedule.last_at_ms if last_at_ms is None else last_at_ms,
            next_at_ms=self.schedule.next_at_ms if next_at_ms is None else next_at_ms,
            updated_at_ms=self._context.now_ms,
            revision=self._context.index,
        )
        new, writes = recorded(self.fork, new, self._missed, self._context)
        self.fork.execute((PutSchedule(self._old, new), *writes))
        return Applied(Fired(new, tuple(self.firings)), self.fork.writes)


# -- the ledger -------------------------------------------------------------------------------------------------------


@handles(TrimLedger)
def trim_ledger(view: View, operation: TrimLedger, context: Context) -> Applied:
    problem = range_problem("id bytes", len(operation.id), JOB_ID_BYTES, JOB_ID_BYTES) or range_problem(
        "lines", len(operation.lines), 1, limits.BACKGROUND_STEP_ITEMS_MAX
    )
    for fire_time_ms, _ in operation.lines:
        problem = problem or range_problem("fire_time_ms", fire_time_ms, 0, TIME_MS_MAX)
    if problem:
        return invalid(problem)
    named = (view.firing(operation.id, fire_time_ms, kind) for fire_time_ms, kind in sorted(set(operation.lines)))
    lines = tuple(line for line in named if line is not None and not line.prevents_repeat(context.now_ms))
    return Applied(Counted(len(lines)), (RemoveFirings(operation.id, lines),) if lines else ())
