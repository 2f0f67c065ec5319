"""An HTTP pool that records each exchange as operations of a history, exactly as it was sent and answered."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from chaos.drills.history.exchanges import UNKNOWN, Asked, End, asked, ends
from chaos.drills.history.recorder import Recorder
from raftsched.exchange import Exchange, HttpPool, Reply, Timeouts


class RecordedPool(HttpPool):
    """Sends as `HttpPool`, and records under `name`; `id_at` returns the id of the node at host:port.

    Requests at the same time are those of different processes of the history, since a process waits for its reply. A
    process with an unknown outcome never asks again.
    """

    def __init__(self, recorder: Recorder, name: str, id_at: Callable[[str], str | None]) -> None:
        super().__init__()
        self._recorder = recorder
        self._name = name
        self._id_at = id_at
        self._idle: list[int] = []
        self._process_count = 0
        self._used_ops: set[int] = set()
        self._open: dict[str, _Call] = {}
        """Requests that can be sent again, by the worker's own ids, until they are answered."""
        self._reports: Counter[int] = Counter()
        """Token -> how often its outcome was reported."""

    async def send(self, exchange: Exchange, timeouts: Timeouts) -> Reply:
        operations = asked(exchange)
        node = self._id_at(urlsplit(exchange.url).netloc) or ""
        calls = [self._called(operation, node) for operation in operations]
        try:
            reply = await super().send(exchange, timeouts)
        except BaseException:
            end = UNKNOWN if exchange.is_sent else End("fail", {"error": "unreachable"})
            self._ended(calls, [end] * len(calls))
            raise
        if operations:
            self._ended(calls, list(map(self._first_told, operations, ends(operations, reply))))
        return reply

    def _first_told(self, operation: Asked, end: End) -> End:
        """Return the end without a revision if the report was sent before: it is of the first one, and may be old."""
        if operation.f != "outcome":
            return end
        count = self._reports[operation.fields["token"]]
        return End(end.type, {name: value for name, value in end.fields.items() if name != "revision" or count == 1})

    def _called(self, operation: Asked, node: str) -> _Call:
        """Record a call; a repetition of one that is not answered yet is another of the same time, never answered.

        The leases of its answer may be those of the first exchange, or, if these ended before, others.
        """
        call = self._open.get(operation.request) if operation.request else None
        if call is None:
            call = self._invoked(operation, node)
            if operation.request:
                self._open[operation.request] = call
        else:
            self._process_count += 1
            process, op = self._process(self._process_count), self._recorder.new_op()
            self._recorder.invoke(process, op, operation.f, node=node, t=call.t, **operation.fields)
        call.under_way += 1
        return call

    def _invoked(self, operation: Asked, node: str) -> _Call:
        if self._idle:
            number = heapq.heappop(self._idle)
        else:
            self._process_count += 1
            number = self._process_count
        op = operation.op if operation.op and operation.op not in self._used_ops else self._recorder.new_op()
        self._used_ops.add(op)
        if operation.f == "outcome":
            self._reports[operation.fields["token"]] += 1
        t = self._recorder.invoke(self._process(number), op, operation.f, node=node, **operation.fields)
        return _Call(number, op, t, operation.request)

    def _ended(self, calls: list[_Call], found: list[End]) -> None:
        for call, end in zip(calls, found, strict=True):
            call.under_way -= 1
            if call.is_over(end):
                self._recorder.reply(self._process(call.number), call.op, end.type, **end.fields)
                self._open.pop(call.request, None)
                if end.type != "info":
                    heapq.heappush(self._idle, call.number)

    def _process(self, number: int) -> str:
        return f"{self._name}.{number}"


@dataclass(slots=True)
class _Call:
    """An operation that was recorded, and the exchanges that ask for it."""

    number: int
    """Of its process."""
    op: int
    t: int
    request: str
    under_way: int = 0
    is_unknown: bool = False
    """An exchange ended without an answer, and may have taken effect."""
    is_answered: bool = False

    def is_over(self, end: End) -> bool:
        """Whether the end of one exchange is that of the operation.

        A request that can be sent again has no end as long as one of its exchanges may have taken effect; the first
        success ends it.
        """
        if not self.request:
            return True
        self.is_unknown |= end.type == "info"
        is_end = end.type == "ok" or not (self.is_unknown or self.under_way)
        is_first = is_end and not self.is_answered
        self.is_answered |= is_end
        return is_first
