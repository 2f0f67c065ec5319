"""What pages cost does not grow with what the cluster holds: rows read are counted, at one size and at many times it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pytest

from raftsched.client import Client, Workflow
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.operations.queues import PauseQueue
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import JobSpec
from raftsched.dashboard.pages import PAGES
from tests.dashboard.cost import SELECTED, Pages, pages

pytestmark = pytest.mark.asyncio(loop_scope="function")


async def _schedules(shown: Pages, first: int, count: int) -> None:
    async with Client(shown.node.api_url) as client:
        for number in range(first, first + count):
            await client.schedules.save(f"s{number:05}", {"name": "report"}, cron="0 2 * * *")


async def test_pages_of_schedules_read_one_page_however_many_there_are() -> None:
    async with pages() as shown:
        await _schedules(shown, 0, 60)
        paths = ("/schedules", "/schedules/s00007")
        few = [await shown.rows(path) for path in paths]
        await _schedules(shown, 60, 540)
        assert [await shown.rows(path) for path in paths] == few
        assert max(few) < 300, few


async def test_pages_of_dead_letters_read_one_page_however_many_there_are() -> None:
    async with pages() as shown, Client(shown.node.api_url) as client:
        few: list[list[int]] = []
        for count in (600, 1_200):
            await client.submit_many([{"name": "x", "max_attempts": 1}] * count)
            await shown.fail("x", count)
            few.append(
                [await shown.rows(path) for path in ("/dead-letters", "/dead-letters?reason=attempts_exhausted")]
            )
        assert few[0] == few[1]
        assert max(few[0]) < 5 * 500


_FEW: Final = (
    "/jobs?status=queued",
    "/jobs?status=queued&order=asc",
    "/jobs?status=retrying",
    "/jobs?reason=rejected",
    "/jobs?tenant=acme",
    "/jobs?tenant=acme&status=scheduled",
    "/jobs/bulk?action=cancel&tenant=acme",
    "/dead-letters?reason=rejected",
    "/dead-letters/requeue?reason=rejected",
)
"""Filters that match few of many jobs."""
_FEW_ROWS_MAX: Final = 150


async def test_pages_of_filters_that_match_few_jobs_do_not_search_among_the_others() -> None:
    """Neither jobs of another status, reason or tenant are read, nor queues in which nothing is due."""
    async with pages() as shown, Client(shown.node.api_url) as client:
        await client.submit("x", queue="again")
        await shown.fail("again", 1, retry_after_seconds=3_600)
        await client.submit("x", queue="refused")
        await shown.fail("refused", 1, retryable=False)
        await client.submit("x", tenant="acme", delay_seconds=3_600)
        await client.submit("x", queue="middle")
        found: list[dict[str, int]] = []
        for part in ("early", "zealous"):
            await client.submit_many([{"name": "gone", "max_attempts": 1}] * 150)
            await shown.fail("gone", 150)
            for number in range(1_200):
                shown.node.apply(_later(shown, f"{part}-{number:04}"))
            found.append({path: await shown.rows(path) for path in _FEW})
    assert found[0] == found[1]
    assert max(found[1].values()) < _FEW_ROWS_MAX, found[1]


def _later(shown: Pages, queue: str) -> SubmitJob:
    """Return the submission of a job that is due in an hour."""
    spec = JobSpec("later", queue, 5, 1, 0, RetryPolicy())
    due_at_ms = TimeMs(shown.node.clock.now_ms + 3_600_000)
    return SubmitJob(shown.node.new_job_id(), "default", spec, due_at_ms, b"null")


async def test_a_page_ends_its_search_at_a_bound() -> None:
    """Some filters have no index: a page that finds nothing leads to the next one."""
    async with pages() as shown:
        _submit(shown, range(100), 120)
        for path in ("/jobs?tenant=default&reason=timeout&status=queued", "/jobs?name=job7&status=retrying"):
            assert await shown.rows(path) < _SEARCHED_ROWS_MAX, path


_SEARCHED_ROWS_MAX: Final = 15_000
"""An index row and a record for each of `limits.PAGE_ROWS_MAX` jobs, and as many rows of lists that are read together."""
_ROWS_MAX: Final = 3_000
_COUNTING: Final = {"/jobs/bulk?action=cancel&status=queued": 15_000}
"""Pages that count what an action would change, up to a limit, in requests that each read a bounded part."""
_QUERIES: Final = (
    "/jobs?status=queued",
    "/jobs?queue=q00007",
    "/jobs?tag=none",
    "/audit?actor=nobody",
    "/search?q=nothing",
)


def _submit(shown: Pages, queues: range, count: int) -> None:
    """Submit `count` jobs to each queue, as log entries."""
    for number in queues:
        spec = JobSpec(f"job{number % 50}", f"q{number:05}", 5, 1, 0, RetryPolicy())
        for _ in range(count):
            shown.node.apply(SubmitJob(shown.node.new_job_id(), "default", spec, TimeMs(0), b"null"))


def _audited(shown: Pages, count: int) -> None:
    """Write lines of the audit trail."""
    for number in range(count):
        shown.node.apply(PauseQueue("q00007", paused=number % 2 == 0, reason=str(number), actor="anna"))


async def test_no_page_reads_more_rows_with_10_000_queues_and_many_jobs() -> None:
    """Work grows with what a page shows. So a state of any size costs what this one costs."""
    async with pages() as shown:
        _submit(shown, range(1_100), 1)  # more than any page shows at once
        _audited(shown, 1_100)
        async with Client(shown.node.api_url) as client:
            await client.schedules.save("daily", {"name": "report"}, cron="0 2 * * *")
            flow = Workflow("flow")
            flow.job("x")
            workflow = await client.workflows.submit(flow)
            [job] = [job async for job in client.list(queue="q00007")]
        names = {
            "jobs": job.id,
            "schedules": "daily",
            "workflows": workflow.id,
            "queues": "q00007",
            "tenants": "default",
        }
        paths = [path for page in PAGES if page.show and (path := _path(page.path, names))] + [*_QUERIES]
        few = {path: await shown.rows(path) for path in paths}
        _submit(shown, range(1_100, 10_000), 1)
        _submit(shown, range(20), 500)
        _audited(shown, 3_000)
        many = {path: await shown.rows(path) for path in paths}
    assert len(paths) > 20
    over = {path: count for path, count in many.items() if count > _COUNTING.get(path, _ROWS_MAX)}
    grown = {path: (few[path], count) for path, count in many.items() if count > 1.5 * few[path] + 300}
    assert (over, grown.keys() - _COUNTING) == ({}, set()), grown


def _path(template: str, names: Mapping[str, str]) -> str:
    """Return a path of a page; "" for a page about something that this scene lacks."""
    noun = template.split("/")[1]
    if "{" not in template:
        return template + SELECTED.get(template, "")
    return re.sub(r"\{\w+\}", names[noun], template) if noun in names else ""
