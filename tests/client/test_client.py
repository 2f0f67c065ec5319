from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from raftsched.client import Client, ClientSettings, JobCancelled, JobFailed, JobOptions, JobSpec, bulk
from raftsched.client.jobs import JobChanges, ReplayChanges
from raftsched.client.queues import QueueChanges
from raftsched.client.schedules import ScheduleOptions, TimingOptions
from raftsched.errors import Invalid, NotFound, OutcomeUnknown, RaftschedError, Rejected, Unavailable
from raftsched.wire.bulk import BulkRequest, DeadLetterFilter, JobFilter
from raftsched.wire.control import AmendRequest, ReplayRequest
from raftsched.wire.jobs import JobRequest
from raftsched.wire.queues import QueuePatch
from raftsched.wire.schedules import ScheduleRequest
from raftsched.wire.timings import TimingBody
from tests.client.cluster import QUICK, WAIT_SECONDS, Cluster, Fault, running_cluster

BATCH = "/jobs/batch"


async def test_submit_stores_the_job_with_all_it_was_given(cluster: Cluster, client: Client) -> None:
    job = await client.submit(
        "send_email",
        {"to": "a@example.org"},
        queue="mail",
        priority="high",
        run_at=datetime(2030, 1, 2, tzinfo=UTC),
        timeout_seconds=1.5,
        max_attempts=7,
        retry_policy={"backoff": "fixed", "base_seconds": 2},
        tags=["a", "b"],
        region="eu",
    )
    assert cluster.jobs[job.id].document == {
        "name": "send_email",
        "payload": {"to": "a@example.org"},
        "queue": "mail",
        "priority": "high",
        "run_at": "2030-01-02T00:00:00Z",
        "timeout_seconds": 1.5,
        "max_attempts": 7,
        "retry_policy": {"backoff": "fixed", "base_seconds": 2},
        "tags": ["a", "b"],
        "region": "eu",
    }
    assert not job.duplicate


async def test_submit_leaves_out_what_was_not_given(cluster: Cluster, client: Client) -> None:
    job = await client.submit("tick")
    assert cluster.jobs[job.id].document == {"name": "tick"}


async def test_own_idempotency_key_finds_the_first_job(client: Client) -> None:
    first = await client.submit("pay", {"n": 1}, idempotency_key="order-7")
    second = await client.submit("pay", {"n": 1}, idempotency_key="order-7")
    assert (second.id, second.duplicate) == (first.id, True)
    with pytest.raises(Rejected) as caught:
        await client.submit("pay", {"n": 2}, idempotency_key="order-7")
    assert (caught.value.code, caught.value.http_status) == ("idempotency_mismatch", 422)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REPLY_LOST, Fault.REFUSED, Fault.UNKNOWN, Fault.GARBLED])
async def test_submit_is_retried_and_stores_one_job(cluster: Cluster, client: Client, fault: Fault) -> None:
    cluster.faults[BATCH].extend([fault] * 3)
    job = await client.submit("pay", {"n": 1})
    assert list(cluster.jobs) == [job.id]
    assert not cluster.faults[BATCH]


async def test_submits_of_the_same_moment_travel_together(cluster: Cluster, client: Client) -> None:
    jobs = await asyncio.gather(*(client.submit("tick", n) for n in range(300)))
    assert [len(body["jobs"]) for body in cluster.bodies(BATCH)] == [300]
    assert [cluster.jobs[job.id].document["payload"] for job in jobs if job.id] == list(range(300))


async def test_batches_hold_no_more_than_their_bound(cluster: Cluster) -> None:
    settings = ClientSettings(batch_jobs_max=100, early_batch_jobs=50)
    async with Client(cluster.nodes[0].url, settings=settings) as client:
        await asyncio.gather(*(client.submit("tick", n) for n in range(250)))
    assert sorted(len(body["jobs"]) for body in cluster.bodies(BATCH)) == [50, 100, 100]


async def test_one_refused_item_leaves_its_neighbours_alone(cluster: Cluster, client: Client) -> None:
    problem = {"status": 422, "code": "invalid", "detail": "jobs[0].priority: 0 to 9", "field": "jobs[0].priority"}
    cluster.item_problems.append(problem)
    bad, good = await client.submit_many([{"name": "a", "priority": 77}, {"name": "b"}])
    assert isinstance(bad, Invalid)
    assert (bad.field, str(bad)) == ("priority", "priority: 0 to 9")
    assert not isinstance(good, RaftschedError)
    assert cluster.jobs[good.id].document == {"name": "b"}


async def test_request_refused_as_a_whole_costs_only_the_job_at_fault(cluster: Cluster, client: Client) -> None:
    names = ["a", "b", "poison", "c", "d", "poison", "e"]
    results = await client.submit_many([{"name": name} for name in names])
    assert [isinstance(result, Invalid) for result in results] == [name == "poison" for name in names]
    assert sorted(job.document["name"] for job in cluster.jobs.values()) == ["a", "b", "c", "d", "e"]


async def test_only_the_unknown_items_of_a_batch_go_again(cluster: Cluster, client: Client) -> None:
    cluster.item_problems.append({"status": 503, "code": "unavailable", "detail": "later"})
    results = await client.submit_many([{"name": "a"}, {"name": "b"}, {"name": "c"}])
    assert [len(body["jobs"]) for body in cluster.bodies(BATCH)] == [3, 1]
    assert [cluster.jobs[job.id].document["name"] for job in results if not isinstance(job, RaftschedError)] == [
        "a",
        "b",
        "c",
    ]


async def test_submit_says_unknown_when_an_attempt_may_have_taken_effect(cluster: Cluster) -> None:
    cluster.faults[BATCH].extend([Fault.REPLY_LOST] + [Fault.REFUSED] * 1000)
    async with Client(cluster.nodes[0].url, settings=_timeouts(0.05)) as client:
        with pytest.raises(OutcomeUnknown):
            await client.submit("pay")


async def test_submit_says_unavailable_when_every_attempt_was_refused(cluster: Cluster) -> None:
    cluster.faults[BATCH].extend([Fault.REFUSED] * 1000)
    async with Client(cluster.nodes[0].url, settings=_timeouts(0.05)) as client:
        with pytest.raises(Unavailable) as caught:
            await client.submit("pay")
    assert not isinstance(caught.value, OutcomeUnknown)


async def test_request_that_hangs_is_given_up_and_repeated(cluster: Cluster) -> None:
    cluster.faults[BATCH].append(Fault.HANGS)
    settings = ClientSettings(request_timeout_seconds=0.1, backoff_base_seconds=0.001)
    async with Client(cluster.nodes[0].url, settings=settings) as client:
        await client.submit("pay")
    assert len(cluster.jobs) == 1


@pytest.mark.parametrize("payload", [float("nan"), {"x": [1, float("-inf")]}, "\ud800", object(), {(1, 2): 3}])
async def test_payload_without_a_json_form_is_refused_before_it_is_sent(
    cluster: Cluster, client: Client, payload: Any
) -> None:
    with pytest.raises(Invalid) as caught:
        await client.submit("tick", payload)
    assert caught.value.field == "payload"
    assert not cluster.jobs


async def test_submit_many_refuses_a_misspelt_field_by_name(cluster: Cluster, client: Client) -> None:
    misspelt, nameless, good = await client.submit_many(
        [{"name": "a", "retires": 5}, {"payload": 1}, JobSpec(name="b")]
    )
    assert isinstance(misspelt, Invalid)
    assert misspelt.field == "retires"
    assert isinstance(nameless, Invalid)
    assert nameless.field == "name"
    assert [job.document["name"] for job in cluster.jobs.values()] == ["b"]
    assert not isinstance(good, RaftschedError)


async def test_submit_each_reads_a_bounded_number_ahead(cluster: Cluster, client: Client) -> None:
    read = 0

    def jobs() -> Iterator[dict[str, Any]]:
        nonlocal read
        for read in range(1, 5001):  # noqa: B007
            yield {"name": "tick"}

    results = client.submit_each(jobs())
    await anext(results)
    assert read <= 2000
    assert 1 + len([result async for result in results]) == 5000
    assert len(cluster.jobs) == 5000


async def test_submit_each_ends_what_was_read_before_a_source_that_fails(cluster: Cluster, client: Client) -> None:
    def jobs() -> Iterator[dict[str, Any]]:
        yield {"name": "a"}
        yield {"name": "b"}
        raise ValueError("line 3")

    with pytest.raises(ValueError, match="line 3"):
        await client.submit_many(jobs())
    assert [job.document["name"] for job in cluster.jobs.values()] == ["a", "b"]


async def test_submit_that_nobody_waits_for_is_still_stored(cluster: Cluster, client: Client) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await client.submit("pay")
    await cluster.until(lambda: len(cluster.jobs) == 1)
    await client.submit("next")


async def test_submit_waits_for_room_when_too_many_are_waiting(cluster: Cluster) -> None:
    settings = ClientSettings(batch_jobs_max=2, waiting_jobs_max=3, requests_in_flight_max=1)
    async with Client(cluster.nodes[0].url, settings=settings) as client:
        await asyncio.gather(*(client.submit("tick", n) for n in range(20)))
    assert len(cluster.jobs) == 20


# -- reading, waiting, cancelling -------------------------------------------------------------------------------------


async def test_wait_returns_the_result_once_the_job_is_completed(cluster: Cluster, client: Client) -> None:
    job = await client.submit("sum")
    waiting = asyncio.create_task(job.wait())
    await cluster.until(lambda: cluster.nodes[0].seen.count(f"/jobs/{job.id}") >= 2)
    stored = cluster.jobs[job.id]
    stored.status, stored.result = "completed", {"sum": 3}
    assert await waiting == {"sum": 3}


async def test_wait_raises_what_else_became_of_the_job(cluster: Cluster, client: Client) -> None:
    failed, cancelled = await client.submit("a"), await client.submit("b")
    cluster.jobs[failed.id].status = "dead_letter"
    cluster.jobs[cancelled.id].status = "cancelled"
    with pytest.raises(JobFailed) as caught:
        await failed.wait()
    assert caught.value.job.status == "dead_letter"
    with pytest.raises(JobCancelled):
        await cancelled.wait()


async def test_wait_gives_up_after_its_timeout(client: Client) -> None:
    job = await client.submit("slow")
    with pytest.raises(TimeoutError) as caught:
        await job.wait(timeout=0.5)
    assert str(caught.value) == f"job {job.id} was not finished within 0.5 seconds: it is queued"


async def test_wait_that_hears_nothing_says_so(cluster: Cluster, client: Client) -> None:
    job = await client.submit("slow")
    cluster.faults[f"/jobs/{job.id}"].append(Fault.HANGS)
    with pytest.raises(TimeoutError, match=r"within 0\.01 seconds: its status could not be read"):
        await job.wait(timeout=0.01)


async def test_client_is_refused_in_another_loop_than_its_own(cluster: Cluster, client: Client) -> None:
    async def list_jobs() -> None:
        async for _ in client.list():
            pass

    for call in (
        client.submit("there"),
        client.submit_many([JobSpec(name="there")]),
        client.get("j1"),
        list_jobs(),
        client.close(),
    ):
        with pytest.raises(RuntimeError, match="open a Client in each loop"):
            await asyncio.to_thread(asyncio.run, call)
    await client.submit("here")
    assert [job.document["name"] for job in cluster.jobs.values()] == ["here"]


async def test_closed_client_is_closed_in_every_loop(client: Client) -> None:
    await client.close()
    await asyncio.to_thread(asyncio.run, client.close())
    with pytest.raises(Unavailable):
        await asyncio.to_thread(asyncio.run, client.get("j1"))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"name": "\ud800"}, "name"),
        ({"name": "a", "delay_seconds": float("nan")}, "delay_seconds"),
        ({"name": "a", "tags": ["\ud800"]}, "tags"),
        ({"name": "a", "retry_policy": {"base_seconds": float("inf")}}, "retry_policy"),
        ({"name": "a", "payload": float("nan")}, "payload"),
    ],
)
async def test_submit_names_the_field_that_has_no_json_form(client: Client, options: Any, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        await client.submit(**options)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


async def test_change_names_the_field_that_has_no_json_form(client: Client) -> None:
    with pytest.raises(Invalid) as caught:
        await client.job("j1").update(delay_seconds=float("nan"))
    assert caught.value.field == "delay_seconds"


@pytest.mark.parametrize("wrong", [None, 7, "", "\ud800"])
async def test_what_is_no_id_is_refused_by_name(client: Client, wrong: Any) -> None:
    for call, field in (
        (lambda: client.get(wrong), "job_id"),
        (lambda: client.queue(wrong).get(), "name"),
        (lambda: client.schedules.get(wrong), "name"),
        (lambda: client.workflows.run(wrong).get(), "workflow_id"),
        (lambda: client.remove_member(wrong), "node_id"),
    ):
        with pytest.raises(Invalid) as caught:
            await call()
        assert caught.value.field == field
        assert str(caught.value).startswith(f"{field}: ")


async def test_get_of_an_unknown_job_raises_not_found(client: Client) -> None:
    with pytest.raises(NotFound):
        await client.get("00000000-0000-7000-8000-999999999999")


async def test_id_with_path_parts_stays_one_part_of_the_path(cluster: Cluster, client: Client) -> None:
    with pytest.raises(NotFound):
        await client.get("../cluster")
    assert cluster.nodes[0].seen == ["/jobs/../cluster"]


async def test_read_that_gets_no_answer_is_unavailable_never_unknown(cluster: Cluster) -> None:
    cluster.faults["/cluster"].extend([Fault.LOST] * 1000)
    async with Client(cluster.nodes[0].url, settings=_timeouts(0.05)) as client:
        with pytest.raises(Unavailable) as caught:
            await client.cluster()
    assert not isinstance(caught.value, OutcomeUnknown)


async def test_cancel_returns_the_cancelled_job(client: Client) -> None:
    job = await client.submit("a")
    assert (await job.cancel()).status == "cancelled"


async def test_token_is_sent_as_bearer(cluster: Cluster) -> None:
    async with Client(cluster.nodes[0].url, token="s3cret") as client:
        await client.cluster()
    assert cluster.nodes[0].authorization == "Bearer s3cret"


# -- the leader -------------------------------------------------------------------------------------------------------


async def test_client_follows_the_leader_that_a_follower_names() -> None:
    async with running_cluster(3) as cluster, Client(cluster.nodes[2].url, settings=QUICK) as client:
        async with asyncio.timeout(WAIT_SECONDS):
            while BATCH not in cluster.nodes[0].seen:
                await client.submit("a")
        before = cluster.nodes[2].seen.count(BATCH)
        await client.submit("b")
        assert cluster.nodes[2].seen.count(BATCH) == before
        seen = cluster.nodes[0].seen
        assert seen.index("/healthz") < seen.index(BATCH)  # it gets no work before it is known to be reachable


async def test_client_finds_the_new_leader_when_the_old_one_dies() -> None:
    async with running_cluster(3) as cluster, Client(cluster.nodes[0].url, settings=QUICK) as client:
        await client.submit("a")
        # It learns the others beside the work, and tries if they can be reached.
        await cluster.until(lambda: all("/healthz" in node.seen for node in cluster.nodes[1:]))
        await client.cluster()
        cluster.leader = cluster.nodes[1]
        await cluster.nodes[0].stop()
        await client.submit("b")
        assert [job.document["name"] for job in cluster.jobs.values()] == ["a", "b"]


async def test_client_waits_out_an_election() -> None:
    async with running_cluster(2) as cluster:
        cluster.leader = None
        for node in cluster.nodes:
            node.forwards = False
        urls = [node.url for node in cluster.nodes]
        async with Client(*urls, settings=QUICK) as client:
            submit = asyncio.create_task(client.submit("a"))
            await cluster.until(lambda: all(node.seen for node in cluster.nodes))
            cluster.leader = cluster.nodes[1]
            await submit
        assert len(cluster.jobs) == 1


async def test_overloaded_leader_is_given_the_time_it_asks_for(cluster: Cluster) -> None:
    cluster.faults["/queues"].append(Fault.OVERLOADED)
    async with Client(cluster.nodes[0].url, settings=_timeouts(0.5)) as client:
        with pytest.raises(Unavailable):
            await client.queues()  # a second is more than half of one
    assert cluster.nodes[0].seen.count("/queues") == 1


async def test_node_without_a_leader_is_asked_again_soon_whatever_it_says(cluster: Cluster) -> None:
    cluster.leader = None
    cluster.faults["/cluster"].append(Fault.OVERLOADED)
    async with Client(cluster.nodes[0].url, settings=_timeouts(0.5)) as client:
        assert await client.cluster()


async def test_leader_that_cannot_be_reached_is_used_through_a_follower() -> None:
    async with running_cluster(2) as cluster, Client(cluster.nodes[1].url, settings=QUICK) as client:
        await cluster.nodes[0].stop()  # still the leader by its name: its address is reachable for the cluster only
        for _ in range(3):
            await client.submit("a")
        assert cluster.nodes[1].seen.count(BATCH) == 3


# -- closing ----------------------------------------------------------------------------------------------------------


async def test_close_ends_a_submit_under_way_as_unknown(cluster: Cluster) -> None:
    cluster.faults[BATCH].append(Fault.HANGS)
    client = Client(cluster.nodes[0].url, settings=QUICK)
    submit = asyncio.create_task(client.submit("a"))
    await cluster.until(lambda: BATCH in cluster.nodes[0].seen)
    await client.close()
    await client.close()
    with pytest.raises(OutcomeUnknown):
        await submit
    with pytest.raises(Unavailable):
        await client.submit("b")
    with pytest.raises(Unavailable):
        await client.cluster()


def test_wrong_address_is_refused_at_once() -> None:
    with pytest.raises(Invalid):
        Client("127.0.0.1:8400")


def _timeouts(seconds: float) -> ClientSettings:
    return ClientSettings(retry_seconds=seconds, backoff_base_seconds=0.001, backoff_cap_seconds=0.01)


@pytest.mark.parametrize("actor", ["", " ", "two\nlines", "x" * 200])
def test_actor_that_is_no_name_is_refused_at_once(actor: str) -> None:
    with pytest.raises(Invalid) as caught:
        Client(actor=actor)
    assert caught.value.field == "actor"


def _fields(*structs: type[msgspec.Struct], but: set[str] = frozenset()) -> set[str]:  # type: ignore[assignment]
    return {field.encode_name for struct in structs for field in msgspec.structs.fields(struct)} - but


def test_keyword_arguments_are_the_fields_of_requests() -> None:
    named = {"name", "job", "idempotency_key", "ids", "filter", "all", "dry_run", "limit", "cursor", "action"}
    assert {
        kind.__name__: kind.__annotations__.keys() ^ fields
        for kind, fields in (
            (JobOptions, _fields(JobRequest, but={"name", "payload"})),
            (JobChanges, _fields(AmendRequest)),
            (ReplayChanges, _fields(ReplayRequest)),
            (QueueChanges, _fields(QueuePatch)),
            (bulk.JobFilter, _fields(JobFilter)),
            (bulk.DeadLetterFilter, _fields(DeadLetterFilter)),
            (bulk.ActionFields, _fields(BulkRequest, but=named)),
            (TimingOptions, _fields(TimingBody)),
            (ScheduleOptions, _fields(ScheduleRequest, but=named)),
        )
        if kind.__annotations__.keys() ^ fields
    } == {}
