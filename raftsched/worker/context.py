"""What a handler is told about its attempt, and how it hears that it should stop."""

from __future__ import annotations

import threading
from datetime import datetime

_event_creation = threading.Lock()


class Cancelled:
    """Whether the attempt should stop; true for good once it is. Every method is safe from any thread."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: threading.Event | None = None

    def __bool__(self) -> bool:
        return self._is_set

    def is_set(self) -> bool:
        """Whether to stop."""
        return self._is_set

    def set(self) -> None:
        """Ask the handler to stop."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until the attempt should stop, at most `timeout` seconds; return whether it should.

        For plain functions: it is the pause that ends early. An async handler is cancelled instead.
        """
        with _event_creation:
            if self._event is None:  # made late: most attempts never wait, and an event costs more than all else here
                self._event = threading.Event()
        if self._is_set:  # set before there was an event
            self._event.set()
        return self._event.wait(timeout)


class Context:
    """One attempt of one job, as its handler sees it.

    `run_id` is the same for all attempts of the run: hand it to receivers as the idempotency key. `fencing_token`
    rises with every attempt in the whole cluster: a receiver that keeps the highest it has seen can refuse a late one.
    """

    __slots__ = ("attempt_number", "cancelled", "deadline", "fencing_token", "job_id", "name", "queue", "run_id")

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
    ) -> None:
        self.job_id = job_id
        self.run_id = run_id
        self.fencing_token = fencing_token
        self.attempt_number = attempt_number
        """1 for the first attempt of the run."""
        self.name = name
        self.queue = queue
        self.deadline = deadline
        """UTC; when the attempt must be over, None if it may take any time."""
        self.cancelled = Cancelled()
        """True once the handler should stop: the job is cancelled, its time is up, the lease is lost, or the worker
        stops. What the handler returns or does after that doesn't count."""

    def __repr__(self) -> str:
        return f"Context(name={self.name!r}, run_id={self.run_id!r}, fencing_token={self.fencing_token})"
