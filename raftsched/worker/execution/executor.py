"""Run handlers in slots: start leased jobs, stop runs that must stop, and free the slots of hung ones.

A run is leased, then it waits for a slot (only if jobs are leased ahead) and runs; if it begins at most once, only
after its start was committed. It ends exactly once: with an outcome for the reporter, or silently if the cluster has
ended it already. `Run.stop` is the reason why a run must stop. The heartbeat thread may set it, so it is read when the
handler returns, whatever the event loop knew until then: a handler that ends after its lease is never reported as a
success.

A handler that ignores the order to stop for `stop_grace_seconds` is left behind as *hung*: it keeps its thread or task,
and its slot is given to the next run. Everything here belongs to the worker's event loop.

Handlers are plain tasks owned by the table of runs, not children of a task group: leaving a group waits for all its
tasks, and a hung one would never let the worker end.

Heartbeats renew the runs in the table, so every run must leave it, also after an error. The handler's own code can't
break this: its call returns an `Outcome`. Every step of a run here is `_contained`: a bug in it takes the run out of
slots and table, its lease runs out, and the cluster counts a lost worker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Concatenate, ParamSpec

import structlog

from raftsched.ports import Clock
from raftsched.wire.workers import Outcome
from raftsched.worker.execution.outcome import awaited, called, note, reported_outcome, unknown_job
from raftsched.worker.execution.process_group import KILL_SECONDS
from raftsched.worker.execution.processes import ProcessPool
from raftsched.worker.execution.threads import ThreadPool
from raftsched.worker.handlers.progress import AttemptReports, ReportHooks
from raftsched.worker.handlers.registry import HandlerKind, Registry
from raftsched.worker.handlers.result import raised, snoozed
from raftsched.worker.runs.reporter import Reporter
from raftsched.worker.runs.runs import Grant, Run, RunTable, StopReason, context_of, deadline_of
from raftsched.worker.runs.start import Starter
from raftsched.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)
_P = ParamSpec("_P")
_AVERAGE_SHARE = 0.05
"""Weight of the latest run in the average duration."""
_DURATION_SECONDS_MAX = 1.0
"""A longer run counts as this, so that one of hours isn't remembered for thousands of short ones."""


def _contained(
    step: Callable[Concatenate[Executor, Run, _P], None],
) -> Callable[Concatenate[Executor, Run, _P], None]:
    """Let a bug in a step of a run cost that run alone, and no slot."""

    @wraps(step)
    def contained(executor: Executor, run: Run, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            step(executor, run, *args, **kwargs)
        except BaseException as fault:
            executor._abandon(run, fault)  # noqa: SLF001  # of the class below
            if not isinstance(fault, Exception):
                raise

    return contained


class Executor:
    """Manage the slots of a worker; `on_room` is called whenever a slot becomes free."""

    def __init__(
        self,
        *,
        registry: Registry,
        reporter: Reporter,
        runs: RunTable,
        settings: WorkerSettings,
        clock: Clock,
        starter: Starter,
        hooks: ReportHooks,
        on_room: Callable[[], None],
        on_exhausted: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._reporter = reporter
        self._runs = runs
        self._settings = settings
        self._monotonic = clock.monotonic
        self._wall_ms = clock.wall_ms
        self._starter = starter
        self._hooks = hooks
        """Shared by the reports of all runs."""
        self._on_room = on_room
        self._on_exhausted = on_exhausted
        self._waiting: deque[Run] = deque()
        self._running: set[Run] = set()
        self._hung: set[Run] = set()
        self._threads = ThreadPool()
        self._processes = ProcessPool(grace_seconds=settings.stop_grace_seconds)
        self._average_seconds = settings.prefetch_below_seconds
        """Average duration of a run; starts at the limit, so that the first jobs decide whether to lease ahead."""
        self._give_back_timer: asyncio.TimerHandle | None = None
        self._is_draining = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def is_fast(self) -> bool:
        """Return whether handlers are so short that jobs should be leased ahead."""
        return self._average_seconds < self._settings.prefetch_below_seconds

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    @property
    def room(self) -> int:
        """Return how many more jobs to lease: free slots, and as many ahead as there are slots while handlers are fast."""
        slots = self._settings.concurrency * (2 if self.is_fast else 1)
        return slots - len(self._running) - len(self._waiting)

    @property
    def hung_count(self) -> int:
        """Return the number of handlers that ignore the order to stop."""
        return len(self._hung)

    @property
    def hung_task_count(self) -> int:
        """Return how many of them are tasks of the event loop, which can't close while they run."""
        return sum(run.task is not None for run in self._hung)

    # -- from lease to start ------------------------------------------------------------------------------------------

    def accept(self, grants: Sequence[Grant], asked_at: float) -> None:
        """Take the jobs leased by a request that left at `asked_at`; start those that find a slot."""
        for grant in grants:
            if grant.fencing_token in self._runs:
                continue  # leased once, run once, even if a reply repeats it
            run = self._new_run(grant, asked_at)
            self._runs[grant.fencing_token] = run
            self._waiting.append(run)
        self._fill()

    def _new_run(self, grant: Grant, asked_at: float) -> Run:
        """Return the run of `grant`; the deadline counts from now, a little after the cluster's own count began."""
        handler = self._registry.find(grant.name, grant.kind)
        reports = AttemptReports(
            self._hooks,
            job_id=grant.job_id,
            run_id=grant.run_id,
            fencing_token=grant.fencing_token,
            workflow_id=grant.workflow_id,
            is_async=handler is not None and handler.kind is HandlerKind.COROUTINE,
        )
        run = Run(grant, asked_at, context_of(grant, reports, deadline_of(grant, self._wall_ms())), handler, reports)
        run.goes_on = not self._settings.stop_at_lease_end and not grant.starts_at_most_once
        if grant.timeout_seconds:
            self._stop_after(grant.timeout_seconds, run, StopReason.TIMEOUT)
        return run

    def _fill(self) -> None:
        if self._is_draining:
            return
        waiting, running, slots = self._waiting, self._running, self._settings.concurrency
        while waiting and len(running) < slots:
            self._start(waiting.popleft())
        if waiting and self._give_back_timer is None:
            seconds = self._settings.prefetched_seconds_max
            self._give_back_timer = asyncio.get_running_loop().call_later(seconds, self._give_back_stale, waiting[-1])

    @_contained
    def _start(self, run: Run) -> None:
        now = self._monotonic()
        handler = run.handler
        if run.is_taken_back or (now >= run.lease_end and run.stop is None):
            self._settle(run, snoozed(0))  # it never began, so another worker may have it at once
        elif run.stop is not None:
            self._settle(run, reported_outcome(run, snoozed(0)))
        elif handler is None and not (run.grant.starts_at_most_once and run.grant.is_last_attempt):
            self._settle(run, unknown_job(run))
        else:
            run.started_at = now
            self._running.add(run)
            self._is_idle.clear()
            if (run.grant.starts_at_most_once or run.grant.may_be_accepted) and run.begin():
                run.task = asyncio.get_running_loop().create_task(self._starter.start(run))
                run.task.add_done_callback(partial(self._start_answered, run))
            else:
                self._call(run)

    @_contained
    def _start_answered(self, run: Run, starting: asyncio.Task[bool]) -> None:
        """Begin `run`, whose start had to be committed first, or hand it back: its handler has not begun."""
        run.task = None
        if starting.cancelled() or not starting.result() or run.stop is not None or run.is_ended:
            self._ended(run, snoozed(0))
        else:
            self._call(run)

    def _call(self, run: Run) -> None:
        handler = run.handler
        if handler is None:
            self._ended(run, unknown_job(run))
            return
        if handler.timeout_seconds is not None:
            self._stop_after(handler.timeout_seconds, run, StopReason.HANDLER_TIMEOUT)
        if handler.kind is not HandlerKind.COROUTINE and not run.begin():
            self._ended(run, snoozed(0))
        elif handler.kind is HandlerKind.COROUTINE:
            run.task = asyncio.get_running_loop().create_task(awaited(handler, run))
            run.task.add_done_callback(partial(self._task_ended, run))
        elif handler.kind is HandlerKind.THREAD:
            self._in_thread(run, partial(called, handler, run))
        else:
            self._processes.prepare(run)
            self._in_thread(run, partial(self._processes.call, handler, run))

    def _in_thread(self, run: Run, call: Callable[[], Outcome]) -> None:
        loop = asyncio.get_running_loop()

        def report_back() -> None:
            try:
                outcome = call()
            except BaseException as error:  # noqa: BLE001  # as when no process can be started: no slot may be lost by it
                outcome = raised(error)
            with suppress(RuntimeError):  # the worker is gone; this was a hung handler
                loop.call_soon_threadsafe(self._thread_ended, run, outcome)

        self._threads.run(report_back)

    # -- from the handler's end to the outcome ------------------------------------------------------------------------

    @_contained
    def _task_ended(self, run: Run, task: asyncio.Task[Outcome]) -> None:
        # Cancelled here means: before its first step.
        self._ended(run, snoozed(0) if task.cancelled() else task.result())

    @_contained
    def _thread_ended(self, run: Run, outcome: Outcome) -> None:
        self._threads.released()
        self._processes.released(run)
        self._ended(run, outcome)

    def _ended(self, run: Run, outcome: Outcome) -> None:
        if run.is_ended:
            self._hung.discard(run)
            _log.warning("hung_handler_ended", name=run.grant.name, run_id=run.grant.run_id)
            return
        now = self._monotonic()
        if run.must_stop(now):
            note(run, StopReason.LEASE_OVER)
        seconds = min(now - run.started_at, _DURATION_SECONDS_MAX)
        self._average_seconds += _AVERAGE_SHARE * (seconds - self._average_seconds)
        self._running.discard(run)
        self._settle(run, reported_outcome(run, outcome))
        self._slot_freed()

    @_contained
    def _settle(self, run: Run, outcome: Outcome | None) -> None:
        """End `run`: report `outcome`, or nothing if it is None or the run was taken back."""
        run.is_ended = True
        for timer in run.timers:
            timer.cancel()
        if outcome is None or run.is_taken_back:
            self._reporter.drop(run)
        else:
            self._reporter.report(run, outcome)

    def _abandon(self, run: Run, fault: BaseException) -> None:
        """Drop `run` in any case: its lease is no longer renewed, and the cluster gives it to another worker."""
        _log.error("run_abandoned", name=run.grant.name, run_id=run.grant.run_id, exc_info=fault)
        run.is_ended = True
        self._runs.pop(run.grant.fencing_token, None)
        self._running.discard(run)
        self._hung.discard(run)
        with suppress(ValueError):  # it waits no more
            self._waiting.remove(run)
        asyncio.get_running_loop().call_soon(self._slot_freed)  # by itself: the next run may bring the same fault
        run.context.cancelled.set()  # its handler may still be at work
        if run.task is not None:
            run.task.cancel()
        self._processes.kill(run)
        if run.reports is not None:
            run.reports.close()

    def _slot_freed(self) -> None:
        if self._waiting:
            self._fill()
        if not self._running:
            self._is_idle.set()
        self._on_room()

    # -- stopping -----------------------------------------------------------------------------------------------------

    @_contained
    def stop(self, run: Run) -> None:
        """Stop a run that was condemned: cancel its task, end its process; a thread sees `ctx.cancelled`."""
        if run.is_ended:
            return
        if run not in self._running:
            self._waiting.remove(run)
            self._settle(run, reported_outcome(run, snoozed(0)))
            return
        if run.task is not None:
            run.task.cancel()
        self._processes.stop(run)
        loop = asyncio.get_running_loop()
        run.timers.append(loop.call_later(self._stop_seconds(run), self._leave_behind, run))

    def _stop_seconds(self, run: Run) -> float:
        """Return the time for the handler of `run` to stop; processes are killed after the grace, which takes a moment."""
        is_process = run.handler is not None and run.handler.kind is HandlerKind.PROCESS
        has_processes = is_process or run.grant.kind == "shell"
        return self._settings.stop_grace_seconds + (KILL_SECONDS if has_processes else 0.0)

    def _stop_after(self, seconds: float, run: Run, reason: StopReason) -> None:
        run.timers.append(asyncio.get_running_loop().call_later(seconds, self._condemn, run, reason))

    @_contained
    def _condemn(self, run: Run, reason: StopReason) -> None:
        if note(run, reason):
            self.stop(run)

    @_contained
    def _leave_behind(self, run: Run) -> None:
        """Leave behind a handler that did not stop: its slot goes to another run."""
        if run.is_ended:
            return
        self._running.discard(run)
        self._hung.add(run)
        _log.error("handler_hung", name=run.grant.name, run_id=run.grant.run_id, hung_count=len(self._hung))
        self._settle(run, reported_outcome(run, snoozed(0)))
        self._slot_freed()
        if len(self._hung) >= self._settings.hung_handlers_max:
            self._on_exhausted()

    # -- giving back --------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Start nothing more."""
        self._is_draining = True

    def give_back_waiting(self, newest: Run | None = None) -> None:
        """Give back the runs that wait for a slot, up to `newest`: run them elsewhere, no attempt is used."""
        while self._waiting:
            run = self._waiting.popleft()
            self._settle(run, snoozed(0))
            if run is newest:
                break

    async def wait_idle(self) -> None:
        """Return once no handler runs."""
        await self._is_idle.wait()

    async def stop_all(self) -> None:
        """Stop every handler, wait for them for the grace, leave the rest behind, and give their runs back."""
        for run in list(self._running):
            self._condemn(run, StopReason.DRAINED)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(map(self._stop_seconds, self._running), default=0.0)):
                await self.wait_idle()
        for run in list(self._running):
            self._leave_behind(run)

    def close(self) -> None:
        """End idle threads and processes, and stop, without a report, handlers that still run when `serve` was
        cancelled.
        """
        for run in list(self._running):
            self._condemn(run, StopReason.ABORTED)
        if self._give_back_timer is not None:
            self._give_back_timer.cancel()
        self._threads.close()
        self._processes.close()

    def _give_back_stale(self, newest: Run) -> None:
        """Give back the waiting runs if `newest`, the last of them when the timer was set, still waits."""
        self._give_back_timer = None
        if newest in self._waiting:
            self._average_seconds = _DURATION_SECONDS_MAX  # or the same jobs would be leased ahead again
            self.give_back_waiting(newest)
        self._fill()
        self._on_room()
