"""Users of a cluster as processes of their own, for drills that measure how long they stand still.

    python -m tests.drills.users client FILE        submits with `raftsched.Client`, ten times a second
    raftsched worker --app tests.drills.users:worker

Each writes a line to its file for what it sees: the kind, the monotonic time, which all processes of a machine share,
and a number or a text.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any, Final

from raftsched import Client, Worker
from raftsched.errors import RaftschedError

QUEUE: Final = "drill"
PAUSE_SECONDS: Final = 0.1

worker = Worker(queues=[QUEUE], concurrency=64)


@worker.job("note")
async def note(ctx: Any, payload: str) -> None:
    """Write down that the job began."""
    _write(os.environ["DRILL_FILE"], "began", f"{payload} {ctx.attempt_number}")


@worker.job("nap")
async def nap(payload: float) -> None:
    """Take so long."""
    await asyncio.sleep(payload)


async def submit_for_ever(path: str) -> None:
    """Submit without waiting for the answers, until standard input ends."""
    number = 0
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.buffer.read)
    async with Client(*os.environ["RAFTSCHED_URL"].split()) as client, asyncio.TaskGroup() as tasks:
        while not ended.done():
            number += 1
            tasks.create_task(_submit(client, path, f"client-{number}"))
            await asyncio.wait((ended,), timeout=PAUSE_SECONDS)
        os._exit(0)


async def _submit(client: Client, path: str, text: str) -> None:
    began = time.monotonic()
    try:
        await client.submit("note", text, queue=QUEUE)
        _write(path, "accepted", f"{time.monotonic() - began:.3f}")
    except RaftschedError as error:
        _write(path, "error", f"{time.monotonic() - began:.3f} {type(error).__name__} {error}")


def _write(path: str, kind: str, text: str) -> None:
    """Append a line, whole, whoever else does."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{kind} {time.monotonic():.4f} {text}\n".encode())
    finally:
        os.close(file)


if __name__ == "__main__":
    asyncio.run(submit_for_ever(sys.argv[2]))
