"""Daemon threads for plain handlers.

The standard pool would keep the process from ending while a handler hangs. Here a hung thread is left behind: the
next call gets another one, and the process ends without it. All methods belong to the worker's event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Call = Callable[[], None]


class ThreadPool:
    """Run each call in a thread at once; idle threads are used again."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._idle_count = 0
        self._thread_count = 0

    def run(self, call: Call) -> None:
        """Run `call`, which must not raise; `released` must follow when it has ended."""
        if self._idle_count:
            self._idle_count -= 1
        else:
            self._thread_count += 1
            name = f"raftsched-handler-{self._thread_count}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._calls.put(call)

    def released(self) -> None:
        """Note that a call has ended, so its thread can take another."""
        self._idle_count += 1

    def close(self) -> None:
        """End the threads when they become idle; hung ones end with the process."""
        for _ in range(self._thread_count):
            self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
