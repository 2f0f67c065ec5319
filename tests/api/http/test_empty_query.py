from __future__ import annotations

from tests.api.node import Api


async def test_parameters_of_routes_that_take_none_are_refused(api: Api) -> None:
    job = await api.submit()
    before = len(api.node.proposed)
    for method, path in (
        ("GET", "openapi.json"),
        ("GET", "cluster"),
        ("POST", f"jobs/{job['id']}/pause"),
        ("POST", "jobs"),
    ):
        answer = await api.ask(method, f"{path}?force=true")
        assert (answer.status, answer.code, answer.json["field"]) == (400, "malformed", "force"), path
    assert len(api.node.proposed) == before


async def test_health_checks_may_have_parameters(api: Api) -> None:
    assert (await api.get("/healthz?probe=1")).status == (await api.get("/readyz?probe=1")).status == 200
