"""The port for one HTTP exchange: a request to one node, and its reply.

An exchange is sent at most once. To send it again a caller makes a new one, so every repetition is visible to the code
that judges the outcome. `Exchange.is_sent` is true before the first byte leaves. So if a request ended without a reply,
it has certainly not been seen if this is false, and may have taken effect if it is true, however the exchange ended.

Redirects are not followed and cookies not kept: no node sends any.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from raftsched.errors import InvariantBroken


class Broken(Exception):
    """No whole reply came; `Exchange.is_sent` says if the request can have taken effect."""


class TimedOut(Broken):
    """The time limit was reached; the connection did not break."""


class Exchange:
    """A request to the node that `url` names; `url` is encoded already."""

    __slots__ = ("body", "headers", "is_sent", "method", "url")

    def __init__(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None) -> None:
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.is_sent = False

    def sending(self) -> None:
        """Note that bytes are about to leave; raises `InvariantBroken` the second time, before any byte leaves."""
        if self.is_sent:
            raise InvariantBroken(f"{self.method} {self.url}: about to be sent a second time")
        self.is_sent = True


class Timeouts(NamedTuple):
    """Time limits in seconds; None = none."""

    connect_seconds: float
    """For the connection to be made."""
    total_seconds: float | None = None
    """For all of it, from connecting to the last byte of the reply."""
    silence_seconds: float | None = None
    """For the next byte of the reply."""
    queue_seconds: float | None = None
    """For a free connection, if all are in use."""


class Reply(NamedTuple):
    """A whole reply; names of `headers` are found in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class StreamedReply(Protocol):
    """A reply whose body is still arriving."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines with their ends; raises `Broken`, also for a line without end."""

    def parts(self) -> AsyncIterator[bytes]:
        """Yield the body in parts of any size; raises `Broken`, also for a body that is too short."""

    async def read(self) -> bytes:
        """Return the whole body; raises `Broken`."""


class Http(Protocol):
    """Send exchanges; belongs to the event loop that first uses it."""

    async def send(self, exchange: Exchange, timeouts: Timeouts) -> Reply:
        """Send `exchange`, which must be new, and return the whole reply; raises `Broken`."""

    def stream(self, exchange: Exchange, timeouts: Timeouts) -> AbstractAsyncContextManager[StreamedReply]:
        """Send `exchange`, which must be new, and enter when the head of the reply is there; raises `Broken`."""

    async def close(self) -> None:
        """Close the connections. Closing twice is fine; a later exchange opens new ones."""
