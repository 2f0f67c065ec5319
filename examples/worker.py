"""The worker of the other examples and of the documentation: `python examples/worker.py`."""

from __future__ import annotations

import os
from typing import Any

from raftsched import Context, Worker

QUEUES = ["send_email", "report", "charge", "extract", "page", "load", "flaky"]
worker = Worker(os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400"), queues=QUEUES)


@worker.job("send_email")
async def send_email(payload: dict[str, str]) -> dict[str, bool]:
    """Send nothing, and say so in the log of the process."""
    print("to", payload["to"])
    return {"sent": True}


@worker.job("report")
async def report(ctx: Context, payload: Any) -> Any:
    """Write a line to the log of the attempt, report progress, and return the payload."""
    ctx.log(f"attempt {ctx.attempt_number} of {ctx.name}")
    ctx.progress({"done": 50, "of": 100})
    return payload


@worker.job("charge")
async def charge(payload: dict[str, int]) -> dict[str, int]:
    """Return the amount."""
    return {"charged": payload["amount"]}


@worker.job("extract")
@worker.job("page")
async def extract(payload: Any) -> dict[str, int]:
    """Return a number of rows."""
    return {"rows": 3} if payload else {"rows": 0}


@worker.job("load")
def load(payload: Any) -> str:
    """Run in a thread, as plain functions do."""
    return f"loaded {payload}"


@worker.job("flaky")
async def flaky(payload: Any) -> None:
    """Fail."""
    raise ValueError(f"no such account: {payload}")


if __name__ == "__main__":
    worker.run()
