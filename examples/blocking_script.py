"""Use the cluster from a script without an event loop: `python examples/blocking_script.py`."""

from __future__ import annotations

import os

from raftsched import BlockingClient

URL = os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400")

with BlockingClient(URL) as client:
    queue = client.queue("charge")
    queue.configure(rate={"count": 100, "per_seconds": 60, "burst": 10}, concurrency=8)
    queue.pause(reason="bank is down")
    job = client.submit("charge", {"amount": 5}, concurrency_key="account-7")
    print("why not", [reason.code for reason in job.explain().reasons])
    queue.resume()
    print("result", job.wait())
    print("cancelled", client.bulk("cancel", filter={"queue": "charge", "status": "scheduled"}, dry_run=True).matched)
    queue.configure(rate=None, concurrency=None)
