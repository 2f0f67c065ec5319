"""Keep the leases of running work alive, from a thread with an event loop and connections of its own.

A handler that blocks the worker's event loop, or computes in a thread, keeps its lease. Only a C call that never
releases the interpreter lock stops the heartbeats too; such work belongs in a process.

Two loops. One sends: every third of the lease, one request for all leases; if a node doesn't answer, the next one is
asked as well, within a second. The other watches the clock: a run whose lease may be over is condemned before the
cluster can give it to another worker, however long a request hangs. After a pause of the whole process (SIGSTOP) the
clock has moved on, so the watch first condemns the runs that were lost meanwhile.

Reports of handlers, progress and signs of life, are sent with the heartbeats: the latest of each run. They are so rare
that a chatty handler costs the cluster no more than `progress_seconds` allow, yet frequent enough that no handler which
gives signs is ended for its silence.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
import structlog

from raftsched.client.http.connection import Connection
from raftsched.client.http.hedge import HedgedRequest, Request
from raftsched.client.http.retries import Failure
from raftsched.errors import OutcomeUnknown, TooLarge
from raftsched.ports import Clock
from raftsched.wire.workers import HeartbeatReply, HeartbeatRequest, HeldLease, LeaseState
from raftsched.worker.handlers.progress import NO_SIGN, Sign
from raftsched.worker.leases.blocked_loop import LOOK_SECONDS, LoopWatch
from raftsched.worker.runs.give_back import Returns
from raftsched.worker.runs.runs import SILENT, Run, RunTable, StopReason

_log = structlog.get_logger(__name__)
_SIGN_SHARE = 1 / 4
"""Share of a handler's longest silence after which its sign of life leaves."""
_PAUSE_SHARE = 1 / 12
"""Share of the lease to wait after every node failed."""
_TIMEOUT_SECONDS_MIN = 0.1


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HeartbeatReply).decode


class Heartbeats:
    """Run the heartbeat thread.

    On the worker's loop, `stop_run` is called for each run that was condemned, and `on_failure` if the thread ends by a
    bug.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        worker: str,
        runs: RunTable,
        clock: Clock,
        progress_seconds: float,
        stop_run: Callable[[Run], None],
        loop_watch: LoopWatch,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._connect = connect
        self._worker = worker
        self._runs = runs
        self._clock = clock
        self._progress_seconds = progress_seconds
        self._stop_run = stop_run
        self._loop_watch = loop_watch
        self._on_failure = on_failure
        self._lease_seconds = 0.0
        """0 = no lease was seen yet."""
        self._worker_loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._worker_loop.create_future()
        self._loop = asyncio.new_event_loop()
        self._main = self._loop.create_task(self._serve())
        self._beat_early = asyncio.Event()
        self._watch_early = asyncio.Event()
        self._has_sign = False
        """Some handler reported a sign since the thread last looked."""
        self._thread = threading.Thread(target=self._run, name="raftsched-heartbeats", daemon=True)

    # -- called on the worker's loop ----------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def leased(self, lease_seconds: float, asked_at: float) -> None:
        """Note runs with leases of this length, from a request that left at `asked_at`.

        The thread looks often enough by itself; it is woken only for changes that it can't expect.
        """
        is_old = self._clock.monotonic() - asked_at > lease_seconds / 3
        if is_old or lease_seconds != self._lease_seconds:
            self._lease_seconds = lease_seconds
            self._loop.call_soon_threadsafe(self._wake)

    async def stop(self) -> None:
        """End the thread and its connections."""
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._main.cancel)
        await self._ended
        self._thread.join()

    # -- called in handlers' threads ----------------------------------------------------------------------------------

    def note_sign(self) -> None:
        """Note that a handler gave a sign: compute when it must be sent."""
        if not self._has_sign:
            self._has_sign = True
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._beat_early.set)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass  # `stop` ends it so
        except BaseException as error:  # noqa: BLE001  # the worker must learn of every end of the thread
            self._worker_loop.call_soon_threadsafe(self._on_failure, error)
        finally:
            self._loop.close()
            self._worker_loop.call_soon_threadsafe(self._ended.set_result, None)

    async def _serve(self) -> None:
        connection = self._connect()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._beat_forever(connection))
                tasks.create_task(
                    self._watch_forever(Returns(connection, tasks, worker=self._worker, clock=self._clock))
                )
        finally:
            await connection.close()

    def _wake(self) -> None:
        self._beat_early.set()
        self._watch_early.set()

    async def _beat_forever(self, connection: Connection) -> None:
        failure_count = 0
        while True:
            self._has_sign = False
            runs = self._live_runs()
            if runs and (failure_count or self._is_due(runs)):
                failure_count = 0 if await self._beat(connection, runs, failure_count) else failure_count + 1
            await _nap(self._beat_early, self._pause(failure_count, len(connection.nodes)))

    def _live_runs(self) -> list[Run]:
        """Return the runs whose leases are to be kept, those whose outcome is being sent included."""
        runs = list(self._runs.values())
        return [run for run in runs if not run.is_taken_back and (run.stop is None or run.stop not in SILENT)]

    def _is_due(self, runs: Sequence[Run]) -> bool:
        return min(map(self._due_at, runs)) <= self._clock.monotonic()

    def _due_at(self, run: Run) -> float:
        """Return when the next heartbeat must leave for `run`: for its lease, or for a sign of its handler."""
        due_at = run.asked_at + self._lease_seconds / 3
        if run.reports is None or not run.reports.has_sign:
            return due_at
        silence = run.grant.heartbeat_timeout_seconds
        pause = self._progress_seconds if silence is None else min(self._progress_seconds, silence * _SIGN_SHARE)
        return min(due_at, run.reports.sign_left_at + pause)

    def _pause(self, failure_count: int, node_count: int) -> float | None:
        if self._lease_seconds == 0.0:
            return None
        if failure_count:
            return 0.0 if failure_count % node_count else self._lease_seconds * _PAUSE_SHARE
        runs = self._live_runs()
        look_again = self._lease_seconds / 6
        if not runs:
            return look_again
        return min(look_again, max(0.0, min(map(self._due_at, runs)) - self._clock.monotonic()))

    async def _beat(self, connection: Connection, runs: Sequence[Run], failure_count: int) -> bool:
        """Renew the leases of `runs` and stop those that are over; return False if no answer came."""
        asked_at = self._clock.monotonic()
        signs = [_sign_of(run, asked_at) for run in runs]
        held = [
            msgspec.Raw(_encode(HeldLease(run.grant.run_id, run.grant.fencing_token, sign.progress, sign.alive)))
            for run, sign in zip(runs, signs, strict=True)
        ]
        timeout_seconds = max(_TIMEOUT_SECONDS_MIN, self._lease_seconds / 6)
        reply = await HedgedRequest(
            connection,
            Request("POST", "/leases/heartbeat", _encode(HeartbeatRequest(self._worker, held))),
            timeout_seconds=timeout_seconds,
            hedge_seconds=min(timeout_seconds / 2, connection.settings.hedge_seconds),
        ).answer()
        states = None if isinstance(reply, Failure) else _read(reply, runs)
        if states is None:
            error = reply.error if isinstance(reply, Failure) else OutcomeUnknown("the reply can't be read")
            is_too_large = isinstance(error, TooLarge)
            if is_too_large and len(runs) == 1:
                _forget(runs, signs)  # its reports are lost, and the lease is not
            else:
                _put_back(runs, signs)
            if is_too_large and (len(runs) > 1 or signs != [NO_SIGN]):
                return await self._beat_in_parts(connection, runs, failure_count)
            if failure_count == 0:
                _log.warning("heartbeat_failed", reason=str(error))
            return False
        _forget(runs, signs)
        for run, state in zip(runs, states, strict=True):
            self._process_state(run, state, asked_at)
        return True

    async def _beat_in_parts(self, connection: Connection, runs: Sequence[Run], failure_count: int) -> bool:
        """Renew the leases of `runs` by smaller requests; a run whose sign alone is too large goes without it."""
        middle = len(runs) // 2
        parts = [part for part in (runs[:middle], runs[middle:]) if part]
        return all([await self._beat(connection, part, failure_count) for part in parts])

    def _process_state(self, run: Run, state: LeaseState, asked_at: float) -> None:
        if not state.valid:
            self._condemn(run, StopReason.LEASE_LOST)
            return
        run.renew(asked_at)
        if state.cancel_requested:
            self._condemn(run, StopReason.CANCELLED)

    async def _watch_forever(self, returns: Returns) -> None:
        while True:
            now = self._clock.monotonic()
            pause = min(self._lease_seconds / 6, LOOK_SECONDS) or None
            runs = list(self._runs.values())
            for run in runs:
                if run.is_taken_back:
                    continue
                if run.must_stop(now):
                    self._condemn(run, StopReason.LEASE_OVER)
                elif run.lease_end > now and (pause is None or run.lease_end - now < pause):
                    pause = run.lease_end - now
            self._loop_watch.look(runs, returns, now)
            await _nap(self._watch_early, pause)

    def _condemn(self, run: Run, reason: StopReason) -> None:
        if run.condemn(reason):
            _log.warning("run_stopped", reason=reason.value, name=run.grant.name, run_id=run.grant.run_id)
            self._worker_loop.call_soon_threadsafe(self._stop_run, run)


def _put_back(runs: Sequence[Run], signs: Sequence[Sign]) -> None:
    """Keep the reports of handlers for the next heartbeat."""
    for run, sign in zip(runs, signs, strict=True):
        if run.reports is not None and sign is not NO_SIGN:
            run.reports.put_back(sign)


def _forget(runs: Sequence[Run], signs: Sequence[Sign]) -> None:
    for run, sign in zip(runs, signs, strict=True):
        if run.reports is not None and sign is not NO_SIGN:
            run.reports.forget_sign()


def _sign_of(run: Run, now: float) -> Sign:
    """Take along the reports of the handler of `run`."""
    if run.reports is None or not run.reports.has_sign:
        return NO_SIGN
    run.reports.sign_left_at = now
    return run.reports.take_sign()


def _read(reply: bytes, runs: Sequence[Run]) -> list[LeaseState] | None:
    """Return the state of each of `runs`, in their order; None if the reply doesn't fit the request."""
    try:
        states = _decode(reply).leases
    except msgspec.DecodeError:
        return None
    fits = [state.run_id for state in states] == [run.grant.run_id for run in runs]
    return states if fits else None


async def _nap(early: asyncio.Event, seconds: float | None) -> None:
    """Sleep for `seconds` (None: without end), or until `early` is set."""
    try:
        async with asyncio.timeout(seconds):
            await early.wait()
    except TimeoutError:
        return
    early.clear()
