"""The state machine's step: one operation in; its result and its writes out.

`apply` reads the view and decides; it never writes. Whoever calls it executes the writes before the next operation is
applied, so that operations of the same log entry see each other's effect in order, and records result and writes under
one log index.

It is total: an operation that isn't legal now, or whose numbers or texts the state can't hold, gives a `Refused` and no
writes. The one refusal with writes is `RejectCode.CANCELLED` of RecordOutcome (see `attempts`). An exception means that
the state itself contradicts an invariant (`errors.InvariantBroken`): the process must stop, and nothing was written.

Determinism: the result depends on the view, the operation and the context alone. No handler reads a clock, draws a
number, or iterates over an unordered collection.

The handlers stand in a module for each noun: `submit`, `lease`, `attempts`, `cancel`, `upkeep`; `changes` holds what
they share.
"""

from __future__ import annotations

from typing import assert_never

from raftsched.core.attempts import expire_leases, record_outcome
from raftsched.core.cancel import cancel_job
from raftsched.core.lease import lease_jobs
from raftsched.core.operations import (
    CancelJob,
    ExpireLeases,
    LeaseJobs,
    MarkWorkers,
    Operation,
    PurgeJobs,
    RecordOutcome,
    SubmitJob,
)
from raftsched.core.submit import submit_job
from raftsched.core.upkeep import mark_workers, purge_jobs
from raftsched.core.view import Applied, Context, View


def apply(view: View, operation: Operation, context: Context) -> Applied:
    """Return the result of `operation` and what must be written for it.

    Raises `InvariantBroken`, with nothing written, where the state can't be right.
    """
    match operation:
        case SubmitJob():
            return submit_job(view, operation, context)
        case LeaseJobs():
            return lease_jobs(view, operation, context)
        case RecordOutcome():
            return record_outcome(view, operation, context)
        case ExpireLeases():
            return expire_leases(view, operation, context)
        case CancelJob():
            return cancel_job(view, operation, context)
        case PurgeJobs():
            return purge_jobs(view, operation, context)
        case MarkWorkers():
            return mark_workers(view, operation, context)
        case _:
            assert_never(operation)
