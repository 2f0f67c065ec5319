"""Servers in a thread of their own, for tests that wait for other processes meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def in_thread(server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Let the server run in an event loop of its own; the test reads what it has received."""
    loop, started, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    running: list[T] = []

    async def serve() -> None:
        async with server as each:
            running.append(each)
            started.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(60)
    try:
        yield running[0]
    finally:  # a thread that is left keeps the process of the tests from ending
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
