"""Handle SaveTenant and RemoveTenant: the quotas and the share of a tenant. Each change leaves a line in the audit trail.

A tenant has a record after its first change. A new quota holds from the next operation on, and changes nothing that
exists.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.changes import invalid, refused
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.tenants import RemoveTenant, SaveTenant
from raftsched.core.records.bounds import actor_problem, name_problem, range_problem
from raftsched.core.records.tenant import WEIGHT_MAX, Tenant
from raftsched.core.state.audit import audited, tenant_changes
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, TenantSaved
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutAudit, PutTenant, RemoveTenantRecord

_MAXIMA: Final = {
    "unfinished_jobs_max": limits.QUOTA_MAX,
    "schedules_max": limits.QUOTA_MAX,
    "submits_per_second": limits.QUEUE_LIMIT_MAX,
    "submit_burst": limits.QUEUE_LIMIT_MAX,
    "weight": WEIGHT_MAX,
}
"""The largest value of each setting."""


@handles(SaveTenant)
def save_tenant(view: View, operation: SaveTenant, context: Context) -> Applied:
    problem = name_problem("name", operation.name) or actor_problem(operation.actor)
    for field, value_max in _MAXIMA.items():
        problem = problem or range_problem(field, getattr(operation, field), -1, value_max)
    if problem:
        return invalid(problem)
    old = view.tenant(operation.name)
    before = old or Tenant(operation.name, created_at_ms=context.now_ms)
    new = replace(before, **_given(operation))
    if new == before:
        return Applied(TenantSaved(before))
    if old is None and view.tenant_count() >= limits.TENANTS_MAX:
        return refused(RejectCode.LIMIT_REACHED, f"{limits.TENANTS_MAX} tenants have settings, and no more may")
    new = replace(new, updated_at_ms=context.now_ms, revision=context.index)
    audit = _audit("configure", new.name, operation.actor, context, tenant_changes(before, new))
    return Applied(TenantSaved(new), (PutTenant(new), audit))


def _given(operation: SaveTenant) -> dict[str, Any]:
    given = {field: getattr(operation, field) for field in _MAXIMA if getattr(operation, field) >= 0}
    if "weight" in given:
        given["weight"] = given["weight"] or 1
    return given


@handles(RemoveTenant)
def remove_tenant(view: View, operation: RemoveTenant, context: Context) -> Applied:
    problem = actor_problem(operation.actor)
    if problem:
        return invalid(problem)
    known = None if name_problem("name", operation.name) else view.tenant(operation.name)
    if known is None:
        return refused(RejectCode.NOT_FOUND, "this tenant has no settings")
    audit = _audit("remove", known.name, operation.actor, context)
    return Applied(TenantSaved(known), (RemoveTenantRecord(known.name), audit))


def _audit(verb: str, name: str, actor: str, context: Context, detail: str = "") -> PutAudit:
    return audited(context, f"tenant.{verb}", f"tenant:{name}", actor=actor, detail=detail)
