"""Make things of every kind, by default with texts that attack a page that does not escape them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from raftsched import Worker
from raftsched.client import Client, Workflow
from raftsched.dashboard.error_groups import groups_of

ATTACK: Final = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'{{7*7}}"
PATHS: Final = {
    "/": "overview",
    "/jobs": "jobs",
    "/jobs?status=dead_letter&order=asc": "jobs-filtered",
    "/jobs/{failed}": "job-failed",
    "/jobs/{running}": "job-running",
    "/jobs/{later}": "job-scheduled",
    "/jobs/{completed}": "job-completed",
    "/jobs/{failed}/replay": "replay",
    "/jobs/{later}/amend": "amend",
    "/jobs/{later}/cancel": "cancel",
    "/jobs/{later}/pause": "pause",
    "/jobs/{failed}/delete": "delete",
    "/jobs/bulk?action=retry&status=dead_letter": "bulk",
    "/submit": "submit",
    "/dead-letters": "dead-letters",
    "/dead-letters/groups/{group}": "dead-letters-group",
    "/dead-letters/requeue?all=yes": "dead-letters-requeue",
    "/dead-letters/purge?reason=attempts_exhausted": "dead-letters-purge",
    "/workflows": "workflows",
    "/workflows/{workflow}": "workflow",
    "/workflows/{workflow}/cancel": "workflow-cancel",
    "/queues": "queues",
    "/queues/mail": "queue",
    "/queues/nights": "queue-paused",
    "/workers": "workers",
    "/workers/{worker}/drain": "worker-drain",
    "/schedules": "schedules",
    "/schedules/{schedule}": "schedule",
    "/schedules/{schedule}?month=2035-03": "schedule-month",
    "/schedules/{schedule}/edit": "schedule-edit",
    "/schedules/{schedule}/trigger": "schedule-trigger",
    "/schedules/{schedule}/backfill": "schedule-backfill",
    "/schedules/{schedule}/delete": "schedule-delete",
    "/schedules/new": "schedule-new",
    "/search?q=nothing-has-this-name": "search",
    "/cluster": "cluster",
    "/audit": "audit",
    "/tokens": "tokens",
    "/tenants": "tenants",
    "/tenants/default": "tenant",
    "/no-such-page": "not-found",
}
"""A path of each page below `/ui`, and the name of its screenshot; `{…}` is a job of the scene."""


@asynccontextmanager
async def played(urls: list[str], token: str, *, text: str = ATTACK) -> AsyncIterator[Mapping[str, str]]:
    """Submit the jobs and let a worker run some of them; yield their ids. One runs until the context ends.

    `text` is where users write something.
    """
    ended = asyncio.Event()
    worker = Worker(*urls, token=token, queues=["mail", "billing", "reports"], concurrency=8, name="worker-7f3a")

    @worker.job("send_email")
    async def send_email(ctx: Any, payload: Any) -> Any:
        ctx.log("connecting to mail.example.org:587")
        ctx.log("250 2.0.0 queued as 4F2a")
        return {"message_id": "<4F2a@mail.example.org>", "to": payload["to"]}

    @worker.job("charge_card")
    async def charge_card(ctx: Any, payload: Any) -> Any:
        ctx.log("POST https://pay.example.org/v1/charges")
        raise ValueError(payload.get("error") or "card declined: insufficient funds")

    @worker.job("monthly_report")
    async def monthly_report(ctx: Any, payload: Any) -> Any:
        for step in range(1, 4):
            ctx.log(f"table {step} of 12: {step * 1840} rows")
        ctx.log(text or "table 4 of 12 is large")
        ctx.progress(0.25)
        await ended.wait()

    async with Client(*urls, token=token) as client:
        serving = asyncio.create_task(worker.serve())
        try:
            await _administered(client, text)
            yield await _submitted(client, text)
        finally:
            ended.set()
            worker.drain()
            await serving


async def _administered(client: Client, text: str) -> None:
    """Make tokens, and tenants with quotas."""
    await client.tokens.create("viewer", tenant="*", name="grafana", expires_in_seconds=90 * 86_400)
    await client.tokens.create("worker", tenant="acme", name="mailer", queues=["mail", "billing-*"])
    await client.tokens.create("operator", tenant="default", name="anna@ops", expires_in_seconds=5 * 86_400)
    await client.tokens.create("viewer", tenant="acme", name=text[:100] or "auditors")
    await client.tenants.configure("acme", unfinished_jobs=20, schedules=10, submits_per_second=500, weight=3)
    await client.tenants.configure("umbrella", unfinished_jobs=4)
    for tenant, count in (("acme", 17), ("umbrella", 4)):
        await client.submit_many([{"name": "invoice", "tenant": tenant, "delay_seconds": 3_600}] * count)


async def _submitted(client: Client, text: str) -> Mapping[str, str]:
    quick = {"backoff": "fixed", "base_seconds": 0.05}
    sent = [
        await client.submit("send_email", {"to": f"user{number}@example.org"}, queue="mail", tags=["welcome"])
        for number in range(8)
    ]
    failed = await client.submit(
        "charge_card",
        {"order": 8127, "error": text},
        queue="billing",
        max_attempts=3,
        tags=["vip", "eu"],
        retry_policy=quick,
    )
    for order in range(8128, 8131):
        await client.submit("charge_card", {"order": order}, queue="billing", max_attempts=1)
    running = await client.submit("monthly_report", {"month": "2026-10"}, queue="reports", priority="high")
    later = await client.submit(
        "send_email", {"to": "later@example.org", "text": text}, queue="mail", delay_seconds=86_400
    )
    waiting = await client.submit("resize_image", {"image": 12}, queue="images", depends_on=[sent[0].id])
    cancelled = await client.submit("resize_image", {"image": 13}, queue="images", delay_seconds=3_600)
    await cancelled.cancel()
    await client.job((await client.submit("resize_image", {"image": 14}, queue="images")).id).pause(reason="night only")
    for job in (*sent, failed):
        await _until(client, job.id, lambda info: info.is_finished)
    await _until(client, running.id, lambda info: info.progress is not None)
    return {
        "completed": sent[0].id,
        "failed": failed.id,
        "running": running.id,
        "later": later.id,
        "waiting": waiting.id,
        "schedule": await _scheduled(client, text),
        "workflow": await _flowing(client),
        "worker": next(each["name"] for each in await client.workers() if each["name"].startswith("worker-7f3a")),
        "group": groups_of([await client.get(failed.id)])[0].key,
    }


async def _flowing(client: Client) -> str:
    """Submit a workflow, and return its id once a part of it has ended."""
    flow = Workflow("monthly-close")
    orders = flow.job("send_email", {"to": "orders@example.org"}, task="collect-orders", queue="mail")
    stock = flow.job("send_email", {"to": "stock@example.org"}, task="count-stock", queue="mail")
    charge = flow.job("charge_card", {"order": 1}, task="charge", queue="billing", after=[orders], max_attempts=1)
    merge = flow.job("merge", task="merge", queue="nights", after=[orders, stock])
    for region in ("eu", "us", "asia"):
        flow.job("publish", task=f"publish-{region}", queue="nights", after=[merge])
    flow.job("tell", task="tell-finance", queue="nights", after=[charge], on="failure")
    run = await client.workflows.submit(flow)
    await _until(client, run.jobs["charge"].id, lambda info: info.is_finished)
    return run.id


async def _scheduled(client: Client, text: str) -> str:
    """Save schedules, and return the id of one with a past."""
    saved = await client.schedules.save(
        "nightly-report",
        {"name": "monthly_report", "queue": "nights", "payload": {"text": text}},
        cron="30 2 * * *",
        timezone="Europe/Berlin",
        owner="reports@example.org",
        description=f"The report of all sales. {text}",
        labels={"team": "shop"},
        calendar={"skip_dates": ["2035-03-26"]},
        parameters=[{"name": "region", "type": "choice", "choices": ["eu", "us"], "default": "eu"}],
    )
    now = datetime.now(UTC) - timedelta(minutes=1)  # surely past, also for the leader
    await client.schedules.backfill(saved.name, now - timedelta(days=12), now, patience_seconds=0.0)
    await client.schedules.save("sync-stock", {"name": "sync", "queue": "nights"}, every="15m")
    await client.schedules.save("newsletter", {"name": "mail", "queue": "nights"}, cron="0 9 * * mon-fri")
    await client.schedules.pause("newsletter", reason=f"the list is cleaned {text}")
    await client.queue("nights").pause(reason=f"the mail server moves {text}")
    return saved.id


async def _until(client: Client, job_id: str, is_right: Any) -> None:
    async with asyncio.timeout(30):
        while not is_right(await client.get(job_id)):
            await asyncio.sleep(0.05)
