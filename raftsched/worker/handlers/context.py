"""Give a handler its attempt, the request to stop, and the ways to report meanwhile.

A context passes the handler's reports to its `ReportSink`: in the worker that is the run's `AttemptReports`, in a
process of its own a pipe to the worker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from raftsched import limits
from raftsched.client.http.documents import encode_document
from raftsched.values import check_value

_event_creation = threading.Lock()
_LOGGERS = "raftsched.job"


class ReportSink(Protocol):
    """Take the reports of a handler, in whichever thread it runs."""

    @property
    def is_log_behind(self) -> bool: ...
    def progress(self, document: bytes) -> None: ...
    def beat(self) -> None: ...
    def log(self, text: str) -> None: ...
    def result_of(self, parent: str) -> Any: ...


class NullSink:
    """Drop all reports: for a context that belongs to no worker, as in a test of a handler."""

    is_log_behind = False

    def progress(self, document: bytes) -> None:
        """Do nothing."""

    def beat(self) -> None:
        """Do nothing."""

    def log(self, text: str) -> None:
        """Do nothing."""

    def result_of(self, parent: str) -> Any:
        raise RuntimeError(f"the result of {parent!r} can be read within a worker only")


_NULL_SINK = NullSink()


class Cancelled:
    """Whether the attempt should stop; it stays true. Every method is safe from any thread."""

    __slots__ = ("_event", "_is_set", "was_seen")

    def __init__(self) -> None:
        self._is_set = False
        self.was_seen = False
        """The handler has read it as true: it may have left its work half done."""
        self._event: threading.Event | None = None

    def __bool__(self) -> bool:
        return self._seen(is_set=self._is_set)

    def is_set(self) -> bool:
        """Return whether to stop."""
        return self._seen(is_set=self._is_set)

    def set(self) -> None:
        """Ask the handler to stop."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until the attempt should stop, at most `timeout` seconds; return whether it should.

        For plain functions: a pause that ends early. An async handler is cancelled instead.
        """
        with _event_creation:
            if (
                self._event is None
            ):  # made late: most attempts never wait, and an event costs more than everything else here
                self._event = threading.Event()
        if self._is_set:  # set before there was an event
            self._event.set()
        return self._seen(is_set=self._event.wait(timeout))

    def _seen(self, *, is_set: bool) -> bool:
        if is_set:
            self.was_seen = True
        return is_set


class Context:
    """One attempt of one job, as its handler sees it.

    `run_id` is the same for all attempts of the run: give it to receivers as the idempotency key. `fencing_token`
    rises with every attempt in the whole cluster: a receiver that keeps the highest it has seen can refuse a late one.

    Reports of the handler (`progress`, `log`, `heartbeat`) belong to this attempt. They may be made from any thread,
    and those made after the end of the attempt are dropped.
    """

    __slots__ = (
        "_logger", "_sink", "attempt_number", "call", "callback_token", "cancelled", "deadline",
        "fencing_token", "instant", "job_id", "max_attempts", "name", "parameters", "queue", "replay_of", "retry_cap_seconds",
        "run_at", "run_id", "schedule_id", "starts_at_most_once", "task", "tenant", "traceparent", "workflow_id",
    )  # fmt: skip

    def __init__(
        self,
        *,
        job_id: str,
        run_id: str,
        fencing_token: int,
        attempt_number: int,
        name: str,
        queue: str,
        deadline: datetime | None = None,
        tenant: str = "",
        max_attempts: int = 0,
        schedule_id: str | None = None,
        instant: datetime | None = None,
        workflow_id: str | None = None,
        task: str | None = None,
        replay_of: str | None = None,
        traceparent: str | None = None,
        call: Any = None,
        starts_at_most_once: bool = False,
        callback_token: str | None = None,
        run_at: datetime | None = None,
        retry_cap_seconds: float = 3_600.0,
        parameters: Mapping[str, Any] | None = None,
        sink: ReportSink = _NULL_SINK,
    ) -> None:
        self.job_id = job_id
        self.run_id = run_id
        self.fencing_token = fencing_token
        self.attempt_number = attempt_number
        """1 for the first attempt of the run."""
        self.max_attempts = max_attempts
        """Failures after which the job moves to the dead-letter queue; 0 = not known."""
        self.name = name
        self.queue = queue
        self.tenant = tenant
        self.deadline = deadline
        """UTC; the end of the attempt, by its timeout or the job's deadline; None if it may take any time."""
        self.schedule_id = schedule_id
        """The schedule that submitted this run."""
        self.instant = instant
        """UTC; the nominal fire time of the schedule for this run, however late it runs."""
        self.workflow_id = workflow_id
        self.task = task
        """The job's name within its workflow."""
        self.replay_of = replay_of
        """The job of which this one is a clone."""
        self.traceparent = traceparent
        """The span that submitted the job (W3C Trace Context); the run's own span is below it."""
        self.call = call
        """JSON of the request or command of a job that needs no handler; None for any other job."""
        self.starts_at_most_once = starts_at_most_once
        """The attempt is the only one: `Retry` and `Snooze` move its job to the dead-letter queue."""
        self.run_at = run_at
        """UTC; the time that was requested for the run; None if it is not known."""
        self.retry_cap_seconds = retry_cap_seconds
        """The longest delay of the job's retry policy."""
        self.callback_token = callback_token
        """The secret by which the target of this attempt's request may report the outcome; None if it may not."""
        self.parameters: Mapping[str, Any] = parameters or {}
        """Values of the schedule's parameters by their names; None for one that has none. A secret is
        `{"secret": NAME}`: its content is known to executors only."""
        self.cancelled = Cancelled()
        """True once the handler should stop: the job is cancelled, its time is up, the lease is lost, or the worker
        stops. If a handler has read it as true, its return value doesn't count; if the worker stops, another one runs
        the attempt again. An async handler is cancelled as well; one that catches that and returns has finished."""
        self._sink = sink
        self._logger: logging.Logger | None = None

    def __repr__(self) -> str:
        return f"Context(name={self.name!r}, run_id={self.run_id!r}, fencing_token={self.fencing_token})"

    def progress(self, value: Any) -> None:
        """Report how far the handler is: anything with a JSON form, such as `{"done": 3, "of": 10}`; returns at once.

        It is sent about once a second at most, and of several only the latest. It is a sign of life, too.
        Raises `Invalid` for a document without a JSON form, over 4 KiB, or with more than 64 levels.
        """
        document = encode_document(value, field="progress")
        check_value(document, bytes_max=limits.PROGRESS_BYTES_MAX, field="progress")
        self._sink.progress(document)

    def heartbeat(self) -> None:
        """Give a sign of life, for jobs with `heartbeat_timeout_seconds`; returns at once, and is cheap to call often."""
        self._sink.beat()

    def log(self, text: object) -> None:
        """Write a line, or several, to the log of this attempt, as `print` would write it; returns at once.

        Lines leave about once a second, and before the attempt's outcome. The log of an attempt ends at 1 MiB. While
        the cluster can't be reached, a bounded part is kept, and a line says how much was left out.
        """
        self._sink.log(str(text))

    @property
    def is_log_behind(self) -> bool:
        """Return whether so many lines wait to be sent that later ones may be left out.

        False for a handler in a process of its own.
        """
        return self._sink.is_log_behind

    @property
    def logger(self) -> logging.Logger:
        """Return a standard logger, from level INFO on, whose records go to the log of this attempt.

        They also go to the handlers of the program's own loggers `raftsched.job` and above.
        """
        if self._logger is None:
            self._logger = logging.Logger(  # noqa: LOG001  # of this attempt alone: the registry would keep it, and its handler, for good
                f"{_LOGGERS}.{self.name}", logging.INFO
            )
            self._logger.parent = logging.getLogger(_LOGGERS)
            self._logger.addHandler(_ToAttempt(self._sink))
        return self._logger

    def result_of(self, parent: str) -> Any:
        """Return the result of a job that this one depends on: its id, or its task name within the same workflow.

        An async handler awaits it (`await ctx.result_of("extract")`), a plain one gets the value. None if that job
        has no result. Raises `NotFound` if there is no such job, and `Unavailable`.
        """
        return self._sink.result_of(parent)


class _ToAttempt(logging.Handler):
    """Write records to the log of one attempt."""

    def __init__(self, sink: ReportSink) -> None:
        super().__init__()
        self._sink = sink
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001  # the standard library's rule: a bad record is reported, and nothing raised
            self.handleError(record)
            return
        self._sink.log(text)
