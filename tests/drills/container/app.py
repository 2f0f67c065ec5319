"""The worker and the load of the drill, inside of their containers.

raftsched worker --app app:worker
python app.py 300      submits so many jobs, and ends well if all completed with their own result
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from raftsched import Client, Worker
from raftsched.client import Job, JobSpec

QUEUE = "drill"
LEDGER = "/ledger/runs"
worker = Worker(queues=[QUEUE], concurrency=8)


@worker.job("note")
async def note(_context: Any, payload: Any) -> Any:
    """Record the run by one write, which other processes can't split."""
    with open(LEDGER, "ab", buffering=0) as ledger:  # noqa: ASYNC230, PTH123  # a line
        ledger.write(f"{payload['number']}\n".encode())
    await asyncio.sleep(0.02)
    return payload["number"]


async def load(count: int) -> None:
    """Submit `count` jobs, say how many are submitted half-way, and wait for all; raises if one did not complete."""
    async with Client(*os.environ["RAFTSCHED_URL"].split()) as client:
        jobs: list[Job] = []
        for half in (range(count // 2), range(count // 2, count)):
            specs = [JobSpec(name="note", payload={"number": number}, queue=QUEUE) for number in half]
            async for submitted in client.submit_each(specs):
                if not isinstance(submitted, Job):
                    raise submitted
                jobs.append(submitted)
            print("submitted", len(jobs), flush=True)
        results = [await job.wait(timeout=150) for job in jobs]
        assert results == list(range(count)), results


if __name__ == "__main__":
    asyncio.run(load(int(sys.argv[1])))
