"""Send a batch until every item in it has a definite answer.

The reply carries an answer for each item. Items whose answer is "not now" or "unknown" are sent again; an item that
passes its deadline gets its error. A request that is rejected as a whole for its content is halved, so that one bad
item does not fail the others. Every item carries a key, so sending it again changes nothing.

A refusal by a proxy (its 403 or 502) may concern one item or all of them. So refused items move to the end of the
batch, and requests shrink, down to one item, until one succeeds; then they grow again. There is one attempt for each
pause, for any number of items.

A node that does not answer, or defers all items, is passed over: it may be cut off, or its disk may hang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from raftsched.client.http.connection import Connection
from raftsched.client.http.hedge import HedgedRequest, Request
from raftsched.client.http.problems import RefusedByProxy
from raftsched.client.http.retries import FOREVER, Failure, Retries, given_up
from raftsched.errors import Invalid, OutcomeUnknown, QuotaExceeded, RaftschedError

Answers = Sequence[object | RaftschedError]


class OutgoingItem:
    """An item that is being sent; subclasses deliver its answer."""

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
        """Deliver the first answer; ignore later ones."""
        if not self.is_settled:
            self.is_settled = True
            self.deliver(answer)

    def failed(self, error: RaftschedError) -> None:
        """Note an attempt that may be repeated."""
        self.latest_error = error
        self.maybe_applied |= isinstance(error, OutcomeUnknown)

    def give_up(self) -> None:
        """Settle with the error that the attempts so far justify."""
        error = self.latest_error or OutcomeUnknown("closed before the reply came")
        self.settle(given_up(error, maybe_applied=self.maybe_applied))


class BatchSender:
    """Posts batches to `path`: `head`, the items joined by commas, `]}`.

    `read` converts the body of a reply to an answer for each item, in order, and raises `msgspec.DecodeError`.
    """

    def __init__(self, connection: Connection, path: str, head: bytes, read: Callable[[bytes], Answers]) -> None:
        self._connection = connection
        self._path = path
        self._head = head
        self._read = read

    async def send(self, items: Sequence[OutgoingItem]) -> None:
        """Settle each of `items`; if this is cancelled, settle the rest as unknown."""
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
                size = max(1, len(batch) // 2) if _was_refused_by_proxy(again) else len(items)
                pause = retries.next_pause(retry_after_seconds)
                items = _still_in_time(items, connection.clock.monotonic() + pause)
                await asyncio.sleep(pause)
        except BaseException:
            for item in items:
                item.failed(OutcomeUnknown("closed before the reply came"))
                item.give_up()
            raise

    async def _send_once(self, items: Sequence[OutgoingItem]) -> tuple[Sequence[OutgoingItem], float]:
        """Post `items`; return those to send again, and the seconds to wait that the cluster asks for."""
        body = b"%b%b]}" % (self._head, b",".join([item.body for item in items]))
        hedged = HedgedRequest(self._connection, Request("POST", self._path, body))
        reply = await hedged.answer()
        for item in items:
            item.maybe_applied |= hedged.maybe_applied
        if isinstance(reply, Failure):
            return await self._refused(items, reply)
        try:
            answers = self._read(reply)
        except msgspec.DecodeError as error:
            return _mark_failed(items, OutcomeUnknown(f"the reply can't be read: {error}")), 0.0
        if len(answers) != len(items):
            return _mark_failed(items, OutcomeUnknown(f"{len(answers)} answers to {len(items)} items")), 0.0
        again = _unsettled(items, answers)
        quotas = [item.latest_error for item in again if isinstance(item.latest_error, QuotaExceeded)]
        if len(again) == len(items) and not quotas:
            self._connection.nodes.refused(hedged.answered_by)
        return again, max((error.retry_after_seconds for error in quotas), default=0.0)

    async def _refused(self, items: Sequence[OutgoingItem], failure: Failure) -> tuple[Sequence[OutgoingItem], float]:
        error = failure.error
        if error.retryable:
            return _mark_failed(items, error), failure.retry_after_seconds
        if isinstance(error, Invalid) and len(items) > 1:
            middle = len(items) // 2
            first, first_wait = await self._send_once(items[:middle])
            second, second_wait = await self._send_once(items[middle:])
            return (*first, *second), max(first_wait, second_wait)
        for item in items:
            item.settle(error)
        return (), 0.0


def _mark_failed(items: Sequence[OutgoingItem], error: RaftschedError) -> Sequence[OutgoingItem]:
    for item in items:
        item.failed(error)
    return items


def _was_refused_by_proxy(items: Sequence[OutgoingItem]) -> bool:
    return any(isinstance(item.latest_error, RefusedByProxy) for item in items)


def _unsettled(items: Sequence[OutgoingItem], answers: Answers) -> Sequence[OutgoingItem]:
    """Settle each item that has a definite answer, and return the others."""
    again = []
    for item, answer in zip(items, answers, strict=True):
        if isinstance(answer, RaftschedError) and answer.retryable:
            item.failed(answer)
            again.append(item)
        else:
            item.settle(answer)
    return again


def _still_in_time(items: Sequence[OutgoingItem], now: float) -> Sequence[OutgoingItem]:
    """Give up the items whose deadline has passed by `now`, and return the others."""
    in_time = []
    for item in items:
        if item.deadline > now:
            in_time.append(item)
        else:
            item.give_up()
    return in_time
