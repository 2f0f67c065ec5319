"""How the blocking twin is made: the asyncio client on an event loop in a thread of its own, and its methods without
`await`.

A twin's methods are those of the async class, wrapped; their docstrings and types come along.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from raftsched.errors import Unavailable

if TYPE_CHECKING:
    from raftsched.client.client import Client

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class Runtime:
    """An event loop in a daemon thread, and a client that lives on it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="raftsched-client", daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Return what `call` returns; interrupting the wait cancels it. Raises `Unavailable` once closed."""
        future = self._begin(call)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Unavailable("this client was closed") from None
        finally:
            future.cancel()

    def each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield what `items` yields; leaving it early ends `items`, too."""
        try:
            while (item := self.run(_next(items))) is not _END:
                yield item  # type: ignore[misc]  # it is not the end
        finally:
            if isinstance(items, AsyncGenerator):
                self._end_quietly(items)

    def _end_quietly(self, items: AsyncGenerator[T, None]) -> None:
        try:
            self.run(_ended(items))
        except Unavailable:  # closed: it has ended already
            return

    def close(self) -> None:
        """End the calls under way, the connections and the thread."""
        with self._lock:
            self._is_closed = True
            ended = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        ended.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _begin(self, call: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        with self._lock:
            if not self._is_closed:
                return asyncio.run_coroutine_threadsafe(call, self._loop)
        call.close()
        raise Unavailable("this client is closed")

    async def _end(self) -> None:
        await self.client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)


class Twin(Generic[A]):
    """The blocking twin of an object of the async client.

    `runtime` returns that of this process, `pick` the object among what belongs to its client.
    """

    def __init__(self, runtime: Callable[[], Runtime], pick: Callable[[Client], A]) -> None:
        self._runtime = runtime
        self._pick = pick


def twin(method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Twin[A], P], T]:
    """Return `method` without `await`."""

    @wraps(method)
    def call(self: Twin[A], /, *arguments: P.args, **options: P.kwargs) -> T:
        runtime = self._runtime()
        return runtime.run(method(self._pick(runtime.client), *arguments, **options))

    return call


def twin_each(method: Callable[Concatenate[A, P], AsyncIterator[T]]) -> Callable[Concatenate[Twin[A], P], Iterator[T]]:
    """Return a method that gives an iterator in place of an async one."""

    @wraps(method)
    def call(self: Twin[A], /, *arguments: P.args, **options: P.kwargs) -> Iterator[T]:
        runtime = self._runtime()
        return runtime.each(method(self._pick(runtime.client), *arguments, **options))

    return call


_END = object()


async def _next(items: AsyncIterator[T]) -> T | object:
    return await anext(items, _END)


async def _ended(items: AsyncGenerator[T, None]) -> None:
    await items.aclose()
