"""Run the asyncio client without `await`: for scripts, threads and web frameworks.

The asyncio client runs on an event loop in its own thread. Calls from many threads share one connection pool, and their
submits share requests. The thread is a daemon: a program that does not close the client still ends.

The blocking class of a handle is below the async one, in the same module. Its methods are those of the async class,
wrapped, with their docstrings and types.

After a fork, the child must not touch the loop or the sockets of its parent, not even to close them: the kernel shares
them, including the epoll set of the loop. So the child drops the runtime of the parent without running any finaliser (a
deliberate leak, once per fork). It creates its own runtime, with its own idempotency keys, at its first call.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar

from raftsched.errors import Unavailable
from raftsched.event_loop import new_event_loop

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class Closable(Protocol):
    """An asyncio client."""

    async def close(self) -> None:
        """Close the connections."""


C = TypeVar("C", bound=Closable)


class Runtime(Generic[C]):
    """An event loop in a daemon thread, and its client."""

    def __init__(self, client: C) -> None:
        self.client = client
        self._loop = new_event_loop()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="raftsched-client", daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the result of `call`; interrupting the wait cancels it. Raises `Unavailable` once closed."""
        begun = self._begin(call)
        try:
            return begun.result()
        except asyncio.CancelledError:
            raise Unavailable("this client was closed") from None

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
            ended = _Call(self._end(), self._loop)
        ended.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _begin(self, call: Coroutine[Any, Any, T]) -> _Call[T]:
        with self._lock:
            if not self._is_closed:
                return _Call(call, self._loop)
        call.close()
        raise Unavailable("this client is closed")

    async def _end(self) -> None:
        await self.client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)


_SIGNAL_SECONDS: Final = 0.5
"""Longest time until a waiting call notices Ctrl-C."""


class _Call(Generic[T]):
    """A call that runs on the event loop of another thread.

    The way to that thread and back is part of each call. A `concurrent.futures.Future` with its locks and callbacks costs
    several times as much as this.
    """

    __slots__ = ("_coroutine", "_is_done", "_loop", "_task")

    def __init__(self, coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        """Begin it, in the next turn of `loop`."""
        self._coroutine = coroutine
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        self._is_done = threading.Lock()
        """Held until then."""
        self._is_done.acquire()
        loop.call_soon_threadsafe(self._start)

    def result(self) -> T:
        """Wait for its end, once, and return its result or raise its error; interrupting the wait cancels it."""
        try:
            # A signal that comes just before the thread sleeps does not wake it: Python looks for it when this returns.
            while not self._is_done.acquire(timeout=_SIGNAL_SECONDS):
                pass
        except BaseException:
            with suppress(RuntimeError):  # the event loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(self._cancel)
            raise
        assert self._task is not None
        return self._task.result()

    def _start(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._release)

    def _release(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # the caller may be gone: the error must not be logged
        self._is_done.release()

    def _cancel(self) -> None:
        assert self._task is not None
        self._task.cancel()


class ProcessRuntime(Generic[C]):
    """The runtime of this process; made at the first call, and again after a fork."""

    def __init__(self, new_client: Callable[[], C]) -> None:
        self._new_client = new_client
        self._lock = threading.Lock()
        self._made: Runtime[C] | None = None
        self._is_closed = False
        _process_runtimes.add(self)

    def __call__(self) -> Runtime[C]:
        """Return the runtime; raises `Unavailable` once closed."""
        made = self._made
        if made is not None:
            return made
        with self._lock:
            if self._is_closed:
                raise Unavailable("this client is closed")
            if self._made is None:
                self._made = Runtime(self._new_client())
            return self._made

    def close(self) -> None:
        """Close the connections and end the thread. Calls in progress end in an error; closing twice is fine."""
        with self._lock:
            made, self._made, self._is_closed = self._made, None, True
        if made is not None:
            made.close()

    def forget(self) -> None:
        """Forget the runtime of the parent, and a lock that another thread may have held: for the child of a fork."""
        if self._made is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._made))
        self._made = None
        self._lock = threading.Lock()


_process_runtimes: weakref.WeakSet[ProcessRuntime[Any]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for each in _process_runtimes:
        each.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Blocking(Generic[A]):
    """The blocking form of an object of the asyncio client.

    `runtime` returns the runtime of this process. `pick` returns the object, given the client of that runtime.
    """

    def __init__(self, runtime: Callable[[], Runtime[Any]], pick: Callable[[Any], A]) -> None:
        self._runtime = runtime
        self._pick = pick


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Blocking[A], P], T]:
    """Return `method` without `await`."""

    @wraps(method)
    def call(self: Blocking[A], /, *arguments: P.args, **options: P.kwargs) -> T:
        runtime = self._runtime()
        return runtime.run(method(self._pick(runtime.client), *arguments, **options))

    return call


def blocking_each(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Blocking[A], P], Iterator[T]]:
    """Return a method that gives an iterator in place of an async one."""

    @wraps(method)
    def call(self: Blocking[A], /, *arguments: P.args, **options: P.kwargs) -> Iterator[T]:
        runtime = self._runtime()
        return runtime.each(method(self._pick(runtime.client), *arguments, **options))

    return call


_END = object()


async def _next(items: AsyncIterator[T]) -> T | object:
    return await anext(items, _END)


async def _ended(items: AsyncGenerator[T, None]) -> None:
    await items.aclose()
