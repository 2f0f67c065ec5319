from __future__ import annotations

import asyncio
import gzip
import re

import pytest

from raftsched import limits
from raftsched.api.http.bodies import Bodies
from tests.api.node import Api, SimulatedNode, serving

_HEAD = b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "application/jsonp", ""],
)
async def test_body_of_another_type_is_415(api: Api, content_type: str) -> None:
    answer = await api.post("jobs", b'{"name":"x"}', Content_Type=content_type)
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert api.node.proposed == []


async def test_body_may_name_its_charset(api: Api) -> None:
    answer = await api.post("jobs", b'{"name":"x"}', Content_Type="application/json; charset=UTF-8")
    assert answer.status == 201


async def test_compressed_body_is_415(api: Api) -> None:
    answer = await api.post("jobs", gzip.compress(b'{"name":"x"}'), Content_Encoding="gzip")
    assert (answer.status, answer.json["field"]) == (415, "Content-Encoding")


async def test_body_announced_too_large_is_413_at_once_and_ends_the_connection(api: Api) -> None:
    reply = await asyncio.wait_for(api.raw(_HEAD + b"Content-Length: 10000000000\r\n\r\n{"), 5)
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close\r\n" in reply
    assert b'"code":"too_large"' in reply


async def test_chunked_body_is_413_where_it_passes_the_limit(api: Api) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"%x\r\n" % 65_536 + b" " * 65_536 + b"\r\n"
    answering = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
    sent = 0
    while not answering.done() and sent < 4 * limits.BODY_BYTES_MAX:
        writer.write(chunk)
        await writer.drain()
        sent += len(chunk)
    assert (await answering).startswith(b"HTTP/1.1 413 ")
    writer.close()


@pytest.mark.parametrize("rest", [b"xyz\r\n", b"", b"1\r\n"])
async def test_body_that_does_not_arrive_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, rest: bytes
) -> None:
    monkeypatch.setattr("raftsched.api.app.Bodies", lambda: Bodies(read_seconds=0.05))
    async with serving(SimulatedNode()) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(_HEAD + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.readuntil(b"100 Continue\r\n\r\n")  # the handler reads now
        writer.write(rest)
        reply = await reader.readuntil(b"}")
        writer.close()
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"malformed"' in reply


async def test_bytes_that_are_no_http_are_answered_and_change_nothing(api: Api) -> None:
    for data in (b"\x16\x03\x01\x00\xf4\r\n\r\n", b"GET /\x00 HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nA b: c\r\n\r\n"):
        assert b" 400 " in (await api.raw(data)).split(b"\r\n")[0]
    assert api.node.proposed == []


async def test_body_that_ends_too_early_stores_nothing(api: Api) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(_HEAD + b'Content-Length: 100\r\n\r\n{"name":"x"}')
    writer.write_eof()
    await writer.drain()
    writer.close()
    assert (await api.post("jobs", {"name": "y"})).json["revision"] == 1


async def test_body_exactly_at_the_limit_is_read(api: Api) -> None:
    body = b'{"name":"x"}'
    assert (await api.post("jobs", body + b" " * (limits.BODY_BYTES_MAX - len(body)))).status == 201


async def test_hundred_parallel_uploads_are_taken_or_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Bodies(held_bytes_max=1 << 20)
    monkeypatch.setattr("raftsched.api.app.Bodies", lambda: held)
    job = b'{"name":"x"}'
    body = job + b" " * (100_000 - len(job))
    async with serving(SimulatedNode()) as api:
        answers = await asyncio.gather(*(api.post("jobs", body) for _ in range(100)))
        assert {answer.status for answer in answers} <= {201, 503}
        assert (await api.post("jobs", body)).status == 201
    assert held.held_bytes == 0


async def test_bodies_held_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Bodies(held_bytes_max=100)
    monkeypatch.setattr("raftsched.api.app.Bodies", lambda: held)
    async with serving(SimulatedNode()) as api:
        for _ in range(3):
            answer = await api.post("jobs", b'{"name":"x"}' + b" " * 89)
            assert (answer.status, answer.code, answer.headers["Retry-After"]) == (503, "unavailable", "1")
            assert (await api.post("jobs", b'{"name":"x"}' + b" " * 88)).status == 201
    assert held.held_bytes == 0


_BODILESS = [
    ("POST", "jobs/{job}/resume"),
    ("DELETE", "jobs/{job}"),
    ("POST", "queues/x/resume"),
    ("POST", "schedules/report/resume"),
    ("DELETE", "schedules/report"),
    ("DELETE", "workflows/{job}"),
    ("DELETE", "tenants/acme"),
    ("DELETE", "tokens/t1"),
    ("POST", "cluster/encryption/rotate"),
    ("POST", "workers/w9/undrain"),
    ("DELETE", "cluster/members/n9"),
]
_JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(("method", "path"), _BODILESS)
async def test_a_request_that_takes_no_body_refuses_one_by_its_fields(
    api: Api, follower: Api, method: str, path: str
) -> None:
    job = await api.submit()
    path = path.format(job=job["id"])
    for asked in (api, follower):
        answer = await asked.ask(method, path, data=b'{"force": true}', headers=_JSON)
        assert (answer.status, answer.code, answer.json["field"]) == (400, "malformed", "force")
    assert (await api.ask(method, path, data=b"x", headers=_JSON)).code == "malformed"
    assert (await api.ask(method, path, data=b"{}", headers={"Content-Type": "text/plain"})).status == 415
    assert len(api.node.proposed) == 1  # the submit


@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_a_request_that_takes_no_body_takes_an_empty_one(api: Api, body: bytes) -> None:
    job = await api.submit()
    assert (await api.ask("POST", f"jobs/{job['id']}/resume", data=body, headers=_JSON)).status == 200
    assert (await api.ask("DELETE", f"jobs/{job['id']}", data=body, headers=_JSON)).json["status"] == "cancelled"


async def test_every_route_that_changes_something_and_takes_no_body_is_tried_here(api: Api) -> None:
    paths = (await api.get("openapi.json")).json["paths"]
    known = {
        (method.upper(), path) for path, item in paths.items() for method in item if "requestBody" not in item[method]
    }
    changing = {(method, path) for method, path in known if method in {"POST", "PUT", "PATCH", "DELETE"}}
    assert len(changing) == len(_BODILESS), changing


@pytest.mark.parametrize(
    ("version", "coding"),
    [
        ("1.0", b"Transfer-Encoding: chunked"),
        ("1.0", b"Transfer-Encoding: identity"),
        ("1.1", b"Transfer-Encoding: gzip, chunked"),
        ("1.1", b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked"),
        ("1.1", b"Transfer-Encoding: chunked, chunked"),
        ("1.1", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        ("1.1", b"Transfer-Encoding: chunked, identity"),
        ("1.1", b"Transfer-Encoding: identity"),
        ("1.1", b"Transfer-Encoding: chunked\r\nContent-Length: 5"),
        ("1.1", b"Transfer-Encoding: chunked;q=1"),
    ],
)
@pytest.mark.parametrize("method", ["POST /api/v1/jobs", "GET /api/v1/jobs", "POST /api/v1/queues/q/resume"])
async def test_a_body_whose_end_can_be_read_in_two_ways_closes_its_connection(
    api: Api, method: str, version: str, coding: bytes
) -> None:
    """What follows on the connection must not be taken for a request: a proxy before us may have read it as a body."""
    head = b"%b HTTP/%b\r\nHost: x\r\nContent-Type: application/json\r\n%b\r\n\r\n" % (
        method.encode(),
        version.encode(),
        coding,
    )
    smuggled = b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    answer = await api.raw(head + b'c\r\n{"name":"x"}\r\n0\r\n\r\n' + smuggled)
    assert re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer) == [b"400"], answer
    assert not api.node.proposed
