"""Join items that arrive together into few requests, without waiting for more items.

An item that arrives while no request is in flight is sent in the next turn of the event loop, with all others of this
turn. Items that arrive while a request is in flight are sent together when it ends, or earlier if they are many. So a
single item has no delay, and under load the size of a request follows from the duration of the previous one: the more
work, the cheaper each item. No item waits longer than `late_seconds` for a request without an answer: a late request is
no longer counted.

The gatherer owns its senders. They are plain tasks, not those of a task group: a failed one must not cancel the user's
task in which the client was opened.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from raftsched.errors import RaftschedError, Unavailable


class Item(Protocol):
    """An item to send: its encoded form, and the receiver of its answer."""

    @property
    def body(self) -> bytes: ...
    def settle(self, answer: object | RaftschedError) -> None:
        """Take the definite answer or the error; called exactly once."""


ItemT = TypeVar("ItemT", bound=Item)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherLimits:
    """Limits for the size of requests and for the number in flight."""

    items_max: int
    bytes_max: int
    in_flight_max: int
    early_items: int
    """While a request is in flight, the next one is sent early once this many items wait."""
    late_seconds: float
    """A request that takes longer is late, and delays no other."""
    late_max: int
    """Maximum number of late requests in flight, besides the others."""
    waiting_max: int
    """`is_full` at this number of waiting items."""


class Gatherer(Generic[ItemT]):
    """Calls `send` with batches of the added items; `send` settles each item of its batch."""

    def __init__(self, send: Callable[[list[ItemT]], Awaitable[None]], bounds: GatherLimits) -> None:
        self._send = send
        self._bounds = bounds
        self._waiting: deque[ItemT] = deque()
        self._sending: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._is_scheduled = False
        self._is_closed = False
        self._has_capacity = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def is_full(self) -> bool:
        """Return whether too many items wait; then call `wait_for_capacity` before adding."""
        return len(self._waiting) >= self._bounds.waiting_max

    async def wait_for_capacity(self) -> None:
        """Wait until fewer items than the limit wait."""
        while self.is_full and not self._is_closed:
            self._has_capacity.clear()
            await self._has_capacity.wait()

    async def wait_idle(self) -> None:
        """Wait until all added items are settled."""
        await self._is_idle.wait()

    def add(self, item: ItemT) -> None:
        """Send `item` with the next request; after `close` it is settled with `Unavailable` at once."""
        if self._is_closed:
            item.settle(Unavailable("closed before it was sent"))
            return
        self._waiting.append(item)
        if not self._is_scheduled and self._may_send():
            self._is_idle.clear()
            self._start()

    async def close(self) -> None:
        """Settle waiting items with `Unavailable`, and cancel the requests in flight; their `send` settles the rest."""
        self._is_closed = True
        while self._waiting:
            self._waiting.popleft().settle(Unavailable("closed before it was sent"))
        self._has_capacity.set()
        if self._sending:
            for task in self._sending:
                task.cancel()
            await asyncio.wait(self._sending)

    def _may_send(self) -> bool:
        in_flight = len(self._sending) - len(self._late)
        if in_flight == 0:
            return len(self._late) <= self._bounds.late_max
        return in_flight < self._bounds.in_flight_max and len(self._waiting) >= self._bounds.early_items

    def _start(self) -> None:
        """Begin a request, which takes its items in the next turn of the event loop."""
        self._is_scheduled = True
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._run())
        self._sending.add(task)
        timer = loop.call_later(self._bounds.late_seconds, self._is_late, task)
        task.add_done_callback(partial(self._sent, timer))

    def _start_next(self) -> None:
        """Begin another request if one may leave."""
        if self._waiting and not self._is_scheduled and self._may_send():
            self._start()
        if not self._sending:
            self._is_idle.set()

    def _take(self) -> list[ItemT]:
        waiting = self._waiting
        batch = [waiting.popleft()]
        byte_count = len(batch[0].body)
        while waiting and len(batch) < self._bounds.items_max:
            byte_count += len(waiting[0].body)
            if byte_count > self._bounds.bytes_max:
                break
            batch.append(waiting.popleft())
        return batch

    async def _run(self) -> None:
        self._is_scheduled = False
        batch = self._take()
        self._start_next()
        if not self.is_full:
            self._has_capacity.set()
        await self._send(batch)

    def _is_late(self, task: asyncio.Task[None]) -> None:
        self._late.add(task)
        self._start_next()

    def _sent(self, timer: asyncio.TimerHandle, task: asyncio.Task[None]) -> None:
        timer.cancel()
        self._sending.discard(task)
        self._late.discard(task)
        self._start_next()
