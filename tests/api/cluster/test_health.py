from __future__ import annotations

import pytest

from tests.api.node import Api

NOW = "2030-03-17T17:46:40.000Z"


@pytest.mark.parametrize("path", ["/healthz", "/health"])
async def test_health_answers_as_long_as_the_process_lives(api: Api, path: str) -> None:
    api.node.ready = (False, "no leader")
    api.node.is_leading = False
    answer = await api.get(path)
    assert (answer.status, answer.json) == (200, {"status": "ok", "node": "n1", "time": NOW})


async def test_readiness_says_why_not(api: Api) -> None:
    assert (await api.get("/readyz")).json == {"status": "ready", "node": "n1", "time": NOW}
    api.node.ready = (True, "the clock is off")
    warned = {"status": "ready", "node": "n1", "time": NOW, "warning": "the clock is off"}
    assert (await api.get("/readyz")).json == warned
    api.node.ready = (False, "no leader is known")
    answer = await api.get("/readyz")
    assert (answer.status, answer.json["detail"]) == (503, "no leader is known")
    assert answer.headers["Retry-After"] == "1"
