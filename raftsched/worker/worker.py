"""Define the worker that users write: handlers, options, and the life of its process.

Guarantees (RELIABILITY G3b to G6): the worker acts on a run only while its lease holds by its own clock, unless
the process is paused; at most one outcome of a run is recorded; the handler may run more than once over the job's
life, with the same `ctx.run_id` and a higher `ctx.fencing_token` each time. A job that was submitted with
`start="at_most_once"` begins only after the cluster has recorded its start, and never again then: if the worker
dies, or the handler fails or asks to be snoozed, it moves to the dead-letter queue for a human to decide.

Choice of handler: async functions for waiting on networks; plain functions (threads) for blocking calls;
`process=True` for long computing, for C calls that hold the interpreter lock, and for work that must be killable.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import structlog

from raftsched import limits
from raftsched.client.client import URL_DEFAULT
from raftsched.client.http.client_tls import ClientCertificate, client_tls
from raftsched.client.http.connection import Connection
from raftsched.client.http.nodes import Nodes
from raftsched.errors import Invalid
from raftsched.event_loop import new_event_loop
from raftsched.first_process import leave_first_process
from raftsched.ports import Clock
from raftsched.system import SystemClock
from raftsched.wire.calls import Kind
from raftsched.worker.handlers.context import Context
from raftsched.worker.handlers.registry import F, Registry, checked_name, checked_pattern
from raftsched.worker.service import Service
from raftsched.worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SUFFIX_BYTES = 3


class Worker:
    """A worker of the cluster that `urls` belong to.

    Register handlers with `job`, then call `run` (a whole process) or await `serve` (part of one).

    `queues` are the queues to take jobs from; None = those of the registered handlers. `mail*` is all queues whose
    names begin so, `*` is all, those made later included. It gets only jobs that it has a handler for. `concurrency`
    handlers run at the same time. With a `region` it takes the jobs of this region and those of none, without one only
    the latter. `name` is what people see; each worker adds a random suffix, so that a restarted or second one can be
    distinguished. After a SIGTERM running handlers have `drain_seconds`. With `follow_leader=False` only `urls` are
    asked, never the nodes that the cluster names. `ca_file`,
    `client_certificate` and `tls` are as those of `Client`. More can be set by `settings`.
    """

    def __init__(
        self,
        *urls: str,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        region: str | None = None,
        name: str | None = None,
        token: str | None = None,
        tenant: str | None = None,
        ca_file: str | Path | None = None,
        client_certificate: ClientCertificate | None = None,
        tls: ssl.SSLContext | None = None,
        follow_leader: bool | None = None,
        drain_seconds: float | None = None,
        settings: WorkerSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        chosen: dict[str, Any] = {"concurrency": concurrency, "drain_seconds": drain_seconds}
        chosen = {option: value for option, value in chosen.items() if value is not None}
        self.settings = replace(settings or WorkerSettings(), **chosen)
        if follow_leader is not None:
            self.follow_leader(follow=follow_leader)
        self.name = _instance_name(name)
        self._urls = urls
        self._queues = queues if queues is None else _checked_queues(queues)
        self._region = region if region is None else checked_name(region, field="region")
        self._token = token
        self._tenant = tenant
        self._tls = client_tls(tls, ca_file=ca_file, client_certificate=client_certificate)
        self._clock = clock or SystemClock()
        self._registry = Registry(queues_are_named=queues is not None)
        self._nodes_at(urls)  # a wrong address is an error here, not when the worker starts
        self._is_drain_asked = False
        self._serving: tuple[asyncio.AbstractEventLoop, Service] | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the addresses that it was given; none if it uses the default."""
        return self._urls

    def connect_to(self, *urls: str) -> None:
        """Serve the cluster that `urls` belong to, overriding earlier addresses; call it before `run`.

        Raises `Invalid` for a wrong address, which changes nothing.
        """
        self._nodes_at(urls)
        self._urls = urls

    def follow_leader(self, *, follow: bool) -> None:
        """Ask also the nodes that the cluster names, or only those that this worker was given; call it before `run`."""
        self.settings = replace(self.settings, client=replace(self.settings.client, follow_leader=follow))

    @property
    def region(self) -> str | None:
        """Return its region."""
        return self._region

    def move_to(self, region: str) -> None:
        """Work in `region`, overriding an earlier one; call it before `run`.

        Raises `Invalid` for a wrong name, which changes nothing.
        """
        self._region = checked_name(region, field="region")

    def job(
        self,
        name: str,
        *,
        queue: str | None = None,
        max_attempts: int | None = None,
        timeout_seconds: float | None = None,
        retry_on: Sequence[type[BaseException]] | None = None,
        no_retry: Sequence[type[BaseException]] = (),
        capture_stdout: bool = False,
        process: bool = False,
    ) -> Callable[[F], F]:
        """Register the decorated function as the handler of the jobs called `name`.

        It takes `(ctx, payload)` or `(payload)`; what it returns is the job's result and must have a JSON form. It can
        raise `Retry`, `GiveUp` or `Snooze`; whatever else it raises, `SystemExit` and its like included, is a failure,
        retried by the job's policy. An async function runs on the event loop, a plain one in a thread, or with
        `process=True` in a process of its own, which can be killed and can't block anything else; such a function must
        be at the top of its module.

        `queue` is the queue of such jobs; default: the job's name. `max_attempts`: a failure of an attempt with this
        number or a later one is final, even if the job allows more; snoozed and lost attempts are counted too.
        `timeout_seconds` stops an attempt and counts as a failure; the job's own timeout applies, too. `retry_on` and
        `no_retry`: classes of exceptions; only the former, or all but the latter, are tried again, and a failure by any
        other is final. The job's own lists, of names, apply, too. `capture_stdout`: text and bytes that the function
        writes to `sys.stdout` go to the log of the attempt and nowhere else. Threads and subprocesses that it starts
        are not captured.

        Raises `Invalid` for a second handler of the same name and for functions with other parameters.
        """
        return self._registry.job(
            name,
            queue=queue,
            max_attempts=max_attempts,
            timeout_seconds=timeout_seconds,
            retry_on=retry_on,
            no_retry=no_retry,
            capture_stdout=capture_stdout,
            process=process,
        )

    def execute(
        self,
        kind: Kind,
        function: Callable[[Context, Any], Awaitable[Any]],
        *,
        on_stop: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Run all jobs of a kind that needs no handler with an async `function`, whatever their names.

        It takes `(ctx, payload)`: `ctx.call` is the JSON of the request or command, `payload` its body or standard
        input. The default of the worker's queues has the queue of that kind: `http` or `shell`. `on_stop` is awaited
        at the end of `serve`, to close what the function keeps open.

        Raises `Invalid` for a second executor of a kind, and for other kinds.
        """
        self._registry.execute(kind, function, on_stop=on_stop)

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, which drain; a second signal ends the process at once.

        Blocks, and uses uvloop if it is installed. Raises what `serve` raises. If an async handler that ignores its
        cancellation is left at the end, the process is ended here, with exit code 0 or, if `serve` raised, 1:
        nothing else can end it. If such a handler holds the event loop beyond `drain_seconds` and `stop_grace_seconds`
        after the signal, the heartbeat thread ends the process, with exit code 1. As the first process of a container
        it serves in a child: see `first_process`.
        """
        if threading.active_count() == 1:
            leave_first_process()
        elif os.getpid() == 1:
            _log.warning("first_process", advice="threads run already: start it under an init, as `docker run --init`")
        with self._signals_handled(), asyncio.Runner(loop_factory=new_event_loop) as runner:
            code = 1
            try:
                runner.run(self.serve())
                code = 0
            finally:
                self._exit_if_hung(code)

    def _exit_if_hung(self, code: int) -> None:
        """End the process if async handlers hang; closing their event loop would wait for them for ever."""
        hung_count = self._serving[1].hung_task_count if self._serving is not None else 0
        if hung_count:
            _log.error("exit_despite_hung_handlers", hung_count=hung_count, exit_code=code)
            _exit(code)

    def _exit_overdue(self) -> None:
        """End the process: a handler blocks the event loop beyond drain and grace. Its run ends with its lease."""
        _log.error("exit_despite_blocked_loop", worker=self.name, exit_code=1)
        _exit(1)

    async def serve(self) -> None:
        """Serve until `drain` is called.

        Raises `Invalid` or `Rejected` if the cluster refuses this worker for good (a wrong token, a queue's name),
        and `HungHandlers`; both after running handlers had their time. Cancelling it stops the handlers without
        reporting them: their leases run out.
        """
        service = Service(
            worker=self.name,
            queues=self._checked_queues(),
            region=self._region,
            registry=self._registry,
            settings=self.settings,
            connect=self._connect,
            clock=self._clock,
            on_overdue=self._exit_overdue,
        )
        self._serving = asyncio.get_running_loop(), service
        if self._is_drain_asked:
            service.drain()
        await service.run()

    def drain(self) -> None:
        """Take no more jobs, and let `serve` end when the running ones have ended; permanent, and safe from any thread."""
        self._is_drain_asked = True
        if self._serving is not None:
            loop, service = self._serving
            with suppress(RuntimeError):  # the loop is closed: it has ended already
                loop.call_soon_threadsafe(service.drain)

    def _checked_queues(self) -> Sequence[str]:
        queues = list(self._queues) if self._queues is not None else self._registry.queues
        if not 1 <= len(queues) <= limits.QUEUES_PER_LEASE_MAX:
            raise Invalid(
                f"queues: a worker takes jobs from 1 to {limits.QUEUES_PER_LEASE_MAX} queues, not from {len(queues)}; "
                "register a handler or name them",
                field="queues",
            )
        return queues

    def _connect(self) -> Connection:
        nodes = self._nodes_at(self._urls)
        return Connection(
            nodes, self.settings.client, token=self._token, tenant=self._tenant, tls=self._tls, clock=self._clock
        )

    def _nodes_at(self, urls: Sequence[str]) -> Nodes:
        client = self.settings.client
        return Nodes(urls or (URL_DEFAULT,), avoid_seconds=client.avoid_seconds, follow_leader=client.follow_leader)

    @contextmanager
    def _signals_handled(self) -> Iterator[None]:
        """Drain at the first signal and end the process at the second; only in the main thread.

        The handler is Python's own, not the event loop's, so it also runs while a job's handler blocks the loop. For
        the second signal there is no handler: the kernel ends the process then, whatever its threads are doing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._signalled) for number in _SIGNALS}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)  # a node blocks them, and its child inherits that
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        self.drain()
        if self._serving is not None:
            self._serving[1].end_by_force()


def _instance_name(name: str | None) -> str:
    """Return the name of this instance; raises `Invalid` for one that the API would refuse."""
    stem = name if name is not None else re.sub(r"[^A-Za-z0-9_.:@-]", "-", f"w{socket.gethostname()}-{os.getpid()}")
    checked_name(stem, field="name")
    return checked_name(f"{stem}-{secrets.token_hex(_SUFFIX_BYTES)}", field="name")


def _checked_queues(queues: Sequence[str]) -> Sequence[str]:
    """Refuse anything but a list of names; a single text would be read as one queue for each character."""
    if isinstance(queues, str):
        raise Invalid(f"queues: a list of names, not a text: write [{queues!r}]", field="queues")
    return [checked_pattern(queue, field="queues") for queue in queues]


def _exit(code: int) -> NoReturn:
    """End the process at once, without waiting for its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
