"""Submit the same thing twice and get one job: `python examples/idempotency.py`."""

from __future__ import annotations

import asyncio
import os
import uuid

from raftsched import Client, OutcomeUnknown, Rejected

URL = os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400")
ORDER = f"order-{uuid.uuid4()}"


async def main() -> None:
    """Charge an order once, whatever the network does. The key belongs to the order, not to the request."""
    async with Client(URL) as client:
        try:
            job = await client.submit("charge", {"amount": 5}, idempotency_key=ORDER)
        except OutcomeUnknown:  # no node answered for `retry_seconds`: the same key tells later what became of it
            job = await client.submit("charge", {"amount": 5}, idempotency_key=ORDER)
        again = await client.submit("charge", {"amount": 5}, idempotency_key=ORDER)
        print("the same job", job.id == again.id, again.duplicate)
        try:
            await client.submit("charge", {"amount": 6}, idempotency_key=ORDER)
        except Rejected as error:
            print("another amount", error.code)

        unique = {"key": ORDER, "on_conflict": "reject"}
        parked = await client.submit("charge", {"amount": 7}, unique=unique, paused=True)
        try:
            await client.submit("charge", {"amount": 8}, unique=unique)
        except Rejected as error:
            print("while one is unfinished", error.code, error.job_id == parked.id)
        await parked.cancel()


asyncio.run(main())
