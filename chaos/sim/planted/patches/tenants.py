"""Planted into dispatch by tenant: jobs that go to another tenant's worker, and jobs that no worker of theirs sees."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from raftsched.core.jobs import lease as lease_module
from raftsched.core.operations.codec import LeaseJobs
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import Job
from raftsched.core.state.view import View
from raftsched.leader.dispatch.buffer import Buffer
from raftsched.leader.dispatch.lanes import Lane, Line, ReadyQueue
from raftsched.leader.dispatch.ready import ReadyJobs


def gives_jobs_to_workers_of_any_tenant(patch: Any) -> None:
    """The leader hands out what is first, whoever asks, and the log believes it."""
    original = ReadyJobs.take
    admits = lease_module._may_have  # noqa: SLF001  # what is patched

    def take(self: ReadyJobs, queues: Any, line: Line, count: int, now_ms: int) -> Any:
        return original(self, queues, line._replace(tenant=None), count, now_ms)

    def may_have(view: View, job: Job, operation: LeaseJobs, gates: Any, now_ms: TimeMs) -> bool:
        return admits(view, job, replace(operation, tenant=""), gates, now_ms)

    patch.setattr(ReadyJobs, "take", take)
    patch.setattr(lease_module, "_may_have", may_have)


def looks_at_the_first_tenant_only(patch: Any) -> None:
    """A worker of a tenant gets jobs only while it is that tenant's turn."""
    original = Buffer._front  # noqa: SLF001  # what is patched

    def front(self: Buffer, queue: ReadyQueue, region: str, line: Line, now_ms: int) -> Lane | None:
        found = original(self, queue, region, line._replace(tenant=None), now_ms)
        return found if found is None or line.tenant in (None, found.tenant) else None

    patch.setattr(Buffer, "_front", front)
