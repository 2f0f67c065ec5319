"""The acceptance tests' worker: `raftsched worker --app tests.acceptance.handlers:worker`."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from raftsched import Worker
from raftsched.worker import Context, WorkerSettings

DIRECTORY = Path(os.environ["TEST_DIRECTORY"])

worker = Worker(
    *os.environ["RAFTSCHED_URL"].split(),
    queues=os.environ["TEST_QUEUES"].split(),
    concurrency=8,
    settings=WorkerSettings(stop_at_lease_end=os.environ.get("TEST_STOP_AT_LEASE_END") != "0"),
)


def _say(file: str, text: str) -> None:
    with (DIRECTORY / file).open("a", encoding="utf-8") as lines:
        lines.write(text + "\n")


@worker.job("echo")
async def echo(payload: Any) -> Any:
    """Return the payload."""
    return payload


@worker.job("flaky")
async def flaky(ctx: Context, payload: dict[str, int]) -> int:
    """Fail so many times, then return the attempt's number."""
    if ctx.attempt_number <= payload["failures"]:
        raise RuntimeError(f"attempt {ctx.attempt_number} fails")
    return ctx.attempt_number


@worker.job("hold")
async def hold(ctx: Context, payload: dict[str, Any]) -> int:
    """Say that it started, then wait for a file to appear; return the token."""
    _say("started", f"{os.getpid()} {ctx.fencing_token}")
    while not (DIRECTORY / payload["until"]).exists():
        await asyncio.sleep(0.02)  # a file has no event to await
    return ctx.fencing_token


@worker.job("outlast")
def outlast(ctx: Context, payload: dict[str, Any]) -> int:
    """Say that it started; once a file appears, take so many seconds more in a thread, and say that it ended."""
    _say("started", f"{payload['name']} {ctx.fencing_token}")
    while not (DIRECTORY / payload["after"]).exists():
        time.sleep(0.02)  # a file has no event to await
    time.sleep(payload["seconds"])
    _say("ended", payload["name"])
    return ctx.fencing_token


@worker.job("block")
def block(payload: dict[str, float]) -> str:
    """Block a thread, as much plain code does."""
    time.sleep(payload["seconds"])
    return "done"


@worker.job("place")
async def place(payload: str) -> str:
    """Write down in which region it ran."""
    here = worker.region or "nowhere"
    _say("places", f"{payload} {here}")
    return here


@worker.job("mark")
async def mark(ctx: Context, payload: str) -> str:
    """Write down that it ran."""
    _say("ran", payload)
    return ctx.run_id


@worker.job("tell")
async def tell(ctx: Context, payload: dict[str, Any]) -> str:
    """Fail at first, and log and report as much as the payload says; wait for a file to appear before it ends."""
    for number in range(payload["lines"]):
        ctx.log(f"attempt {ctx.attempt_number} line {number}")
    ctx.progress({"attempt": ctx.attempt_number, "done": payload["lines"]})
    if ctx.attempt_number <= payload.get("failures", 0):
        raise RuntimeError("not yet")
    while not (DIRECTORY / payload["until"]).exists():
        await asyncio.sleep(0.02)  # a file has no event to await
    return "told"


@worker.job("beat")
async def beat(ctx: Context, payload: dict[str, float]) -> int:
    """Give a sign of life every so often, for so long; return how many."""
    count = 0
    started = time.monotonic()
    while time.monotonic() < started + payload["seconds"]:
        ctx.heartbeat()
        count += 1
        await asyncio.sleep(payload["every"])  # what it does meanwhile does not matter
    return count
