"""Wire the parts of a worker for one `serve`, and stop them in an order in which nothing is lost.

No new leases; runs that have not started are given back; running handlers end, or are stopped after `drain_seconds` and
given back too; outcomes are recorded; and only then the heartbeats end, which kept the leases of all of them alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from raftsched.client.http.connection import Connection
from raftsched.errors import RaftschedError
from raftsched.ports import Clock
from raftsched.worker.execution.capture import routed
from raftsched.worker.execution.executor import Executor
from raftsched.worker.handlers.parent_results import Parents
from raftsched.worker.handlers.progress import ReportHooks
from raftsched.worker.handlers.registry import Registry
from raftsched.worker.leases.blocked_loop import LoopWatch
from raftsched.worker.leases.heartbeats import Heartbeats
from raftsched.worker.poller import Poller
from raftsched.worker.runs.log_shipper import LogShipper
from raftsched.worker.runs.reporter import Reporter
from raftsched.worker.runs.runs import RunTable
from raftsched.worker.runs.start import Starter
from raftsched.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)


class HungHandlers(RaftschedError):
    """Too many handlers ignore the order to stop; the worker ended, so that its supervisor starts a new one."""

    code = "hung_handlers"


class Service:
    """A worker at work; belongs to the event loop it is made on."""

    def __init__(
        self,
        *,
        worker: str,
        queues: Sequence[str],
        region: str | None,
        registry: Registry,
        settings: WorkerSettings,
        connect: Callable[[], Connection],
        clock: Clock,
        on_overdue: Callable[[], None],
    ) -> None:
        """Wire it; `on_overdue` is called in the heartbeat thread if a drain can't end since the event loop is blocked."""
        self._worker = worker
        self._queues = queues
        self._settings = settings
        self._draining = asyncio.Event()
        self._drain_seconds = settings.drain_seconds
        self._error: BaseException | None = None
        runs: RunTable = {}
        self._connection = connect()
        self._stdout_wanted = registry.stdout_wanted
        self._on_stop = registry.on_stop
        self._shipper = LogShipper(self._connection, settings)
        self._reporter = Reporter(self._connection, worker, runs, self._shipper)
        self._executor = Executor(
            registry=registry,
            reporter=self._reporter,
            runs=runs,
            settings=settings,
            clock=clock,
            starter=Starter(self._connection),
            hooks=ReportHooks(
                buffer_bytes_max=settings.log_buffer_bytes_max,
                on_sign=self._note_sign,
                on_lines=self._shipper.note_lines,
                read_result=Parents(self._connection).result_of,
            ),
            on_room=self._room_changed,
            on_exhausted=self._exhausted,
        )
        self._clock = clock
        self._loop_watch = LoopWatch(asyncio.get_running_loop(), on_overdue=on_overdue)
        self._heartbeats = Heartbeats(
            connect,
            worker=worker,
            runs=runs,
            clock=clock,
            progress_seconds=settings.progress_seconds,
            stop_run=self._executor.stop,
            loop_watch=self._loop_watch,
            on_failure=self._heartbeats_failed,
        )
        self._poller = Poller(
            self._connection,
            self._executor,
            settings,
            worker=worker,
            queues=queues,
            region=region,
            names=registry.names,
            executes=registry.kinds or None,
            on_leased=self._heartbeats.leased,
        )

    @property
    def hung_task_count(self) -> int:
        """Return the number of async handlers that ignore the order to stop: the event loop can't close while they run."""
        return self._executor.hung_task_count

    def drain(self) -> None:
        """Begin to end; on this service's loop."""
        self._draining.set()

    def end_by_force(self) -> None:
        """Call `on_overdue` if the event loop is blocked when a drain from now on should be over; from any thread."""
        seconds = self._settings.drain_seconds + self._settings.stop_grace_seconds
        self._loop_watch.end_after(self._clock.monotonic() + seconds)

    async def run(self) -> None:
        """Work until `drain`, or until the cluster refuses this worker, whose error is raised then."""
        urls = list(self._connection.nodes.known)
        _log.info("worker_started", worker=self._worker, queues=list(self._queues), urls=urls)
        self._heartbeats.start()
        try:
            with routed(wanted=self._stdout_wanted):
                async with asyncio.TaskGroup() as tasks:
                    polling = tasks.create_task(self._poll())
                    tasks.create_task(self._end_in_order(polling))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.report_seconds):
                    await self._reporter.wait_idle()
        finally:
            self._executor.close()
            for stop in self._on_stop:
                await stop()
            await self._reporter.close()
            await self._shipper.close()
            await self._heartbeats.stop()
            await self._connection.close()
        _log.info("worker_stopped", worker=self._worker, hung_count=self._executor.hung_count)
        if self._error is not None:
            raise self._error

    async def _poll(self) -> None:
        try:
            if not self._draining.is_set():  # asked to end before it began: it would give back anything that it leased
                await self._poller.run()
        except RaftschedError as error:
            _log.error("worker_refused", code=error.code, reason=str(error))
            self._error = error
        finally:
            self._draining.set()

    async def _end_in_order(self, polling: asyncio.Task[None]) -> None:
        await self._draining.wait()
        ends_at = asyncio.get_running_loop().time() + self._drain_seconds
        _log.info("worker_draining", worker=self._worker, seconds=self._drain_seconds)
        self._poller.finish()
        self._executor.drain()
        # If they were given back before that, the request that still waits at the leader would lease them again.
        await asyncio.wait([polling])
        self._executor.give_back_waiting()
        try:
            async with asyncio.timeout_at(ends_at):
                await self._executor.wait_idle()
        except TimeoutError:
            await self._executor.stop_all()

    def _note_sign(self) -> None:
        self._heartbeats.note_sign()

    def _room_changed(self) -> None:
        self._poller.room_changed()

    def _exhausted(self) -> None:
        self._error = HungHandlers(f"{self._executor.hung_count} handlers ignore the order to stop")
        _log.error("worker_exhausted", reason=str(self._error))
        self._draining.set()

    def _heartbeats_failed(self, error: BaseException) -> None:
        """Stop the handlers at once: their leases are no longer renewed, and nothing would notice their end."""
        _log.error("heartbeats_failed", exc_info=error)
        self._error = error
        self._drain_seconds = 0.0
        self._draining.set()
