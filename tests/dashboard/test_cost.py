"""What pages cost does not grow with what the cluster holds: rows read are counted, at one size and at many times it."""

from __future__ import annotations

import pytest

from raftsched.client import Client
from tests.dashboard.cost import Pages, pages

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
