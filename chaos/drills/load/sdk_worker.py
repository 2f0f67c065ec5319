"""A process with the SDK's `Worker` and a handler that takes a moment."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from chaos.drills.load.recorded_worker import RecordedWorker
from raftsched.cli.local.children import stop_when_stdin_ends

QUEUE: Final = "sdk"
_SECONDS_MAX: Final = 0.3


def _run() -> None:
    worker = RecordedWorker(QUEUE)

    @worker.job(QUEUE)
    async def _sdk(context: Any, _payload: object) -> int:
        with worker.body(context):
            await asyncio.sleep(_SECONDS_MAX * random.random())
        return int(context.fencing_token)

    worker.run()


if __name__ == "__main__":
    stop_when_stdin_ends()
    _run()
