"""An event loop for each simulated process, all of them driven by one timeline.

Production code is asyncio code, and it runs here as it is: a `ProcessLoop` is what `asyncio.get_running_loop()` returns
in it. Timers and ready callbacks become events of the shared `Timeline`; a thread's work is done at the moment at which
it ends. So a process can be stopped (nothing of it runs until it resumes), and killed between any two callbacks
(nothing of it runs ever again), and its clock can run at its own rate.

Connections are those of `network.sockets`. Left out: signals, subprocesses; whatever asks for them gets NotImplementedError.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

from chaos.sim.machine.clock import Timeline
from chaos.sim.machine.disk import PowerCut

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH_MS = 1_700_000_000_000
_CYCLE_SECONDS = 0.0002
"""Up to this long passes between something becoming ready and its callback: other processes may come first."""
_CLOSING_ROUNDS = 20


class ProcessClock:
    """`raftsched.ports.Clock` of one process: own origin, own rate, and a wall clock that people set.

    At the start of a process it is as far off as `wall_offset_ms` says; from then on it drifts.
    """

    def __init__(self, timeline: Timeline, *, origin: float = 0.0, rate: float = 1.0, wall_offset_ms: int = 0) -> None:
        self._timeline = timeline
        self._born_at = timeline.now
        self._origin = origin
        self._rate = rate
        self._lost_seconds = 0.0
        self._still_from = self._still_until = timeline.now
        self._still_seconds = 0.0
        self.wall_offset_ms = wall_offset_ms

    def monotonic(self) -> float:
        now = self._timeline.now
        still = self._still_seconds if now >= self._still_until else now - self._still_from
        return self._origin + self._rate * (now - self._lost_seconds - still)

    def stand_still(self, seconds: float) -> None:
        """Have the monotonic clock not count the next seconds, as CLOCK_MONOTONIC while a machine is suspended."""
        now = self._timeline.now
        self._lost_seconds += min(now, self._still_until) - self._still_from
        self._still_from, self._still_until = now, now + seconds
        self._still_seconds = self._still_until - now

    def wall_ms(self) -> int:
        elapsed = self._rate * (self._timeline.now - self._born_at)
        return EPOCH_MS + round((self._born_at + elapsed) * 1000) + self.wall_offset_ms

    def moment(self, monotonic: float) -> float:
        """Return when, on the timeline, this clock shows `monotonic`, once it runs."""
        return (monotonic - self._origin) / self._rate + self._lost_seconds + self._still_seconds


class Connections(Protocol):
    """Connects processes, and lets them listen."""

    def dial(
        self,
        loop: ProcessLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        address: tuple[str, int],
        connected: asyncio.Future[Any],
        /,
    ) -> None:
        """Connect in a moment; what comes of it is set at `connected`."""

    def listen(
        self, loop: ProcessLoop, factory: Callable[[], asyncio.BaseProtocol], address: tuple[str, int], /
    ) -> Any:
        """Return a server that takes connections until it is closed."""


class ProcessLoop(asyncio.BaseEventLoop):
    """The loop of one life of one process.

    `on_cycle` is called after each round of callbacks, `on_error` for an exception that nobody handles. `work_seconds`
    says how long a thread takes for the work of an executor.
    """

    def __init__(
        self,
        timeline: Timeline,
        clock: ProcessClock,
        randomness: Random,
        *,
        work_seconds: Callable[[object], float] = lambda _executor: 0.0,
        on_error: Callable[[dict[str, Any]], None] = lambda _context: None,
        sockets: Connections | None = None,
        place: str = "",
    ) -> None:
        self.is_dead = True  # until all is there: the base class calls into it
        super().__init__()
        self._timeline = timeline
        self._clock = clock
        self._random = randomness.random
        self._work_seconds = work_seconds
        self._on_error = on_error
        self._sockets = sockets
        self.place = place
        """The place in which it runs, as links are named."""
        self.on_cycle: Callable[[], None] = lambda: None
        self.is_dead = False
        self.paused_until = 0.0
        self._callbacks: deque[asyncio.Handle] = deque()
        self._has_cycle = False
        self._tasks: list[asyncio.Task[Any]] = []

    # -- the process --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Nothing of this process runs from now on; its tasks are never finished and never complain."""
        self.is_dead = True
        self._callbacks.clear()
        for task in self._tasks:
            _silence(task)

    def bury(self) -> None:
        """Close what a killed process left unfinished, once nobody looks at it any more.

        Python would do so whenever it came upon the garbage: run every `finally`, outside of any loop, and complain of
        each that waits, or begins a task there.
        """
        tasks, self._tasks = self._tasks, []
        events._set_running_loop(self)  # noqa: SLF001  # what a `finally` begins is this dead loop's, which drops it
        try:
            for task in tasks:
                _close(task)
        finally:
            events._set_running_loop(None)  # noqa: SLF001

    def pause(self, seconds: float) -> None:
        """Pause, as after SIGSTOP; the clock runs."""
        self.paused_until = max(self.paused_until, self._timeline.now + seconds)

    def resume(self) -> None:
        self.paused_until = 0.0
        self._has_cycle = False
        self._ask_for_cycle()

    @property
    def is_paused(self) -> bool:
        return self.paused_until > self._timeline.now

    def _ask_for_cycle(self) -> None:
        if not self._has_cycle and not self.is_dead:
            self._has_cycle = True
            self._timeline.after(self._random() * _CYCLE_SECONDS, self._cycle)

    def _cycle(self) -> None:
        if self.is_dead or not self._has_cycle:
            return
        if self.paused_until > self._timeline.now:
            self._timeline.after(self.paused_until - self._timeline.now, self._cycle)
            return
        self._has_cycle = False
        ready = self._callbacks
        events._set_running_loop(self)  # noqa: SLF001  # what asyncio offers to makers of loops
        try:
            for _ in range(len(ready)):
                if not ready:
                    break  # a callback killed this process
                handle = ready.popleft()
                if not handle._cancelled:  # noqa: SLF001  # a call less for each handle
                    handle._run()  # noqa: SLF001
        finally:
            events._set_running_loop(None)  # noqa: SLF001
        if not self.is_dead:
            self.on_cycle()
        if ready:
            self._ask_for_cycle()

    def _timer_due(self, handle: asyncio.TimerHandle) -> None:
        if not self.is_dead and not handle._cancelled:  # noqa: SLF001  # as above
            self._callbacks.append(handle)
            self._ask_for_cycle()

    # -- asyncio's side -----------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._clock.monotonic()

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_dead:
            self._callbacks.append(handle)
            if not self._has_cycle:
                self._ask_for_cycle()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.is_dead:
            self._timeline.after(self._clock.moment(when) - self._timeline.now, partial(self._timer_due, handle))
        return handle

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        """Nothing: a cancelled timer is met, and left alone, when it is due."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]  # narrower than asyncio's, which is generic over awaitables
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        if self.is_dead:
            _silence(task)
            _close(task)
            return task
        self._tasks.append(task)
        if len(self._tasks) > 256:
            self._tasks = [each for each in self._tasks if not each.done()]
        return task

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """Do the work when its thread would be done with it; a process that is paused finishes it later."""
        future: asyncio.Future[T] = self.create_future()
        self._timeline.after(self._work_seconds(executor), partial(self._work, future, partial(func, *args)))
        return future

    def _work(self, future: asyncio.Future[T], func: Callable[[], T]) -> None:
        if self.is_dead:
            return
        if self.is_paused:
            self._timeline.after(self.paused_until - self._timeline.now, partial(self._work, future, func))
            return
        try:
            result = func()
        except PowerCut:
            return
        except Exception as error:  # noqa: BLE001  # whatever a thread raises is its future's
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    # -- connections --------------------------------------------------------------------------------------------------

    async def create_connection(  # type: ignore[override]  # of asyncio's many arguments, those that are used
        self, protocol_factory: Callable[[], Any], host: str, port: int
    ) -> tuple[asyncio.Transport, Any]:
        assert self._sockets is not None
        connected: asyncio.Future[tuple[asyncio.Transport, Any]] = self.create_future()
        self._sockets.dial(self, protocol_factory, (host, port), connected)
        return await connected

    async def create_server(  # type: ignore[override]  # as above
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_options: Any
    ) -> Any:
        assert self._sockets is not None
        return self._sockets.listen(self, protocol_factory, (host, port))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self._on_error(context)

    get_debug = staticmethod(bool)
    """Return False; in C, because every handle, task and future asks."""

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.is_dead


def _silence(task: asyncio.Task[Any]) -> None:
    """It is no fault that this task is never finished."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  # asyncio's own switch


def _close(task: asyncio.Task[Any]) -> None:
    """Close the coroutine of a task that nobody will run again; each round ends one wait in a `finally` of it."""
    coroutine = task.get_coro()
    assert isinstance(coroutine, Coroutine)
    for _ in range(_CLOSING_ROUNDS):
        with suppress(Exception, asyncio.CancelledError, BaseExceptionGroup, PowerCut):
            coroutine.close()
            return
