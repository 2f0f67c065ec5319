"""The state as it is read: by `apply`, narrowly, and by the invariants, whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from raftsched.core.operations.control import BackgroundKind
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import Dependency, Job, Status, Worker
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, FiringKind, Schedule, ScheduleId
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.entries import (
    BlockedEntry,
    CounterKey,
    DeadlineEntry,
    Dependant,
    FacetEntry,
    LogSize,
    TimerEntry,
    WaitingEntry,
)
from raftsched.core.state.writes import Write


class View(Protocol):
    """The state as `apply` may read it."""

    @property
    def fence(self) -> FencingToken:
        """The last fencing token given out; 0 before the first."""

    @property
    def outage_ended_at_ms(self) -> TimeMs:
        """Return when a leader took over after the latest outage; 0 = there was none."""

    def job(self, job_id: JobId) -> Job | None: ...
    def payload(self, job_id: JobId | ScheduleId) -> bytes:
        """The job's payload; of a schedule's id, its template's."""

    def job_id_for_key(self, tenant: str, idempotency_key: str) -> JobId | None: ...
    def worker(self, name: str) -> Worker | None: ...
    def job_id_for_unique(self, tenant: str, unique_key: bytes) -> JobId | None: ...
    def queue(self, name: str) -> Queue | None:
        """Return the queue's settings; None if nobody made any."""

    def queue_count(self) -> int:
        """Queues that have settings."""

    def schedule_count(self) -> int: ...
    def running_count(self, queue: str) -> int:
        """Jobs of the queue that are leased."""

    def key_running_count(self, queue: str, concurrency_key: str) -> int:
        """Jobs of the queue with this concurrency key that are leased."""

    def first_blocked(
        self, queue: str, concurrency_key: str, region: str = "", *, after: JobId | None = None
    ) -> JobId | None:
        """The held job of this key and region that comes next, behind the held job `after`.

        They go by falling priority, due time, id.
        """

    def blocked_regions(self, queue: str, concurrency_key: str, *, limit: int) -> list[str]:
        """The first `limit` regions that held jobs of this key have, by name; "" = jobs for any worker."""

    def blocked_jobs(self, queue: str, *, after: BlockedEntry | None = None, limit: int) -> list[JobId]:
        """Held jobs of the queue by key, region, falling priority, due time and id, behind `after`, there or not."""

    def dependencies(self, child: JobId) -> tuple[Dependency, ...]:
        """Return the dependencies of the job, as it was submitted."""

    def dependants(self, parent: JobId, *, after: JobId | None, limit: int) -> list[Dependant]:
        """Jobs that depend on `parent`, ended or not, by id."""

    def workflow(self, workflow_id: WorkflowId) -> Workflow | None: ...
    def workflow_id_for_key(self, tenant: str, idempotency_key: str) -> WorkflowId | None: ...
    def workflow_jobs(self, workflow_id: WorkflowId, *, after: JobId | None, limit: int) -> list[JobId]: ...
    def schedule(self, schedule_id: ScheduleId) -> Schedule | None: ...
    def schedule_id_for_name(self, tenant: str, name: str) -> ScheduleId | None: ...
    def firings(
        self, schedule_id: ScheduleId, *, after: Firing | None, until_ms: int | None, limit: int
    ) -> list[Firing]:
        """Lines of the ledger by instant and kind, behind `after`, with instant < `until_ms`."""

    def firing(self, schedule_id: ScheduleId, fire_time_ms: TimeMs, kind: FiringKind) -> Firing | None: ...
    def background_cursor(self, kind: BackgroundKind, subject: bytes) -> bytes | None:
        """Return the chore's cursor (an id, b"" = at the start); None if there is no such chore."""

    def log_size(self, job_id: JobId, run_number: int, attempt_number: int) -> LogSize: ...


class ForkableView(View, Protocol):
    """The state as `apply` gets it: handlers whose changes must see each other make a fork."""

    def fork(self) -> Fork:
        """Return a view that also shows what is executed on it; nothing of that reaches this one.

        It costs little, and may be used until the next write to this view.
        """


class Fork(ForkableView, Protocol):
    """A view as it will be after some writes, so that several changes of one operation see each other."""

    @property
    def writes(self) -> tuple[Write, ...]:
        """All writes executed on it, in order. `apply` returns this very object, to be executed on the state."""

    def execute(self, writes: Iterable[Write]) -> None:
        """Show the state after `writes`, too. The `old` of each is what was shown before it."""


class AuditableView(View, Protocol):
    """The state as `invariants.check` walks it: every record, index entry and counter."""

    @property
    def cluster_time_ms(self) -> TimeMs: ...
    def all_jobs(self) -> Iterator[Job]: ...
    def all_waiting(self) -> Iterator[WaitingEntry]: ...
    def all_timers(self) -> Iterator[TimerEntry]: ...
    def all_leased(self) -> Iterator[JobId]: ...
    def all_finished(self) -> Iterator[tuple[TimeMs, JobId]]: ...
    def all_keys(self) -> Iterator[tuple[str, str, JobId]]:
        """(tenant, idempotency key, job id)."""

    def all_payload_ids(self) -> Iterator[JobId]: ...
    def all_result_ids(self) -> Iterator[JobId]: ...
    def counters(self) -> dict[CounterKey, int]: ...
    def all_parked(self) -> Iterator[tuple[Status, JobId]]: ...
    def all_blocked(self) -> Iterator[BlockedEntry]: ...
    def all_deadlines(self) -> Iterator[DeadlineEntry]: ...
    def all_unique_keys(self) -> Iterator[tuple[str, bytes, JobId]]: ...
    def all_dependencies(self) -> Iterator[tuple[JobId, tuple[Dependency, ...]]]: ...
    def all_dependants(self) -> Iterator[tuple[JobId, Dependant]]:
        """(parent, its dependant)."""

    def all_logs(self) -> Iterator[tuple[JobId, int, int, LogSize]]:
        """(job id, run, attempt, size)."""

    def running_counts(self) -> dict[tuple[str, str], int]:
        """Leased jobs of each (queue, concurrency key), and of each queue under the key ""; only those above zero."""

    def all_workflows(self) -> Iterator[Workflow]: ...
    def all_workflow_keys(self) -> Iterator[tuple[str, str, WorkflowId]]:
        """(tenant, idempotency key, workflow id)."""

    def all_workflow_jobs(self) -> Iterator[tuple[WorkflowId, JobId]]: ...
    def all_schedule_jobs(self) -> Iterator[tuple[ScheduleId, JobId]]:
        """Also of schedules that are gone."""

    def all_facets(self) -> Iterator[FacetEntry]: ...
    def all_schedules(self) -> Iterator[Schedule]: ...
    def all_schedule_names(self) -> Iterator[tuple[str, str, ScheduleId]]:
        """(tenant, name, schedule id)."""

    def all_firings(self) -> Iterator[tuple[ScheduleId, Firing]]: ...
    def all_queues(self) -> Iterator[Queue]: ...
    def all_background_work(self) -> Iterator[tuple[BackgroundKind, bytes, bytes]]:
        """(kind, subject, cursor)."""
