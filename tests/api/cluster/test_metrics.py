"""Metrics as Prometheus reads them: of every kind of event, from the API of a node."""

from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.metrics import catalog
from tests.api.node import Api, run_of
from tests.metrics.scene import above_zero, scraped, values


async def read(api: Api) -> dict[str, float]:
    answer = await api.get("/metrics")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return scraped(answer.body.decode())


async def test_metrics_count_jobs_from_submission_to_each_end(api: Api) -> None:
    await api.submit_many(4, name="mail", max_attempts=1)
    await api.submit(name="mail", delay_seconds=60)
    api.node.clock.now_ms += 2_000
    done, dead, snoozed, _ = await api.lease("mail", capacity=4)
    api.node.clock.now_ms += 3_000
    await api.report(
        run_of(done, status="completed"),
        run_of(dead, status="failed", error={"type": "E", "message": "m"}),
        run_of(snoozed, status="snoozed", snooze_seconds=600),
    )
    found = values(api.node.readings())
    jobs = {"completed": 1, "dead_letter": 1, "running": 1, "scheduled": 2}
    assert above_zero(found["jobs"]) == {("mail", status): count for status, count in jobs.items()}
    assert found["jobs_submitted_total"] == {("mail",): 5}
    assert above_zero(found["jobs_finished_total"]) == {("mail", "completed"): 1, ("mail", "dead_letter"): 1}
    assert above_zero(found["attempts_total"]) == {("mail", end): 1 for end in ("completed", "failed", "snoozed")}
    assert (found["start_lag_seconds"], found["run_seconds"]) == ({("mail",): 4}, {("mail",): 3})
    assert above_zero(found["dead_letters"]) == {("attempts_exhausted",): 1}
    assert found["workers"] == {(): 1}
    text = await read(api)
    assert text['raftsched_start_lag_seconds_bucket{le="1.0",queue="mail"}'] == 0
    assert text['raftsched_start_lag_seconds_bucket{le="5.0",queue="mail"}'] == 4
    assert text['raftsched_run_seconds_sum{queue="mail"}'] == 9
    assert text['raftsched_http_request_seconds_count{route="POST /api/v1/jobs",status="201"}'] == 1
    [letter] = await api.all("dead-letters", "jobs")
    await api.post(f"jobs/{letter['id']}/retry", {})
    assert above_zero(values(api.node.readings())["dead_letters"]) == {}


async def test_metrics_show_what_waits_and_what_is_paused(api: Api) -> None:
    await api.submit(name="mail")
    await api.submit(name="mail", delay_seconds=5)
    await api.post("queues/mail/pause", {"reason": "broken"})
    paused_at = api.node.clock.now_ms / 1000
    api.node.clock.now_ms += 9_000
    found = values(api.node.readings())
    assert above_zero(found["jobs"]) == {("mail", "queued"): 2}, "a due job is queued, whatever is stored"
    assert found["queue_oldest_ready_seconds"] == {("mail",): 9}
    assert (found["queue_paused"], found["queue_paused_since_timestamp_seconds"]) == (
        {("mail",): 1},
        {("mail",): paused_at},
    )
    await api.post("queues/mail/resume", {})
    found = values(api.node.readings())
    assert found["queue_paused"] == {("mail",): 0}
    assert "queue_paused_since_timestamp_seconds" not in found


async def test_wait_of_a_job_begins_once_its_parents_have_ended_and_no_pause_holds_it(api: Api) -> None:
    parent = await api.submit(name="first")
    await api.submit(name="child", depends_on=[parent["id"]])
    held = await api.submit(name="held")
    await api.post(f"jobs/{held['id']}/pause", {})
    api.node.clock.now_ms += 600_000
    await api.end("first")
    await api.post(f"jobs/{held['id']}/resume", {})
    api.node.clock.now_ms += 2_000
    waits = values(api.node.readings())["queue_oldest_ready_seconds"]
    assert (waits["child",], waits["held",]) == (2, 2)
    await api.end("child")
    await api.end("held")
    text = await read(api)
    assert [text[f'raftsched_start_lag_seconds_sum{{queue="{queue}"}}'] for queue in ("first", "child", "held")] == [
        600,
        2,
        2,
    ]


async def test_queues_without_a_label_of_their_own_share_one(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METRIC_QUEUES_MAX", 2)
    monkeypatch.setattr(limits, "METRIC_QUEUES_READ_MAX", 2)
    for queue in ("a", "b", "c", "other", "e", "f"):
        await api.submit(name=queue)
        api.node.clock.now_ms += 1_000
    await api.post("queues/e/pause", {})
    await api.post("queues/f/pause", {})
    for _ in range(4):  # a round over all queues
        found = values(api.node.readings())
    assert found["jobs_submitted_total"] == {("a",): 1, ("b",): 1, ("other",): 4}
    assert above_zero(found["jobs"]) == {("a", "queued"): 1, ("b", "queued"): 1, ("other", "queued"): 4}
    assert found["queue_oldest_ready_seconds"] == {("a",): 6, ("b",): 5, ("other",): 4}
    assert found["queue_paused"] == {("a",): 0, ("b",): 0, ("other",): 2}
    await api.end("c")
    found = values(api.node.readings())
    assert found["queue_oldest_ready_seconds"]["other",] == 3, "the wait of a job that was leased is not reported"
    assert above_zero(found["attempts_total"]) == {("other", "completed"): 1}


async def test_metrics_count_fire_times_by_their_decision(api: Api) -> None:
    await api.post("schedules", {"name": "s", "job": {"name": "report"}, "every": "60s", "misfire": "run_all"})
    [schedule] = await api.all("schedules", "schedules")
    answer = await api.post(f"schedules/{schedule['id']}/trigger", {})
    assert answer.status in (200, 201), answer.body
    assert above_zero(values(api.node.readings())["firings_total"]) == {("fired",): 1}
    await api.post(f"schedules/{schedule['id']}/trigger", {"overlap": "skip"})
    assert above_zero(values(api.node.readings())["firings_total"]) == {("fired",): 1, ("skipped_overlap",): 1}


async def test_only_a_leader_tells_the_numbers_of_the_cluster_and_an_election_makes_none_of_them_zero(
    api: Api, follower: Api
) -> None:
    await follower.submit(name="mail")
    assert 'raftsched_jobs{queue="mail",status="queued"}' in await read(api)
    of_follower = await read(follower)
    assert {name.partition("{")[0].rpartition("_")[0] for name in of_follower} == {"raftsched_http_request_seconds"}
    api.node.is_leading = False
    assert not [name for name in await read(api) if "_http_" not in name]


async def test_scrape_reads_and_writes_no_more_if_there_are_more_queues_and_jobs(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reads, lines = api.node.state._store, [], []
    scan = store.scan
    for more in range(4):
        queues = [f"q{number:04}" for number in range(400 * more, 400 * more + 400)]
        if more < 3:
            await api.post("jobs/batch", {"jobs": [{"name": "x", "queue": queue} for queue in queues * 2]})
        else:
            cancelled = await api.post("jobs/bulk", {"action": "cancel", "all": True, "limit": 10_000})
            assert cancelled.json["done"] == 2 * 3 * 400, cancelled.body
        api.node.clock.now_ms += 1_000
        scans: list[str] = []
        with monkeypatch.context() as watched:
            watched.setattr(store, "scan", lambda *a, scans=scans, **k: (scans.append("x"), scan(*a, **k))[1])
            lines.append(sum(each.metric is not catalog.HTTP_REQUEST_SECONDS for each in api.node.readings()))
        reads.append(len(scans))
    assert max(reads) <= 3 * (limits.METRIC_QUEUES_MAX + limits.METRIC_QUEUES_READ_MAX)
    assert len(set(lines)) == 1
