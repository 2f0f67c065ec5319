"""The latest use of a token is known cluster-wide, hour by hour, whichever node has answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from raftsched.api.tokens import uses
from raftsched.core.operations.access import NoteTokenUses
from tests.api.access.scene import ADMIN_TEXT, GOOD, Caller, Door, executor_token, guarded
from tests.api.node import START_MS, Api, SimulatedNode

HOUR_MS = 3_600_000
STALE = "jobs?consistency=stale"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uses, "_GATHER_SECONDS", 0.0)


def noted(node: SimulatedNode) -> list[NoteTokenUses]:
    return [operation for operation in node.proposed if isinstance(operation, NoteTokenUses)]


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


def used_at_ms(node: SimulatedNode, name: str) -> int:
    token = node.state.api_token(name)
    assert token is not None
    return token.used_at_ms


async def test_uses_at_any_node_are_noted_once_an_hour(tmp_path: Path) -> None:
    hour = START_MS - START_MS % HOUR_MS
    callers: dict[str, Caller] = {name: GOOD[name] for name in ("viewer", "monitor", "operator")}
    async with (
        guarded(tmp_path, callers) as leader,
        guarded(tmp_path, {}, leader=leader.node) as follower,
        Door(leader) as at_leader,
        Door(follower) as at_follower,
    ):
        admin = await at_leader.by(ADMIN_TEXT)

        async def shown() -> dict[str, Any]:
            tokens = (await admin.get("tokens")).json["tokens"]
            return {token["name"]: token["last_used_at"] for token in tokens}

        assert set((await shown()).values()) == {None}
        viewer = await at_leader.by(GOOD["viewer"].token("viewer"))
        monitor = await at_follower.by(GOOD["monitor"].token("monitor"))
        for api, name in ((viewer, "viewer"), (monitor, "monitor")):
            for _ in range(5):
                assert (await api.get(STALE)).status == 200
            await until(lambda name=name: used_at_ms(leader.node, name) == hour)
        assert len(noted(leader.node)) == 2
        leader.node.clock.now_ms += HOUR_MS
        await viewer.get(STALE)
        await until(lambda: used_at_ms(leader.node, "viewer") == hour + HOUR_MS)
        assert len(noted(leader.node)) == 3
        found = await shown()
        assert (found["operator"], found["viewer"] > found["monitor"]) == (None, True)


async def test_only_nodes_tell_of_uses(tmp_path: Path) -> None:
    async with guarded(tmp_path, {"admin": GOOD["admin"], "worker": GOOD["worker"]}) as api, Door(api) as door:
        told = msgspec.msgpack.encode({"worker": START_MS, "nobody": START_MS, "": 1})
        texts = {GOOD["admin"].token("admin"): 403, GOOD["worker"].token("worker"): 403, "rs_executor_x": 401}
        for text, status in (texts | {executor_token(tmp_path / "admin.token"): 200}).items():
            reply = await post(await door.by(text), told)
            assert reply == status, text
        assert used_at_ms(api.node, "worker") == START_MS
        assert await post(await door.by(executor_token(tmp_path / "admin.token")), b"noise") == 400


async def post(api: Api, body: bytes) -> int:
    async with api.session.post(f"{api.node.api_url}{uses.USES_PATH}", data=body) as reply:
        return reply.status
