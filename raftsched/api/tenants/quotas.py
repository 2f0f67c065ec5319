"""Reject submissions beyond a tenant's quotas before they are proposed, so that a flood costs no place in the log.

The quota of submissions per second is a token bucket for each tenant that has one. The buckets are in the memory of the
leader, and are full when it begins to lead. Each submitted job takes a token, whether it is stored or found by its
idempotency key. A workflow is stored as a whole, so it is admitted by a full bucket however large it is; the bucket then
has a debt.

The quota of unfinished jobs is enforced when a job is applied (`core.jobs.quotas`). A job that would certainly be
rejected there is rejected here. One that repeats an earlier submission is not: it is answered with the earlier job.

Replies that say a quota is used up are delayed (`limits.QUOTA_REPLY_SECONDS`), by the node that the client is connected
to: a follower sends submissions of several tenants in one request, and none of them waits for that.
"""

from __future__ import annotations

import asyncio
from typing import Final

from raftsched import limits
from raftsched.api.backend import Backend
from raftsched.api.http.problems import refusal
from raftsched.core.jobs.quotas import jobs_refusal
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.tenant import Tenant
from raftsched.errors import QuotaExceeded
from raftsched.storage.reader import StateReader

_MILLI: Final = 1_000
"""Tokens are counted in thousandths, so that none is lost between two calls."""


class _Bucket:
    __slots__ = ("at_ms", "milli_tokens")

    def __init__(self, milli_tokens: int, at_ms: int) -> None:
        self.milli_tokens = milli_tokens
        self.at_ms = at_ms

    def fill(self, settings: Tenant, now_ms: int) -> None:
        passed_ms = max(now_ms - self.at_ms, 0)
        self.milli_tokens = min(self.milli_tokens + passed_ms * settings.submits_per_second, settings.burst * _MILLI)
        self.at_ms = max(now_ms, self.at_ms)


async def slow_down(backend: Backend) -> None:
    """Wait for a moment before a reply says that a quota is used up; the moments of many clients are spread."""
    await asyncio.sleep(limits.QUOTA_REPLY_SECONDS * (3_000 + backend.jitter()) / 4_000)


class SubmitQuotas:
    """The quotas of all tenants, and their buckets: at most `limits.TENANTS_MAX`."""

    def __init__(self, backend: Backend) -> None:
        self._backend: Final = backend
        self._buckets: Final[dict[str, _Bucket]] = {}

    def admit(self, operation: SubmitJob) -> None:
        """Take a token for a job; raises `QuotaExceeded` if there is none, or if the state would certainly reject it."""
        state, _ = self._backend.stale_state()
        refused = jobs_refusal(state, operation.tenant)
        if refused is not None and not _is_known(state, operation):
            raise refusal(refused)
        self.take(operation.tenant)

    def take(self, tenant: str, count: int = 1) -> None:
        """Take `count` tokens for jobs that are stored together; raises `QuotaExceeded`, which says when to retry."""
        state, _ = self._backend.stale_state()
        settings = state.tenant(tenant)
        if settings is None or not settings.submits_per_second:
            return
        bucket = self._filled(settings, self._backend.now_ms())
        missing = min(count, settings.burst) * _MILLI - bucket.milli_tokens
        if missing > 0:
            quota = f"the quota submits_per_second of tenant {tenant} is {settings.submits_per_second:,}"
            seconds = missing / settings.submits_per_second / _MILLI
            raise QuotaExceeded(f"{quota}, and it is used up", retry_after_seconds=round(seconds, 3))
        bucket.milli_tokens -= count * _MILLI

    def _filled(self, settings: Tenant, now_ms: int) -> _Bucket:
        bucket = self._buckets.get(settings.name)
        if bucket is None:
            if len(self._buckets) >= limits.TENANTS_MAX:  # of tenants that have no such quota any more
                self._buckets.clear()
            bucket = self._buckets[settings.name] = _Bucket(settings.burst * _MILLI, now_ms)
        bucket.fill(settings, now_ms)
        return bucket


def _is_known(state: StateReader, operation: SubmitJob) -> bool:
    """Return whether the answer may be a job that exists, for its idempotency key or its unique key.

    Unique keys are not looked up: a node that encrypts its data keys their digests when it proposes them.
    """
    options, key = operation.spec.options, operation.idempotency_key
    if options is not None and options.unique_key:
        return True
    return bool(key) and state.job_id_for_key(operation.tenant, key) is not None
