"""The audit trail tells from which address a request came, to who may know it, and nobody but nodes can name another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raftsched.api.access.admin_file import AdminFile
from raftsched.api.access.door import ORIGIN_HEADER, TokenDoor
from raftsched.core.operations.codec import Batch, CancelJob, decode_batch, encode_batch
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.origin import Origin
from tests.api.access.scene import ADMIN_TEXT, GOOD, Door, guarded
from tests.api.node import Api

HERE = "127.0.0.1"
FORGED = "203.0.113.9"


async def lines(api: Api) -> list[tuple[str, Any]]:
    """The actors and origins of the latest lines of the trail, the latest first."""
    entries = (await api.get("audit")).json["entries"]
    return [(entry["actor"], entry["origin"]) for entry in entries]


async def test_origin_is_the_address_that_the_first_node_saw_whatever_a_caller_names(tmp_path: Path) -> None:
    callers = {"operator": GOOD["operator"], "admin": GOOD["admin"]}
    async with (
        guarded(tmp_path, callers) as leader,
        guarded(tmp_path, {}, leader=leader.node) as follower,
        Door(leader) as at_leader,
        Door(follower) as at_follower,
    ):
        forged = {ORIGIN_HEADER: f"{FORGED} {'0' * 64}", "Raftsched_Forwarded": "1"}
        operators = [
            await at_leader.by(GOOD["operator"].token("operator"), **forged),
            await at_follower.by(GOOD["operator"].token("operator"), **{ORIGIN_HEADER: FORGED}),
        ]
        admin = await at_leader.by(ADMIN_TEXT)
        for number, operator in enumerate(operators):
            assert (await operator.post(f"queues/acme:q{number}/pause", {})).status == 200
        assert (await admin.post("queues/acme:q9/pause", {})).status == 200
        assert (await lines(admin))[:3] == [("admin", HERE), ("operator", HERE), ("operator", HERE)]


async def test_a_node_names_the_origin_of_what_it_forwards_and_a_tenant_sees_only_that_of_its_own(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, {"operator": GOOD["operator"]}) as api, Door(api) as door:
        told = {ORIGIN_HEADER: TokenDoor(api.node, AdminFile(tmp_path / "admin.token")).named_origin(FORGED)}
        operator = await door.by(GOOD["operator"].token("operator"), **told)
        admin = await door.by(ADMIN_TEXT, **told)
        job = (await operator.post("jobs", {"name": "n"})).json["id"]
        assert (await admin.post(f"jobs/{job}/pause", {})).status == 200
        assert (await operator.post(f"jobs/{job}/resume", {})).status == 200
        assert (await lines(admin))[:2] == [("operator", FORGED), ("admin", FORGED)]
        assert (await lines(operator))[:2] == [("operator", FORGED), ("admin", None)]


def test_an_entry_carries_origins_only_if_it_has_any() -> None:
    operations = tuple(CancelJob(JobId(bytes([number]) * 16), "t", actor="a") for number in range(2))
    origin = Origin("::1", "acme")
    assert encode_batch(TimeMs(1), operations, origins=(None, None)) == encode_batch(TimeMs(1), operations)
    batch = decode_batch(encode_batch(TimeMs(1), operations, origins=(None, origin)))
    assert list(batch.each()) == [(operations[0], None), (operations[1], origin)]
    assert list(Batch(1, TimeMs(1), operations).each()) == [(each, None) for each in operations]
