"""What can be made of one job, against the real API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from raftsched.client import Client, Dependency, Job, JobUnfinished, Unique
from raftsched.client.records import Rate
from raftsched.errors import Invalid, NotFound, OutcomeUnknown, RaftschedError, Rejected
from tests.client.cluster import QUICK
from tests.client.real import RealNode


@pytest.fixture
async def client(node: RealNode) -> AsyncIterator[Client]:
    async with Client(node.api_url, settings=QUICK, actor="ops") as opened:
        yield opened


def lost_replies(node: RealNode, count: int) -> None:
    """Let the next proposals take effect and their replies be lost."""
    faults = iter([OutcomeUnknown("lost the lead")] * count)

    def lose(operation: object) -> RaftschedError | None:
        fault = next(faults, None)
        if fault is not None:
            node.apply(operation)  # type: ignore[arg-type]  # what was proposed
        return fault

    node.proposal_error = lose


async def test_options_of_a_job_read_back(client: Client) -> None:
    parent = await client.submit("parent")
    deadline = datetime.now(UTC) + timedelta(days=1)
    job = await client.submit(
        "child",
        start="at_most_once",
        heartbeat_timeout_seconds=30,
        concurrency_key="customer-7",
        unique=Unique(key="k", for_seconds=60),
        depends_on=[Dependency(parent.id, "completion")],
        on_dependency_failure="fail",
        retry_on=["LookupError"],
        no_retry=["ValueError"],
        max_retries=4,
        expires_in_seconds=3600,
        deadline=deadline,
        retention_seconds=60,
        max_lost_workers=12,
        idempotency_key="order-7",
        idempotency_ttl_seconds=60,
    )
    info = await job.get()
    assert (info.status, info.pending_dependencies) == ("waiting_dependencies", 1)
    assert info.depends_on == [Dependency(parent.id, "completion")]
    assert (info.start, info.heartbeat_timeout_seconds, info.concurrency_key) == ("at_most_once", 30, "customer-7")
    assert (info.retry_on, info.no_retry, info.max_attempts) == (["LookupError"], ["ValueError"], 5)
    assert (info.on_dependency_failure, info.retention_seconds, info.max_lost_workers) == ("fail", 60, 12)
    assert info.expires_at is not None
    assert info.deadline is not None
    assert abs(info.deadline - deadline) < timedelta(milliseconds=1)
    assert info.unique_until is not None


async def test_unique_job_is_found_or_refused_as_was_asked(client: Client) -> None:
    first = await client.submit("report", unique={"key": "daily"})
    again = await client.submit("report", unique={"key": "daily"})
    assert (again.id, again.duplicate) == (first.id, True)
    with pytest.raises(Rejected) as caught:
        await client.submit("report", unique=Unique(key="daily", on_conflict="reject"))
    assert (caught.value.code, caught.value.job_id) == ("unique_conflict", first.id)


async def test_unknown_parent_is_named(client: Client) -> None:
    with pytest.raises(Rejected) as caught:
        await client.submit("a", depends_on=["00000000-0000-7000-8000-999999999999"])
    assert caught.value.code == "unknown_dependency"
    assert caught.value.field.startswith("depends_on")


async def test_paused_job_goes_on_when_it_is_resumed(client: Client) -> None:
    job = await client.submit("a", paused=True)
    assert (await job.get()).status == "paused"
    assert (await job.resume()).status == "queued"
    paused = await job.pause(for_seconds=3600, reason="maintenance")
    assert paused.pause is not None
    assert (paused.status, paused.pause.reason) == ("paused", "maintenance")
    assert paused.pause.until is not None
    # It counts from when the request came, and lasts since it was applied.
    assert timedelta(minutes=59) < paused.pause.until - paused.pause.since <= timedelta(hours=1)
    assert [reason.code for reason in (await job.explain()).reasons] == ["paused", "no_worker"]


async def test_job_is_moved_and_changed_before_it_runs(client: Client) -> None:
    job = await client.submit("a", {"n": 1}, timeout_seconds=5)
    moved = await job.reschedule(delay_seconds=3600)
    assert moved.status == "scheduled"
    changed = await job.update(if_revision=moved.revision, payload={"n": 2}, timeout_seconds=None, priority="high")
    assert (changed.payload, changed.timeout_seconds, changed.priority) == ({"n": 2}, None, 8)
    with pytest.raises(Rejected) as caught:
        await job.update(if_revision=moved.revision, priority=1)
    assert caught.value.code == "stale_revision"
    with pytest.raises(Invalid) as refused:
        await job.update(priority=10)
    assert refused.value.field == "priority"


async def test_cancelled_job_is_retried_as_a_new_run(client: Client) -> None:
    job = await client.submit("a", delay_seconds=60)
    await job.cancel()
    again = await job.retry(delay_seconds=30)
    assert (again.status, again.run_id) == ("scheduled", f"{job.id}.2")
    history = await job.history()
    assert [(event.event, event.actor) for event in history.events if event.actor] == [
        ("created", "ops"),
        ("cancelled", "ops"),
        ("requeued", "ops"),
    ]


async def test_replay_is_a_clone_with_a_link_and_is_made_once(node: RealNode, client: Client) -> None:
    job = await client.submit("a", {"n": 1}, queue="q")
    lost_replies(node, 2)
    clone = await job.replay(payload={"n": 2}, delay_seconds=60)
    info = await clone.get()
    assert (info.replay_of, info.payload, info.queue, info.status) == (job.id, {"n": 2}, "q", "scheduled")
    assert len([found async for found in client.list(queue="q")]) == 2


async def test_change_whose_reply_was_lost_is_unknown_where_its_repetition_is_refused(
    node: RealNode, client: Client
) -> None:
    job = await client.submit("a", delay_seconds=60)
    revision = (await job.get()).revision
    lost_replies(node, 1)
    with pytest.raises(OutcomeUnknown, match="an earlier attempt may have taken effect"):
        await job.update(if_revision=revision, priority=9)
    assert (await job.get()).priority == 9
    with pytest.raises(Rejected, match="revision"):
        await job.update(if_revision=revision, priority=1)


async def test_result_of_an_unfinished_job_is_told_apart(client: Client) -> None:
    job = await client.submit("a")
    with pytest.raises(JobUnfinished) as caught:
        await job.result()
    assert caught.value.job.status == "queued"


async def test_handle_of_a_job_that_is_not_there_says_so(client: Client) -> None:
    job = client.job("00000000-0000-7000-8000-999999999999")
    for call in (job.get, job.runs, job.history, job.explain, job.pause, job.resume, job.retry, job.replay):
        with pytest.raises(NotFound):
            await call()


async def test_bulk_changes_what_the_filter_names_and_says_so(client: Client) -> None:
    jobs = [await client.submit("a", n, tags=["x"] if n else None) for n in range(4)]
    dry = await client.bulk("cancel", filter={"tag": "x"}, dry_run=True)
    assert (dry.matched, dry.done, dry.dry_run) == (3, 0, True)
    done = await client.bulk("cancel", filter={"tag": "x"})
    assert (done.matched, done.done, done.failed) == (3, 3, [])
    assert [(await job.get()).status for job in jobs] == ["queued"] + ["cancelled"] * 3
    with pytest.raises(Invalid) as caught:
        await client.bulk("cancel", filter={})
    assert caught.value.field == "filter"


async def test_bulk_goes_on_to_the_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    results = await client.submit_many({"name": "a", "payload": n} for n in range(30))
    assert all(isinstance(job, Job) for job in results)
    monkeypatch.setattr("raftsched.api.jobs.bulk.routes._STEP_JOBS", 7)
    monkeypatch.setattr("raftsched.api.jobs.bulk.routes._SECONDS_MAX", 0.0)  # each request ends after one step
    paused = await client.bulk("pause", all=True, reason="freeze")
    assert (paused.matched, paused.done, len(paused.sample)) == (30, 30, 30)
    assert len([job async for job in client.list(status="paused")]) == 30


async def test_replayed_jobs_of_a_repeated_bulk_request_are_made_once(node: RealNode, client: Client) -> None:
    jobs = [await client.submit("a", n) for n in range(3)]
    for job in jobs:
        await job.cancel()
    first = await client.bulk("replay", ids=[job.id for job in jobs], idempotency_key="replay-1")
    again = await client.bulk("replay", ids=[job.id for job in jobs], idempotency_key="replay-1")
    assert (first.done, again.done) == (3, 3)
    assert len([job async for job in client.list(status="queued")]) == 3


async def test_audit_says_who_did_what(client: Client) -> None:
    job = await client.submit("a", paused=True)
    await job.resume()
    await client.queue("a").pause(reason="deploy")
    entries = [(entry.actor, entry.action) async for entry in client.audit(actor="ops")]
    assert entries == [("ops", "queue.pause"), ("ops", "job.resume")]
    assert [entry.action async for entry in client.audit(action="queue")] == ["queue.pause"]


async def test_queue_is_configured_and_paused(client: Client) -> None:
    queue = client.queue("mail")
    await client.submit("mail")
    set_ = await queue.configure(rate={"count": 10, "per_seconds": 60}, concurrency=5, weights={"acme": 3})
    assert (set_.rate, set_.concurrency, set_.weights) == (Rate(10, 60, burst=1), 5, {"acme": 3})
    changed = await queue.configure(rate=None)
    assert (changed.rate, changed.concurrency) == (None, 5)
    await queue.pause(reason="deploy")
    info = await queue.get()
    assert info.settings.pause is not None
    assert (info.queued, info.settings.pause.reason) == (1, "deploy")
    assert (await queue.resume()).pause is None
    scale = await queue.scale()
    assert (scale.ready, scale.running) == (1, 0)
