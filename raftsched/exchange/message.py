"""Write requests and read replies of HTTP/1.1 (RFC 9112) as bytes. It uses no sockets and no clock.

Requests have a body of known length, or none. Replies end as their head says: by Content-Length, in chunks, or with the
connection. A reply that two programs could read differently is rejected: the rest would be taken for the next reply.

Left out: compressed replies (a request asks for none), trailers (skipped), upgrades, requests in chunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

_HEAD_BYTES_MAX: Final = 64 * 1024
_LINE_BYTES_MAX: Final = 8 * 1024
"""Of the line before a chunk, or of a trailer."""
_STATUS_LINE: Final = re.compile(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")
_FIELD: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*?)[ \t]*")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")


class BadReply(Exception):
    """The bytes are not one HTTP/1.1 reply."""


class Headers(Mapping[str, str]):
    """The headers of a reply; names are found in any case. Values of the same name are joined by commas."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, str]) -> None:
        """Use `values` by names in lower case."""
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def encode_request(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return the request; `headers` include Host. Raises `ValueError` for a line end in a header or in the target."""
    lines = [f"{method} {target} HTTP/1.1", *[f"{name}: {value}" for name, value in headers.items()]]
    if body is not None or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body or b'')}")
    head = "\r\n".join(lines)
    if not head.count("\r") == head.count("\n") == len(lines) - 1 or "\0" in head:
        raise ValueError("a line end or a zero byte in the headers or the target of a request")
    return b"%b\r\n\r\n%b" % (head.encode(), body or b"")


class ReplyReader:
    """Reads the reply to one request of `method` from bytes in pieces of any size."""

    def __init__(self, method: str) -> None:
        self.status = 0
        """0 until the head has come."""
        self.headers = Headers({})
        self.is_complete = False
        self._method = method
        self._may_keep_alive = True
        self._buffer = bytearray()
        self._left = 0
        """Bytes of the body, or of the chunk, that have not come."""
        self._step: Callable[[], bytes | None] = self._read_head
        """Reads a part of the reply, and returns its bytes of the body; None if the part has not come yet."""

    @property
    def keeps_alive(self) -> bool:
        """Return whether the connection can carry another exchange, once this reply is complete."""
        return self.is_complete and self._may_keep_alive and not self._buffer

    def feed(self, data: bytes) -> bytes:
        """Return the bytes of the body in `data`; raises `BadReply`."""
        self._buffer += data
        pieces = []
        while not self.is_complete and (piece := self._step()) is not None:
            pieces.append(piece)
        return b"".join(pieces)

    def feed_end(self) -> None:
        """Note that the connection has ended: this completes a reply that ends with it."""
        self._may_keep_alive = False
        self.is_complete |= self._step == self._read_until_end

    # -- the parts ----------------------------------------------------------------------------------------------------

    def _read_head(self) -> bytes | None:
        stop = self._buffer.find(b"\r\n\r\n")
        if stop < 0 and len(self._buffer) <= _HEAD_BYTES_MAX:
            return None
        if not 0 <= stop <= _HEAD_BYTES_MAX:
            raise BadReply("the head of the reply is too long")
        first, *lines = self._buffer[:stop].decode("utf-8", "surrogateescape").split("\r\n")
        del self._buffer[: stop + 4]
        found = _STATUS_LINE.fullmatch(first)
        if found is None:
            raise BadReply(f"no status line: {first!r:.40}")
        values = _fields(lines)
        status = int(found[2])
        if status == 101:
            raise BadReply("the connection was upgraded, unasked")
        if status >= 200:  # else it is interim, and another head follows
            self.status, self.headers = status, Headers(values)
            self._find_end(values, is_old=found[1] == "0")
        return b""

    def _find_end(self, values: Mapping[str, str], *, is_old: bool) -> None:
        """Find how the body ends (RFC 9112, 6.3), and whether the connection may be used again."""
        connection = values.get("connection", "").lower()
        self._may_keep_alive = "keep-alive" in connection if is_old else "close" not in connection
        coding, length = values.get("transfer-encoding"), values.get("content-length")
        if coding is not None and (coding.lower() != "chunked" or length is not None or is_old):
            raise BadReply(f"the end of the reply is unclear: Transfer-Encoding {coding!r:.40}")
        if length is not None and not _LENGTH.fullmatch(length):
            raise BadReply(f"Content-Length {length!r:.40}")
        if values.get("content-encoding", "identity").lower() != "identity":
            raise BadReply("it is compressed, unasked")
        if self._method == "HEAD" or self.status in (204, 304):
            self.is_complete = True
        elif coding is not None:
            self._step = self._read_chunk_size
        elif length is not None:
            self._left = int(length)
            self.is_complete = not self._left
            self._step = self._read_length
        else:
            self._may_keep_alive = False
            self._step = self._read_until_end

    def _read_length(self) -> bytes | None:
        piece = self._take()
        self.is_complete = not self._left
        return piece

    def _read_until_end(self) -> bytes | None:
        self._left = len(self._buffer)
        return self._take()

    def _read_chunk_size(self) -> bytes | None:
        line = self._take_line()
        if line is None:
            return None
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            raise BadReply(f"a chunk of size {line!r:.40}")
        self._left = int(found[1], 16)
        self._step = self._read_chunk if self._left else self._skip_trailer
        return b""

    def _read_chunk(self) -> bytes | None:
        piece = self._take()
        if not self._left:
            self._step = self._read_chunk_end
        return piece

    def _read_chunk_end(self) -> bytes | None:
        line = self._take_line()
        if line:
            raise BadReply("a chunk is longer than its size")
        self._step = self._read_chunk_size if line is not None else self._step
        return line

    def _skip_trailer(self) -> bytes | None:
        line = self._take_line()
        self.is_complete = line == b""
        return None if line is None else b""

    def _take(self) -> bytes | None:
        """Return as much of the `_left` bytes as has come; None if that is nothing."""
        piece = bytes(self._buffer[: self._left])
        del self._buffer[: self._left]
        self._left -= len(piece)
        return piece or None

    def _take_line(self) -> bytes | None:
        stop = self._buffer.find(b"\r\n")
        if max(stop, len(self._buffer) if stop < 0 else 0) > _LINE_BYTES_MAX:
            raise BadReply("a line between chunks is too long")
        if stop < 0:
            return None
        line = bytes(self._buffer[:stop])
        del self._buffer[: stop + 2]
        return line


def _fields(lines: list[str]) -> dict[str, str]:
    """Return the headers by names in lower case."""
    values: dict[str, str] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise BadReply(f"a header that is none: {line!r:.40}")
        name = found[1].lower()
        values[name] = f"{values[name]}, {found[2]}" if name in values else found[2]
    return values
