"""Check the decisions of FireSchedule and RunSchedule, without the state."""

from __future__ import annotations

from typing import Final

from raftsched import limits
from raftsched.core.operations.schedules import Decision, RunSchedule
from raftsched.core.records.bounds import JOB_ID_BYTES, TIME_MS_MAX, key_problem, range_problem, utf8_bytes
from raftsched.core.records.schedule import FiringKind

_REASON_BYTES_MAX: Final = 4 * limits.SKIP_REASON_CHARS_MAX
_CALL_BYTES_MAX: Final = 64


def by_hand_problem(operation: RunSchedule) -> str:
    problem = (
        decisions_problem(operation.decisions, rising=False)
        or range_problem("actor bytes", utf8_bytes(operation.actor), 0, limits.ACTOR_CHARS_MAX * 4)
        or range_problem("call bytes", len(operation.call), 0, _CALL_BYTES_MAX)
        or key_problem(operation.key)
        or range_problem("parameters bytes", len(operation.parameters), 0, limits.PARAMETERS_BYTES_MAX)
    )
    if problem:
        return problem
    if operation.kind is FiringKind.PLANNED:
        return "kind: planned instants are fired, not run by hand"
    if not (operation.key or operation.any_fire_time):
        return ""
    if operation.kind is not FiringKind.MANUAL or len(operation.decisions) > 1:
        return "decisions: only a single trigger has a key, or is for any instant"
    last_ms = operation.decisions[0].fire_time_ms + limits.TRIGGERS_PER_MOMENT_MAX
    return range_problem("fire_time_ms", last_ms, 0, TIME_MS_MAX)


def decisions_problem(decisions: tuple[Decision, ...], *, rising: bool = True) -> str:
    """Return the fault of the decisions, or ""; runs by hand can be in any order, each fire time once."""
    problem = range_problem("decisions", len(decisions), 1, limits.DECISIONS_MAX)
    end_ms = -1
    for decision in decisions:
        problem = problem or _decision_problem(decision)
        if not problem and rising and decision.fire_time_ms <= end_ms:
            problem = "decisions: instants must rise"
        end_ms = max(decision.fire_time_ms, decision.last_fire_time_ms)
    if not problem and len({decision.fire_time_ms for decision in decisions}) < len(decisions):
        return "decisions: duplicate fire time"
    return problem


def _decision_problem(decision: Decision) -> str:
    problem = (
        range_problem("fire_time_ms", decision.fire_time_ms, 0, TIME_MS_MAX)
        or range_problem("due_at_ms", decision.due_at_ms, 0, TIME_MS_MAX)
        or range_problem("count", decision.count, 0, TIME_MS_MAX)
        or range_problem("reason bytes", utf8_bytes(decision.reason), 0, _REASON_BYTES_MAX)
    )
    if problem:
        return problem
    if decision.job_id:
        if decision.count != 1 or decision.last_fire_time_ms or decision.reason:
            return "decisions: one that fires is for one fire time, without a reason"
        return range_problem("job_id bytes", len(decision.job_id), JOB_ID_BYTES, JOB_ID_BYTES)
    if not decision.reason:
        return "reason: a decision to skip needs one"
    if decision.count != 1:
        return range_problem("last_fire_time_ms", decision.last_fire_time_ms, decision.fire_time_ms, TIME_MS_MAX)
    return range_problem("last_fire_time_ms", decision.last_fire_time_ms, 0, 0)
