"""Every route asks each kind of caller for what it should. The table is written by hand, so that no rule changes alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from raftsched.api.access import guard
from raftsched.api.access.door import OpenDoor
from raftsched.api.app import all_routes, create_app
from raftsched.api.cluster.events import Events
from raftsched.api.forwarder import Forwarder
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.routes import Answered, Route
from raftsched.api.http.submit_relay import RELAY_PATH
from raftsched.api.tenants.quotas import SubmitQuotas
from tests.api.access.scene import ADMIN_TEXT, BAD, GOOD, guarded
from tests.api.node import NOBODY, Api, SimulatedNode

_READ: Final = "viewer monitor submitter operator tenant_admin admin"
_CHANGE: Final = "submitter operator tenant_admin admin"
_MANY: Final = "operator tenant_admin admin"
_RUN: Final = "worker tenant_admin admin"
_ALL: Final = "viewer monitor submitter worker operator tenant_admin admin"
_ANYBODY: Final = "anybody"
ALLOWED: Final = {
    "GET /healthz": _ANYBODY,
    "GET /readyz": _ANYBODY,
    "GET /health": _ALL,
    "GET /metrics": "monitor admin",
    "GET /api/v1/openapi.json": _ALL,
    "GET /api/v1/cluster": _ALL,
    "GET /api/v1/cluster/node": _ALL,
    "POST /api/v1/cluster/transfer": "admin",
    "POST /api/v1/cluster/members": "admin",
    "DELETE /api/v1/cluster/members/{id}": "admin",
    "GET /api/v1/cluster/encryption": "admin",
    "GET /api/v1/cluster/backup": "admin",
    "POST /api/v1/cluster/backups": "admin",
    "POST /api/v1/cluster/encryption/rotate": "admin",
    "GET /api/v1/tenants": "admin",
    "GET /api/v1/tenants/{name}": _READ,
    "PATCH /api/v1/tenants/{name}": "admin",
    "DELETE /api/v1/tenants/{name}": "admin",
    "POST /api/v1/tokens": "tenant_admin admin",
    "GET /api/v1/tokens": "tenant_admin admin",
    "POST /api/v1/tokens/{id}/rotate": "tenant_admin admin",
    "DELETE /api/v1/tokens/{id}": "tenant_admin admin",
    "GET /api/v1/whoami": _ALL,
    "GET /api/v1/overview": _READ,
    "GET /api/v1/audit": _MANY,
    "GET /api/v1/events": _READ,
    "GET /api/v1/workers": _READ,
    "POST /submit": _CHANGE,
    "GET /jobs/{id}": _READ,
    "POST /api/v1/jobs": _CHANGE,
    "POST /api/v1/jobs/batch": _CHANGE,
    "GET /api/v1/jobs": _READ,
    "GET /api/v1/jobs/{id}": _READ,
    "GET /api/v1/jobs/{id}/result": _ALL,
    "GET /api/v1/jobs/{id}/runs": _READ,
    "GET /api/v1/jobs/{id}/history": _READ,
    "GET /api/v1/jobs/{id}/explain": _READ,
    "GET /api/v1/jobs/{id}/logs": _READ,
    "PATCH /api/v1/jobs/{id}": _CHANGE,
    "DELETE /api/v1/jobs/{id}": _CHANGE,
    "POST /api/v1/jobs/{id}/pause": _CHANGE,
    "POST /api/v1/jobs/{id}/resume": _CHANGE,
    "POST /api/v1/jobs/{id}/retry": _CHANGE,
    "POST /api/v1/jobs/{id}/replay": _CHANGE,
    "POST /api/v1/jobs/bulk": _MANY,
    "GET /api/v1/dead-letters": _READ,
    "GET /api/v1/dead-letters/reasons": _READ,
    "POST /api/v1/dead-letters/requeue": _MANY,
    "POST /api/v1/dead-letters/purge": _MANY,
    "POST /api/v1/workflows": _CHANGE,
    "GET /api/v1/workflows": _READ,
    "GET /api/v1/workflows/{id}": _ALL,
    "DELETE /api/v1/workflows/{id}": _CHANGE,
    "POST /api/v1/leases": _RUN,
    "POST /api/v1/leases/heartbeat": _RUN,
    "POST /api/v1/leases/outcomes": _RUN,
    "POST /api/v1/runs/{id}/start": _RUN,
    "POST /api/v1/runs/{id}/logs": _RUN,
    "POST /api/v1/runs/{id}/progress": _RUN,
    "POST /api/v1/runs/{id}/complete": _ANYBODY,
    "GET /api/v1/queues": _READ,
    "GET /api/v1/queues/{name}": _READ,
    "GET /api/v1/queues/{name}/scale": _READ,
    "PATCH /api/v1/queues/{name}": _MANY,
    "POST /api/v1/queues/{name}/pause": _MANY,
    "POST /api/v1/workers/{name}/drain": _MANY,
    "POST /api/v1/workers/{name}/undrain": _MANY,
    "POST /api/v1/queues/{name}/resume": _MANY,
    "POST /api/v1/schedules": _CHANGE,
    "PUT /api/v1/schedules": _CHANGE,
    "GET /api/v1/schedules": _READ,
    "POST /api/v1/schedules/preview": _READ,
    "GET /api/v1/schedules/{id}": _READ,
    "PATCH /api/v1/schedules/{id}": _CHANGE,
    "DELETE /api/v1/schedules/{id}": _CHANGE,
    "POST /api/v1/schedules/{id}/pause": _CHANGE,
    "POST /api/v1/schedules/{id}/resume": _CHANGE,
    "POST /api/v1/schedules/{id}/trigger": _CHANGE,
    "POST /api/v1/schedules/{id}/backfill": _MANY,
    "GET /api/v1/schedules/{id}/next": _READ,
    "GET /api/v1/schedules/{id}/firings": _READ,
}
_PARTS: Final = {
    "{id}": NOBODY,
    "tenants/{name}": "tenants/acme",
    "queues/{name}": "queues/acme:mail",
    "workers/{name}": "workers/acme:w",
}


def routes() -> tuple[Route, ...]:
    node, bodies = SimulatedNode(), Bodies()
    return all_routes(node, bodies, Forwarder(node, bodies, OpenDoor()), Events(node), SubmitQuotas(node))


def tokens() -> dict[str, str | None]:
    """The text of each kind of caller; None = it sends none."""
    texts = {name: caller.token(name) for name, caller in (BAD | GOOD).items()}
    return texts | {
        "none": None,
        "malformed": "a b",
        "unknown": "rs_nobody_secret",
        "wrong_secret": f"{texts['wrong_secret']}x",
        "file": ADMIN_TEXT,
    }


def expected(name: str, allowed: str) -> int | None:
    """The status with which a caller is refused; None = it is not."""
    if allowed == _ANYBODY or name == "file":
        return None
    if name not in GOOD:
        return 401
    return None if name in allowed.split() else 403


async def status_of(api: Api, method: str, path: str, text: str | None) -> int:
    for part, value in _PARTS.items():
        path = path.replace(part, value)
    headers = {} if text is None else {"Authorization": f"Bearer {text}"}
    document: object = {} if method in ("POST", "PUT", "PATCH") else None
    async with api.session.request(method, api.node.api_url + path, headers=headers, json=document) as reply:
        return reply.status


async def test_each_route_lets_in_those_who_may_use_it_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_REFUSAL_SECONDS", "_LATE_SECONDS"):
        monkeypatch.setattr(guard, name, 0.0)
    table = [(method, route.path) for route in routes() for method in route.methods]
    assert {f"{method} {path}" for method, path in table if method != "HEAD"} == set(ALLOWED)
    async with guarded(tmp_path, BAD | GOOD) as api:

        async def fault(method: str, path: str, name: str, text: str | None) -> str:
            wanted = expected(name, ALLOWED[f"{'GET' if method == 'HEAD' else method} {path}"])
            status = await status_of(api, method, path, text)
            is_right = status == wanted if wanted else status not in (401, 403)
            return "" if is_right else f"{method} {path} by {name}: {status}, not {wanted}"

        callers = tokens().items()
        cases = [fault(method, path, name, text) for method, path in table for name, text in callers]
        assert [each for each in await asyncio.gather(*cases) if each] == []


def test_application_serves_only_routes_of_the_table_and_the_relay_between_nodes() -> None:
    node = SimulatedNode()
    served = {
        (each.method, each.resource.canonical) for each in create_app(node, OpenDoor()).router.routes() if each.resource
    }
    assert served == {(method, route.path) for route in routes() for method in route.methods} | {("POST", RELAY_PATH)}


async def handler(request: web.Request) -> web.Response:
    return web.Response(text=request.path)


def test_route_without_a_rule_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="access"):
        Route(method="GET", path="/new", handler=handler, answered=Answered.HERE, reply=None)  # type: ignore[call-arg]
