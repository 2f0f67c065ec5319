"""An event loop whose time jumps: when everything waits, the next timer is reached at once (as trio's autojump clock).

So code that waits for half a minute runs in microseconds, and always in the same order.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stuck(Exception):  # it names what was found
    """Everything waits and no timer is set: nothing can ever happen again."""


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        if timeout > 0:
            self._jump(timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._seconds = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        return self._seconds

    def _jump(self, seconds: float) -> None:
        self._seconds += seconds


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `main` to its end in a virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
