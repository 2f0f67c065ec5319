"""The SDK's `Worker` in a process of the load: what it sends is recorded, and when the bodies of its runs begin and end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from chaos.checkers.history.events import Granted
from chaos.drills.history.exchanges import digits
from chaos.drills.history.recorded_pool import RecordedPool
from chaos.drills.history.recorder import Recorder
from raftsched import Worker
from raftsched.client.http.connection import Connection

CONCURRENCY: Final = 16


class RecordedWorker(Worker):
    """Takes jobs of `queue`, in a process that `LoadProcess` has started."""

    def __init__(self, queue: str) -> None:
        super().__init__(queues=[queue], concurrency=CONCURRENCY, name=os.environ["DRILL_WORKER"])
        self._recorder = Recorder.of_process()
        self._pools = count(1)

    def _connect(self) -> Connection:
        ids = json.loads(os.environ["DRILL_NODE_IDS"])
        pool = RecordedPool(self._recorder, f"{self.name}.{next(self._pools)}", ids.get)
        client = self.settings.client
        return Connection(self._nodes_at(os.environ["RAFTSCHED_URL"].split()), client, clock=self._clock, http=pool)

    @contextmanager
    def body(self, context: Any) -> Iterator[None]:
        """Record that the body of a run begins and ends."""
        job, _, run = context.run_id.partition(".")
        grant = Granted(digits(job), int(run), context.attempt_number, context.fencing_token)
        self._recorder.effect("begin", grant, self.name)
        try:
            yield
        finally:
            self._recorder.effect("end", grant, self.name)
