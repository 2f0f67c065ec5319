"""Define operations on queues, workflows and the audit trail. Rules of the codec: see `codec`."""

from __future__ import annotations

from raftsched.core.operations.base import Operation
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.queue import TenantWeight
from raftsched.core.records.spec import Hook
from raftsched.core.records.workflow import WorkflowId


class ConfigureQueue(Operation, frozen=True, tag=23):
    """Change a queue's settings; -1 or None = unchanged. If limits changed, blocked jobs are released.

    Result: `QueueSaved`. Rejected: `limit_reached` (too many queues have settings).
    """

    name: str
    rate_count: int = -1
    rate_period_ms: int = -1
    rate_burst: int = -1
    concurrency_max: int = -1
    key_concurrency_max: int = -1
    ageing_ms: int = -1
    retention_ms: int = -1
    lost_workers_max: int = -1
    weights: tuple[TenantWeight, ...] | None = None
    actor: str = ""
    on_failure: tuple[Hook, ...] | None = None
    """The one hook, or () = none; the same holds for `on_success`."""
    on_success: tuple[Hook, ...] | None = None


class PauseQueue(Operation, frozen=True, tag=24):
    """Stop or resume leases of this queue. A repeat succeeds.

    Result: `QueueSaved`. Rejected: `limit_reached` (too many queues have settings).
    """

    name: str
    paused: bool
    until_ms: TimeMs = TimeMs(0)
    reason: str = ""
    actor: str = ""


class CancelWorkflow(Operation, frozen=True, tag=25):
    """Cancel all unfinished jobs of a workflow. A repeat succeeds.

    Result: `WorkflowSaved`. Rejected: `not_found`, `already_finished`.
    """

    id: WorkflowId
    tenant: str
    actor: str = ""


class TrimAudit(Operation, frozen=True, tag=26):
    """Remove the oldest lines of the audit trail, at most `limits.BACKGROUND_STEP_ITEMS_MAX`. Result: `Counted`."""

    before_index: int
