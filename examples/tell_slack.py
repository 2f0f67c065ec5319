"""Post a message to a channel when a job of a queue fails: `python examples/tell_slack.py`.

The queue has the hook, so its jobs need not know of it. The message is submitted by the same entry of the log as the
failure: once, whatever happens to the leader. Here a server of this program stands for Slack; give `SLACK_URL` for a real
address. An executor must be allowed to reach the local one, so this program starts one that is.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from aiohttp import web

from raftsched import Client, GiveUp, Worker

URL = os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400")
QUEUE, MESSAGES = "example-payments", "example-messages"
worker = Worker(URL, queues=[QUEUE])


@worker.job("pay", queue=QUEUE)
async def pay(payload: dict[str, int]) -> None:
    """Fail for good."""
    raise GiveUp(f"the bank refuses invoice {payload['invoice']}")


async def main() -> None:
    """Give the queue its hook, let a job fail, and wait for the message."""
    received: asyncio.Queue[str] = asyncio.Queue()

    async def channel(request: web.Request) -> web.Response:
        received.put_nowait(json.loads(await request.text())["text"])
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_post("/hook", channel)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    slack = os.environ.get("SLACK_URL", f"http://127.0.0.1:{runner.addresses[0][1]}/hook")
    executor = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "raftsched", "worker", "--http", "--queue", MESSAGES, "--url", URL),
        *("--allow-target", "127.0.0.1", "--log-level", "error", "--until-stdin-ends"),
        stdin=asyncio.subprocess.PIPE,
    )
    serving = asyncio.create_task(worker.serve())
    async with Client(URL) as client:
        text = "{{cause.name}} failed ({{cause.reason}}): {{cause.error}}"
        hook = {"http": {"url": slack, "body": {"text": text}}, "queue": MESSAGES}
        await client.queue(QUEUE).configure(on_failure=hook)
        await client.submit("pay", {"invoice": 17}, queue=QUEUE)
        print("in the channel:", await asyncio.wait_for(received.get(), 60))
        await client.queue(QUEUE).configure(on_failure=None)
        async for job in client.list(queue=MESSAGES):
            await client.job(job.id).wait(60)
    worker.drain()
    await serving
    executor.terminate()
    await executor.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
