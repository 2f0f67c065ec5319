from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from raftsched import limits
from raftsched.api import forwarder as forwarding
from raftsched.api.http.problems import problem_of, problem_response
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import SubmitJob
from raftsched.errors import DiskStalled, NoMajority, NotLeader, RaftschedError, Unavailable
from tests.api.node import Api, SimulatedNode, run_of, serving
from tests.exchange.dying import dying_server

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _follower_of(speak: Speak, *, election_seconds: float = 0.0) -> AsyncIterator[Api]:
    """A follower whose leader is a socket that does what `speak` does."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await speak(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    leader = SimulatedNode()
    leader.api_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    node = SimulatedNode("n2", leader=leader)
    async with server, serving(node, election_seconds=election_seconds) as follower:
        yield follower


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take the request, and die."""
    await reader.readuntil(b"\r\n\r\n")


async def _hang_up_in_the_middle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"jobs":')
    await writer.drain()


async def test_follower_answers_as_the_leader_does(api: Api, follower: Api) -> None:
    answer = await follower.post("jobs", {"name": "x", "payload": {"a": 1}}, Idempotency_Key="k1")
    assert answer.status == 201
    job = answer.json
    assert answer.headers["Location"] == f"/api/v1/jobs/{job['id']}"
    assert answer.headers["Raftsched-Leader"] == api.node.api_url
    assert answer.headers["Raftsched-Revision"] == "1"
    again = await follower.post("jobs", {"name": "x", "payload": {"a": 1}}, Idempotency_Key="k1")
    assert (again.status, again.json["id"]) == (200, job["id"])
    assert (await follower.get(f"jobs/{job['id']}")).json == job
    assert (await follower.get("jobs", limit=1, order="desc")).json["jobs"] == [job]
    [lease] = await follower.lease("x")
    report = run_of(lease, status="completed")
    assert (await follower.report(report)).json["outcomes"][0]["accepted"] is True
    assert (await follower.ask("DELETE", f"jobs/{job['id']}")).code == "already_finished"


async def test_follower_passes_problems_on(api: Api, follower: Api) -> None:
    answer = await follower.post("jobs", {"name": "x", "retires": 5})
    assert (answer.status, answer.code, answer.json["field"]) == (400, "malformed", "retires")
    assert (await follower.post("jobs", b"x", Content_Type="text/plain")).code == "unsupported_media_type"


async def test_follower_passes_large_bodies_on(api: Api, follower: Api) -> None:
    jobs = [{"name": "x", "payload": "y" * 200_000}] * 30
    answer = await follower.post("jobs/batch", {"jobs": jobs})
    assert [result["status"] for result in answer.json["results"]] == [201] * 30


async def test_follower_refuses_a_body_that_is_too_large_itself(api: Api, follower: Api) -> None:
    answer = await follower.post("jobs", b" " * (limits.BODY_BYTES_MAX + 1))
    assert (answer.status, answer.code) == (413, "too_large")


async def test_follower_passes_hostile_paths_on_as_they_are(api: Api, follower: Api) -> None:
    head = b"GET /api/v1/jobs/..%2f..%2fcluster HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    reply = await follower.raw(head)
    assert reply.startswith(b"HTTP/1.1 404 ")
    assert b'"code":"not_found"' in reply


async def test_request_is_passed_on_once(api: Api, follower: Api) -> None:
    answer = await follower.post("jobs", {"name": "x"}, Raftsched_Forwarded="1")
    assert (answer.status, answer.code) == (503, "not_leader")
    assert answer.headers["Retry-After"] == "1"
    assert api.node.proposed == []


async def test_two_nodes_that_take_each_other_for_the_leader_answer_503(api: Api, follower: Api) -> None:
    api.node.leader = follower.node
    answer = await follower.post("jobs", {"name": "x"})
    assert (answer.status, answer.code) == (503, "not_leader")


async def test_leader_that_cannot_be_reached_has_not_acted() -> None:
    leader = SimulatedNode()
    leader.api_url = "http://127.0.0.1:1"
    async with serving(SimulatedNode("n2", leader=leader)) as follower:
        for answer in (await follower.post("jobs", {"name": "x"}), await follower.get("jobs")):
            assert (answer.status, answer.code, answer.json["retryable"]) == (503, "unavailable", True)
            assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize("speak", [_hang_up, _hang_up_in_the_middle])
async def test_leader_that_dies_over_a_change_leaves_it_unknown(speak: Speak) -> None:
    async with _follower_of(speak) as follower:
        for answer in (await follower.post("jobs", {"name": "x"}), await follower.ask("DELETE", "jobs/x")):
            assert (answer.status, answer.code, answer.json["retryable"]) == (503, "outcome_unknown", True)
            assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize("speak", [_hang_up, _hang_up_in_the_middle])
async def test_leader_that_dies_over_a_read_is_unavailable(speak: Speak) -> None:
    async with _follower_of(speak) as follower:
        answer = await follower.get("jobs")
        assert (answer.status, answer.code) == (503, "unavailable")


async def test_node_without_a_leader_says_so(api: Api) -> None:
    api.node.is_leading = False
    for answer in (await api.post("jobs", {"name": "x"}), await api.get("jobs"), await api.get("queues")):
        assert (answer.status, answer.code) == (503, "not_leader")
        assert "Raftsched-Leader" not in answer.headers


async def test_request_waits_for_the_next_leader_where_none_is_known(api: Api) -> None:
    leaderless = SimulatedNode("n2")
    leaderless.is_leading = False
    async with serving(leaderless, election_seconds=60.0) as node:
        waiting = asyncio.ensure_future(node.post("jobs", {"name": "x", "payload": [1]}))
        await leaderless.asked_for_change.wait()
        leaderless.elect(api.node)
        answer = await waiting
    assert answer.status == 201
    (submit,) = api.node.proposed
    assert isinstance(submit, SubmitJob)
    assert submit.payload == b"[1]"


@pytest.mark.parametrize("error", [NoMajority(), DiskStalled()])
async def test_node_that_lost_its_majority_or_its_disk_refuses_at_once(error: RaftschedError) -> None:
    cut_off = SimulatedNode("n2")
    cut_off.proposal_error = lambda _: error
    async with serving(cut_off, election_seconds=60.0) as node:
        answer = await node.post("jobs", {"name": "x"})
        assert (answer.status, answer.code, answer.headers["Retry-After"]) == (503, error.code, "1")
        assert not cut_off.asked_for_change.is_set()


async def test_node_that_has_heard_no_leader_for_an_election_refuses_at_once() -> None:
    leaderless = SimulatedNode("n2")
    leaderless.is_leading = False
    leaderless.age_ms = 60_001
    async with serving(leaderless, election_seconds=60.0) as node:
        for answer in (await node.post("jobs", {"name": "x"}), await node.get("jobs")):
            assert (answer.status, answer.code) == (503, "not_leader")
        assert not leaderless.asked_for_change.is_set()


async def test_request_waits_for_the_next_leader_where_the_old_one_cannot_be_reached(api: Api) -> None:
    dead = SimulatedNode()
    dead.api_url = "http://127.0.0.1:1"
    async with serving(SimulatedNode("n2", leader=dead), election_seconds=60.0) as node:
        waiting = asyncio.ensure_future(node.post("jobs", {"name": "x"}))
        follower = node.node
        await follower.asked_for_change.wait()
        follower.elect(api.node)
        assert (await waiting).status == 201


async def test_request_whose_outcome_is_unknown_is_not_sent_again() -> None:
    leader = SimulatedNode()
    async with _follower_of(_hang_up) as follower:
        leader.api_url = follower.node.leader.api_url  # type: ignore[union-attr]  # it has one
        async with serving(SimulatedNode("n3", leader=leader), election_seconds=60.0) as node:
            answer = await node.post("jobs", {"name": "x"})
            assert (answer.status, answer.code) == (503, "outcome_unknown")
            assert not node.node.asked_for_change.is_set()


async def test_request_passed_on_to_a_node_that_was_just_elected_waits_until_it_serves(follower: Api) -> None:
    elected = SimulatedNode()
    elected.is_leading = False
    async with serving(elected, election_seconds=60.0):
        follower.node.elect(elected)
        waiting = asyncio.ensure_future(follower.post("jobs", {"name": "x"}))
        await elected.asked_for_change.wait()
        elected.elect()
        assert (await waiting).status == 201
    assert len(elected.proposed) == 1


async def test_request_that_fails_while_the_next_leader_comes_is_tried_again_at_once(api: Api) -> None:
    leaderless = SimulatedNode("n2")

    def elect(_: Operation) -> RaftschedError:
        leaderless.elect(api.node)
        return NotLeader()

    leaderless.proposal_error = elect
    async with serving(leaderless, election_seconds=60.0) as node:
        assert (await node.post("jobs", {"name": "x"})).status == 201


# -- leaders that say nothing -----------------------------------------------------------------------------------------


class Frozen:
    """A leader whose connections stay open and which says nothing, unless `wakes` is set; then it gives its `reply`."""

    def __init__(self, reply: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") -> None:
        self.reply = reply
        self.has_request = asyncio.Event()
        self.wakes = asyncio.Event()

    async def speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.has_request.set()
        waking = asyncio.ensure_future(self.wakes.wait())
        await asyncio.wait({waking, asyncio.ensure_future(reader.read())}, return_when=asyncio.FIRST_COMPLETED)
        if waking.done():
            writer.write(self.reply)
            await writer.drain()
        waking.cancel()


async def test_change_that_a_frozen_leader_was_sent_is_unknown_once_another_one_leads(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_REPLACED_LEADER_SECONDS", 0.0)
    frozen = Frozen()
    async with _follower_of(frozen.speak) as follower:
        waiting = asyncio.ensure_future(follower.post("jobs", {"name": "x"}))
        await frozen.has_request.wait()
        follower.node.elect(api.node)
        answer = await waiting
    assert (answer.status, answer.code) == (503, "outcome_unknown")
    assert api.node.proposed == []


async def test_leader_may_still_answer_what_it_was_sent_when_another_one_leads(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that transfers does; some of what it was sent is done."""
    monkeypatch.setattr(forwarding, "_REPLACED_LEADER_SECONDS", 60.0)
    slow = Frozen()
    async with _follower_of(slow.speak) as follower:
        waiting = asyncio.ensure_future(follower.post("jobs/batch", {"name": "x"}))
        await slow.has_request.wait()
        follower.node.elect(api.node)
        slow.wakes.set()
        assert (await waiting).status == 200


@pytest.mark.parametrize("path", ["jobs", "jobs/batch"])
@pytest.mark.parametrize("is_elected_itself", [True, False])
async def test_change_that_a_former_leader_refuses_late_is_made_by_the_next_one(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, *, is_elected_itself: bool
) -> None:
    """It is far away: the next leader was elected while its refusal was on the way."""
    monkeypatch.setattr(forwarding, "_REPLACED_LEADER_SECONDS", 60.0)
    body = problem_response(problem_of(NoMajority())).body
    assert isinstance(body, bytes)
    far = Frozen(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    document = {"name": "x"} if path == "jobs" else {"jobs": [{"name": "x"}]}
    async with _follower_of(far.speak, election_seconds=60.0) as follower:
        waiting = asyncio.ensure_future(follower.post(path, document))
        await far.has_request.wait()
        follower.node.elect(None if is_elected_itself else api.node)
        far.wakes.set()
        assert (await waiting).status in (200, 201)
        assert len((follower if is_elected_itself else api).node.proposed) == 1


async def test_leader_that_is_only_doubted_is_waited_for() -> None:
    slow = Frozen()
    async with _follower_of(slow.speak) as follower:
        waiting = asyncio.ensure_future(follower.post("jobs/batch", {"name": "x"}))
        await slow.has_request.wait()
        leader = follower.node.leader
        follower.node.elect()
        follower.node.is_leading = False  # nobody is known
        assert (await follower.get("jobs", consistency="stale")).status == 200  # and the forwarder has heard of it
        follower.node.elect(leader)
        slow.wakes.set()
        assert (await waiting).status == 200


@pytest.mark.parametrize("is_elected_itself", [True, False])
async def test_read_that_a_frozen_leader_was_sent_is_answered_once_another_one_leads(
    api: Api, *, is_elected_itself: bool
) -> None:
    frozen = Frozen()
    async with _follower_of(frozen.speak, election_seconds=60.0) as follower:
        waiting = asyncio.ensure_future(follower.get("jobs"))
        await frozen.has_request.wait()
        follower.node.elect(None if is_elected_itself else api.node)
        assert (await waiting).status == 200


async def test_request_that_a_leader_cut_off_was_never_sent_goes_to_the_next_one(api: Api) -> None:
    class Follower(SimulatedNode):
        forwards = asyncio.Semaphore(0)

        def leader_url(self) -> str | None:
            self.forwards.release()
            return super().leader_url()

    leader = SimulatedNode()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.socket() as first:
        first.connect(server.getsockname())  # who fills the queue, so that nobody else gets a connection
        leader.api_url = f"http://127.0.0.1:{server.getsockname()[1]}"
        async with serving(Follower("n2", leader=leader), election_seconds=60.0) as follower:
            node = follower.node
            assert isinstance(node, Follower)
            await node.forwards.acquire()  # the forwarder's own look at its start
            waiting = asyncio.ensure_future(follower.post("jobs", {"name": "x"}))
            await node.forwards.acquire()
            await node.forwards.acquire()  # the body has come, and the connection is tried
            node.elect(api.node)
            assert (await waiting).status == 201
    assert len(api.node.proposed) == 1


async def test_overloaded_leader_is_not_waited_for(api: Api) -> None:
    busy = SimulatedNode()
    busy.proposal_error = lambda _: Unavailable("too many writes are waiting")
    async with serving(busy, election_seconds=60.0) as node:
        assert (await node.post("jobs", {"name": "x"})).status == 503
        assert not busy.asked_for_change.is_set()


# -- connections that are old -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("survives", [False, True])
async def test_change_over_an_old_connection_that_breaks_is_sent_once(*, survives: bool) -> None:
    said = {}
    changes = {
        "POST": "jobs",
        "PUT": "schedules",
        "PATCH": "jobs/00000000-0000-7000-8000-000000000001",
        "DELETE": "jobs/00000000-0000-7000-8000-000000000001",
    }
    for method, path in changes.items():
        leader = SimulatedNode()
        async with dying_server(survives=survives) as server, serving(SimulatedNode("n2", leader=leader)) as follower:
            leader.api_url = server.url
            assert (await follower.get("queues")).status == 200
            answer = await follower.ask(method, path, json={})
            said[method] = (answer.status, answer.code, server.seen, server.connection_count)
    assert said == {method: (503, "outcome_unknown", [method], 1) for method in changes}


async def test_read_over_an_old_connection_that_breaks_is_sent_again_on_a_new_one() -> None:
    leader = SimulatedNode()
    async with dying_server(survives=True) as server, serving(SimulatedNode("n2", leader=leader)) as follower:
        leader.api_url = server.url
        assert (await follower.get("queues")).status == 200
        assert (await follower.get("jobs")).status == 404  # as that server says
        assert (server.seen, server.connection_count) == (["GET", "GET"], 2)
