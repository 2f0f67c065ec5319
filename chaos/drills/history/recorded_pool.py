"""An HTTP pool that records each exchange as operations of a history, exactly as it was sent and answered."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from urllib.parse import urlsplit

from chaos.drills.history.exchanges import UNKNOWN, Asked, End, asked, ends
from chaos.drills.history.recorder import Recorder
from raftsched.exchange import Exchange, HttpPool, Reply, Timeouts


class RecordedPool(HttpPool):
    """Sends as `HttpPool`, and records under `name`; `node_ids` maps host:port to the id of a node.

    Requests at the same time are those of different processes of the history, since a process waits for its reply. A
    process with an unknown outcome never asks again.
    """

    def __init__(self, recorder: Recorder, name: str, node_ids: Mapping[str, str]) -> None:
        super().__init__()
        self._recorder = recorder
        self._name = name
        self._node_ids = node_ids
        self._idle: list[int] = []
        self._process_count = 0
        self._used_ops: set[int] = set()
        self._reports: Counter[int] = Counter()
        """Token -> how often its outcome was reported."""

    async def send(self, exchange: Exchange, timeouts: Timeouts) -> Reply:
        operations = asked(exchange)
        node = self._node_ids.get(urlsplit(exchange.url).netloc, "")
        calls = [self._invoked(operation, node) for operation in operations]
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

    def _invoked(self, operation: Asked, node: str) -> tuple[int, int]:
        if self._idle:
            number = heapq.heappop(self._idle)
        else:
            self._process_count += 1
            number = self._process_count
        op = operation.op if operation.op and operation.op not in self._used_ops else self._recorder.new_op()
        self._used_ops.add(op)
        if operation.f == "outcome":
            self._reports[operation.fields["token"]] += 1
        self._recorder.invoke(self._process(number), op, operation.f, node=node, **operation.fields)
        return number, op

    def _ended(self, calls: list[tuple[int, int]], found: list[End]) -> None:
        for (number, op), end in zip(calls, found, strict=True):
            self._recorder.reply(self._process(number), op, end.type, **end.fields)
            if end.type != "info":
                heapq.heappush(self._idle, number)

    def _process(self, number: int) -> str:
        return f"{self._name}.{number}"
