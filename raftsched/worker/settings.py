"""Settings of a worker, each with its unit and reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from raftsched import limits
from raftsched.client.http.settings import ClientSettings
from raftsched.errors import Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Slots, waits and ends."""

    concurrency: int = 32
    """Handlers that run at the same time."""
    drain_seconds: float = 30.0
    """Time for running handlers to end after the first SIGTERM."""
    stop_at_lease_end: bool = True
    """Stop a handler once its lease is over by this worker's clock, because no leader answered for that long.

    True: no two attempts of a run overlap, since the run is given to another worker only after that. An outage of the
    cluster that is longer than a lease stops every handler. Their runs begin again afterwards and nothing is counted.
    False: a handler continues until an answer says that its lease is lost. After an outage it keeps its attempt, or its
    outcome is recorded. If only this worker was cut off, another one has the run meanwhile: the two overlap until this
    one reaches the cluster, and this one's outcome is refused. Jobs that start at most once stop in both cases.

    A worker can't tell the two cases apart. It gets no answer in both, and a node that says it has no leader may be cut
    off from those that have one.
    """
    stop_grace_seconds: float = 5.0
    """Time for a handler to clean up after it was asked to stop; then its slot is given to another."""
    wait_seconds: float = 2.0
    """Longest wait of one request for jobs at the leader, and never more than a quarter of the lease. Short,
    because an idle worker that drains waits for it to end, and the lease counts from its start."""
    prefetch_below_seconds: float = 0.05
    """Handlers that take less than this on average have their next jobs leased ahead, as many as there are slots."""
    prefetched_seconds_max: float = 1.0
    """A job leased ahead that found no slot within this time is given back, so that another worker can have it."""
    linger_seconds: float = 0.002
    """With busy slots and fast handlers, wait this long for more free slots: one request then leases more jobs."""
    hung_handlers_max: int = 100
    """With this number of handlers that ignore the order to stop the worker ends, so that its supervisor starts a new
    one."""
    progress_seconds: float = 1.0
    """Shortest time between two progress reports of a handler to the cluster, each of which is a write there."""
    log_seconds: float = 1.0
    """Lines of a log wait this long for more: one request for each line would cost more than the job."""
    log_buffer_bytes_max: int = 256 * 1024
    """Lines of one attempt that wait to be sent; beyond it new ones are left out."""
    flush_seconds: float = 5.0
    """Longest wait of an outcome for the log that precedes it."""
    report_seconds: float = 10.0
    """Time for retries of the last outcomes at the end."""
    client: ClientSettings = field(default_factory=ClientSettings)
    """Settings of its requests to the cluster."""

    def __post_init__(self) -> None:
        """Refuse a concurrency that no request could ask for, and times that would fail when they are needed."""
        most = limits.LEASE_CAPACITY_MAX // 2
        if type(self.concurrency) is not int or not 1 <= self.concurrency <= most:
            raise Invalid(f"concurrency: a whole number, 1 to {most}, not {self.concurrency!r}", field="concurrency")
        for option in ("drain_seconds", "stop_grace_seconds"):
            seconds = getattr(self, option)
            if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
                raise Invalid(f"{option}: a number of seconds, 0 or more, not {seconds!r}", field=option)
