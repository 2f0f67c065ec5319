from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from raftsched.client.http.gather import Gatherer, GatherLimits
from raftsched.errors import RaftschedError, Unavailable
from tests.client.cluster import WAIT_SECONDS

LIMITS = GatherLimits(
    items_max=4, bytes_max=100, in_flight_max=2, early_items=3, waiting_max=5, late_seconds=30.0, late_max=2
)


class Letter:
    """An item that remembers its end."""

    def __init__(self, body: bytes = b"x") -> None:
        self.body = body
        self.ends: list[object] = []

    def settle(self, answer: object | RaftschedError) -> None:
        self.ends.append(answer)


class Post:
    """Takes batches and answers them when it is told to."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[list[Letter]] = asyncio.Queue()
        self._answered: list[asyncio.Event] = []

    async def send(self, batch: list[Letter]) -> None:
        answered = asyncio.Event()
        self._answered.append(answered)
        self.batches.put_nowait(batch)
        await answered.wait()
        for letter in batch:
            letter.settle("done")

    def answer(self) -> None:
        """Answer the oldest request."""
        self._answered.pop(0).set()

    async def next_size(self) -> int:
        async with asyncio.timeout(WAIT_SECONDS):
            return len(await self.batches.get())


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
async def gatherer(post: Post) -> AsyncIterator[Gatherer[Letter]]:
    made: Gatherer[Letter] = Gatherer(post.send, LIMITS)
    yield made
    await made.close()


def add(gatherer: Gatherer[Letter], count: int, body: bytes = b"x") -> list[Letter]:
    letters = [Letter(body) for _ in range(count)]
    for letter in letters:
        gatherer.add(letter)
    return letters


async def test_lone_item_leaves_at_once(gatherer: Gatherer[Letter], post: Post) -> None:
    add(gatherer, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert post.batches.qsize() == 1


async def test_items_that_come_during_a_request_leave_together_after_it(gatherer: Gatherer[Letter], post: Post) -> None:
    add(gatherer, 1)
    assert await post.next_size() == 1
    add(gatherer, 1)
    add(gatherer, 1)
    post.answer()
    assert await post.next_size() == 2


async def test_many_items_do_not_wait_for_the_request_in_flight(gatherer: Gatherer[Letter], post: Post) -> None:
    add(gatherer, 1)
    assert await post.next_size() == 1
    add(gatherer, 3)
    assert await post.next_size() == 3


async def test_requests_in_flight_are_bounded(gatherer: Gatherer[Letter], post: Post) -> None:
    add(gatherer, 12)
    assert [await post.next_size(), await post.next_size()] == [4, 4]
    assert post.batches.empty()
    post.answer()
    assert await post.next_size() == 4


async def test_request_is_bounded_in_bytes_but_always_takes_one(gatherer: Gatherer[Letter], post: Post) -> None:
    add(gatherer, 1, b"x" * 1000)
    add(gatherer, 3, b"x" * 40)
    assert await post.next_size() == 1
    assert await post.next_size() == 2


async def test_request_without_an_answer_holds_up_no_later_item_within_bounds(post: Post) -> None:
    gatherer: Gatherer[Letter] = Gatherer(post.send, replace(LIMITS, early_items=100, late_seconds=0.001))
    for _ in range(LIMITS.late_max + 1):
        add(gatherer, 1)
        assert await post.next_size() == 1
    while not gatherer.is_full:
        add(gatherer, 1)
    assert post.batches.empty()
    post.answer()  # the oldest one is over: those that wait leave together
    assert await post.next_size() == LIMITS.items_max
    await gatherer.close()


async def test_gatherer_is_full_until_a_request_takes_items(gatherer: Gatherer[Letter], post: Post) -> None:
    add(gatherer, 13)
    assert gatherer.is_full
    waiting = asyncio.create_task(gatherer.wait_for_capacity())
    await post.next_size()
    await post.next_size()
    assert gatherer.is_full
    assert not waiting.done()
    post.answer()
    async with asyncio.timeout(WAIT_SECONDS):
        await waiting
    assert not gatherer.is_full


async def test_idle_means_that_all_items_are_settled(gatherer: Gatherer[Letter], post: Post) -> None:
    await gatherer.wait_idle()
    letters = add(gatherer, 5)
    idle = asyncio.create_task(gatherer.wait_idle())
    for _ in range(2):
        await post.next_size()
        assert not idle.done()
        post.answer()
    async with asyncio.timeout(WAIT_SECONDS):
        await idle
    assert [letter.ends for letter in letters] == [["done"]] * 5


async def test_close_settles_what_was_never_sent_as_unavailable(gatherer: Gatherer[Letter], post: Post) -> None:
    sent = add(gatherer, 1)
    await post.next_size()
    waiting = add(gatherer, 1)
    await gatherer.close()
    late = add(gatherer, 1)
    assert sent[0].ends == []  # the sender's to settle
    assert [type(letter.ends[0]) for letter in (*waiting, *late)] == [Unavailable, Unavailable]
