"""No text in a path or a query is a fault of the server: every route is asked with what can't name anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

import msgspec
import pytest
from yarl import URL

from raftsched.api.access.door import OpenDoor
from raftsched.api.app import all_routes
from raftsched.api.cluster.events import Events
from raftsched.api.forwarder import Forwarder
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.routes import Route
from raftsched.api.tenants.quotas import SubmitQuotas
from raftsched.core.records.ids import JobId, job_id_text
from tests.api.node import Api, SimulatedNode

ODD = {
    "longer than a key of the store": "y" * 600,
    "as long as a line of HTTP may be": "y" * 6_000,
    "more bytes than characters": "é" * 300,
    "NULs": "\0\0",
    "a path": "../../etc",
    "lone marks": "'\";%{}",
    "an id that nothing has": job_id_text(JobId(bytes(16))),
    "a negative number": "-1",
    "a number above all": "9" * 400,
}
_PARAMETER = re.compile(r"{(\w+)}")


def _routes() -> tuple[Route, ...]:
    node, bodies = SimulatedNode(), Bodies()
    forwarder = Forwarder(node, bodies, OpenDoor(), election_seconds=0.0)
    return all_routes(node, bodies, forwarder, Events(node), SubmitQuotas(node))


def _requests(odd: str) -> Iterator[tuple[str, str]]:
    """Each route with `odd` in its path, and with `odd` in each field of its query."""
    for route in _routes():
        with_odd = _PARAMETER.sub(quote(odd, safe=""), route.path)
        if with_odd != route.path:
            yield route.method, with_odd
            yield route.method, f"{with_odd}?consistency=stale"
        plain = _PARAMETER.sub("some", route.path)
        for field in msgspec.structs.fields(route.query) if route.query else ():
            yield route.method, f"{plain}?{field.encode_name}={quote(odd, safe='')}"


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
async def test_no_text_in_a_url_is_a_fault_of_the_server(api: Api, odd: str) -> None:
    await api.submit(name="echo")
    asked = 0
    for method, path in _requests(odd):
        async with api.session.request(method, URL(api.node.api_url + path, encoded=True), data=b"{}") as reply:
            assert reply.status < 500, f"{method} {path[:80]}: {await reply.text()}"
        assert not api.node.faults, f"{method} {path[:80]}"
        asked += 1
    assert asked > 100
