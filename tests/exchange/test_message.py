from __future__ import annotations

import pytest

from raftsched.exchange.message import BadReply, ReplyReader, encode_request
from tests.for_each import for_each

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\nx-a:  2 \r\n\r\nhello"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhe\r\n00003;x=y\r\nllo\r\n0\r\nTrailer: x\r\n\r\n"
UNTIL_END = b"HTTP/1.1 200\r\nServer: x\r\n\r\nhello"
EMPTY = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"


def _read(method: str, data: bytes, *, piece_bytes: int, ends: bool) -> tuple[int, bytes, bool, bool]:
    """Return status, body, whether the reply is complete, and whether the connection can be used again."""
    reader, body = ReplyReader(method), b""
    for start in range(0, len(data), piece_bytes):
        body += reader.feed(data[start : start + piece_bytes])
    if ends:
        reader.feed_end()
    return reader.status, body, reader.is_complete, reader.keeps_alive


@for_each(
    ("method", "data", "ends", "expected"),
    [
        ("GET", LENGTH, False, (200, b"hello", True, True)),
        ("GET", LENGTH[:-1], True, (200, b"hell", False, False)),
        ("GET", CHUNKS, False, (200, b"hello", True, True)),
        ("GET", CHUNKS[:-1], True, (200, b"hello", False, False)),
        ("GET", UNTIL_END, False, (200, b"hello", False, False)),
        ("GET", UNTIL_END, True, (200, b"hello", True, False)),
        ("POST", EMPTY, False, (201, b"", True, True)),
        ("POST", INTERIM + EMPTY, False, (201, b"", True, True)),
        ("POST", INTERIM, True, (0, b"", False, False)),
        ("HEAD", LENGTH[:-5], False, (200, b"", True, True)),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", False, (204, b"", True, True)),
        ("GET", EMPTY.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n"), False, (201, b"", True, False)),
        ("GET", EMPTY.replace(b"1.1", b"1.0"), False, (201, b"", True, False)),
        (
            "GET",
            EMPTY.replace(b"1.1", b"1.0").replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"),
            False,
            (201, b"", True, True),
        ),
    ],
)
def test_reply_ends_as_its_head_says_in_pieces_of_any_size(
    method: str, data: bytes, ends: bool, expected: tuple[int, bytes, bool, bool]
) -> None:
    for piece_bytes in (1, 2, 7, len(data)):
        assert _read(method, data, piece_bytes=piece_bytes, ends=ends) == expected


def test_bytes_after_a_reply_are_no_body_and_end_its_connection() -> None:
    assert _read("GET", LENGTH + b"HTTP", piece_bytes=1000, ends=False) == (200, b"hello", True, False)


def test_headers_are_found_in_any_case_and_joined() -> None:
    reader = ReplyReader("GET")
    reader.feed(LENGTH)
    assert (reader.headers["x-A"], reader.headers.get("CONTENT-length"), "y" in reader.headers) == ("1, 2", "5", False)


@for_each(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 99 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\rb\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 9000,
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 70_000,
    ],
)
def test_bytes_that_are_not_one_reply_are_rejected(data: bytes) -> None:
    with pytest.raises(BadReply):
        ReplyReader("GET").feed(data)


def test_request_has_its_length() -> None:
    assert encode_request("POST", "/x?y=1", {"Host": "a", "X": "ü"}, b"{}") == (
        b"POST /x?y=1 HTTP/1.1\r\nHost: a\r\nX: \xc3\xbc\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert encode_request("POST", "/", {}, None) == b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    assert encode_request("GET", "/", {}, None) == b"GET / HTTP/1.1\r\n\r\n"


@for_each(("target", "value"), [("/a\r\nX: y", "v"), ("/a", "v\nX: y"), ("/a", "v\r"), ("/a", "\0")])
def test_request_that_would_be_read_otherwise_is_rejected(target: str, value: str) -> None:
    with pytest.raises(ValueError, match="line end"):
        encode_request("GET", target, {"X": value}, None)
