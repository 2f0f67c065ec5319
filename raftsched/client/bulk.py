"""Change many jobs with one call, and manage the dead-letter queue.

A bulk request is not a transaction: each job is changed or not on its own. The cluster handles a bounded number of jobs
per request and returns a cursor for the next; a call here sends requests until the end, and sums up the results. A
request repeated after a lost reply has no second effect; the clones of a replay are protected by an idempotency key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, TypedDict

import msgspec

from raftsched.client.blocking import Blocking, blocking, blocking_each
from raftsched.client.http.calls import Calls, given
from raftsched.client.records import BulkResult, JobInfo
from raftsched.client.specs import Moment, Priority
from raftsched.wire.bulk import DeadLetterReasonsReply

_SHOWN_MAX = 100
"""Failures and samples that a result holds."""


class JobFilter(TypedDict, total=False):
    """A filter of jobs; all given conditions must hold."""

    status: str | Sequence[str]
    """Default: the statuses in which the action is legal."""
    queue: str
    name: str
    tag: str
    tenant: str
    schedule: str
    workflow: str
    reason: str
    """Reason of their failure."""
    created_after: Moment
    created_before: Moment


class ListFilters(TypedDict, total=False):
    """Filters of a list of jobs, besides status, queue and name."""

    tag: str
    tenant: str
    schedule: str
    workflow: str
    reason: str
    """Reason of their failure. Selects from the dead-letter queue, unless `status` is given."""
    created_after: Moment
    created_before: Moment
    order: Literal["asc", "desc"]


class ActionFields(TypedDict, total=False):
    """The parameters of an action."""

    force: bool
    """Of `cancel`."""
    run_at: Moment
    """Of `reschedule`, `retry` and `replay`."""
    delay_seconds: float
    """Of `reschedule`, `retry` and `replay`."""
    priority: Priority
    """Of `reprioritise`."""
    until: Moment
    """Of `pause`."""
    for_seconds: float
    """Of `pause`."""
    reason: str
    """Of `pause`."""


class DeadLetterFilter(TypedDict, total=False):
    """A filter of jobs in the dead-letter queue; all given conditions must hold."""

    reason: str
    """`attempts_exhausted`, `timeout`, `worker_lost`, `rejected`, `expired`, `dependency_failed` or
    `target_refused`."""
    queue: str
    name: str
    tag: str
    tenant: str
    created_after: Moment
    created_before: Moment


async def send_all(
    calls: Calls,
    path: str,
    document: dict[str, Any],
    headers: Mapping[str, str] | None = None,
    *,
    jobs_max: int | None = None,
) -> BulkResult:
    """Send a bulk request until no job is left, each time with the cursor of the previous reply, and sum up.

    It stops once `jobs_max` or more were found; then the result has the cursor of the rest.
    """
    total: BulkResult | None = None
    while True:
        result = await calls.call(BulkResult, "POST", path, document, headers=headers)
        total = result if total is None else _sum(total, result)
        if not result.next_cursor or (jobs_max is not None and total.matched >= jobs_max):
            return total
        document = document | {"cursor": result.next_cursor}


class DeadLetters:
    """The dead-letter queue: the jobs that were given up."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(
        self,
        *,
        reason: str | None = None,
        queue: str | None = None,
        name: str | None = None,
        tag: str | None = None,
        tenant: str | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
    ) -> AsyncIterator[JobInfo]:
        """Yield the jobs of the dead-letter queue that match all filters, the latest first."""
        query = given(reason=reason, queue=queue, name=name, tag=tag, tenant=tenant, order=order, limit=page_size)
        return self._calls.each(JobInfo, "/dead-letters", "jobs", query)

    async def reasons(self) -> dict[str, int]:
        """Return the number of dead letters of all queues by the reason why they were given up."""
        return (await self._calls.call(DeadLetterReasonsReply, "GET", "/dead-letters/reasons")).reasons

    async def requeue(
        self,
        *,
        ids: Sequence[str] | None = None,
        filter: DeadLetterFilter | Mapping[str, Any] | None = None,  # noqa: A002  # the word of the API
        reason: str | None = None,
        all: bool = False,  # noqa: A002  # as above
        dry_run: bool = False,
        jobs_max: int | None = None,
    ) -> BulkResult:
        """Requeue jobs of the dead-letter queue: by `ids`, by `filter`, by the `reason` alone, or all.

        It stops once `jobs_max` or more were found; the result then has a `next_cursor`. Raises as `Client.bulk` does.
        """
        selected = given(ids=ids, filter=filter, reason=reason, all=all)
        return await self._change("requeue", selected, dry_run=dry_run, jobs_max=jobs_max)

    async def purge(
        self,
        *,
        ids: Sequence[str] | None = None,
        filter: DeadLetterFilter | Mapping[str, Any] | None = None,  # noqa: A002  # the word of the API
        reason: str | None = None,
        all: bool = False,  # noqa: A002  # as above
        dry_run: bool = False,
        jobs_max: int | None = None,
    ) -> BulkResult:
        """Remove jobs of the dead-letter queue permanently; selected as for `requeue`, with the same errors."""
        selected = given(ids=ids, filter=filter, reason=reason, all=all)
        return await self._change("purge", selected, dry_run=dry_run, jobs_max=jobs_max)

    async def _change(self, what: str, document: dict[str, Any], *, dry_run: bool, jobs_max: int | None) -> BulkResult:
        whole = document | {"dry_run": dry_run}
        return await send_all(self._calls, f"/dead-letters/{what}", whole, jobs_max=jobs_max)


class BlockingDeadLetters(Blocking[DeadLetters]):
    """`DeadLetters` without `await`."""

    list = blocking_each(DeadLetters.list)
    reasons = blocking(DeadLetters.reasons)
    requeue = blocking(DeadLetters.requeue)
    purge = blocking(DeadLetters.purge)


def _sum(one: BulkResult, other: BulkResult) -> BulkResult:
    return msgspec.structs.replace(
        other,
        matched=one.matched + other.matched,
        done=one.done + other.done,
        failed_count=one.failed_count + other.failed_count,
        failed=(one.failed + other.failed)[:_SHOWN_MAX],
        sample=(one.sample + other.sample)[:_SHOWN_MAX],
    )
