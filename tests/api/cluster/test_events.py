"""GET /events: the stream, coming back to it, and losing one's place."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.api.cluster import events as streams
from raftsched.api.event_log import EventLog
from tests.api.node import Api, SimulatedNode, serving
from tests.api.schedules.scene import saved

Message = dict[str, str]


class Stream:
    """A reader of a stream."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self.reply = reply
        self.last_id = ""

    async def block(self) -> Message:
        """The fields of the next block, comments under ""."""
        fields: Message = {}
        async with asyncio.timeout(10):
            while line := (await self.reply.content.readline()).decode().rstrip("\n"):
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        self.last_id = fields.get("id", self.last_id)
        return fields

    async def event(self) -> Any:
        """The data of the next event; marks and comments are passed over."""
        while True:
            block = await self.block()
            if "data" in block:
                return msgspec.json.decode(block["data"]) | ({"event": block["event"]} if "event" in block else {})
            assert block, "the stream has ended"


@asynccontextmanager
async def streaming(api: Api, *, last_id: str = "", **query: str) -> AsyncIterator[Stream]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    url = f"{api.node.api_url}/api/v1/events"
    async with api.session.get(url, params=query, headers=headers) as reply:
        assert reply.status == 200, await reply.read()
        assert reply.headers["Content-Type"] == "text/event-stream"
        yield Stream(reply)


async def test_the_stream_tells_what_is_committed_from_any_node(api: Api, follower: Api) -> None:
    async with streaming(api) as here, streaming(follower) as there:
        await here.block()
        await there.block()
        job = await api.submit(queue="mail")
        await api.end("mail")
        for stream in (here, there):
            created, running, completed = [await stream.event() for _ in range(3)]
            assert created == {
                "type": "job.created",
                "revision": 1,
                "at": job["created_at"],
                "tenant": "default",
                "job_id": job["id"],
                "name": "send_email",
                "queue": "mail",
                "status": "queued" if created["status"] == "queued" else "scheduled",
            }
            assert (running["type"], running["worker"], running["previous"]) == ("job.running", "w1", created["status"])
            assert (completed["type"], completed["status"], completed["attempt_number"]) == (
                "job.completed",
                "completed",
                1,
            )


async def test_schedules_queues_and_workflows_have_events(api: Api) -> None:
    async with streaming(api, types="schedule,queue.paused") as stream:
        schedule = await saved(api)
        await api.ask("POST", "schedules/report/pause")
        await api.ask("POST", "queues/mail/pause")
        await api.ask("POST", "queues/mail/resume")
        run = (await api.post("schedules/report/trigger", {})).json
        await api.ask("DELETE", "schedules/report")
        events = [await stream.event() for _ in range(5)]
        assert [event["type"] for event in events] == [
            "schedule.created",
            "schedule.paused",
            "queue.paused",
            "schedule.fired",
            "schedule.deleted",
        ]
        fired = events[3]
        assert (fired["schedule_id"], fired["name"], fired["job_id"]) == (schedule["id"], "report", run["job_id"])
        assert (fired["instant"], fired["kind"]) == (run["instant"], "manual")


async def test_filters_leave_out_the_others(api: Api) -> None:
    first = await api.submit(queue="a")
    async with (
        streaming(api, queue="b") as by_queue,
        streaming(api, job=first["id"]) as by_job,
        streaming(api, types="job.cancelled") as by_type,
        streaming(api, tenant="acme") as by_tenant,
    ):
        for stream in (by_queue, by_job, by_type, by_tenant):
            await stream.block()
        second = await api.submit(queue="b")
        await api.submit(tenant="acme", queue="c")
        await api.ask("DELETE", f"jobs/{first['id']}")
        assert (await by_queue.event())["job_id"] == second["id"]
        assert (await by_job.event())["type"] == "job.cancelled"
        assert (await by_type.event())["job_id"] == first["id"]
        assert (await by_tenant.event())["tenant"] == "acme"


async def test_types_that_there_are_not_are_refused_and_the_known_ones_named(api: Api) -> None:
    for types, known in (("zzz", "job, schedule, queue, workflow"), ("queue,queue.broken", "queue.paused")):
        answer = await api.get("events", types=types)
        assert (answer.status, answer.json["field"]) == (400, "types")
        assert known in answer.json["detail"]


async def test_a_reader_that_comes_back_goes_on_at_any_node(api: Api, follower: Api) -> None:
    async with streaming(api) as stream:
        await stream.block()
        await api.submit()
        await stream.event()
        last_id = stream.last_id
    missed = [(await api.submit())["id"] for _ in range(3)]
    for node in (api, follower):
        async with streaming(node, last_id=last_id) as again:
            assert [(await again.event())["job_id"] for _ in missed] == missed


async def test_a_place_is_told_before_the_first_event_but_never_ahead_of_events_still_to_come(api: Api) -> None:
    async with streaming(api) as stream:
        await stream.block()
        assert stream.last_id
    job = await api.submit()
    async with streaming(api, last_id=stream.last_id) as again:
        block = await again.block()
        assert "id" not in block or "data" in block
        assert "data" in block or (await again.event())["job_id"] == job["id"]


@pytest.mark.parametrize("last_id", ["1-1", "3-7"])
async def test_a_place_that_is_too_old_or_of_another_history_is_reset(api: Api, last_id: str) -> None:
    api.node.events = EventLog(api.node.state, kept_max=2)
    for _ in range(5):
        await api.submit()
    async with streaming(api, last_id=last_id) as stream:
        reset = await stream.event()
        assert (reset["event"], reset["type"], reset["revision"]) == ("reset", "reset", 5)
        job = await api.submit()
        assert (await stream.event())["job_id"] == job["id"]


async def test_a_place_that_never_comes_is_reset(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_CATCH_UP_SECONDS", 0.0)
    async with streaming(api, last_id="900-1") as stream:
        assert (await stream.event())["type"] == "reset"


async def test_a_node_that_is_behind_catches_up_first(api: Api) -> None:
    async with streaming(api, last_id="2-1") as stream:
        await api.submit()
        await api.submit()
        third = await api.submit()
        assert (await stream.event())["job_id"] == third["id"]


async def test_a_reader_that_the_ring_overtakes_is_reset(api: Api) -> None:
    api.node.events = EventLog(api.node.state, kept_max=2)
    async with streaming(api) as stream:
        await stream.block()
        operations = [await api.submit() for _ in range(1)]
        assert (await stream.event())["job_id"] == operations[0]["id"]
        log = api.node.events
        state = api.node.state
        job = state.list_jobs(limit=1)[0]
        log.feed(state, changes=[(None, job)] * 10)  # at once, so that the reader has no chance
        assert (await stream.event())["type"] == "reset"


async def test_an_installed_snapshot_resets_readers(api: Api) -> None:
    async with streaming(api) as stream:
        await stream.block()
        api.node.state = type(api.node.state)(api.node.state._store)  # as an install does
        await api.submit()
        assert (await stream.event())["type"] == "reset"


async def test_heartbeats_tell_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams.Events.__init__, "__kwdefaults__", {"heartbeat_seconds": 0.01})
    async with serving(SimulatedNode()) as api, streaming(api, types="queue") as stream:
        first = await stream.block()
        await api.submit()
        beats = [await stream.block() for _ in range(3)]
        assert first["id"] == "1-0"
        assert beats[-1] == {"": "age_ms=0", "id": "2-0"}


async def test_a_reader_of_nothing_hears_heartbeats_however_much_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams.Events.__init__, "__kwdefaults__", {"heartbeat_seconds": 0.0})
    async with serving(SimulatedNode()) as api, streaming(api, types="queue") as stream:
        await stream.block()
        state = api.node.state
        await api.submit()
        job = state.list_jobs(limit=1)[0]
        api.node.events.feed(state, changes=[(None, job)] * (2 * limits.EVENTS_PER_WRITE_MAX))
        places: list[str] = []
        while "1-401" not in places and "2-0" not in places:
            places.append((await stream.block())["id"])
        assert places == sorted(places, key=lambda place: tuple(map(int, place.split("-"))))


async def test_streams_end_with_the_node() -> None:
    async with serving(SimulatedNode()) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"id: 1-0")
    assert (await reader.read()).endswith(b"0\r\n\r\n")  # the last chunk: it ended, and was not cut
    writer.close()


async def test_a_reader_that_takes_nothing_is_cut_off(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_STALLED_SECONDS", 0.05)
    monkeypatch.setattr(limits, "EVENT_STREAMS_MAX", 1)
    await api.submit()
    job = replace(api.node.state.list_jobs(limit=1)[0], failure_reason="x" * 2_000)
    loop = asyncio.get_running_loop()
    stalled = socket.create_connection(("127.0.0.1", api.port))
    stalled.setblocking(False)
    await loop.sock_sendall(stalled, b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await loop.sock_recv(stalled, 1)
    api.node.events.feed(api.node.state, changes=[(None, job)] * 10_000)  # far more than the sockets hold
    async with asyncio.timeout(20):
        while (await _status_of_stream(api)) == 503:  # its place is taken until it is cut off
            pass
    received = b""
    while more := await loop.sock_recv(stalled, 1 << 20):
        received = received[-10:] + more
    assert not received.endswith(b"\r\n0\r\n\r\n")  # without the last chunk, by which a whole reply ends
    stalled.close()


async def _status_of_stream(api: Api) -> int:
    async with api.session.get(f"{api.node.api_url}/api/v1/events") as reply:
        return reply.status


async def test_streams_are_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENT_STREAMS_MAX", 1)
    async with streaming(api):
        refused = await api.get("events")
        assert (refused.status, refused.code) == (503, "unavailable")


@pytest.mark.parametrize(
    ("query", "headers", "field"),
    [
        ({"kind": "job"}, {}, "kind"),
        ({"job": "nonsense"}, {}, "job"),
        ({"queue": "a b"}, {}, "queue"),
        ({}, {"Last-Event-ID": "yesterday"}, "Last-Event-ID"),
    ],
)
async def test_what_cannot_be_a_stream_is_refused(
    api: Api, query: dict[str, str], headers: dict[str, str], field: str
) -> None:
    answer = await api.ask("GET", "events", params=query, headers=headers)
    assert (answer.status, answer.json["field"]) == (400, field)
