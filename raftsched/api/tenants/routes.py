"""Read and change the settings of tenants. A tenant exists as soon as it is named; one without settings has no quotas."""

from __future__ import annotations

from itertools import islice

from aiohttp import web
from msgspec import UNSET, UnsetType

from raftsched.api.access.principal import principal_of
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.consistency import read
from raftsched.api.http.json_reply import json_response, time_or_none
from raftsched.api.http.proposals import propose
from raftsched.api.http.routes import Route, change, route
from raftsched.api.json.cursors import read_cursor, write_cursor
from raftsched.api.json.decode import StructDecoder
from raftsched.core.operations.tenants import RemoveTenant, SaveTenant
from raftsched.core.records.tenant import Tenant
from raftsched.core.state.results import TenantSaved
from raftsched.errors import Malformed, NotFound
from raftsched.storage.reader import StateReader
from raftsched.wire.common import ReadQuery, is_name
from raftsched.wire.tenants import TenantPatch, TenantReply, TenantsQuery, TenantsReply, TenantUsageReply


class Tenants:
    """The routes of tenants."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._patch = StructDecoder(TenantPatch)

    def routes(self) -> tuple[Route, ...]:
        return (
            route(Access.CLUSTER, "GET", "/tenants", self.list_tenants, TenantsReply, query=TenantsQuery),
            route(Access.READ, "GET", "/tenants/{name}", self.get_tenant, TenantReply, query=ReadQuery),
            change(Access.CLUSTER, "PATCH", "/tenants/{name}", self.configure_tenant, TenantReply, body=TenantPatch),
            change(Access.CLUSTER, "DELETE", "/tenants/{name}", self.remove_tenant, TenantReply),
        )

    async def list_tenants(self, request: web.Request) -> web.Response:
        """List the tenants that have settings, jobs or schedules, with their usage."""
        query, reading = read(self._backend, request, TenantsQuery)
        state = reading.state
        after = _name_in(read_cursor(query.cursor, "tenants"))
        names = sorted(name for name in {*state.used_tenants(), *state.configured_tenants()} if name > after)
        shown = [*islice(names, query.limit)]
        next_cursor = write_cursor(shown[-1].encode(), "tenants") if len(names) > len(shown) else None
        tenants = [_reply(state, _settings(state, name)) for name in shown]
        return reading.response(TenantsReply(tenants=tenants, next_cursor=next_cursor))

    async def get_tenant(self, request: web.Request) -> web.Response:
        """Read a tenant: its quotas, its share and its usage."""
        name = _name_in_path(request)
        _, reading = read(self._backend, request, ReadQuery)
        return reading.response(_reply(reading.state, _settings(reading.state, name)))

    async def configure_tenant(self, request: web.Request) -> web.Response:
        """Change settings of a tenant. Others stay as they are. Lower quotas end nothing that exists."""
        name = _name_in_path(request)
        wanted, _ = self._patch.read(await self._bodies.read_json(request))
        operation = SaveTenant(
            name,
            unfinished_jobs_max=_number(wanted.unfinished_jobs),
            schedules_max=_number(wanted.schedules),
            submits_per_second=_number(wanted.submits_per_second),
            submit_burst=_number(wanted.submit_burst),
            weight=_number(wanted.weight),
            actor=actor_of(request),
        )
        saved = await propose(self._backend, operation, TenantSaved)
        return json_response(_reply(self._backend.stale_state()[0], saved.tenant))

    async def remove_tenant(self, request: web.Request) -> web.Response:
        """Remove the settings of a tenant: it has no quotas then. Its jobs and schedules stay."""
        operation = RemoveTenant(_name_in_path(request), actor=actor_of(request))
        saved = await propose(self._backend, operation, TenantSaved)
        return json_response(_reply(self._backend.stale_state()[0], Tenant(saved.tenant.name)))


def _name_in_path(request: web.Request) -> str:
    name = request.match_info["name"]
    if not is_name(name) or not principal_of(request).sees(name):
        raise NotFound("there is no such tenant: this is not a tenant's name")
    return name


def _name_in(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise Malformed("cursor: not one that this server issued", field="cursor") from None


def _number(value: int | UnsetType | None) -> int:
    """Return the number for the operation; -1 = unchanged, 0 = none."""
    return -1 if value is UNSET else value or 0


def _settings(state: StateReader, name: str) -> Tenant:
    return state.tenant(name) or Tenant(name)


def _reply(state: StateReader, tenant: Tenant) -> TenantReply:
    return TenantReply(
        name=tenant.name,
        unfinished_jobs=tenant.unfinished_jobs_max or None,
        schedules=tenant.schedules_max or None,
        submits_per_second=tenant.submits_per_second or None,
        submit_burst=tenant.burst or None,
        weight=tenant.weight,
        usage=TenantUsageReply(
            unfinished_jobs=state.unfinished_count(tenant.name), schedules=state.schedule_count(tenant.name)
        ),
        revision=tenant.revision or None,
        updated_at=time_or_none(tenant.updated_at_ms),
    )
