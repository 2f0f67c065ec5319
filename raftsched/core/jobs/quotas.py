"""Enforce the quotas of tenants: how many unfinished jobs and schedules one may have.

Each operation is checked when it is applied, by exact counts, so quotas hold whichever node leads. What users ask for is
rejected: jobs, workflows, replays, triggers and backfills. A fire time of a schedule is skipped, with the reason
`SKIP_REASON`. Jobs that follow from others are never rejected: hooks, notices, retries and requeues; they count all the
same. A quota that is set below the present count rejects what is new, and changes nothing that exists.

A tenant without settings has no quotas.
"""

from __future__ import annotations

from typing import Final

from raftsched.core.operations.codec import RejectCode
from raftsched.core.state.results import Refused
from raftsched.core.state.view import View

SKIP_REASON: Final = "quota"
"""The reason of a skipped fire time whose job would exceed the quota."""


def jobs_refusal(view: View, tenant: str, count: int = 1) -> Refused | None:
    """Return the refusal of `count` more unfinished jobs; None if they are allowed."""
    settings = view.tenant(tenant)
    if settings is None or not settings.unfinished_jobs_max:
        return None
    return _refusal("unfinished_jobs", tenant, view.unfinished_count(tenant), count, settings.unfinished_jobs_max)


def schedules_refusal(view: View, tenant: str) -> Refused | None:
    """Return the refusal of one more schedule; None if it is allowed."""
    settings = view.tenant(tenant)
    if settings is None or not settings.schedules_max:
        return None
    return _refusal("schedules", tenant, view.schedule_count(tenant), 1, settings.schedules_max)


def _refusal(quota: str, tenant: str, present_count: int, count: int, count_max: int) -> Refused | None:
    if present_count + count <= count_max:
        return None
    more = f", and {count:,} more are too many" if count > 1 else ""
    told = f"the quota {quota} of tenant {tenant} is {count_max:,}, and it has {present_count:,}{more}"
    return Refused(RejectCode.QUOTA_EXCEEDED, told)
