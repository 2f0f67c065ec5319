"""Define the benchmark's worker: its job does nothing, so that only raftsched is measured."""

from __future__ import annotations

import os
from typing import Any

from raftsched import Worker
from raftsched.cli.bench import QUEUE

worker = Worker(
    *os.environ["RAFTSCHED_URL"].split(),
    queues=[QUEUE],
    concurrency=int(os.environ.get("RAFTSCHED_BENCH_CONCURRENCY", "200")),
)


@worker.job("noop")
async def noop(payload: Any) -> None:
    """Do nothing."""
