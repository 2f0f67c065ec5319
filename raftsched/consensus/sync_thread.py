"""Runs the journal's syncs in one thread that lives as long as the replica.

Each write of the cluster costs a sync on every node, so the way to the thread and back counts. `ThreadPoolExecutor` passes
results through a `concurrent.futures.Future`, whose locks and callbacks cost three times as much as all of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any

from raftsched.histogram import DISK_BUCKETS, Histogram

_Call = tuple[Callable[[], None], "asyncio.Future[None]"]


class SyncThread(Executor):
    """Runs one call after the other, for `run_in_executor` of the event loop that is running now.

    The thread is a daemon: a sync that never returns keeps no process alive.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: Thread | None = None
        self.seconds = Histogram(DISK_BUCKETS)
        """Durations of the calls, without the way to the thread and back."""

    def submit(self, fn: Callable[[], None], /, *_: Any, **__: Any) -> asyncio.Future[None]:  # type: ignore[override]
        """Return a future of the event loop, which `run_in_executor` passes on as it is."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="sync", daemon=True)
            self._thread.start()
        done = self._loop.create_future()
        self._calls.put((fn, done))
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """End the thread after the calls that are waiting; `wait` until then."""
        self._calls.put(None)
        if wait and self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            fn, done = call
            error: BaseException | None = None
            began = perf_counter()
            try:
                fn()
            except BaseException as raised:  # noqa: BLE001  # whatever it is, the caller's future has it
                error = raised
            seconds = perf_counter() - began
            with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._settle, done, error, seconds)

    def _settle(self, done: asyncio.Future[None], error: BaseException | None, seconds: float) -> None:
        self.seconds.observe(seconds)
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
