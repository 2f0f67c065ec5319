"""Turn the state of a cluster that is gone into the first state of a new cluster.

Theory of operation. The state is that of a backup, or of the only node that is left. The old cluster may have continued
after it: it may have leased jobs, fired schedules and recorded outcomes that this state does not know. So

- fencing tokens rise above every token that the old cluster can have issued: see `first_fence`;
- every lease ends as if its worker was lost: the job is retried or dead-lettered, by the rules of a lost worker. Reports
  of the old workers are rejected, and also those of workers whose leases this state does not know;
- schedules are paused, unless the caller wants otherwise: they would fire for instants that the old cluster decided.

`entries` is pure. It yields the writes of the new cluster's first log entries, and the caller executes them.

Left out: what the state does not know can't be undone. A job that was completed after the backup runs again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.attempts import lost
from raftsched.core.operations.schedules import ControlSchedule, ScheduleAction
from raftsched.core.records.ids import FencingToken, JobId
from raftsched.core.records.schedule import Schedule, ScheduleId
from raftsched.core.records.texts import time_text
from raftsched.core.schedules.save import control_schedule
from raftsched.core.state.audit import audited
from raftsched.core.state.results import Applied, Context, Counted
from raftsched.core.state.view import AuditableView, ForkableView
from raftsched.core.state.writes import PutFence, PutJob, Write
from raftsched.core.workflows.cascade import with_cascade
from raftsched.errors import Invalid

_US_PER_MS: Final = 1_000


class NewCluster(msgspec.Struct, frozen=True):
    """Describe the new cluster."""

    name: str
    actor: str
    """The command that makes it, for the audit trail."""
    detail: str
    """The origin of the state, for the audit trail and as the reason of pauses."""
    fence: FencingToken
    """The last fencing token that counts as issued; from `first_fence`."""
    pauses_schedules: bool


class WholeView(ForkableView, AuditableView, Protocol):
    """Read every record of a state, and fork it."""


def first_fence(fence: FencingToken, cluster_time_ms: int, now_ms: int) -> FencingToken:
    """Return a fencing token that no cluster can have issued before `now_ms`, the wall clock of this machine.

    It is the count of microseconds since 1970. A cluster begins with token 0, or with this count at its own beginning, and
    each lease takes one token. It leases far less than a million jobs a second, so its tokens never overtake the clock,
    however old the state is and however many clusters came from it. Clients that read numbers as floats can hold it
    until the year 2255.

    Raises `Invalid` if the clock is behind the time or the tokens of the state: then it is wrong.
    """
    found = FencingToken(now_ms * _US_PER_MS)
    if now_ms < cluster_time_ms or found <= fence:
        raise Invalid(
            f"the clock of this machine says {time_text(now_ms)}, and the state is of {time_text(cluster_time_ms)}, with "
            f"fencing tokens up to {fence}: set the clock right, since new fencing tokens follow from it"
        )
    return found


def entries(view: WholeView, new: NewCluster, first: Context) -> Iterator[tuple[Context, tuple[Write, ...]]]:
    """Yield the context and the writes of each entry. The first has `first.index`, and the index rises by one.

    The writes of an entry must be executed on the state behind `view` before the next one is asked for.
    """
    context = first
    audit = audited(context, f"cluster.{new.actor}", f"cluster:{new.name}", actor=new.actor, detail=new.detail)
    yield context, (PutFence(new.fence), audit)
    leased = iter(list(view.all_leased()))
    while job_ids := list(islice(leased, limits.EXPIRE_LEASES_MAX)):
        context = replace(context, index=context.index + 1)
        yield context, _end_leases(view, job_ids, context)
    if not new.pauses_schedules:
        return
    for schedule_id in [schedule.id for schedule in view.all_schedules() if _resumes(schedule)]:
        context = replace(context, index=context.index + 1)
        yield context, _pause(view, schedule_id, new, context)


def _end_leases(view: WholeView, job_ids: list[JobId], context: Context) -> tuple[Write, ...]:
    jobs = [job for job in map(view.job, job_ids) if job is not None and job.lease is not None]
    ended = tuple(PutJob(job, lost(view, job, context)) for job in jobs)
    return with_cascade(view, Applied(Counted(len(ended)), ended), context).writes


def _resumes(schedule: Schedule) -> bool:
    """Return whether the schedule fires, or will by itself."""
    return not schedule.paused or schedule.pause_until_ms > 0


def _pause(view: WholeView, schedule_id: ScheduleId, new: NewCluster, context: Context) -> tuple[Write, ...]:
    schedule = view.schedule(schedule_id)
    assert schedule is not None, "nobody else changes the state"
    reason = new.detail
    if schedule.paused:
        reason += f"; before, it was paused until {time_text(schedule.pause_until_ms)}: {schedule.pause_reason}"
    operation = ControlSchedule(
        schedule.id,
        schedule.tenant,
        ScheduleAction.PAUSE,
        reason=reason[: limits.PAUSE_REASON_CHARS_MAX],
        actor=new.actor,
    )
    return control_schedule(view, operation, context).writes
