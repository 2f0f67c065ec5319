"""Send bytes that are not quite HTTP to the API's port: each answer is a clean problem, or the connection ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import jsonschema_rs

from tests.drills.api_fuzz.fuzzer import Report
from tests.drills.api_fuzz.verdicts import Reply, problem_faults

_AT_ONCE: Final = 48
_READ_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.05
_PIECES_MAX: Final = 20
_GET: Final = b"GET /healthz HTTP/1.1\r\nHost: n1\r\n\r\n"
_HEAD: Final = b"POST /api/v1/jobs HTTP/1.1\r\nHost: n1\r\nContent-Type: application/json\r\n"
_ODD_BYTES: Final = (b"\x00", b"\r", b"\n", b"\r\n", b"\xff", b"\t", b" ", b":", b"\x0b", b"\x85", b"\xe2\x80\xa8", b"")
_LENGTHS: Final = (b"-1", b"+1", b"0x10", b"1 2", b"1,1", b"99999999999999999999", b"", b"1_0", b"\xd9\xa1", b"8388609")
_CHUNKS: Final = (
    b"0\r\n\r\n", b"-1\r\nx\r\n", b"ffffffffffffffff\r\nx", b"5\r\nab", b"2\nab\n0\n\n", b"2;" + b"x" * 9000 + b"\r\nab\r\n",
    b"2\r\nabc\r\n0\r\n\r\n", b"0x2\r\nab\r\n0\r\n\r\n", b"2 \r\nab\r\n0\r\n\r\n", b"0\r\nTrailer: x\r\n\r\n", b"zz\r\n",
)  # fmt: skip
_VERSIONS: Final = (b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.1.1", b"http/1.1", b"HTTP/11", b"", b"RTSP/1.0")
_TARGETS: Final = (
    b"*", b"//", b"/../../etc/passwd", b"/%2e%2e/%2e%2e", b"http://n2/healthz", b"n2:443", b"/\xff\xfe", b"/%", b"/%zz",
    b"/%00", b"/healthz#x", b"/healthz?" + b"a=1&" * 3000, b"/" + b"a" * 20_000, b"/api/v1/jobs/" + b"%2F" * 500, b"",
)  # fmt: skip
_METHODS: Final = (b"GET", b"POST", b"CONNECT", b"OPTIONS", b"TRACE", b"get", b"G@T", b"PRI", b"A" * 9000, b"", b"HEAD")
_UPGRADES: Final = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: eHh4\r\nSec-WebSocket-Version: 13\r\n",
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    b"Expect: 100-continue\r\n", b"Expect: 200-ok\r\n", b"Connection: close, keep-alive\r\n", b"Transfer-Encoding: gzip\r\n",
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: 5\r\nContent-Length: 6\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding : chunked\r\n", b" folded: x\r\n", b"Host: n2\r\n", b"Content-Encoding: gzip\r\n",
    b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n", b"Authorization: " + b"x" * 9000 + b"\r\n",
)  # fmt: skip


def _request_line(chance: random.Random) -> bytes:
    parts = chance.choice(_METHODS), chance.choice(_TARGETS), chance.choice(_VERSIONS)
    return chance.choice((b" ", b" ", b"\t", b"  ")).join(parts) + b"\r\nHost: n1\r\n\r\n"


def _mutated(chance: random.Random) -> bytes:
    data = bytearray(chance.choice((_GET, _HEAD + b"Content-Length: 12\r\n\r\n" + b'{"name":"x"}')))
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(data))
        data[at : at + chance.randint(0, 2)] = chance.choice(_ODD_BYTES)
    return bytes(data)


def _long_headers(chance: random.Random) -> bytes:
    many = chance.random() < 0.5
    lines = b"".join(b"X-%d: y\r\n" % number for number in range(5_000)) if many else b"X: " + b"y" * 200_000 + b"\r\n"
    return b"GET /healthz HTTP/1.1\r\nHost: n1\r\n" + lines + b"\r\n"


def _odd_length(chance: random.Random) -> bytes:
    return _HEAD + b"Content-Length: " + chance.choice(_LENGTHS) + b"\r\n\r\n{}"


def _odd_chunks(chance: random.Random) -> bytes:
    chunks = b"".join(chance.choice(_CHUNKS) for _ in range(chance.randint(1, 4)))
    return _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks


def _odd_header(chance: random.Random) -> bytes:
    return _HEAD + chance.choice(_UPGRADES) + chance.choice((b"", b"Content-Length: 2\r\n")) + b"\r\n{}"


def _pipelined(chance: random.Random) -> bytes:
    makers = (_mutated, _odd_header, _odd_chunks, lambda _: _GET)
    return _GET * chance.randint(1, 200) + b"".join(chance.choice(makers)(chance) for _ in range(chance.randint(0, 3)))


def _noise(chance: random.Random) -> bytes:
    return chance.choice((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"", b"GET ")) + chance.randbytes(
        chance.choice((1, 30, 3_000))
    )


def _large_body(chance: random.Random) -> bytes:
    size = chance.choice((100_000, 9_000_000))
    return _HEAD + b"Content-Length: %d\r\n\r\n" % size + b'"' + b"x" * chance.choice((0, 1_000, 300_000))


_MAKERS: Final[Sequence[Callable[[random.Random], bytes]]] = (
    _request_line, _mutated, _long_headers, _odd_length, _odd_chunks, _odd_header, _pipelined, _noise, _large_body,
)  # fmt: skip


async def fuzz_raw(
    urls: Sequence[str], problem: jsonschema_rs.Validator, *, connections: int, seed: int, inner: tuple[str, ...]
) -> Report:
    """Send one message over each of `connections`, some byte by byte, and judge all that comes back."""
    chance, report, at_once = random.Random(seed), Report(), asyncio.Semaphore(_AT_ONCE)

    async def connection() -> None:
        make = chance.choice(_MAKERS)
        data = make(chance)
        async with at_once:
            try:
                answer = await _exchanged(chance.choice(urls), data, chance)
            except OSError as error:
                report.find(f"raw: no connection: {type(error).__name__}", str(error))
                return
        report.request_count += 1
        report.asked[make.__name__] += 1
        for fault in _faults(answer, problem, inner, report):
            report.find(f"raw: {fault}", f"{data[:500]!r} -> {answer[:600]!r}")

    for start in range(0, connections, 500):
        async with asyncio.TaskGroup() as group:
            for _ in range(min(500, connections - start)):
                group.create_task(connection())
    return report


async def _exchanged(url: str, data: bytes, chance: random.Random) -> bytes:
    """Return what the node sends until it closes, or has been silent for a while."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        with suppress(OSError):  # it may close before it has read all
            for piece in _pieces(data, chance):
                writer.write(piece)
                await asyncio.wait_for(writer.drain(), _READ_SECONDS * 10)
                if piece is not data:
                    await asyncio.sleep(_PAUSE_SECONDS)
            if chance.random() < 0.3:
                writer.write_eof()
        answer = b""
        with suppress(TimeoutError, ConnectionError):
            while part := await asyncio.wait_for(reader.read(65_536), _READ_SECONDS):
                answer += part
        return answer
    finally:
        if chance.random() < 0.3:
            writer.transport.abort()
        writer.close()


def _pieces(data: bytes, chance: random.Random) -> list[bytes]:
    """Return the message as a whole, or in pieces that arrive one after the other."""
    if chance.random() < 0.7:
        return [data]
    ends = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(1, _PIECES_MAX)))
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


def _faults(answer: bytes, problem: jsonschema_rs.Validator, inner: tuple[str, ...], report: Report) -> Iterator[str]:
    for text in inner:
        if text.encode() in answer:
            yield f"the answer tells {text}"
    for reply in replies_in(answer):
        report.statuses[reply.status] += 1
        if reply.status == 0:
            yield "the answer is not HTTP"
        elif reply.status >= 400:
            yield from problem_faults(reply, problem)


def replies_in(data: bytes) -> Iterator[Reply]:
    """Yield the replies of one connection, one after the other; status 0 for what is none."""
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if not end or not version.startswith("HTTP/") or not status[:3].isdigit():
            yield Reply(0, {}, head)
            return
        headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(headers.get("Content-Length", "0"))
        yield Reply(int(status[:3]), headers, data[:size])
        data = data[size:]
