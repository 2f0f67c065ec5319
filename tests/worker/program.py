"""A worker in a process of its own: `python -m tests.worker.program URL [setting=seconds …]`.

Payloads of handlers that tell what they do are the port of an `Ear`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

from raftsched.errors import NotFound
from raftsched.worker import Context, Worker, WorkerSettings
from tests.client.cluster import QUICK, WAIT_SECONDS
from tests.worker.ear import say

SETTINGS = WorkerSettings(concurrency=4, wait_seconds=0.05, client=QUICK)


def add(payload: dict[str, int]) -> dict[str, int]:
    return {"sum": payload["a"] + payload["b"], "pid": os.getpid()}


def describe(ctx: Context, payload: object) -> dict[str, Any]:
    return {"token": ctx.fencing_token, "run_id": ctx.run_id, "cancelled": bool(ctx.cancelled)}


def speak(ctx: Context, parent: str) -> dict[str, Any]:
    """Say everything that a handler can say, and ask for the result of a parent."""
    ctx.progress({"done": 1})
    ctx.log("logged \ud800")
    ctx.logger.info("by logger")
    sys.stdout.write("printed\n")
    try:
        ctx.result_of("no such task")
    except NotFound as error:
        return {"parent": ctx.result_of(parent), "no": error.code, "task": ctx.task, "instant": ctx.instant}
    return {}


def write_stdout(payload: object) -> None:
    sys.stdout.buffer.write(b"bytes \xff\n")
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write("text\n")


def ask(ctx: Context, parent: str) -> Any:
    return ctx.result_of(parent)


def die(payload: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def explode(payload: object) -> None:
    raise LookupError("in the child")


def stay(port: int) -> None:
    """Say the process id, then never end."""
    say(port, str(os.getpid()))
    threading.Event().wait()


def family(given: list[Any]) -> None:
    """Start two processes that wait, one of which ignores SIGTERM; say the ids of all three, then wait, or end."""
    port, then = given
    if then == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    plain = subprocess.Popen(["sleep", "987"])
    stubborn = subprocess.Popen(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 987; done"], stdout=-1)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    forked = os.fork()  # holds the pipe to the worker, as the library's own sentinel
    if not forked:
        threading.Event().wait()
    say(port, f"{os.getpid()} {plain.pid} {stubborn.pid} {forked}")
    if then == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if then != "return":
        threading.Event().wait()


def clean_up(port: int) -> None:
    def ended(_number: int, _frame: object) -> None:
        say(port, "cleaning up")
        raise SystemExit(3)

    signal.signal(signal.SIGTERM, ended)
    say(port, "running")
    threading.Event().wait()


async def hold(port: int) -> str:
    """Run until the test answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"running\n")
    try:
        await reader.readline()
    except asyncio.CancelledError:
        say(port, "cancelled")
        raise
    return "held"


async def block(port: int) -> None:
    """Block the event loop."""
    say(port, "running")
    threading.Event().wait(WAIT_SECONDS)


async def never_end(port: int) -> None:
    say(port, "running")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


def main() -> None:
    url, *options = sys.argv[1:]
    seconds: dict[str, Any] = {name: float(value) for name, value in (option.split("=") for option in options)}
    worker = Worker(url, settings=replace(SETTINGS, **seconds))
    for handler in (add, describe, die, explode, family, stay):
        worker.job(handler.__name__, process=True)(handler)
    for handler_async in (hold, block, never_end):
        worker.job(handler_async.__name__)(handler_async)
    worker.run()


if __name__ == "__main__":
    main()
