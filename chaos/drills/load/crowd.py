"""A process with many users of the SDK's `Client`: each submits, waits for the answer and pauses, until SIGTERM.

`DRILL_CROWD` is `CLIENTS USERS PAUSE QUEUE`: so many clients with so many users each, who pause for PAUSE seconds on
average.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal

from chaos.drills.history.recorder import Recorder
from chaos.drills.load.sdk_client import submit
from raftsched import Client
from raftsched.cli.local.children import stop_when_stdin_ends


async def _live(client_count: int, user_count: int, pause_seconds: float, queue: str) -> None:
    recorder, ended = Recorder.of_process(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)

    async def use(client: Client) -> None:
        while not ended.is_set():
            await submit(client, recorder, os.environ["DRILL_WORKER"], [queue])
            await asyncio.sleep(2 * pause_seconds * random.random())

    async def belong() -> None:
        async with Client(*os.environ["RAFTSCHED_URL"].split()) as client, asyncio.TaskGroup() as users:
            for _ in range(user_count):
                users.create_task(use(client))

    async with asyncio.TaskGroup() as clients:
        for _ in range(client_count):
            clients.create_task(belong())


if __name__ == "__main__":
    stop_when_stdin_ends()
    _clients, _users, _pause, _queue = os.environ["DRILL_CROWD"].split()
    asyncio.run(_live(int(_clients), int(_users), float(_pause), _queue))
