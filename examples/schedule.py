"""Save a schedule, preview it, run it by hand, and read its ledger: `python examples/schedule.py`."""

from __future__ import annotations

import asyncio
import os

from raftsched import Client

URL = os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400")
NAME = "example-monthly"


async def main() -> None:
    """Submit to `examples/worker.py`."""
    async with Client(URL) as client:
        await client.schedules.save(
            NAME,
            {"name": "report", "payload": {"kind": "monthly"}},
            cron="30 6 L * *",
            timezone="Europe/Berlin",
            overlap="buffer_one",
            misfire="run_once",
            calendar={"business_days": {"country": "DE"}},
        )
        for fire_time in (await client.schedules.next(NAME, count=3)).firings:
            print("fires at", fire_time)
        firing = await client.schedules.trigger(NAME, payload={"kind": "by hand"})
        assert firing.job_id is not None, firing.reason
        print("result", await client.job(firing.job_id).wait())
        plan = await client.schedules.backfill(NAME, "2026-01-01T00:00:00Z", "2026-07-01T00:00:00Z", dry_run=True)
        print("a backfill would run", plan.run_count)
        async for decision in client.schedules.firings(NAME):
            print("decided", decision.kind, decision.fired)
        await client.schedules.delete(NAME)


asyncio.run(main())
