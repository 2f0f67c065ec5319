from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from raftsched.client import Client, Job, JobCancelled, RetryPolicy
from raftsched.errors import Invalid, NotFound, Rejected
from tests.client.cluster import QUICK
from tests.client.real import RealNode
from tests.client.test_control import lost_replies


@pytest.fixture
async def client(node: RealNode) -> AsyncIterator[Client]:
    async with Client(node.api_url, settings=QUICK) as opened:
        yield opened


async def test_submitted_job_reads_back_as_it_was_given(client: Client) -> None:
    run_at = datetime.now(UTC) + timedelta(hours=1)
    job = await client.submit(
        "send_email",
        {"to": ["ü", None, 1.5]},
        queue="mail",
        priority="high",
        run_at=run_at,
        timeout_seconds=1.5,
        max_attempts=7,
        retry_policy=RetryPolicy(backoff="list", delays_seconds=[1, 60]),
        tags=["a", "b"],
        region="eu",
        idempotency_key="k1",
    )
    info = await job.get()
    assert (info.name, info.payload, info.queue, info.priority) == ("send_email", {"to": ["ü", None, 1.5]}, "mail", 8)
    assert (info.timeout_seconds, info.max_attempts, info.tags, info.region) == (1.5, 7, ["a", "b"], "eu")
    assert (info.status, info.attempt_number, info.is_finished) == ("scheduled", 0, False)
    assert info.run_at is not None
    assert timedelta() <= info.run_at - run_at < timedelta(milliseconds=1)  # never before its time
    assert info.retry_policy is not None
    assert info.retry_policy["delays_seconds"] == [1.0, 60.0]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"priority": 10}, "priority"),
        ({"delay_seconds": -1}, "delay_seconds"),
        ({"queue": "a/b"}, "queue"),
        ({"run_at": "yesterday"}, "run_at"),
        ({"retry_policy": {"backoff": "fixed", "bass_seconds": 1}}, "retry_policy.bass_seconds"),
        ({"payload": "x" * 300_000}, "payload"),
    ],
)
async def test_field_at_fault_is_named_as_the_caller_knows_it(
    client: Client, fields: dict[str, Any], field: str
) -> None:
    bad, good = await client.submit_many([{"name": "a"} | fields, {"name": "b"}])
    assert isinstance(bad, Invalid)
    assert bad.field == field
    assert str(bad).startswith(f"{field}: ")
    assert isinstance(good, Job)


async def test_unknown_outcome_is_retried_under_the_same_key(node: RealNode, client: Client) -> None:
    lost_replies(node, 2)
    job = await client.submit("pay", {"n": 1})
    assert [found.id async for found in client.list(name="pay")] == [job.id]
    assert job.duplicate


async def test_idempotency_key_with_another_body_is_refused(client: Client) -> None:
    await client.submit("pay", {"n": 1}, idempotency_key="order-7")
    with pytest.raises(Rejected) as caught:
        await client.submit("pay", {"n": 2}, idempotency_key="order-7")
    assert caught.value.code == "idempotency_mismatch"


async def test_list_follows_the_cursor_to_the_end(client: Client) -> None:
    jobs = await client.submit_many({"name": "tick", "payload": n} for n in range(25))
    found = [info.id async for info in client.list(queue="tick", page_size=10)]
    assert found == sorted(job.id for job in jobs if isinstance(job, Job))
    assert [info.id async for info in client.list(status="completed")] == []


async def test_list_goes_by_the_filters_it_is_given(client: Client) -> None:
    tagged = await client.submit("a", tags=["x"])
    await client.submit("a")
    assert [info.id async for info in client.list(tag="x", order="desc")] == [tagged.id]
    with pytest.raises(Invalid) as caught:
        _ = [info async for info in client.list(colour="red")]  # type: ignore[call-arg]  # as from code without types
    assert caught.value.field == "colour"


async def test_cancelled_job_is_told_apart_from_a_failed_one(client: Client) -> None:
    job = await client.submit("a", delay_seconds=60)
    assert (await job.cancel()).status == "cancelled"
    assert (await job.cancel()).status == "cancelled"
    with pytest.raises(JobCancelled):
        await job.wait()
    with pytest.raises(NotFound):
        await client.cancel("00000000-0000-7000-8000-999999999999")


async def test_overviews_read_back(client: Client) -> None:
    await client.submit("a")
    assert [(queue["name"], queue["queued"]) for queue in await client.queues()] == [("a", 1)]
    assert await client.workers() == []
    assert (await client.cluster())["leader"] == "n1"
    with pytest.raises(Rejected, match="no other node"):  # this cluster has one
        await client.transfer_leadership()


async def test_empty_idempotency_key_is_refused_rather_than_replaced(client: Client, node: RealNode) -> None:
    """Whoever gives a key that came out empty must not be left without one."""
    with pytest.raises(Invalid) as caught:
        await client.submit("pay", idempotency_key="")
    (refused,) = await client.submit_many([{"name": "pay", "idempotency_key": ""}])
    assert isinstance(refused, Invalid)
    assert [str(error.field).rpartition(".")[2] for error in (caught.value, refused)] == ["idempotency_key"] * 2
    assert not node.state.list_jobs(limit=1)
