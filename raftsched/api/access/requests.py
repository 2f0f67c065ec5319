"""Limit what a request asks for to what its caller may see: the tenant of queries and bodies, and its queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from aiohttp import web
from msgspec.structs import replace

from raftsched.api.access.principal import Principal, principal_of
from raftsched.api.json.decode import parse_query
from raftsched.core.records.ids import TENANT_DEFAULT, JobId
from raftsched.core.records.spec import JobSpec
from raftsched.storage.reader import StateReader

T = TypeVar("T")


def query_in(request: web.Request, kind: type[T]) -> T:
    """Return the query of the request's URL; one that can name a tenant names the caller's.

    Raises as `parse_query` does, and `Forbidden` for a tenant that is not the caller's.
    """
    query: Any = parse_query(request, kind)
    if not hasattr(query, "tenant"):
        return cast("T", query)
    tenant = principal_of(request).seen_tenant(query.tenant)
    return cast("T", query if tenant == query.tenant else replace(query, tenant=tenant))


def within(principal: Principal, wanted: T) -> T:
    """Return what the caller wants to be made, with the tenant that it is for; raises `Forbidden` for another one."""
    body: Any = wanted
    tenant = principal.tenant_for(body.tenant)
    return wanted if tenant == (body.tenant or TENANT_DEFAULT) else replace(body, tenant=tenant)


def require_queues(principal: Principal, specs: Iterable[JobSpec], prefix: str = "") -> None:
    """Raise `Forbidden` unless the caller may use the queues of these jobs and of their hooks."""
    if not (principal.is_bound or principal.queues):
        return
    for spec in specs:
        principal.require_queue(spec.queue, f"{prefix}queue")
        if spec.options is None:
            continue
        for name in ("on_failure", "on_success"):
            hook = getattr(spec.options, name)
            if hook is not None:
                principal.require_queue(hook.spec.queue, f"{prefix}{name}.queue")


def may_report_on(principal: Principal, state: Callable[[], StateReader], job_id: JobId) -> bool:
    """Return whether the caller may report on runs of the job. The state is read only for a caller with limits, for
    whom a job that does not exist is like one of another tenant.
    """
    if principal.scope is None and not principal.queues:
        return True
    job = state().job(job_id)
    return job is not None and principal.sees(job.tenant) and principal.is_within_queues(job.spec.queue)
