"""Read the response of a target in bounded memory, and say what it means for the run.

The body is read up to a limit. A compressed one is decompressed by pieces, so that a small response can't fill the
memory. What is beyond the limit is left unread, so aiohttp closes the connection.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

import aiohttp

from raftsched import limits
from raftsched.executors.http.verdicts import FinalStatus, RetryStatus
from raftsched.executors.secrets import Redaction
from raftsched.wire.calls import HttpCall

_SHOWN_HEADERS: Final = (
    "content-type", "content-length", "content-encoding", "date", "etag", "last-modified", "location", "retry-after",
    "x-request-id",
)  # fmt: skip
_HEADER_CHARS_MAX: Final = 1_000
_EXCERPT_CHARS: Final = 500
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_BINARY: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SECONDS: Final = re.compile(r"[0-9]{1,18}")


class Response(NamedTuple):
    """The head of a response, and the start of its body."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool
    url: str
    address: str


async def read_body(response: aiohttp.ClientResponse, bytes_max: int) -> tuple[bytes, bool]:
    """Return the start of the body, and whether there is more; raises `aiohttp.ClientError`, also for a broken one."""
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    inflate = zlib.decompressobj(_GZIP_OR_ZLIB) if coding in ("gzip", "x-gzip", "deflate") else None
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece if inflate is None else _inflated(inflate, piece, bytes_max + 1 - len(body))
        if len(body) > bytes_max:
            return bytes(body[:bytes_max]), True
    return bytes(body), False


def _inflated(inflate: Any, piece: bytes, bytes_max: int) -> bytes:
    try:
        data: bytes = inflate.decompress(piece, bytes_max)
    except zlib.error as error:
        raise aiohttp.ClientPayloadError(f"the compressed body is broken: {error}") from None
    return data


def result_of(response: Response, redaction: Redaction, duration_ms: int) -> dict[str, Any]:
    """Return the result of a run."""
    body, is_cut = _shown_body(response, redaction)
    try:
        text = body.decode()
        is_text = not _BINARY.search(text)
    except UnicodeDecodeError as error:
        is_text = is_cut and error.start >= len(body) - 3 and error.reason == "unexpected end of data"
        text = body[: error.start].decode() if is_text else ""
        is_text = is_text and not _BINARY.search(text)
    return {
        "status": response.status,
        "headers": _shown_headers(response, redaction),
        "body": text if is_text else base64.b64encode(body).decode(),
        "body_encoding": "text" if is_text else "base64",
        "truncated": is_cut,
        "duration_ms": duration_ms,
        "url": redaction.text(response.url),
        "address": response.address,
    }


def judge(call: HttpCall, response: Response, redaction: Redaction, now: datetime, *, retry_cap_seconds: float) -> None:
    """Return if the run has succeeded; raises `RetryStatus` or `FinalStatus` if not."""
    if _matches(response.status, call.success_statuses):
        return
    excerpt = _shown_body(response, redaction)[0].decode(errors="replace")[:_EXCERPT_CHARS].strip()
    url = redaction.text(response.url.partition("?")[0])
    message = f"{response.status} {redaction.text(response.reason)} from {url}" + (f": {excerpt}" if excerpt else "")
    if _matches(response.status, call.retry_statuses):
        raise RetryStatus(message, after=retry_after(response.headers.get("Retry-After", ""), now, retry_cap_seconds))
    raise FinalStatus(message)


def retry_after(text: str, now: datetime, most: float) -> float | None:
    """Return the seconds that a target asks to wait, seconds or a date, at most `most`; None if it asks for none."""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    return min(seconds, most) if seconds > 0 else None


def _matches(status: int, patterns: tuple[str, ...]) -> bool:
    return str(status) in patterns or f"{status // 100}xx" in patterns


def _shown_body(response: Response, redaction: Redaction) -> tuple[bytes, bool]:
    """Return the redacted start of the body, and whether there is more."""
    clean = redaction.content(response.body, is_cut=response.is_cut)
    most = limits.HTTP_RESULT_BODY_BYTES_MAX
    return clean[:most], response.is_cut or len(clean) > most


def _shown_headers(response: Response, redaction: Redaction) -> dict[str, str]:
    headers = {name: response.headers[name] for name in _SHOWN_HEADERS if name in response.headers}
    return {name: redaction.text(_valid(value))[:_HEADER_CHARS_MAX] for name, value in headers.items()}


def _valid(text: str) -> str:
    """Return the text of a header with what is not UTF-8 replaced; aiohttp keeps such bytes as lone surrogates."""
    return text.encode("utf-8", "surrogateescape").decode(errors="replace")
