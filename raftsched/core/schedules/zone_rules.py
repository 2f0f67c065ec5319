"""Handle AdoptZoneRules: change stored next fire times to those by other time zone rules.

Theory of operation. The next fire time of a schedule is stored as the leader's zone data gave it. A new release may have
other rules. A leader of that release proposes the next fire time for each schedule by its rules, some schedules at a
time, and at last the version of its rules. Nothing is computed here, since nodes have different data. A change is made
only if the schedule still has the next fire time that the leader saw.
"""

from __future__ import annotations

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.changes import invalid
from raftsched.core.operations.schedules import AdoptZoneRules, NextFireTime
from raftsched.core.records.bounds import TIME_MS_MAX, range_problem, text_problem
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.texts import time_text
from raftsched.core.state.audit import audited
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Counted
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutSchedule, PutZoneRules, Write

ACTOR = "zone rules"


@handles(AdoptZoneRules)
def adopt_zone_rules(view: View, operation: AdoptZoneRules, context: Context) -> Applied:
    problem = _problem(operation)
    if problem:
        return invalid(problem)
    writes: list[Write] = []
    count = 0
    # The view does not show what this operation writes, so a schedule named twice must not change twice.
    for change in {each.schedule_id: each for each in operation.changes}.values():
        moved = _moved(view, change, operation.version, context)
        writes.extend(moved)
        count += bool(moved)
    if operation.is_last:
        writes.append(PutZoneRules(operation.version))
    return Applied(Counted(count), tuple(writes))


def _moved(view: View, change: NextFireTime, version: str, context: Context) -> tuple[Write, ...]:
    schedule = view.schedule(change.schedule_id)
    if schedule is None or schedule.next_at_ms != change.was_ms or schedule.generation != change.generation:
        return ()
    if 0 < change.next_at_ms <= schedule.last_at_ms:
        return ()
    new = replace(schedule, next_at_ms=change.next_at_ms, updated_at_ms=TimeMs(context.now_ms), revision=context.index)
    was, now = time_text(change.was_ms), time_text(change.next_at_ms or None)
    detail = f"next_at: {was} -> {now}; zone rules {version}"
    subject = f"schedule:{schedule.name}"
    return (
        PutSchedule(schedule, new),
        audited(context, "schedule.rezone", subject, tenant=schedule.tenant, actor=ACTOR, detail=detail),
    )


def _problem(operation: AdoptZoneRules) -> str:
    problem = range_problem("changes", len(operation.changes), 0, limits.DECISIONS_MAX) or text_problem(
        "version", operation.version, limits.NAME_CHARS_MAX
    )
    for change in operation.changes:
        problem = problem or range_problem("next_at_ms", change.next_at_ms, 0, TIME_MS_MAX)
        problem = problem or range_problem("was_ms", change.was_ms, 1, TIME_MS_MAX)
    return problem
