from __future__ import annotations

import random
from typing import Any

import pytest

from raftsched import limits
from raftsched.api.backend import Backend
from raftsched.api.http.consistency import REVISION_HEADER, Reading, open_reading
from raftsched.api.jobs.convert import submit_operation
from raftsched.api.jobs.lists import pages as listing
from raftsched.core.operations.codec import CancelJob, PurgeJobs
from raftsched.core.records.ids import JobId, TimeMs, job_id_text, parse_job_id
from raftsched.core.records.spec import Options
from raftsched.wire.common import ReadQuery
from raftsched.wire.jobs import JobRequest
from tests.api.node import START_MS, Api, Fault, SimulatedNode, malformed, misjudged, serving
from tests.core.scene import with_fields


async def _ids(api: Api, **query: Any) -> list[str]:
    return [job["id"] for job in await api.all("jobs", "jobs", **query)]


async def test_list_of_nothing_is_one_empty_page(api: Api) -> None:
    assert (await api.get("jobs")).json == {"jobs": [], "next_cursor": None}


@pytest.mark.parametrize("limit", [1, 7, 25, 26, 1000])
async def test_list_shows_every_job_once_in_order(api: Api, limit: int) -> None:
    ids = await api.submit_many(25)
    assert await _ids(api, limit=limit) == ids
    assert await _ids(api, limit=limit, order="desc") == ids[::-1]


async def test_list_shows_the_same_job_as_get(api: Api) -> None:
    job = await api.submit(payload={"a": 1}, tags=["t"])
    assert (await api.get("jobs")).json["jobs"] == [job]


async def test_list_takes_100_jobs_a_page_by_default(api: Api) -> None:
    await api.submit_many(101)
    assert [len(page) for page in await api.pages("jobs", "jobs")] == [100, 1]


_WRONG: list[Fault] = [
    *malformed(
        {
            "limit": ["0", "1001", "x"],
            "order": ["up"],
            "status": ["runing", "queued,runing", ""],
            "queue": ["../x"],
            "tag": [""],
            "tenant": ["a b"],
            "schedule": ["x"],
            "workflow": ["x"],
            "created_after": ["yesterday"],
            "reason": ["", "attempts_exhausted,timeout"],
            "cursor": ["x", "gA==", "\x00", "é", "A" * 1001],
        }
    ),
]


async def test_list_refuses_wrong_parameters_by_name(api: Api) -> None:
    assert await misjudged(_WRONG, lambda query: api.get("jobs", **query)) == []


async def test_list_of_a_misspelt_status_says_what_was_meant(api: Api) -> None:
    assert "did you mean running?" in (await api.get("jobs", status="runing")).json["detail"]


async def test_list_by_a_reason_that_there_is_not_names_those_that_there_are(api: Api) -> None:
    answer = await api.get("jobs", reason="timeuot", status="dead_letter")
    assert (answer.status, answer.json["field"]) == (400, "reason")
    assert "did you mean timeout?" in answer.json["detail"]


async def test_list_refuses_the_cursor_of_another_list(api: Api) -> None:
    await api.submit_many(3)
    cursor = (await api.get("jobs", limit=1)).json["next_cursor"]
    answer = await api.get("jobs", limit=1, cursor=cursor, order="desc")
    assert (answer.status, answer.json["field"]) == (400, "cursor")


async def test_list_filters_by_queue_name_and_tag(api: Api) -> None:
    for name, queue, tags in [("a", "q1", ["t"]), ("a", "q2", ["t", "u"]), ("b", "q1", []), ("b", "q2", ["u"])]:
        await api.submit(name=name, queue=queue, tags=tags)
    ids = await _ids(api)
    assert await _ids(api, name="a") == ids[:2]
    assert await _ids(api, queue="q1") == [ids[0], ids[2]]
    assert await _ids(api, tag="u") == [ids[1], ids[3]]
    assert await _ids(api, tag="u", name="b", limit=1) == [ids[3]]
    assert await _ids(api, tag="v") == []


async def test_list_by_status_goes_by_the_status_that_users_see(api: Api) -> None:
    later = (await api.submit(name="later", delay_seconds=60))["id"]
    soon = (await api.submit(name="soon", delay_seconds=1))["id"]
    now = (await api.submit(name="now"))["id"]
    cancelled = (await api.submit(name="gone"))["id"]
    api.node.apply(CancelJob(parse_job_id(cancelled), "default"))
    api.node.clock.now_ms += 1_000
    assert await _ids(api, status="scheduled") == [later]
    assert sorted(await _ids(api, status="queued", limit=1)) == sorted([now, soon])
    assert await _ids(api, status="cancelled") == [cancelled]
    assert await _ids(api, status="paused") == []


async def test_list_by_status_filters_too(api: Api) -> None:
    await api.submit_many(5, queue="q1")
    wanted = await api.submit_many(5, queue="q2")
    assert await _ids(api, status="queued", queue="q2", limit=2) == wanted


async def test_list_filters_by_tenant_reason_and_time(api: Api) -> None:
    first = await api.submit(name="a", tenant="acme", max_attempts=1)
    await api.end("a", status="failed")
    api.node.clock.now_ms += 60_000
    second = await api.submit(name="b")
    api.node.clock.now_ms += 60_000
    third = await api.submit(name="a")
    ids = [first["id"], second["id"], third["id"]]
    assert await _ids(api) == ids
    assert await _ids(api, tenant="acme") == ids[:1]
    assert await _ids(api, tenant="default") == ids[1:]
    assert await _ids(api, reason="attempts_exhausted") == ids[:1]
    assert await _ids(api, reason="attempts_exhausted", status="queued") == []
    for order in ("asc", "desc"):
        step = 1 if order == "asc" else -1
        assert await _ids(api, created_after=second["created_at"], order=order) == ids[1:][::step]
        assert await _ids(api, created_before=third["created_at"], order=order, limit=1) == ids[:2][::step]
        middle = {"created_after": "2030-03-17T17:47:00Z", "created_before": "2030-03-17T17:48:00Z"}
        assert await _ids(api, order=order, **middle) == ids[1:2]


async def test_list_by_time_does_not_look_at_all_the_jobs_before(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCAN_ROWS_MAX", 10)
    monkeypatch.setattr(limits, "PAGE_ROWS_MAX", 10)
    await api.submit_many(100)
    api.node.clock.now_ms += 3_600_000
    ids = await api.submit_many(2)
    pages = await api.pages("jobs", "jobs", created_after="2030-03-17T18:00:00Z")
    assert [[job["id"] for job in page] for page in pages] == [ids]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_list_by_several_statuses_shows_one_after_the_other(api: Api, order: str, limit: int) -> None:
    queued = await api.submit_many(3)
    paused = await api.submit_many(3, paused=True)
    await api.submit_many(3, delay_seconds=60)
    step = 1 if order == "asc" else -1
    ids = await _ids(api, status="paused,queued", order=order, limit=limit)
    assert ids == paused[::step] + queued[::step]
    assert await _ids(api, status="paused,paused,completed", order=order, limit=limit) == paused[::step]


async def test_list_by_schedule_shows_its_runs_only(api: Api) -> None:
    job = await api.submit()
    schedule_id, run_id = api.node.new_job_id(), api.node.new_job_id()
    run = submit_operation(JobRequest(name="x"), job_id=run_id, now_ms=START_MS)
    options = Options(schedule_id=schedule_id, fire_time_ms=TimeMs(START_MS))
    api.node.apply(with_fields(run, options=options))
    assert await _ids(api, schedule=job["id"]) == []
    assert await _ids(api, schedule=job_id_text(schedule_id)) == [job_id_text(run_id)]
    shown = (await api.get(f"jobs/{job_id_text(run_id)}")).json
    assert (shown["schedule_id"], shown["instant"]) == (job_id_text(schedule_id), shown["run_at"])


async def test_list_page_ends_where_its_texts_grow_too_large(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAGE_BYTES_MAX", 1_000)
    ids = await api.submit_many(10, payload="y" * 300)
    pages = await api.pages("jobs", "jobs")
    assert [len(page) for page in pages] == [4, 4, 2]
    assert [job["id"] for page in pages for job in page] == ids


async def test_list_examines_a_bounded_number_of_jobs_a_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that no index lists are searched for: a page ends at the bound, also without a job."""
    monkeypatch.setattr(limits, "SCAN_ROWS_MAX", 5)
    monkeypatch.setattr(limits, "PAGE_ROWS_MAX", 10)
    [first] = await api.submit_many(1)
    await api.submit_many(25, tenant="many")
    [second] = await api.submit_many(1)
    await api.submit_many(25, tenant="many")
    pages = await api.pages("jobs", "jobs", tenant="default")
    assert [[job["id"] for job in page] for page in pages] == [[first], [], [second], [], [], []]


N09_FILTERS: list[dict[str, str]] = [
    {"queue": "bulk"},
    {"name": "bulk3"},
    {"tag": "rare"},
    {"queue": "bulk", "status": "scheduled"},
    {"queue": "bulk", "status": "completed"},
    {"queue": "bulk", "status": "paused"},
    {"queue": "bulk", "status": "retrying,queued"},
    {"name": "bulk3", "status": "scheduled"},
    {"name": "bulk3", "status": "cancelled"},
    {"tag": "rare", "status": "scheduled"},
    {"tag": "rare", "queue": "bulk", "name": "bulk3"},
    {"queue": "bulk", "name": "noise"},
    {"tenant": "small"},
    {"tenant": "small", "status": "scheduled"},
    {"tenant": "small", "status": "paused,cancelled"},
    {"tenant": "small", "queue": "bulk", "status": "queued"},
    {"tenant": "small", "name": "noise"},
    {"tenant": "nobody"},
]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_lists_by_queue_name_tag_and_tenant_have_full_pages_whatever_else_there_is(
    api: Api, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Case N09: each page is full but the last, in one order, and few rows are read for it."""
    monkeypatch.setattr(limits, "SCAN_ROWS_MAX", 10)
    monkeypatch.setattr(limits, "PAGE_ROWS_MAX", 40)  # all that wait in the queue: a page of none ends there, too
    noise = await api.submit_many(400, name="noise")
    for job_id in noise[:200]:
        api.node.apply(CancelJob(parse_job_id(job_id), "default"))
    await api.submit_many(200, name="noise", delay_seconds=5)
    for number in range(40):
        fields = {"paused": True} if number % 10 == 0 else {"delay_seconds": 60}
        tags = ["rare"] if number == 17 else ["common"]
        tenant = "small" if number % 5 == 0 else "default"
        await api.submit(name=f"bulk{number % 4}", queue="bulk", tags=tags, tenant=tenant, **fields)
    gone = (await api.submit(name="bulk3", queue="bulk", tags=["common"]))["id"]
    api.node.apply(CancelJob(parse_job_id(gone), "default"))
    everything = await api.all("jobs", "jobs", limit=1_000, order=order)
    store, examined = api.node.state._store, 0
    scan = type(store).scan

    def counting_scan(*args: Any, **kwargs: Any) -> Any:
        nonlocal examined
        rows = scan(*args, **kwargs)
        examined += len(rows)
        return rows

    monkeypatch.setattr(type(store), "scan", counting_scan)
    wrong: list[object] = []
    for filters in N09_FILTERS:
        wanted = [job["id"] for job in everything if _is_wanted(job, filters)]
        examined = 0
        pages = await api.pages("jobs", "jobs", limit=10, order=order, **filters)
        found = [job["id"] for page in pages for job in page]
        full = [len(page) == 10 for page in pages[:-1]]
        if sorted(found) != sorted(wanted) or not all(full) or examined > 40 * len(pages) + 4 * len(found) + 100:
            wrong.append((filters, len(wanted), [len(page) for page in pages], examined))
        if "status" not in filters and found != wanted:
            wrong.append((filters, "the order of submission"))
    assert not wrong


def _is_wanted(job: dict[str, Any], filters: dict[str, str]) -> bool:
    return (
        job["queue"] == filters.get("queue", job["queue"])
        and job["name"] == filters.get("name", job["name"])
        and job["tenant"] == filters.get("tenant", job["tenant"])
        and ("tag" not in filters or filters["tag"] in job["tags"])
        and ("status" not in filters or job["status"] in filters["status"].split(","))
    )


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("filters", [{}, {"status": "queued"}, {"status": "paused,queued,completed"}])
async def test_list_of_few_among_many_is_one_page(
    api: Api, monkeypatch: pytest.MonkeyPatch, order: str, filters: dict[str, str]
) -> None:
    monkeypatch.setattr(limits, "SCAN_ROWS_MAX", 10)
    await api.submit_many(25, queue="a")
    wanted = await api.submit_many(3, queue="b")
    await api.submit_many(25, queue="c")
    pages = await api.pages("jobs", "jobs", queue="b", order=order, **filters)
    assert [[job["id"] for job in page] for page in pages] == [wanted if order == "asc" else wanted[::-1]]


async def test_list_lets_others_go_on_between_its_steps(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCAN_ROWS_MAX", 10)
    await api.submit_many(30, tenant="many")
    [rare] = await api.submit_many(1)
    steps: list[Reading] = []

    def opened(backend: Backend, query: ReadQuery) -> Reading:
        steps.append(open_reading(backend, query))
        if len(steps) == 2:
            _remove(api, [rare])
        return steps[-1]

    monkeypatch.setattr(listing, "open_reading", opened)
    answer = await api.get("jobs", tenant="default")
    assert answer.json == {"jobs": [], "next_cursor": None}
    assert int(answer.headers[REVISION_HEADER]) < api.node.state.applied_index, "the revision at which it was begun"


@pytest.mark.parametrize(("query", "added"), [({}, 5), ({"status": "queued"}, 1), ({"queue": "x"}, 5)])
async def test_walk_leaves_out_what_is_submitted_after_it_began_and_ends(
    api: Api, query: dict[str, str], added: int
) -> None:
    ids = await api.submit_many(6)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(20):
        page = (await api.get("jobs", limit=2, **query, **cursor)).json
        seen += [job["id"] for job in page["jobs"]]
        if page["next_cursor"] is None:
            break
        await api.submit_many(added)
        cursor = {"cursor": page["next_cursor"]}
    assert seen == ids
    assert page["next_cursor"] is None


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_walk_sees_every_lasting_job_once_while_others_come_and_go(api: Api, order: str) -> None:
    """Case A10: many equal times, inserts and removals on both sides of the cursor, another node half-way."""
    chance = random.Random(10)
    ids = await api.submit_many(1_000)
    lasting = set(chance.sample(ids, 700))
    passing = [job_id for job_id in ids if job_id not in lasting]
    chance.shuffle(passing)
    seen: list[str] = []
    asked, cursor = api, ""
    async with serving(SimulatedNode("n2", leader=api.node)) as other:
        for page_number in range(1_000):
            query = {"limit": "50", "order": order} | ({"cursor": cursor} if cursor else {})
            page = (await asked.get("jobs", **query)).json
            seen += [job["id"] for job in page["jobs"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
            await api.submit_many(100)
            _remove(api, [passing.pop() for _ in range(min(10, len(passing)))])
            asked = other if page_number >= 5 else api
    assert cursor is None
    assert len(seen) == len(set(seen))
    assert lasting <= set(seen)


async def test_walk_goes_on_where_the_job_at_its_cursor_is_gone(api: Api) -> None:
    ids = await api.submit_many(4)
    page = (await api.get("jobs", limit=2)).json
    _remove(api, ids[1:2])
    following = (await api.get("jobs", limit=2, cursor=page["next_cursor"])).json
    assert [job["id"] for job in following["jobs"]] == ids[2:]


async def test_stale_list_is_answered_by_a_follower_without_its_leader(api: Api, follower: Api) -> None:
    ids = await api.submit_many(3)
    follower.node.age_ms = -1
    answer = await follower.get("jobs", consistency="stale")
    assert [job["id"] for job in answer.json["jobs"]] == ids
    assert answer.headers["Raftsched-Age-Ms"] == "-1"


def _remove(api: Api, ids: list[str], tenant: str = "default") -> None:
    job_ids: list[JobId] = [parse_job_id(job_id) for job_id in ids]
    for job_id in job_ids:
        api.node.apply(CancelJob(job_id, tenant))
    api.node.apply(PurgeJobs(tuple(job_ids), TimeMs(START_MS + 1)))
