"""Handle DrainWorker. A drained worker stays drained, whoever leads, until that is ended or its record is forgotten."""

from __future__ import annotations

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.changes import invalid, refused
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.workers import DrainWorker
from raftsched.core.records.bounds import actor_problem, name_problem, text_problem
from raftsched.core.records.ids import TimeMs
from raftsched.core.state.audit import audited
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, WorkerSaved
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutWorker


@handles(DrainWorker)
def drain_worker(view: View, operation: DrainWorker, context: Context) -> Applied:
    problem = (
        name_problem("name", operation.name)
        or text_problem("reason", operation.reason, limits.PAUSE_REASON_CHARS_MAX)
        or actor_problem(operation.actor)
    )
    if problem:
        return invalid(problem)
    known = view.worker(operation.name)
    if known is None:
        return refused(RejectCode.NOT_FOUND, "no worker of this name made a request lately")
    if bool(known.drained_at_ms) is operation.drained:
        return Applied(WorkerSaved(known))
    new = replace(
        known,
        drained_at_ms=context.now_ms if operation.drained else TimeMs(0),
        drained_by=operation.actor if operation.drained else "",
        drain_reason=operation.reason if operation.drained else "",
    )
    verb = "drain" if operation.drained else "undrain"
    audit = audited(context, f"worker.{verb}", f"worker:{new.name}", actor=operation.actor, detail=operation.reason)
    return Applied(WorkerSaved(new), (PutWorker(new), audit))
