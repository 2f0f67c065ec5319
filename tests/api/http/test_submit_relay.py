"""Single submits that a follower passes on several at a time: each is answered as if it were alone."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest

from raftsched import limits
from raftsched.api import forwarder as forwarding
from raftsched.api.http.submit_relay import RELAY_PATH, RelayedSubmit, SubmitRelay
from raftsched.errors import OutcomeUnknown, Unavailable
from raftsched.exchange import Reply
from raftsched.storage.store.port import StorageFailed
from tests.api.node import Answer, Api, SimulatedNode, serving
from tests.api.test_forwarder import Frozen

CROWD = 2_000
JSON = {"Content-Type": "application/json"}
SUBMITS: dict[str, tuple[bytes, dict[str, str]]] = {
    "plain": (b'{"name":"x","payload":{"n":1}}', JSON),
    "key in the header": (b'{"name":"x"}', JSON | {"Idempotency-Key": "k1"}),
    "key in the body": (b'{"name":"x","idempotency_key":"k2"}', JSON),
    "two keys": (b'{"name":"x","idempotency_key":"k3"}', JSON | {"Idempotency-Key": "k4"}),
    "actor": (b'{"name":"x"}', JSON | {"Raftsched-Actor": "ops"}),
    "actor too long": (b'{"name":"x"}', JSON | {"Raftsched-Actor": "o" * 200}),
    "not JSON": (b'{"name":', JSON),
    "not even text": (b"\xff\xfe", JSON),
    "unknown field": (b'{"name":"x","retires":5}', JSON),
    "no name": (b"{}", JSON),
    "another type": (b'{"name":"x"}', {"Content-Type": "text/plain"}),
    "unknown parent": (b'{"name":"x","depends_on":["00000000-0000-7000-8000-000000000001"]}', JSON),
    "unique": (b'{"name":"u","unique":{"on_conflict":"reject"}}', JSON),
    "unique again": (b'{"name":"u","unique":{"on_conflict":"reject"}}', JSON),
    "large": (b'{"name":"x","payload":"' + b"y" * (limits.PAYLOAD_BYTES_MAX + 1) + b'"}', JSON),
    "larger than a relay takes": (b'{"name":"x","payload":"' + b"y" * limits.RELAY_BYTES_MAX + b'"}', JSON),
}


def _told(answer: Answer) -> dict[str, Any]:
    """All of an answer that does not name the one job."""
    document = answer.json
    told = {name: document.get(name) for name in ("status", "code", "detail", "field", "name", "payload", "duplicate")}
    shown = {name: name in answer.headers for name in ("Location", "ETag", "Retry-After", "Raftsched-Revision")}
    return told | shown | {"http": answer.status, "type": answer.headers["Content-Type"]}


async def _submit_all(api: Api) -> dict[str, dict[str, Any]]:
    answers = await asyncio.gather(
        *(api.ask("POST", "jobs", data=body, headers=headers) for body, headers in SUBMITS.values())
    )
    return {name: _told(answer) for name, answer in zip(SUBMITS, answers, strict=True)}


async def test_each_submit_is_answered_by_a_follower_as_by_the_leader() -> None:
    leader = SimulatedNode()
    follower_node = SimulatedNode("n2", leader=leader)
    async with serving(SimulatedNode()) as alone, serving(leader), serving(follower_node) as follower:
        at_follower, at_leader = await _submit_all(follower), await _submit_all(alone)
    assert at_follower == at_leader
    assert {told["http"] for told in at_leader.values()} == {201, 400, 409, 413, 415, 422}


async def test_a_crowd_of_submitters_at_a_follower_is_answered_over_few_connections(api: Api, follower: Api) -> None:
    async def submit(session: aiohttp.ClientSession, number: int) -> tuple[int, Any]:
        url = f"{follower.node.api_url}/api/v1/jobs"
        async with session.post(url, json={"name": "x", "payload": number}) as reply:
            return reply.status, (await reply.json()).get("payload")

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        answers = await asyncio.gather(*(submit(session, number) for number in range(CROWD)))
    assert answers == [(201, number) for number in range(CROWD)]
    assert len(api.node.proposed) == CROWD
    assert 0 < api.connection_count <= limits.RELAYS_IN_FLIGHT_MAX


async def test_a_crowd_of_readers_at_a_follower_is_answered_over_few_connections(api: Api, follower: Api) -> None:
    job = await api.submit()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        reader = Api(follower.node, session, follower.port, follower.runner)
        answers = await asyncio.gather(*(reader.get(f"jobs/{job['id']}") for _ in range(300)))
    assert {answer.status for answer in answers} == {200}
    assert api.connection_count <= limits.FORWARD_CONNECTIONS_MAX + 1  # one is the test's own


async def test_submits_that_wait_behind_a_frozen_leader_go_to_the_next_one(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_REPLACED_LEADER_SECONDS", 0.0)
    monkeypatch.setattr(limits, "RELAYS_IN_FLIGHT_MAX", 1)
    frozen = Frozen()
    server = await asyncio.start_server(frozen.speak, "127.0.0.1", 0)
    leader = SimulatedNode()
    leader.api_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, serving(SimulatedNode("n2", leader=leader), election_seconds=60.0) as follower:
        first = asyncio.ensure_future(follower.post("jobs", {"name": "first"}))
        await frozen.has_request.wait()
        others = [asyncio.ensure_future(follower.post("jobs", {"name": "other"})) for _ in range(3)]
        while len(follower.runner.server.connections) < 4:  # type: ignore[union-attr]  # it serves
            await asyncio.sleep(0)
        assert (await follower.get("jobs", consistency="stale")).status == 200  # so theirs were read before
        follower.node.elect(api.node)
        assert (await first).code == "outcome_unknown"
        assert [(await other).status for other in others] == [201] * 3
    assert len(api.node.proposed) == 3


async def test_leader_that_refuses_all_is_believed_by_each() -> None:
    busy = SimulatedNode()
    busy.proposal_error = lambda _: Unavailable("too many writes are waiting")
    async with serving(busy), serving(SimulatedNode("n2", leader=busy)) as follower:
        answers = await asyncio.gather(*(follower.post("jobs", {"name": "x"}) for _ in range(3)))
    assert {(answer.status, answer.code, answer.headers["Retry-After"]) for answer in answers} == {
        (503, "unavailable", "1")
    }


async def test_submits_of_a_leader_whose_store_fails_then_are_unknown() -> None:
    """Their jobs are in the log of a majority, so no reply may call them refused (found by the drill `full_all`)."""
    leader = SimulatedNode()
    leader.store_fails_when_applied = True
    async with serving(leader), serving(SimulatedNode("n2", leader=leader)) as follower:
        answer = await follower.post("jobs", {"name": "x"})
    assert len(leader.proposed) == 1
    assert (answer.status, answer.code, answer.json["retryable"]) == (503, "outcome_unknown", True)
    assert [type(fault) for fault in leader.faults] == [StorageFailed]


async def test_nobody_but_a_node_passes_submits_on(api: Api) -> None:
    answer = await api.ask("POST", RELAY_PATH, data=b"x", headers={"Content-Type": "application/msgpack"})
    assert (answer.status, answer.code) == (400, "malformed")


# -- the relay alone --------------------------------------------------------------------------------------------------


class Leader:
    """Takes what a relay sends, and answers when it is told to."""

    def __init__(self) -> None:
        self.sent: list[list[Any]] = []
        self.arrived = asyncio.Semaphore(0)
        self.answers = asyncio.Semaphore(0)
        self.reply: Reply | None = None

    async def send(self, body: bytes) -> Reply:
        submits = msgspec.msgpack.decode(body)
        self.sent.append([text for text, *_ in submits])
        self.arrived.release()
        await self.answers.acquire()
        replies = [(201, {"Content-Type": "text/plain"}, text) for text, *_ in submits]
        return self.reply or Reply(200, {"Raftsched-Revision": "7"}, msgspec.msgpack.encode(replies))


def _submit(text: bytes) -> RelayedSubmit:
    return RelayedSubmit(text, (), ())


async def test_relay_gathers_what_comes_while_a_request_is_under_way_in_order() -> None:
    leader = Leader()
    relay = SubmitRelay(leader.send)
    tasks = [asyncio.ensure_future(relay.submit(_submit(b"first"), seconds=60.0))]
    await leader.arrived.acquire()
    texts = [b"%d" % number for number in range(20)]
    tasks += [asyncio.ensure_future(relay.submit(_submit(text), seconds=60.0)) for text in texts]
    await asyncio.sleep(0)
    for _ in range(2):
        leader.answers.release()
    responses = await asyncio.gather(*tasks)
    assert leader.sent == [[b"first"], texts]
    assert [response.body for response in responses] == [b"first", *texts]
    assert {response.headers["Raftsched-Revision"] for response in responses} == {"7"}


async def test_relay_refuses_what_it_could_not_send_in_time_and_waits_for_what_it_sent() -> None:
    leader = Leader()
    relay = SubmitRelay(leader.send)
    first = asyncio.ensure_future(relay.submit(_submit(b"first"), seconds=0.01))
    await leader.arrived.acquire()
    with pytest.raises(Unavailable) as caught:
        await relay.submit(_submit(b"second"), seconds=0.01)
    assert type(caught.value) is Unavailable
    assert not first.done()
    leader.answers.release()
    assert (await first).status == 201
    assert leader.sent == [[b"first"]]


async def test_relay_does_not_send_for_who_has_gone() -> None:
    leader = Leader()
    relay = SubmitRelay(leader.send)
    first = asyncio.ensure_future(relay.submit(_submit(b"first"), seconds=60.0))
    await leader.arrived.acquire()
    gone, stays = (asyncio.ensure_future(relay.submit(_submit(text), seconds=60.0)) for text in (b"gone", b"stays"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait((gone,))
    for _ in range(2):
        leader.answers.release()
    await asyncio.gather(first, stays)
    assert leader.sent == [[b"first"], [b"stays"]]


@pytest.mark.parametrize("body", [b"\xc1", msgspec.msgpack.encode([]), msgspec.msgpack.encode([(201, {}, b"")] * 2)])
async def test_reply_that_does_not_fit_leaves_the_outcome_unknown(body: bytes) -> None:
    leader = Leader()
    leader.reply = Reply(200, {}, body)
    leader.answers.release()
    with pytest.raises(OutcomeUnknown):
        await SubmitRelay(leader.send).submit(_submit(b"x"), seconds=60.0)


async def test_relay_that_is_closed_says_what_it_knows() -> None:
    leader = Leader()
    relay = SubmitRelay(leader.send)
    first = asyncio.ensure_future(relay.submit(_submit(b"first"), seconds=60.0))
    await leader.arrived.acquire()
    second = asyncio.ensure_future(relay.submit(_submit(b"second"), seconds=60.0))
    await asyncio.sleep(0)
    await relay.close()
    errors = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(error) for error in errors] == [OutcomeUnknown, Unavailable]
