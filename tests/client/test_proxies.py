"""Answers that are not the cluster's: a real proxy before a real API (case N07, submits)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftsched.client import Client, Job
from raftsched.errors import OutcomeUnknown, RaftschedError, TooLarge, Unavailable
from tests.client.cluster import QUICK
from tests.client.proxy import Rule, larger_than, proxy_before
from tests.client.real import real_node


def first(count: int, status: int, path: str) -> Rule:
    """Refuse the first `count` requests to `path`."""
    left = [status] * count
    return lambda asked, _body: left.pop() if asked == path and left else 0


async def test_batch_that_is_too_large_for_a_proxy_is_split() -> None:
    async with (
        real_node() as node,
        proxy_before(node.api_url, larger_than(100_000)) as proxy,
        Client(proxy.url, settings=QUICK) as client,
    ):
        jobs = await client.submit_many({"name": "a", "payload": "x" * 10_000} for _ in range(40))
        assert [type(job) for job in jobs] == [Job] * 40
        assert len({job.id for job in jobs if isinstance(job, Job)}) == 40
        assert proxy.refused
        large, small = await client.submit_many(
            [{"name": "a", "payload": "x" * 150_000}, {"name": "a", "payload": "x" * 10_000}]
        )
        assert isinstance(small, Job)
        assert type(large).__mro__[1] is TooLarge
        assert str(large).startswith("413 Request Entity Too Large from something between client and cluster")
        assert "refused by the gateway" in str(large)


@pytest.mark.parametrize("status", [302, 401, 403, 404, 405, 408, 429, 500, 502, 503, 504])
async def test_refusal_of_a_proxy_settles_no_submit(status: int) -> None:
    async with (
        real_node() as node,
        proxy_before(node.api_url, first(3, status, "/jobs/batch")) as proxy,
        Client(proxy.url, settings=QUICK) as client,
    ):
        jobs = await client.submit_many({"name": "a", "payload": n} for n in range(20))
        assert [type(job) for job in jobs] == [Job] * 20
        assert sorted([info.payload async for info in client.list(name="a")]) == list(range(20))
        assert len(proxy.refused) == 3


async def test_item_that_a_proxy_refuses_takes_no_neighbour_down() -> None:
    settings = replace(QUICK, retry_seconds=1.0)

    def without_script(_path: str, body: bytes) -> int:
        return 403 if b"<script>" in body else 0

    async with (
        real_node() as node,
        proxy_before(node.api_url, without_script) as proxy,
        Client(proxy.url, settings=settings) as client,
    ):
        payloads = ["<script>" if n in (3, 77) else n for n in range(100)]
        results = await client.submit_many({"name": "a", "payload": payload} for payload in payloads)
        bad = [result for result in results if isinstance(result, RaftschedError)]
        assert [result for result in results if isinstance(result, RaftschedError)] == [results[3], results[77]]
        assert all(type(error).__mro__[1] is OutcomeUnknown and "403 Forbidden" in str(error) for error in bad)


async def test_call_that_a_proxy_refuses_for_good_says_what_is_known() -> None:
    settings = replace(QUICK, retry_seconds=0.05)
    async with (
        real_node() as node,
        proxy_before(node.api_url, lambda _path, _body: 404) as proxy,
        Client(proxy.url, settings=settings) as client,
    ):
        with pytest.raises(Unavailable) as read:
            await client.queues()
        with pytest.raises(OutcomeUnknown, match="404 Not Found from something between"):
            await client.cancel("00000000-0000-7000-8000-999999999999")
        assert type(read.value) is Unavailable
        assert len(proxy.refused) > 2
