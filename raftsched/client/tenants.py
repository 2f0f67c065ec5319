"""Read and change the quotas and shares of tenants. A tenant exists as soon as it is named; it has no quotas at first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypedDict, Unpack

from raftsched.client.blocking import Blocking, blocking, blocking_each
from raftsched.client.http.calls import Calls, part
from raftsched.client.records import TenantInfo


class TenantChanges(TypedDict, total=False):
    """Changes of a tenant's settings. None removes a setting; omitted ones stay as they are."""

    unfinished_jobs: int | None
    """Most jobs that are not finished, in all queues together."""
    schedules: int | None
    """Most schedules."""
    submits_per_second: int | None
    """Most jobs submitted in a second, evenly spread."""
    submit_burst: int | None
    """Jobs that may be submitted at once after an idle time; as many as in a second by default."""
    weight: int | None
    """Its share of the workers in queues that do not name it; 1 by default."""


class Tenants:
    """The tenants of the cluster. All calls raise `Invalid` and `Unavailable`."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def list(self, *, page_size: int = 100) -> AsyncIterator[TenantInfo]:
        """Yield the tenants that have settings, jobs or schedules, by name."""
        return self._calls.each(TenantInfo, "/tenants", "tenants", {"limit": page_size})

    async def get(self, name: str) -> TenantInfo:
        """Read a tenant: its quotas, its share and its usage."""
        return await self._calls.call(TenantInfo, "GET", _path(name))

    async def configure(self, name: str, **changes: Unpack[TenantChanges]) -> TenantInfo:
        """Change its settings and return all of them; lower quotas end nothing that exists."""
        return await self._calls.call(TenantInfo, "PATCH", _path(name), dict(changes))

    async def remove(self, name: str) -> TenantInfo:
        """Remove its settings, so that it has no quotas; its jobs and schedules stay. Raises `NotFound` if it has none."""
        return await self._calls.call(TenantInfo, "DELETE", _path(name))


def _path(name: str) -> str:
    return f"/tenants/{part(name, field='name')}"


class BlockingTenants(Blocking[Tenants]):
    """`Tenants` without `await`."""

    list = blocking_each(Tenants.list)
    get = blocking(Tenants.get)
    configure = blocking(Tenants.configure)
    remove = blocking(Tenants.remove)
