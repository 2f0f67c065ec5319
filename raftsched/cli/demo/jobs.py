"""Define the demo's worker: `raftsched worker --app raftsched.cli.demo.jobs:worker`.

`hash_file` is plain code in a thread; the others are coroutines. Each effect goes through the ledger's fence.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raftsched import GiveUp, Worker
from raftsched.cli.demo.ledger import Ledger, Span, now_ms
from raftsched.cli.demo.plan import EXECUTED_KINDS, KINDS
from raftsched.worker import Context

_CONCURRENCY = 16
_STEP_SECONDS = 0.3

worker = Worker(
    *os.environ["RAFTSCHED_URL"].split(),
    queues=[kind for kind in KINDS if kind not in EXECUTED_KINDS],
    concurrency=_CONCURRENCY,
)
_ledgers = threading.local()


def _ledger() -> Ledger:
    if not hasattr(_ledgers, "own"):
        _ledgers.own = Ledger(Path(os.environ["RAFTSCHED_DEMO_LEDGER"]))
    ledger: Ledger = _ledgers.own
    return ledger


def _record(ctx: Context, text: str) -> str:
    return _ledger().record(ctx.run_id, ctx.fencing_token, text)


@contextmanager
def _witnessed(ctx: Context) -> Iterator[None]:
    """Record at the receiver the span of this attempt, even if it fails."""
    began_ms = now_ms()
    try:
        yield
    finally:
        _ledger().witness(Span(ctx.queue, ctx.run_id, ctx.fencing_token, began_ms, now_ms()))


@worker.job("hash_file")
def hash_file(ctx: Context, payload: dict[str, Any]) -> dict[str, str]:
    """Hash a file and record the digest."""
    digest = hashlib.new(payload["algorithm"], Path(payload["path"]).read_bytes()).hexdigest()
    return {"digest": _record(ctx, digest)}


@worker.job("note")
async def note(ctx: Context, payload: dict[str, Any]) -> dict[str, str]:
    """Take a while, then record the payload's text, as most jobs do."""
    with _witnessed(ctx):
        await asyncio.sleep(payload["seconds"])
        return {"text": _record(ctx, payload["text"])}


@worker.job("flaky")
async def flaky(ctx: Context, payload: dict[str, Any]) -> dict[str, str]:
    """Fail `payload["failures"]` times, then succeed."""
    if ctx.attempt_number <= payload["failures"]:
        raise ConnectionError(f"the mail server is away (attempt {ctx.attempt_number})")
    return {"text": _record(ctx, payload["text"])}


@worker.job("hopeless")
async def hopeless(payload: dict[str, Any]) -> None:
    """Fail for good."""
    raise ValueError(f"no such account: {payload['account']}")


@worker.job("fixed")
async def fixed(ctx: Context, payload: dict[str, Any]) -> dict[str, str]:
    """Give up in the first run; succeed once it was requeued."""
    if ctx.run_id.endswith(".1"):
        raise GiveUp("the address is wrong: fix it, then requeue this job")
    return {"text": _record(ctx, payload["text"])}


@worker.job("long")
async def long(payload: dict[str, Any]) -> None:
    """Run until cancelled."""
    await asyncio.sleep(payload["seconds"])


@worker.job("charge")
async def charge(ctx: Context, payload: dict[str, Any]) -> dict[str, str]:
    """Have an effect that must not be repeated, and then fail if the payload says so."""
    with _witnessed(ctx):
        text = _record(ctx, payload["text"])
        if payload["fails"]:
            raise ConnectionError("the bank hung up: it is unknown whether it was paid")
        return {"text": text}


@worker.job("report")
async def report(ctx: Context, payload: dict[str, Any]) -> dict[str, str]:
    """Report each step."""
    for step in range(1, payload["steps"] + 1):
        ctx.progress({"step": step})
        ctx.log(f"step {step} of {payload['steps']}")
        await asyncio.sleep(_STEP_SECONDS)
    return {"text": _record(ctx, payload["text"])}


@worker.job("tick")
async def tick(ctx: Context, _payload: Any) -> dict[str, str]:
    """Record the fire time of this run."""
    assert ctx.instant is not None, "a tick without a schedule"
    return {"instant": _record(ctx, ctx.instant.isoformat())}


@worker.job("count")
async def count(ctx: Context, payload: dict[str, Any]) -> dict[str, int]:
    """Take a while, then return the value: a page of the workflow."""
    await asyncio.sleep(payload["seconds"])
    return {"value": int(_record(ctx, str(payload["value"])))}


@worker.job("add_up")
async def add_up(ctx: Context, payload: dict[str, Any]) -> dict[str, int]:
    """Add up the results of the parents."""
    results = [await ctx.result_of(parent) for parent in payload["parents"]]
    total = sum(result["value"] for result in results)
    return {"value": int(_record(ctx, str(total)))}
