"""Submit jobs, one and many, wait for them, and read what happened: `python examples/submit.py`."""

from __future__ import annotations

import asyncio
import os

from raftsched import Client, JobFailed, RaftschedError, RetryPolicy

URL = os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400")


async def main() -> None:
    """Submit to `examples/worker.py`."""
    async with Client(URL) as client:
        job = await client.submit("report", {"day": 1}, delay_seconds=0.5, priority="high", timeout_seconds=60)
        print("result", await job.wait())
        print("log", [line.text async for line in job.logs()])
        print("history", [event.event for event in (await job.history()).events])

        results = await client.submit_many({"name": "report", "payload": {"day": day}} for day in range(10))
        stored = [result for result in results if not isinstance(result, RaftschedError)]
        print("stored", len(stored), "of", len(results))

        policy = RetryPolicy(backoff="fixed", base_seconds=0.1, jitter=0)
        bad = await client.submit("flaky", max_attempts=2, retry_policy=policy)
        try:
            await bad.wait()
        except JobFailed as failed:
            print("failed", failed.job.failure_reason)
        print("why", (await bad.explain()).reasons[0].text)


asyncio.run(main())
