"""What a client says of a request whose connection broke when the server had it: never "it did not happen"."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raftsched import Client
from raftsched.client import BlockingClient, ClientSettings
from raftsched.errors import OutcomeUnknown, RaftschedError, Unavailable
from tests.exchange.dying import DyingServer, dying_server

JOB_ID = "00000000-0000-7000-8000-000000000001"
SETTINGS = ClientSettings(retry_seconds=0.2, backoff_base_seconds=0.001, backoff_cap_seconds=0.01)
SCHEDULE = {"name": "nightly", "cron": "0 3 * * *", "job": {"name": "x"}}
Call = Callable[[Any], Any]
"""Of a client, which awaits the answer, or of a blocking one."""
CHANGES: dict[str, Call] = {
    "POST submit": lambda client: client.submit("x", idempotency_key="k"),
    "POST pause": lambda client: client.job(JOB_ID).pause(),
    "POST resume": lambda client: client.job(JOB_ID).resume(),
    "POST save": lambda client: client.schedules.save("nightly", {"name": "x"}, cron="0 3 * * *"),
    "PUT apply": lambda client: client.schedules.apply([SCHEDULE]),
    "PATCH update": lambda client: client.job(JOB_ID).update(priority=3),
    "PATCH update if": lambda client: client.job(JOB_ID).update(priority=3, if_revision=7),
    "DELETE cancel": lambda client: client.job(JOB_ID).cancel(),
    "DELETE schedule": lambda client: client.schedules.delete("nightly"),
}
READ: Call = lambda client: client.job(JOB_ID).get()  # noqa: E731  # as the others


async def _error_of(call: Awaitable[Any]) -> RaftschedError:
    with pytest.raises(RaftschedError) as caught:
        await call
    return caught.value


async def _ask(server: DyingServer, call: Call) -> RaftschedError:
    async with Client(server.url, settings=SETTINGS) as client:
        await client.cluster()  # so that the connection is an old one
        return await _error_of(call(client))


async def _ask_blocking(server: DyingServer, call: Call) -> RaftschedError:
    def ask() -> RaftschedError:
        with BlockingClient(server.url, settings=SETTINGS) as client:
            client.cluster()
            with pytest.raises(RaftschedError) as caught:
                call(client)
            return caught.value

    return await asyncio.to_thread(ask)


@pytest.mark.parametrize("ask", [_ask, _ask_blocking])
async def test_change_that_a_server_took_before_it_died_is_unknown(
    ask: Callable[[DyingServer, Call], Awaitable[RaftschedError]],
) -> None:
    said = {}
    for name, call in CHANGES.items():
        async with dying_server() as server:
            said[name] = (type(await ask(server, call)), len(server.seen))
    assert said == dict.fromkeys(CHANGES, (OutcomeUnknown, 1))


@pytest.mark.parametrize("ask", [_ask, _ask_blocking])
async def test_refusal_of_a_repeated_change_does_not_say_that_the_first_did_nothing(
    ask: Callable[[DyingServer, Call], Awaitable[RaftschedError]],
) -> None:
    said = {}
    for name, call in CHANGES.items():
        async with dying_server(survives=True) as server:
            said[name] = (type(await ask(server, call)), len(server.seen))
    assert said == dict.fromkeys(CHANGES, (OutcomeUnknown, 2))


async def test_read_that_gets_no_answer_is_unavailable() -> None:
    async with dying_server() as server:
        assert type(await _ask(server, READ)) is Unavailable
        assert server.seen == ["GET"]
