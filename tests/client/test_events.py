"""The stream of events: against the real API, and across lost nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from raftsched.client import Client, Event
from raftsched.errors import Invalid, Unavailable
from tests.client.cluster import QUICK, WAIT_SECONDS, problem_document
from tests.client.real import real_node


async def first(events: AsyncIterator[Event], count: int) -> list[Event]:
    """The next `count` events."""
    async with asyncio.timeout(WAIT_SECONDS):
        return [await anext(events) for _ in range(count)]


async def test_events_say_what_is_committed() -> None:
    async with real_node() as node, Client(node.api_url, settings=QUICK) as client:
        await client.submit("other")
        job = await client.submit("mail")
        await job.cancel()
        created, cancelled = await first(client.events(types=["job"], queue="mail", last_event_id="1-0"), 2)
        assert [event.job_id for event in (created, cancelled)] == [job.id] * 2
        assert (created.type, cancelled.type) == ("job.created", "job.cancelled")
        assert (created.queue, cancelled.status, cancelled.previous) == ("mail", "cancelled", "queued")
        again = client.events(types=["job.cancelled"], last_event_id=created.id)
        assert [event.id for event in await first(again, 1)] == [cancelled.id]


async def test_field_at_fault_is_named() -> None:
    async with real_node() as node, Client(node.api_url, settings=QUICK) as client:
        with pytest.raises(Invalid) as caught:
            await first(client.events(job="no id"), 1)
        assert caught.value.field == "job"


class Script:
    """A node that serves prepared streams, one for each time that it is asked."""

    def __init__(self) -> None:
        self.url = ""
        self.streams: list[bytes] = []
        self.asked: list[dict[str, Any]] = []
        self.cluster: list[str] = []
        """The addresses of the nodes, itself among them, that it tells of; streams last until one of them was tried."""
        self.others_are_known = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append({"place": request.headers.get("Last-Event-ID")} | dict(request.query))
        if not self.streams:
            problem = problem_document({"status": 503, "code": "unavailable", "detail": "no"})
            return web.json_response(problem, status=503)
        leader = {"Raftsched-Leader": self.url} if self.cluster else {}
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **leader})
        await response.prepare(request)
        await response.write(self.streams.pop(0))
        if self.cluster:
            await self.others_are_known.wait()
        if request.transport is not None:
            request.transport.close()
        return response

    async def tell(self, _: web.Request) -> web.Response:
        return web.json_response({"nodes": [{"api": url} for url in self.cluster]})


@pytest.fixture
async def scripts() -> AsyncIterator[list[Script]]:
    made: list[Script] = []
    runners = []

    async def healthz(_: web.Request) -> web.Response:
        for script in made:
            script.others_are_known.set()
        return web.json_response({"status": "ok", "node": "n1"})

    for _ in range(2):
        script = Script()
        app = web.Application()
        app.router.add_get("/api/v1/events", script.answer)
        app.router.add_get("/api/v1/cluster", script.tell)
        app.router.add_get("/healthz", healthz)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        script.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        made.append(script)
        runners.append(runner)
    yield made
    for runner in runners:
        await runner.cleanup()


def message(place: str, kind: str) -> bytes:
    return f'id: {place}\ndata: {{"type":"{kind}","revision":{place.partition("-")[0]}}}\n\n'.encode()


async def test_broken_stream_goes_on_at_the_next_node_behind_what_was_seen(scripts: list[Script]) -> None:
    one, two = scripts
    one.streams = [message("7-1", "a") + message("7-2", "b") + b'id: 7-3\ndata: {"type":"cut o']
    two.streams = [b": \nid: 9-0\n\n", message("9-1", "c") + b": \n\n"]
    async with Client(one.url, two.url, settings=QUICK) as client:
        events = await first(client.events(types=["a", "b", "c"], tenant="acme"), 3)
    assert [(event.type, event.id) for event in events] == [("a", "7-1"), ("b", "7-2"), ("c", "9-1")]
    assert one.asked[0] == {"place": None, "types": "a,b,c", "tenant": "acme"}
    places = [asked["place"] for script in (two, one) for asked in script.asked if asked["place"]]
    assert "7-2" in places
    assert "9-0" in places


async def test_stream_whose_node_dies_goes_on_at_one_that_it_learned_of(scripts: list[Script]) -> None:
    """Somebody who only listens, and was told one address, hears of the others all the same."""
    one, two = scripts
    one.cluster = [one.url, two.url]
    one.streams = [message("7-1", "a")]
    two.streams = [message("7-2", "b")]
    async with Client(one.url, settings=QUICK) as client:
        events = await first(client.events(), 2)
    assert [event.id for event in events] == ["7-1", "7-2"]


async def test_lost_place_is_told_as_an_event(scripts: list[Script]) -> None:
    scripts[0].streams = [b'event: reset\nid: 20-0\ndata: {"type":"reset","revision":19}\n\n' + message("20-1", "a")]
    async with Client(scripts[0].url, settings=QUICK) as client:
        events = await first(client.events(last_event_id="3-1"), 2)
    assert [(event.type, event.id) for event in events] == [("reset", "20-0"), ("a", "20-1")]
    assert scripts[0].asked[0]["place"] == "3-1"


async def test_stream_that_no_node_serves_ends_with_the_retries(scripts: list[Script]) -> None:
    settings = replace(QUICK, retry_seconds=0.05)
    async with Client(scripts[0].url, settings=settings) as client:
        with pytest.raises(Unavailable):
            await first(client.events(), 1)
    assert len(scripts[0].asked) > 1
