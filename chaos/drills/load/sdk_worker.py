"""A process with the SDK's `Worker`: what it sends, what it is answered, and what its handler does is recorded."""

from __future__ import annotations

import asyncio
import json
import os
import random
from itertools import count
from typing import Any, Final

from chaos.checkers.history.events import Granted
from chaos.drills.history.exchanges import digits
from chaos.drills.history.recorded_pool import RecordedPool
from chaos.drills.history.recorder import Recorder
from raftsched import Worker
from raftsched.client.http.connection import Connection

QUEUE: Final = "sdk"
_SECONDS_MAX: Final = 0.3

_recorder = Recorder.of_process()
_pools = count(1)


class _RecordedWorker(Worker):
    """Connects through a pool that records."""

    def _connect(self) -> Connection:
        pool = RecordedPool(_recorder, f"{self.name}.{next(_pools)}", json.loads(os.environ["DRILL_NODE_IDS"]).get)
        client = self.settings.client
        return Connection(self._nodes_at(os.environ["RAFTSCHED_URL"].split()), client, clock=self._clock, http=pool)


_worker = _RecordedWorker(queues=[QUEUE], concurrency=16, name=os.environ["DRILL_WORKER"])


@_worker.job(QUEUE)
async def _sdk(context: Any, _payload: object) -> int:
    job, _, run = context.run_id.partition(".")
    grant = Granted(digits(job), int(run), context.attempt_number, context.fencing_token)
    _recorder.effect("begin", grant, _worker.name)
    try:
        await asyncio.sleep(_SECONDS_MAX * random.random())
    finally:
        _recorder.effect("end", grant, _worker.name)
    return int(context.fencing_token)


if __name__ == "__main__":
    _worker.run()
