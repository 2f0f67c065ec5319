"""A process with the SDK's `Client`: submits without waiting for the answers, until SIGTERM.

One call is one operation of the history, whatever the client sent for it: a value is `ok`, `OutcomeUnknown` is `info`,
and every other error is `fail`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import Final

import msgspec

from chaos.drills.history.exchanges import OP_TAG, TENANT, digits
from chaos.drills.history.recorder import Recorder
from chaos.drills.load.users import QUEUES
from raftsched import Client
from raftsched.api.jobs.convert import fingerprint_of
from raftsched.cli.local.children import stop_when_stdin_ends
from raftsched.client import JobSpec
from raftsched.errors import OutcomeUnknown, RaftschedError

PROCESS: Final = "sdk-client"
_PAUSE_SECONDS: Final = 0.15


async def submit(client: Client, recorder: Recorder, name: str, queues: Sequence[str] = QUEUES) -> None:
    """Submit a job to one of `queues`, recorded as the call of `name`."""
    op = recorder.new_op()
    process, key, queue = f"{name}.{op}", f"{name}-{op}", queues[op % len(queues)]
    options = {"name": queue, "payload": {"n": op}, "queue": queue, "max_attempts": 5, "tags": [f"{OP_TAG}{op}"]}
    body = fingerprint_of(msgspec.json.decode(JobSpec(**options).encoded())).hex()  # type: ignore[arg-type]
    recorder.invoke(process, op, "submit", tenant=TENANT, key=key, body=body, max_attempts=5)
    try:
        job = await client.submit(**options, idempotency_key=key)  # type: ignore[arg-type]
    except OutcomeUnknown:
        recorder.reply(process, op, "info")
    except RaftschedError as error:
        recorder.reply(process, op, "fail", error=error.code)
    else:
        recorder.reply(process, op, "ok", job=digits(job.id))


async def _live() -> None:
    recorder = Recorder.of_process()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with Client(*os.environ["RAFTSCHED_URL"].split()) as client, asyncio.TaskGroup() as calls:
        while not ended.is_set():
            calls.create_task(submit(client, recorder, os.environ["DRILL_WORKER"]))
            await asyncio.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    stop_when_stdin_ends()
    asyncio.run(_live())
