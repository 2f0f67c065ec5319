"""Send a request also to a second node if the first does not answer; the first answer wins.

Clients of a paused or isolated node, or of one without power, would wait until their timeout, far longer than an
election takes. So after `hedge_seconds` without an answer the node is suspected, and another one is asked as well. This
applies to requests whose answer does not depend on how often they are sent: reads, and changes that carry a key. Any
other change is given up only if the silent node does not answer a probe either; then its outcome is unknown.

An abandoned attempt may still take effect (`HedgedRequest.maybe_applied`); then no later refusal is definite.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from raftsched.client.http.nodes import Nodes
from raftsched.client.http.retries import Failure, Retries
from raftsched.client.http.settings import ClientSettings
from raftsched.errors import OutcomeUnknown, Unavailable
from raftsched.exchange import Exchange
from raftsched.ports import Clock, Randomness

ATTEMPTS_MAX: Final = 3
"""Nodes that are asked at the same time: with 5 nodes, 2 may be silent."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to any node; `path` is below /api/v1 and encoded."""

    method: str
    path: str
    body: bytes | None = None
    query: Mapping[str, str] | None = None
    headers: Mapping[str, str] | None = None


class Sender(Protocol):
    """Send single attempts; `raftsched.client.http.connection.Connection` does."""

    nodes: Nodes
    settings: ClientSettings
    clock: Clock
    randomness: Randomness

    def exchange(self, base: str, request: Request) -> Exchange:
        """Return a new exchange of `request` with the node at `base`."""

    async def send(self, base: str, exchange: Exchange, timeout_seconds: float | None = None) -> bytes | Failure:
        """Send `exchange` once; return the body of a 2xx reply, or the failure."""

    async def probe(self, base: str) -> bool:
        """Return whether the node at `base` answers."""


class _Attempt(NamedTuple):
    base: str
    exchange: Exchange


class HedgedRequest:
    """Sends `request` until a node answers; each object is used once.

    `may_hedge` allows it to ask several nodes at the same time. `timeout_seconds` limits the whole request,
    `hedge_seconds` the wait for one node; both are the settings' by default.
    """

    def __init__(
        self,
        sender: Sender,
        request: Request,
        *,
        may_hedge: bool = True,
        timeout_seconds: float | None = None,
        hedge_seconds: float | None = None,
    ) -> None:
        settings = sender.settings
        self.maybe_applied = False
        """Whether an attempt other than the answered one may have taken effect, or still may."""
        self.answered_by = ""
        """The node whose answer was returned."""
        self._sender = sender
        self._request = request
        self._doubles = may_hedge
        self._timeout_seconds = timeout_seconds or settings.request_timeout_seconds
        self._hedge_seconds = hedge_seconds or settings.hedge_seconds
        self._under_way: dict[asyncio.Task[bytes | Failure], _Attempt] = {}
        self._failure: Failure | None = None
        self._ended: asyncio.Future[None] | None = None
        """Done once an attempt ends, or the wait for that is over."""

    async def answer(self) -> bytes | Failure:
        """Return the body of a 2xx reply, or the failure; raises as `Connection.attempt`."""
        sender = self._sender
        retries = Retries(sender.settings, sender.randomness)
        give_up_at = sender.clock.monotonic() + self._timeout_seconds
        pause, is_silence = self._hedge_seconds, True
        self._ask(sender.nodes.current)
        try:
            while self._under_way:
                left_seconds = give_up_at - sender.clock.monotonic()
                done = await self._next_end(max(0.0, min(pause, left_seconds)))
                if (answer := self._settled(done)) is not None:
                    return answer
                if done:
                    pause, is_silence = retries.next_pause(0.0), False
                elif left_seconds <= 0 or not await self._ask_another(is_silence=is_silence):
                    break
                else:
                    pause, is_silence = self._hedge_seconds, True
        finally:
            await self._give_up()
        return self._failure or Failure(self._no_answer())

    def _ask(self, base: str) -> None:
        sender = self._sender
        exchange = sender.exchange(base, self._request)
        task = asyncio.get_running_loop().create_task(self._attempt(base, exchange))
        self._under_way[task] = _Attempt(base, exchange)

    async def _attempt(self, base: str, exchange: Exchange) -> bytes | Failure:
        try:
            return await self._sender.send(base, exchange, self._timeout_seconds)
        finally:
            self._wake()

    async def _next_end(self, seconds: float) -> list[asyncio.Task[bytes | Failure]]:
        """Return the attempts that have ended, in the order in which they were asked; wait for one up to `seconds`.

        `asyncio.wait` returns one turn of the event loop later, and every submit passes here.
        """
        if not any(task.done() for task in self._under_way):
            loop = asyncio.get_running_loop()
            self._ended = loop.create_future()
            timer = loop.call_later(seconds, self._wake)
            try:
                await self._ended
            finally:
                timer.cancel()
        return [task for task in self._under_way if task.done()]

    def _wake(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _settled(self, done: list[asyncio.Task[bytes | Failure]]) -> bytes | Failure | None:
        """Return the final answer, if one of `done` has it."""
        for task in done:
            base = self._under_way.pop(task).base
            answer = task.result()
            if isinstance(answer, bytes) or not answer.error.retryable:
                self.answered_by = base
                return answer
            self.maybe_applied |= isinstance(answer.error, OutcomeUnknown)
            self._failure = answer
        return None

    async def _ask_another(self, *, is_silence: bool) -> bool:
        """Ask another node, if that is allowed and there is one; return False if the wait is over."""
        nodes = self._sender.nodes
        latest = list(self._under_way.values())[-1].base
        if not self._doubles:
            return await self._is_alive(latest)
        asked = [attempt.base for attempt in self._under_way.values()]
        other = nodes.another(asked) or (nodes.last_resort(asked) if is_silence else None)
        if len(asked) < ATTEMPTS_MAX and other is not None:
            if is_silence:
                nodes.failed(latest, self._sender.clock.monotonic())
            self._ask(other)
        return True

    async def _is_alive(self, base: str) -> bool:
        """Return whether the node answers a probe, or meanwhile the request."""
        probe = asyncio.get_running_loop().create_task(self._sender.probe(base))
        try:
            await asyncio.wait((probe, *self._under_way), return_when=asyncio.FIRST_COMPLETED)
            return not probe.done() or probe.result()
        finally:
            probe.cancel()
            await asyncio.wait((probe,))

    async def _give_up(self) -> None:
        """Cancel the attempts that are still in progress."""
        if self._under_way:
            self.maybe_applied |= any(attempt.exchange.is_sent for attempt in self._under_way.values())
            for task in self._under_way:
                task.cancel()
            await asyncio.wait(self._under_way)

    def _no_answer(self) -> Unavailable:
        bases = ", ".join(attempt.base for attempt in self._under_way.values())
        kind = OutcomeUnknown if self.maybe_applied else Unavailable
        return kind(f"no reply from {bases}")
