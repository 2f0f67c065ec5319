from __future__ import annotations

import threading

from raftsched.worker import Cancelled
from tests.client.cluster import WAIT_SECONDS


def test_cancelled_turns_true_for_good() -> None:
    cancelled = Cancelled()
    assert not cancelled
    assert not cancelled.is_set()
    assert not cancelled.wait(0)
    cancelled.set()
    assert cancelled
    assert cancelled.is_set()
    assert cancelled.wait(0)


def test_wait_that_begins_after_the_order_returns_at_once() -> None:
    cancelled = Cancelled()
    cancelled.set()
    assert cancelled.wait(WAIT_SECONDS)


def test_wait_ends_in_every_waiting_thread() -> None:
    cancelled = Cancelled()
    begun = threading.Barrier(4)
    heard: list[bool] = []

    def wait() -> None:
        begun.wait(WAIT_SECONDS)
        heard.append(cancelled.wait(WAIT_SECONDS))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait(WAIT_SECONDS)
    cancelled.set()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert heard == [True, True, True]
