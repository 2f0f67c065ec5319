"""Planted into dispatch by region: jobs that lose theirs, and jobs that nobody sees for the sake of others."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from raftsched.core.jobs import attempts as attempts_module
from raftsched.core.jobs import lease as lease_module
from raftsched.core.operations.codec import LeaseJobs
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import Job
from raftsched.core.state.view import View
from raftsched.leader.dispatch.buffer import Buffer
from raftsched.leader.dispatch.lanes import Lane, Line, ReadyQueue
from raftsched.leader.dispatch.ready import ReadyJobs
from raftsched.storage.reader import StateReader
from raftsched.storage.writer import StateFork


def forgets_the_region_of_a_retry(patch: Any) -> None:
    """Whoever is tried again goes to any worker."""
    original = attempts_module._again  # noqa: SLF001  # what is patched

    def again(*arguments: Any, **fields: Any) -> Job:
        job: Job = original(*arguments, **fields)
        return replace(job, spec=replace(job.spec, region=""))

    patch.setattr(attempts_module, "_again", again)


def gives_jobs_to_any_region(patch: Any) -> None:
    """The leader puts what arrives where all workers look, and the log believes it."""
    original = ReadyJobs.add
    admits = lease_module._may_have  # noqa: SLF001  # what is patched

    def add(self: ReadyJobs, *place: Any, tag: Any, region: str) -> None:  # noqa: ARG001
        original(self, *place, tag=tag, region="")

    def may_have(view: View, job: Job, operation: LeaseJobs, gates: Any, now_ms: TimeMs) -> bool:
        return admits(view, job, replace(operation, region=job.spec.region), gates, now_ms)

    patch.setattr(ReadyJobs, "add", add)
    patch.setattr(lease_module, "_may_have", may_have)


def serves_jobs_without_region_first(patch: Any) -> None:
    """A worker gets jobs of its own region only if there are none that any worker may have."""

    def first(self: Buffer, queue: ReadyQueue, line: Line, now_ms: int) -> Lane | None:
        own = self._front(queue, line.region, line, now_ms) if line.region else None
        return self._front(queue, "", line, now_ms) or own

    patch.setattr(Buffer, "_first", first)
    patch.setattr(ReadyQueue, "other_lane", lambda _self, _lane, _region: None)


def overlooks_the_backlog_of_a_region(patch: Any) -> None:
    """Jobs that waited before a worker of their region asked for the first time are never read."""
    patch.setattr(StateReader, "tenants_of_region", lambda _self, _queue, _region: [])


def offers_blocked_jobs_of_one_region(patch: Any) -> None:
    """A place of a key is free, and only one region learns of it, whether it has a worker to spare or not."""
    original = StateFork.blocked_regions

    def blocked_regions(self: StateFork, queue: str, concurrency_key: str, *, limit: int) -> list[str]:
        return original(self, queue, concurrency_key, limit=limit)[:1]

    patch.setattr(StateFork, "blocked_regions", blocked_regions)
