"""The state machine's step: one operation in; its result and its writes out.

`apply` reads the view and decides; it never writes. Whoever calls it executes the writes before the next operation is
applied, so that operations of the same log entry see each other's effect in order, and records result and writes under
one log index. A handler whose own changes must see each other executes them on a fork of the view.

It is total: an operation that isn't legal now, or whose numbers or texts the state can't hold, gives a `Refused` and no
writes. The one refusal with writes is `RejectCode.CANCELLED` of RecordOutcome (see `attempts`). An exception means that
the state itself contradicts an invariant (`errors.InvariantBroken`): the process must stop, and nothing was written.

Determinism: the result depends on the view, the operation and the context alone. No handler reads a clock, draws a
number, or iterates over an unordered collection.

The handlers stand in a module for each noun, and each does its own thing only; `changes` holds what they share. What
follows for other records when a job changes is the same whoever changed it, and stands in `workflows.cascade`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from raftsched.core.jobs.attempts import expire_leases, record_outcome
from raftsched.core.jobs.cancel import cancel_job
from raftsched.core.jobs.control import amend_job, pause_job, requeue_job, resume_job
from raftsched.core.jobs.lease import block_jobs, lease_jobs
from raftsched.core.jobs.progress import append_log, report_progress, start_run
from raftsched.core.jobs.submit import submit_job
from raftsched.core.maintenance.deadlines import handle_deadlines
from raftsched.core.maintenance.queues import configure_queue, pause_queue
from raftsched.core.maintenance.retention import mark_workers, purge_jobs, record_outage, trim_audit
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import (
    CancelJob,
    ExpireLeases,
    LeaseJobs,
    MarkWorkers,
    PurgeJobs,
    RecordOutage,
    RecordOutcome,
    SubmitJob,
    SubmitWorkflow,
)
from raftsched.core.operations.control import (
    AmendJob,
    AppendLog,
    BlockJobs,
    DoBackgroundStep,
    HandleDeadlines,
    PauseJob,
    ReportProgress,
    RequeueJob,
    ResumeJob,
    StartRun,
)
from raftsched.core.operations.queues import CancelWorkflow, ConfigureQueue, PauseQueue, TrimAudit
from raftsched.core.operations.schedules import (
    AdoptZoneRules,
    ControlSchedule,
    FireSchedule,
    RunSchedule,
    SaveSchedule,
    TrimLedger,
)
from raftsched.core.schedules.fire import fire_schedule, run_schedule, trim_ledger
from raftsched.core.schedules.save import control_schedule, save_schedule
from raftsched.core.schedules.zone_rules import adopt_zone_rules
from raftsched.core.state.results import Applied, Context
from raftsched.core.state.view import ForkableView
from raftsched.core.workflows.background_steps import do_background_step
from raftsched.core.workflows.cascade import with_cascade
from raftsched.core.workflows.submit import cancel_workflow, submit_workflow

Handler = Callable[[ForkableView, Any, Context], Applied]

HANDLERS: Final[Mapping[type, Handler]] = {
    SubmitJob: submit_job,
    SubmitWorkflow: submit_workflow,
    LeaseJobs: lease_jobs,
    RecordOutcome: record_outcome,
    ExpireLeases: expire_leases,
    CancelJob: cancel_job,
    PurgeJobs: purge_jobs,
    MarkWorkers: mark_workers,
    RecordOutage: record_outage,
    PauseJob: pause_job,
    ResumeJob: resume_job,
    AmendJob: amend_job,
    RequeueJob: requeue_job,
    StartRun: start_run,
    ReportProgress: report_progress,
    AppendLog: append_log,
    BlockJobs: block_jobs,
    HandleDeadlines: handle_deadlines,
    DoBackgroundStep: do_background_step,
    SaveSchedule: save_schedule,
    ControlSchedule: control_schedule,
    FireSchedule: fire_schedule,
    RunSchedule: run_schedule,
    TrimLedger: trim_ledger,
    ConfigureQueue: configure_queue,
    PauseQueue: pause_queue,
    CancelWorkflow: cancel_workflow,
    TrimAudit: trim_audit,
    AdoptZoneRules: adopt_zone_rules,
}
"""The handler of each operation: the one list of them all. A test holds that none is missing."""


_COMPLETE: Final = frozenset({DoBackgroundStep, SubmitWorkflow, CancelWorkflow})
"""What follows from these is seen to by their handlers, within the budget that they keep."""


def apply(view: ForkableView, operation: Operation, context: Context) -> Applied:
    """Return the result of `operation` and what must be written for it.

    Raises `InvariantBroken`, with nothing written, where the state can't be right.
    """
    kind = type(operation)
    applied = HANDLERS[kind](view, operation, context)
    return applied if kind in _COMPLETE else with_cascade(view, applied, context)
