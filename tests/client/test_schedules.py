"""Schedules, against the real API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from raftsched import limits
from raftsched.api.schedules import backfill as backfilling
from raftsched.client import Client, JobSpec, schedules
from raftsched.errors import Invalid, NotFound, Rejected
from tests.api.node import StillClock
from tests.client.cluster import QUICK
from tests.client.real import RealNode
from tests.client.test_control import lost_replies


@pytest.fixture
async def client(node: RealNode) -> AsyncIterator[Client]:
    async with Client(node.api_url, settings=QUICK) as opened:
        yield opened


async def test_saved_schedule_reads_back_and_saving_it_again_changes_nothing(client: Client) -> None:
    options = {
        "cron": "0 9 * * mon-fri",
        "timezone": "Europe/Berlin",
        "overlap": "buffer_one",
        "calendar": {"skip_dates": ["2030-01-01"]},
    }
    saved = await client.schedules.save("report", JobSpec(name="report", payload={"n": None}), **options)  # type: ignore[arg-type]  # as from a file
    again = await client.schedules.save("report", {"name": "report", "payload": {"n": None}}, **options)  # type: ignore[arg-type]  # as above
    assert (again.id, again.generation) == (saved.id, saved.generation)
    read = await client.schedules.get("report")
    assert (read.cron, read.timezone, read.overlap, read.status) == (
        "0 9 * * mon-fri",
        "Europe/Berlin",
        "buffer_one",
        "active",
    )
    assert (read.job["name"], read.job["payload"]) == ("report", {"n": None})
    assert read.next_at is not None
    assert (await client.schedules.get(saved.id)).name == "report"


async def test_schedule_is_created_or_changed_only_as_was_asked(client: Client) -> None:
    saved = await client.schedules.save("s", {"name": "a"}, every="1h")
    with pytest.raises(Rejected):
        await client.schedules.save("s", {"name": "a"}, every="2h", create_only=True)
    changed = await client.schedules.update("s", if_revision=saved.revision, every="2h", jitter_seconds=5)
    assert (changed.every, changed.jitter_seconds) == ("2h", 5)
    with pytest.raises(Rejected) as caught:
        await client.schedules.save("s", {"name": "a"}, every="3h", if_revision=saved.revision)
    assert caught.value.code == "stale_revision"
    told = await client.schedules.update("s", owner="ops", labels={"team": "shop"})
    assert (told.owner, told.labels, told.description) == ("ops", {"team": "shop"}, None)
    assert [each.name async for each in client.schedules.list(owner="ops", label="team=shop")] == ["s"]
    assert [each.name async for each in client.schedules.list(label="team=dev")] == []
    without = await client.schedules.update("s", jitter_seconds=None, job={"priority": 9})
    assert (without.jitter_seconds, without.job["priority"], without.job["name"]) == (None, 9, "a")


async def test_schedule_that_ran_since_it_was_read_is_changed_unless_somebody_changed_it(client: Client) -> None:
    await client.schedules.save("s", {"name": "a"}, every="1h", overlap="allow")
    await client.schedules.trigger("s")
    read = await client.schedules.get("s")
    await client.schedules.trigger("s")
    changed = await client.schedules.update("s", if_revision=read.revision, misfire="skip")
    assert changed.changed_revision == changed.revision > read.revision > read.changed_revision
    await client.schedules.trigger("s")
    again = await client.schedules.update("s", if_revision=changed.changed_revision, misfire="run_all")
    assert (again.misfire, len(again.active), again.backfilling) == ("run_all", 3, [])
    await client.schedules.pause("s")
    with pytest.raises(Rejected) as caught:
        await client.schedules.update("s", if_revision=again.revision, misfire="skip")
    assert caught.value.code == "stale_revision"


@pytest.mark.parametrize(
    ("options", "job", "field"),
    [
        ({"cron": "61 * * * *"}, {"name": "a"}, "cron"),
        ({"every": "1h", "timezone": "Mars/Olympus"}, {"name": "a"}, "timezone"),
        ({"every": "1h"}, {"name": "a", "run_at": "2030-01-01T00:00:00Z"}, "job.run_at"),
        ({"every": "1h", "overlap": "pile_up"}, {"name": "a"}, "overlap"),
    ],
)
async def test_field_at_fault_is_named(
    client: Client, options: dict[str, str], job: dict[str, str], field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await client.schedules.save("s", job, **options)  # type: ignore[arg-type]  # that is the test
    assert caught.value.field == field


async def test_paused_schedule_is_listed_as_such_and_resumed(client: Client) -> None:
    for name in ("a", "b", "c"):
        await client.schedules.save(name, {"name": name}, every="1h")
    paused = await client.schedules.pause("b", for_seconds=60, reason="freeze")
    assert paused.pause is not None
    assert (paused.status, paused.pause.reason) == ("paused", "freeze")
    assert [each.name async for each in client.schedules.list(paused=True)] == ["b"]
    assert [each.name async for each in client.schedules.list(page_size=2)] == ["a", "b", "c"]
    assert (await client.schedules.next("b")).paused
    assert (await client.schedules.resume("b")).status == "active"


async def test_trigger_makes_one_run_however_often_it_is_sent(node: RealNode, client: Client) -> None:
    await client.schedules.save("s", {"name": "a", "payload": 1}, every="1h", overlap="allow")
    lost_replies(node, 2)
    first = await client.schedules.trigger("s", payload=None)
    second = await client.schedules.trigger("s")
    assert first.fired
    assert second.fired
    jobs = [job async for job in client.list(name="a")]
    assert {job.id for job in jobs} == {first.job_id, second.job_id}
    assert sorted([job.payload for job in jobs], key=str) == [1, None]
    firings = [firing async for firing in client.schedules.firings("s", kind="manual", page_size=1)]
    assert [firing.job_id for firing in firings] == [second.job_id, first.job_id]


async def test_trigger_gives_values_of_parameters_and_the_one_at_fault_is_named(client: Client) -> None:
    rows = {"name": "rows", "type": "integer", "required": True}
    saved = await client.schedules.save("s", {"name": "a"}, parameters=[rows, {"name": "note", "default": "n"}])
    assert (saved.status, saved.parameters[0]) == ("manual", rows)
    run = await client.schedules.trigger("s", parameters={"rows": 3})
    assert run.job_id is not None
    assert (await client.get(run.job_id)).parameters == {"rows": 3, "note": "n"}
    for parameters in ({"rows": "3"}, {}):
        with pytest.raises(Invalid) as caught:
            await client.schedules.trigger("s", parameters=parameters)
        assert caught.value.field == "parameters.rows"


async def test_trigger_that_meets_a_run_is_skipped_and_says_why(client: Client) -> None:
    await client.schedules.save("s", {"name": "a"}, every="1h")
    assert (await client.schedules.trigger("s")).fired
    skipped = await client.schedules.trigger("s")
    assert (skipped.fired, skipped.job_id, skipped.reason) == (False, None, "overlap")


async def test_backfill_is_tried_dry_then_made_once(client: Client) -> None:
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
    await client.schedules.save("s", {"name": "a"}, cron="0 * * * *")
    end = start + timedelta(hours=3)
    dry = await client.schedules.backfill("s", start, end, dry_run=True)
    assert (dry.run_count, len(dry.instants), dry.dry_run) == (3, 3, True)
    assert [job async for job in client.list(name="a")] == []
    made = await client.schedules.backfill("s", start, end, overlap="allow")
    again = await client.schedules.backfill("s", start, end, overlap="allow")
    assert (made.run_count, again.run_count, again.known_count) == (3, 0, 3)
    assert [item.instant for item in made.instants] == [start + timedelta(hours=n) for n in range(3)]
    assert len([job async for job in client.list(name="a")]) == 3


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_backfill_goes_on_to_the_end_of_its_range(
    node: RealNode, client: Client, monkeypatch: pytest.MonkeyPatch, order: Literal["asc", "desc"]
) -> None:
    monkeypatch.setattr(limits, "DECISIONS_MAX", 2)
    monkeypatch.setattr(backfilling, "_SECONDS_MAX", -1.0)  # each request makes one part
    start = datetime(2026, 1, 1, tzinfo=UTC)
    await client.schedules.save("s", {"name": "a"}, cron="@daily")
    known = await client.schedules.backfill("s", start, start + timedelta(days=1), overlap="allow")
    lost_replies(node, 1)
    end = start + timedelta(days=6)
    made = await client.schedules.backfill("s", start, end, overlap="allow", order=order)
    assert (made.run_count, made.known_count, made.remaining_count, made.next_instant) == (5, 1, 0, None)
    instants = [item.instant for item in made.instants]
    assert sorted(instants, reverse=order == "desc") == instants == list(dict.fromkeys(instants))
    jobs = {job.id async for job in client.list(name="a")}
    assert jobs == {item.job_id for item in made.instants} >= {item.job_id for item in known.instants}
    assert len(jobs) == 6


async def test_backfill_waits_for_room_as_long_as_its_caller_has_patience(
    node: RealNode, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_ACTIVE_MAX", 2)
    monkeypatch.setattr(schedules, "PAUSE_SECONDS", 0.0)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    end = start + timedelta(days=5)
    await client.schedules.save("s", {"name": "a"}, cron="@daily")
    dry = await client.schedules.backfill("s", start, end, dry_run=True)
    assert (dry.run_count, dry.remaining_count, len(dry.instants)) == (2, 3, 5)
    part = await client.schedules.backfill("s", start, end, overlap="allow", patience_seconds=0)
    assert (part.run_count, part.remaining_count, part.next_instant) == (2, 3, start + timedelta(days=2))
    rest = asyncio.create_task(client.schedules.backfill("s", start, end, overlap="allow", patience_seconds=60))
    cancelled: set[str] = set()
    while not rest.done():
        for job in [job async for job in client.list(name="a", status="queued")]:
            await client.job(job.id).cancel()
            cancelled.add(job.id)
    assert ((await rest).run_count, (await rest).known_count, (await rest).remaining_count) == (3, 2, 0)
    assert len(cancelled | {job.id async for job in client.list(name="a")}) == 5


async def test_preview_stores_nothing(client: Client) -> None:
    outlook = await client.schedules.preview(
        cron="30 2 * * *", timezone="Europe/Berlin", after="2027-03-27T12:00:00Z", count=2
    )
    assert outlook.firings == [datetime(2027, 3, 28, 1, 0, tzinfo=UTC), datetime(2027, 3, 29, 0, 30, tzinfo=UTC)]
    assert [each async for each in client.schedules.list()] == []


async def test_file_is_compared_then_applied(client: Client) -> None:
    await client.schedules.apply(
        [{"name": name, "every": "1h", "job": {"name": "a"}} for name in ("old", "kept")], source="app"
    )
    file = [
        {"name": "kept", "every": "2h", "job": {"name": "a"}},
        {"name": "new", "cron": "@daily", "job": {"name": "b"}},
    ]
    with pytest.raises(Invalid, match="source") as refused:
        await client.schedules.apply(file, prune=True)
    assert refused.value.field == "source"
    dry = await client.schedules.apply(file, source="app", prune=True, dry_run=True)
    assert (dry.created, [each.name for each in dry.changed], dry.pruned) == (["new"], ["kept"], ["old"])
    assert [change.field for change in dry.changed[0].changes] == ["every"]
    assert [each.name async for each in client.schedules.list()] == ["kept", "old"]
    await client.schedules.apply(file, source="app", prune=True)
    assert [each.name async for each in client.schedules.list()] == ["kept", "new"]
    assert [each.name async for each in client.schedules.list(source="app")] == ["kept", "new"]
    assert [each async for each in client.schedules.list(source="other")] == []
    assert (await client.schedules.apply(file, source="app")).unchanged == ["kept", "new"]


async def test_deleted_schedule_is_gone(client: Client) -> None:
    await client.schedules.save("s", {"name": "a"}, every="1h")
    await client.schedules.delete("s")
    with pytest.raises(NotFound):
        await client.schedules.get("s")


async def test_callers_share_a_run_only_if_they_give_the_same_key_or_instant(node: RealNode) -> None:
    clock = StillClock()
    async with (
        Client(node.api_url, settings=QUICK, clock=clock) as one,
        Client(node.api_url, settings=QUICK, clock=clock) as two,
    ):
        await one.schedules.save("s", {"name": "a"}, every="1h", overlap="allow")
        calls = [client.schedules.trigger("s", payload={"n": n}) for n in range(20) for client in (one, two)]
        assert len({firing.job_id for firing in await asyncio.gather(*calls)}) == 40
        for same in ({"idempotency_key": "order 17"}, {"instant": "2026-03-01T00:00:00Z"}):
            first = await one.schedules.trigger("s", payload=1, **same)  # type: ignore[arg-type]  # a test's own words
            assert await two.schedules.trigger("s", payload=1, **same) == first  # type: ignore[arg-type]  # as above
            with pytest.raises(Rejected) as caught:
                await two.schedules.trigger("s", payload=2, **same)  # type: ignore[arg-type]  # as above
            assert (caught.value.code, caught.value.field) == ("idempotency_mismatch", next(iter(same)))


async def test_backfill_whose_replies_were_lost_says_what_it_made(node: RealNode, client: Client) -> None:
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
    await client.schedules.save("s", {"name": "a"}, cron="0 * * * *")
    lost_replies(node, 2)
    made = await client.schedules.backfill("s", start, start + timedelta(hours=3), overlap="allow")
    assert (made.run_count, made.known_count, made.next_instant) == (3, 0, None)
    assert len([job async for job in client.list(name="a")]) == 3


async def test_period_may_be_a_timedelta(client: Client) -> None:
    saved = await client.schedules.save("s", {"name": "a"}, every=timedelta(minutes=90))
    assert saved.every == "1h30m"
    assert (await client.schedules.update("s", every=timedelta(milliseconds=2_500))).every == "2s500ms"
    assert len((await client.schedules.preview(every=timedelta(hours=1), count=2)).firings) == 2
    for wrong in (timedelta(0), timedelta(hours=-1), timedelta(seconds=1, microseconds=1)):
        with pytest.raises(ValueError, match="every"):
            await client.schedules.save("s", {"name": "a"}, every=wrong)


async def test_what_cannot_be_meant_is_refused_before_it_is_sent(node: RealNode, client: Client) -> None:
    with pytest.raises(ValueError, match="create_only"):
        await client.schedules.save("s", {"name": "a"}, every="1h", create_only=True, if_revision=1)
    with pytest.raises(TypeError, match="job"):
        await client.schedules.save("s", "report", every="1h")  # type: ignore[arg-type]  # that is the test
    assert node.proposed == []


async def test_two_runs_by_hand_in_the_same_millisecond_are_two(node: RealNode) -> None:
    async with Client(node.api_url, settings=QUICK, clock=StillClock()) as client:
        await client.schedules.save("s", {"name": "a"}, every="1h", overlap="allow")
        firings = [await client.schedules.trigger("s") for _ in range(3)]
        assert len({firing.job_id for firing in firings}) == 3
