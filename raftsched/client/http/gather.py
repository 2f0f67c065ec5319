"""Gathers items that arrive together into few requests, without ever waiting for more of them.

An item that comes while nothing is in flight leaves in the next turn of the event loop, with all others of this turn.
Those that come while a request is in flight leave together when it ends, or earlier once they are many. So a lone
item pays no delay, and under load the size of a request follows from the time that one takes: the more work, the
cheaper each item. Nothing waits longer than `late_seconds` for a request that gets no answer, as one whose node is
gone: it is then no longer counted, and the next leaves as if it were alone.

The gatherer owns its senders. They are plain tasks, not a task group's: one that failed must not cancel the code of
the user in whose task the client happened to be opened.
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
    """Something to send: its encoded form, and who hears of its end."""

    @property
    def body(self) -> bytes: ...
    def settle(self, answer: object | RaftschedError) -> None:
        """Take the definite answer or the error; called exactly once."""


ItemT = TypeVar("ItemT", bound=Item)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherLimits:
    """How large requests get and how many are in flight."""

    items_max: int
    bytes_max: int
    in_flight_max: int
    early_items: int
    """While a request is in flight, the next leaves early once so many wait."""
    late_seconds: float
    """A request that takes longer holds up nobody."""
    late_max: int
    """So many late requests may be in flight beside those that are not."""
    waiting_max: int
    """More waiting items than this is `is_full`."""


class Gatherer(Generic[ItemT]):
    """Calls `send` with batches of the added items; `send` settles each item it was given."""

    def __init__(self, send: Callable[[list[ItemT]], Awaitable[None]], bounds: GatherLimits) -> None:
        self._send = send
        self._bounds = bounds
        self._waiting: deque[ItemT] = deque()
        self._sending: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._is_scheduled = False
        self._is_closed = False
        self._has_room = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def is_full(self) -> bool:
        """More items wait than should; `wait_for_room` before adding."""
        return len(self._waiting) >= self._bounds.waiting_max

    async def wait_for_room(self) -> None:
        """Return once fewer items wait than the bound."""
        while self.is_full and not self._is_closed:
            self._has_room.clear()
            await self._has_room.wait()

    async def wait_idle(self) -> None:
        """Return once all added items are settled."""
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
        """Settle what waits with `Unavailable`, and cancel the requests in flight, whose `send` settles the rest."""
        self._is_closed = True
        while self._waiting:
            self._waiting.popleft().settle(Unavailable("closed before it was sent"))
        self._has_room.set()
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
            self._has_room.set()
        await self._send(batch)

    def _is_late(self, task: asyncio.Task[None]) -> None:
        self._late.add(task)
        self._start_next()

    def _sent(self, timer: asyncio.TimerHandle, task: asyncio.Task[None]) -> None:
        timer.cancel()
        self._sending.discard(task)
        self._late.discard(task)
        self._start_next()
