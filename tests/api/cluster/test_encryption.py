"""A record that was changed on the disk is an error of its own: never content, and no end of the node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from zlib import crc32

import pytest

from raftsched.api.event_log import EventLog
from raftsched.core.records.ids import parse_job_id
from raftsched.encryption.cipher import Cipher
from raftsched.encryption.keys import Key
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import Table
from raftsched.storage.store.row_codec import _ENCRYPTED_SEEDS
from raftsched.storage.store.seals import SEAL_AT, pack_seal
from tests.api.node import Api, SimulatedNode, serving


@pytest.fixture
async def encrypted() -> AsyncIterator[Api]:
    """The API of a node whose state is encrypted."""
    node = SimulatedNode()
    node.state = State(MemoryStore(Cipher([Key("k1", b"1" * 32)])))
    node.events = EventLog(node.state)
    async with serving(node) as served:
        yield served


async def test_content_that_was_changed_with_care_is_an_error_of_its_job_only(encrypted: Api) -> None:
    changed, other = [await encrypted.submit(payload={"to": name}) for name in ("ann", "bob")]
    rows = encrypted.node.state._store._tables[Table.PAYLOADS]  # type: ignore[attr-defined]  # what an intruder has
    key, source = (parse_job_id(job["id"]) for job in (changed, other))
    body = rows[source][:SEAL_AT]
    rows[key] = body + pack_seal(crc32(body, crc32(key, _ENCRYPTED_SEEDS[Table.PAYLOADS] | len(key))))
    answer = await encrypted.get(f"jobs/{changed['id']}")
    assert (answer.status, answer.code) == (500, "data_unreadable")
    assert key.hex() in answer.json["detail"]
    assert "bob" not in answer.body.decode()
    assert (await encrypted.get("jobs")).code == "data_unreadable"
    assert (await encrypted.job(other["id"]))["payload"] == {"to": "bob"}
    assert encrypted.node.faults == []


async def test_a_node_without_keys_says_that_it_has_nothing_to_move(api: Api) -> None:
    assert (await api.get("cluster/encryption")).json == {
        "node": "n1",
        "state": "off",
        "key": None,
        "keys": [],
        "plain_rows": 0,
    }
    refused = await api.ask("POST", "cluster/encryption/rotate")
    assert (refused.status, refused.code) == (409, "encryption_off")
