"""Sends a batch until every item in it has its definite answer.

The reply carries an answer for each item. Those that say "not now" or "unknown" go again, the others are done; an item
whose time is up gets its error. A request that is refused as a whole because of what is in it is halved, so that one
bad item never takes its neighbours down. Every item names itself to the cluster, so sending it again changes nothing.

A refusal that is not the cluster's (a proxy's 403 or 502) may be about one item, or about all that goes that way. So
what was refused goes to the end of the line, and requests get smaller, down to one item, until one gets through; then
they grow again. There is one attempt for each pause, however many items wait.

A node that says nothing, or not now to all, is passed over: it may be cut off from the others, or its disk hang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from raftsched.client.http.connection import Connection
from raftsched.client.http.hedge import Asking, Request
from raftsched.client.http.problems import RefusedOnTheWay
from raftsched.client.http.retries import FOREVER, Failure, Retries, given_up
from raftsched.errors import Invalid, OutcomeUnknown, RaftschedError

Answers = Sequence[object | RaftschedError]


class OutgoingItem:
    """One item on its way; subclasses say who hears of its end."""

    __slots__ = ("body", "deadline", "is_settled", "latest_error", "maybe_applied")

    def __init__(self, body: bytes, deadline: float = FOREVER) -> None:
        self.body = body
        self.deadline = deadline
        """Monotonic time after which it is not sent again."""
        self.maybe_applied = False
        self.latest_error: RaftschedError | None = None
        self.is_settled = False

    def deliver(self, answer: object | RaftschedError) -> None:
        """Pass on the definite answer, or the error that ends all attempts; called once."""
        raise NotImplementedError

    def settle(self, answer: object | RaftschedError) -> None:
        """End the way of this item; a later end than the first is ignored."""
        if not self.is_settled:
            self.is_settled = True
            self.deliver(answer)

    def failed(self, error: RaftschedError) -> None:
        """Note an attempt that may be repeated."""
        self.latest_error = error
        self.maybe_applied |= isinstance(error, OutcomeUnknown)

    def give_up(self) -> None:
        """Settle with what the attempts so far allow to say."""
        error = self.latest_error or OutcomeUnknown("closed before the reply came")
        self.settle(given_up(error, maybe_applied=self.maybe_applied))


class BatchSender:
    """Posts batches to `path`: `head`, the items joined by commas, `]}`.

    `read` turns the body of a reply into an answer for each item, in order, and raises `msgspec.DecodeError`.
    """

    def __init__(self, connection: Connection, path: str, head: bytes, read: Callable[[bytes], Answers]) -> None:
        self._connection = connection
        self._path = path
        self._head = head
        self._read = read

    async def send(self, items: Sequence[OutgoingItem]) -> None:
        """Return when each of `items` is settled; when this is cancelled, they are settled as unknown."""
        connection = self._connection
        retries = Retries(connection.settings, connection.randomness)
        size = len(items)
        try:
            while items:
                batch = items[:size]
                again, retry_after_seconds = await self._send_once(batch)
                items = (*items[size:], *again)
                if not again:
                    size *= 2
                    continue
                size = max(1, len(batch) // 2) if _was_refused_on_the_way(again) else len(items)
                pause = retries.next_pause(retry_after_seconds)
                items = _still_in_time(items, connection.clock.monotonic() + pause)
                await asyncio.sleep(pause)
        except BaseException:
            for item in items:
                item.failed(OutcomeUnknown("closed before the reply came"))
                item.give_up()
            raise

    async def _send_once(self, items: Sequence[OutgoingItem]) -> tuple[Sequence[OutgoingItem], float]:
        """Post `items`; return those to send again, and when the cluster wants to see them."""
        body = b"%b%b]}" % (self._head, b",".join([item.body for item in items]))
        asking = Asking(self._connection, Request("POST", self._path, body))
        reply = await asking.answer()
        for item in items:
            item.maybe_applied |= asking.is_doubled
        if isinstance(reply, Failure):
            return await self._refused(items, reply)
        try:
            answers = self._read(reply)
        except msgspec.DecodeError as error:
            return _noted(items, OutcomeUnknown(f"the reply can't be read: {error}")), 0.0
        if len(answers) != len(items):
            return _noted(items, OutcomeUnknown(f"{len(answers)} answers to {len(items)} items")), 0.0
        again = _unsettled(items, answers)
        if len(again) == len(items):
            self._connection.nodes.pass_over(asking.answered_by)
        return again, 0.0

    async def _refused(self, items: Sequence[OutgoingItem], failure: Failure) -> tuple[Sequence[OutgoingItem], float]:
        error = failure.error
        if error.retryable:
            return _noted(items, error), failure.retry_after_seconds
        if isinstance(error, Invalid) and len(items) > 1:
            middle = len(items) // 2
            first, first_wait = await self._send_once(items[:middle])
            second, second_wait = await self._send_once(items[middle:])
            return (*first, *second), max(first_wait, second_wait)
        for item in items:
            item.settle(error)
        return (), 0.0


def _noted(items: Sequence[OutgoingItem], error: RaftschedError) -> Sequence[OutgoingItem]:
    for item in items:
        item.failed(error)
    return items


def _was_refused_on_the_way(items: Sequence[OutgoingItem]) -> bool:
    return any(isinstance(item.latest_error, RefusedOnTheWay) for item in items)


def _unsettled(items: Sequence[OutgoingItem], answers: Answers) -> Sequence[OutgoingItem]:
    """Settle each item that has a definite answer and return the others."""
    again = []
    for item, answer in zip(items, answers, strict=True):
        if isinstance(answer, RaftschedError) and answer.retryable:
            item.failed(answer)
            again.append(item)
        else:
            item.settle(answer)
    return again


def _still_in_time(items: Sequence[OutgoingItem], now: float) -> Sequence[OutgoingItem]:
    """Give up the items whose time is over by `now` and return the others."""
    fine = []
    for item in items:
        if item.deadline > now:
            fine.append(item)
        else:
            item.give_up()
    return fine
