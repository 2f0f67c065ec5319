"""The worker of drills that measure: `raftsched worker --app tests.drills.handlers:worker`, its slots and queues as told."""

from __future__ import annotations

import asyncio
import os

from raftsched import Worker

worker = Worker(
    *os.environ["RAFTSCHED_URL"].split(),
    queues=os.environ["DRILL_QUEUES"].split(),
    concurrency=int(os.environ["DRILL_CONCURRENCY"]),
)


@worker.job("noop")
async def noop(_payload: object) -> None:
    """Do nothing."""


@worker.job("nap")
async def nap(seconds: float) -> None:
    """Take up a slot for so long, and no processor."""
    await asyncio.sleep(seconds)
