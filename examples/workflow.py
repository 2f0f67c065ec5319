"""Submit jobs that depend on each other, whole or not at all: `python examples/workflow.py`."""

from __future__ import annotations

import asyncio
import os

from raftsched import Client, Rejected, Workflow

URL = os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400")


async def main() -> None:
    """Submit to `examples/worker.py`."""
    nightly = Workflow("example-nightly")
    extract = nightly.job("extract", {"day": 3})
    pages = [nightly.job("page", {"page": number}, after=extract) for number in range(3)]
    nightly.job("load", {"day": 3}, after=pages)
    nightly.job("report", task="alarm", after=extract, on="failure")

    circle = Workflow("example-cycle")
    first = circle.job("extract", task="first")
    first.after(circle.job("load", task="second", after=first))

    async with Client(URL) as client:
        run = await client.workflows.submit(nightly)
        print("workflow", (await run.wait()).status)
        print("results", await run.results())
        print("tasks", {node.task: node.status for node in (await run.graph()).nodes})
        try:
            await client.workflows.submit(circle)
        except Rejected as error:
            print(error.code, error.members)


asyncio.run(main())
