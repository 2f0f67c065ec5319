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

from typing import Final

from raftsched.core.jobs import attempts, cancel, control, lease, progress, submit
from raftsched.core.maintenance import deadlines, queues, retention
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import SubmitWorkflow
from raftsched.core.operations.control import DoBackgroundStep
from raftsched.core.operations.queues import CancelWorkflow
from raftsched.core.schedules import fire, save, zone_rules
from raftsched.core.state.handlers import HANDLERS
from raftsched.core.state.results import Applied, Context
from raftsched.core.state.view import ForkableView
from raftsched.core.workflows import background_steps
from raftsched.core.workflows import submit as submit_workflows
from raftsched.core.workflows.cascade import with_cascade

HANDLER_MODULES: Final = (
    *(attempts, cancel, control, lease, progress, submit),
    *(deadlines, queues, retention),
    *(fire, save, zone_rules),
    *(background_steps, submit_workflows),
)
"""The modules of handlers: each handler registers itself in `HANDLERS` when its module is imported."""

_COMPLETE: Final = frozenset({DoBackgroundStep, SubmitWorkflow, CancelWorkflow})
"""What follows from these is seen to by their handlers, within the budget that they keep."""


def apply(view: ForkableView, operation: Operation, context: Context) -> Applied:
    """Return the result of `operation` and what must be written for it.

    Raises `InvariantBroken`, with nothing written, where the state can't be right.
    """
    kind = type(operation)
    applied = HANDLERS[kind](view, operation, context)
    return applied if kind in _COMPLETE else with_cascade(view, applied, context)
