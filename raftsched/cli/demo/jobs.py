"""The demo's worker: `raftsched worker --app raftsched.cli.demo.jobs:worker`.

`hash_file` is plain code in a thread; the others are coroutines. Each effect goes through the ledger's fence.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

from raftsched import Worker
from raftsched.cli.demo.ledger import Ledger
from raftsched.worker import Context

QUEUES = ("hash", "misc")

worker = Worker(*os.environ["RAFTSCHED_URL"].split(), queues=list(QUEUES), concurrency=16)
_ledgers = threading.local()


def _ledger() -> Ledger:
    if not hasattr(_ledgers, "own"):
        _ledgers.own = Ledger(Path(os.environ["RAFTSCHED_DEMO_LEDGER"]))
    ledger: Ledger = _ledgers.own
    return ledger


@worker.job("hash_file")
def hash_file(ctx: Context, payload: dict[str, Any]) -> dict[str, str]:
    """Hash a file and record the digest."""
    digest = hashlib.new(payload["algorithm"], Path(payload["path"]).read_bytes()).hexdigest()
    return {"digest": _ledger().record(ctx.run_id, ctx.fencing_token, digest)}


@worker.job("note")
async def note(ctx: Context, payload: dict[str, Any]) -> dict[str, str]:
    """Record the payload's text: what delayed and prioritised jobs do."""
    return {"text": _ledger().record(ctx.run_id, ctx.fencing_token, payload["text"])}


@worker.job("flaky")
async def flaky(ctx: Context, payload: dict[str, Any]) -> dict[str, str]:
    """Fail `payload["failures"]` times, then succeed."""
    if ctx.attempt_number <= payload["failures"]:
        raise ConnectionError(f"the mail server is away (attempt {ctx.attempt_number})")
    return {"text": _ledger().record(ctx.run_id, ctx.fencing_token, payload["text"])}


@worker.job("hopeless")
async def hopeless(payload: dict[str, Any]) -> None:
    """Fail for good."""
    raise ValueError(f"no such account: {payload['account']}")


@worker.job("long")
async def long(payload: dict[str, Any]) -> None:
    """Run until cancelled."""
    await asyncio.sleep(payload["seconds"])
