"""Apply one operation to the state: return its result and its writes.

`apply` reads the view and decides; it never writes. The caller executes the writes before it applies the next operation,
so that operations of the same log entry see each other's effects in order. A handler whose own changes must see each
other executes them on a fork of the view.

It is total: an operation that is not legal now, or whose numbers or texts the state can't store, gives a `Refused` and no
writes. The only rejection with writes is `RejectCode.CANCELLED` of RecordOutcome (see `attempts`). An exception means
that the state contradicts an invariant (`errors.InvariantBroken`): the process must stop, and nothing was written.

The result depends only on the view, the operation and the context. No handler reads a clock, draws a random number, or
iterates over an unordered collection.

There is a module of handlers for each noun; `changes` has their common functions. The effects of a job's change on other
records are the same for all handlers, and are in `workflows.cascade`.
"""

from __future__ import annotations

from typing import Final

from raftsched.core.access import tokens
from raftsched.core.jobs import attempts, callbacks, cancel, control, lease, progress, submit
from raftsched.core.maintenance import backup, deadlines, encryption, queues, retention, tenants, workers
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
    *(attempts, callbacks, cancel, control, lease, progress, submit),
    *(backup, deadlines, encryption, queues, retention, tenants, workers),
    *(fire, save, zone_rules),
    *(background_steps, submit_workflows),
    tokens,
)
"""The modules of handlers: each handler registers itself in `HANDLERS` when its module is imported."""

_COMPLETE: Final = frozenset({DoBackgroundStep, SubmitWorkflow, CancelWorkflow})
"""Operations whose handlers run the cascade themselves, within their own budgets."""


def apply(view: ForkableView, operation: Operation, context: Context) -> Applied:
    """Return the result of `operation` and its writes.

    Raises `InvariantBroken`, with nothing written, if the state contradicts itself.
    """
    kind = type(operation)
    applied = HANDLERS[kind](view, operation, context)
    return applied if kind in _COMPLETE else with_cascade(view, applied, context)
