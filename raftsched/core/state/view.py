"""Define the ports by which `apply` and the invariants read the state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from raftsched.core.operations.control import BackgroundKind
from raftsched.core.records.api_token import ApiToken
from raftsched.core.records.backup import LastBackup
from raftsched.core.records.encryption import ClusterKey
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import Dependency, Job, Status, Worker
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, FiringKind, Schedule, ScheduleId
from raftsched.core.records.tenant import Tenant
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
    """Read the state for `apply`."""

    @property
    def fence(self) -> FencingToken:
        """Return the last fencing token used; 0 before the first."""

    @property
    def outage_ended_at_ms(self) -> TimeMs:
        """Return the time at which a leader took over after the latest outage; 0 = there was none."""

    @property
    def cluster_key(self) -> ClusterKey | None:
        """Return the key with which the leader encrypts its files; None if none has any."""

    @property
    def last_backup(self) -> LastBackup | None:
        """Return the latest backup that was recorded; None if there is none."""

    def job(self, job_id: JobId) -> Job | None: ...
    def payload(self, job_id: JobId | ScheduleId) -> bytes:
        """Return the job's payload; for a schedule's id, its template's."""

    def job_id_for_key(self, tenant: str, idempotency_key: str) -> JobId | None: ...
    def worker(self, name: str) -> Worker | None: ...
    def job_id_for_unique(self, tenant: str, unique_key: bytes) -> JobId | None: ...
    def queue(self, name: str) -> Queue | None:
        """Return the queue's settings; None if it has none."""

    def queue_count(self) -> int:
        """Return the count of queues that have settings."""

    def api_token(self, token_id: str) -> ApiToken | None: ...
    def api_token_count(self) -> int: ...
    def schedule_count(self, tenant: str | None = None) -> int:
        """Return the count of schedules, of one tenant or of all."""

    def tenant(self, name: str) -> Tenant | None:
        """Return the tenant's settings; None if it has none."""

    def tenant_count(self) -> int:
        """Return the count of tenants that have settings."""

    def unfinished_count(self, tenant: str) -> int:
        """Return the count of the tenant's unfinished jobs, in whatever queues."""

    def running_count(self, queue: str) -> int:
        """Return the count of the queue's leased jobs."""

    def key_running_count(self, queue: str, concurrency_key: str) -> int:
        """Return the count of the queue's leased jobs with this concurrency key, given as its `Job.key_group`.

        So is the key in all other reads.
        """

    def first_blocked(
        self, queue: str, concurrency_key: str, region: str = "", *, after: JobId | None = None
    ) -> JobId | None:
        """Return the next blocked job of this key and region, behind the blocked job `after`.

        The order is falling priority, due time, id.
        """

    def blocked_regions(self, queue: str, concurrency_key: str, *, limit: int) -> list[str]:
        """Return the first `limit` regions of blocked jobs of this key, by name; "" = jobs for any worker."""

    def blocked_jobs(self, queue: str, *, after: BlockedEntry | None = None, limit: int) -> list[JobId]:
        """Return blocked jobs of the queue by key, region, falling priority, due time and id, behind `after`.

        `after` need not exist any more.
        """

    def dependencies(self, child: JobId) -> tuple[Dependency, ...]:
        """Return the job's dependencies, in the order of its submission."""

    def dependants(self, parent: JobId, *, after: JobId | None, limit: int) -> list[Dependant]:
        """Return jobs that depend on `parent`, finished or not, by id, behind `after`."""

    def workflow(self, workflow_id: WorkflowId) -> Workflow | None: ...
    def workflow_id_for_key(self, tenant: str, idempotency_key: str) -> WorkflowId | None: ...
    def workflow_jobs(self, workflow_id: WorkflowId, *, after: JobId | None, limit: int) -> list[JobId]: ...
    def schedule(self, schedule_id: ScheduleId) -> Schedule | None: ...
    def schedule_id_for_name(self, tenant: str, name: str) -> ScheduleId | None: ...
    def firings(
        self, schedule_id: ScheduleId, *, after: Firing | None, until_ms: int | None, limit: int
    ) -> list[Firing]:
        """Return lines of the ledger by fire time and kind, behind `after`, with fire time < `until_ms`."""

    def firing(self, schedule_id: ScheduleId, fire_time_ms: TimeMs, kind: FiringKind) -> Firing | None: ...
    def background_cursor(self, kind: BackgroundKind, subject: bytes) -> bytes | None:
        """Return the cursor of the next background step (an id, b"" = the first step); None if there is no such work."""

    def log_size(self, job_id: JobId, run_number: int, attempt_number: int) -> LogSize: ...


class ForkableView(View, Protocol):
    """Fork the state, for handlers whose changes must see each other."""

    def fork(self) -> Fork:
        """Return a view on which writes can be executed without changing this one.

        It costs little, and is valid until the next write to this view.
        """


class Fork(ForkableView, Protocol):
    """Show a view as it will be after some writes, so that several changes of one operation see each other."""

    @property
    def writes(self) -> tuple[Write, ...]:
        """Return all writes executed on it, in order. `apply` returns this same object, to be executed on the state."""

    def execute(self, writes: Iterable[Write]) -> None:
        """Execute `writes` on this view only. The `old` of each must be what the view shows before it."""


class AuditableView(View, Protocol):
    """Read every record, index entry and counter, for `invariants.check`."""

    @property
    def cluster_time_ms(self) -> TimeMs: ...
    def all_jobs(self) -> Iterator[Job]: ...
    def all_waiting(self) -> Iterator[WaitingEntry]: ...
    def all_timers(self) -> Iterator[TimerEntry]: ...
    def all_leased(self) -> Iterator[JobId]: ...
    def all_finished(self) -> Iterator[tuple[TimeMs, JobId]]: ...
    def all_dead_letters(self) -> Iterator[tuple[str, TimeMs, JobId]]:
        """Yield (reason, finished time, job id)."""

    def all_keys(self) -> Iterator[tuple[str, str, JobId]]:
        """Yield (tenant, idempotency key, job id)."""

    def all_payload_ids(self) -> Iterator[JobId]: ...
    def all_result_ids(self) -> Iterator[JobId]: ...
    def counters(self) -> dict[CounterKey, int]: ...
    def dead_letter_counts(self) -> dict[tuple[str, str], int]:
        """Return the counts of dead letters by tenant and reason, without zeros."""

    def all_parked(self) -> Iterator[tuple[Status, JobId]]: ...
    def all_blocked(self) -> Iterator[BlockedEntry]: ...
    def all_deadlines(self) -> Iterator[DeadlineEntry]: ...
    def all_unique_keys(self) -> Iterator[tuple[str, bytes, JobId]]: ...
    def all_dependencies(self) -> Iterator[tuple[JobId, tuple[Dependency, ...]]]: ...
    def all_dependants(self) -> Iterator[tuple[JobId, Dependant]]:
        """Yield (parent, its dependant)."""

    def all_logs(self) -> Iterator[tuple[JobId, int, int, LogSize]]:
        """Yield (job id, run, attempt, size)."""

    def running_counts(self) -> dict[tuple[str, str], int]:
        """Return the counts of leased jobs by (queue, concurrency key), key "" = the whole queue, without zeros."""

    def all_workflows(self) -> Iterator[Workflow]: ...
    def all_workflow_keys(self) -> Iterator[tuple[str, str, WorkflowId]]:
        """Yield (tenant, idempotency key, workflow id)."""

    def all_workflow_jobs(self) -> Iterator[tuple[WorkflowId, JobId]]: ...
    def all_schedule_jobs(self) -> Iterator[tuple[ScheduleId, JobId]]:
        """Yield (schedule id, job id), also for deleted schedules."""

    def all_facets(self) -> Iterator[FacetEntry]: ...
    def all_schedules(self) -> Iterator[Schedule]: ...
    def all_schedule_names(self) -> Iterator[tuple[str, str, ScheduleId]]:
        """Yield (tenant, name, schedule id)."""

    def all_firings(self) -> Iterator[tuple[ScheduleId, Firing]]: ...
    def all_queues(self) -> Iterator[Queue]: ...
    def all_tenants(self) -> Iterator[Tenant]: ...
    def unfinished_counts(self) -> dict[str, int]:
        """Return the counts of unfinished jobs by tenant, without zeros."""

    def all_api_tokens(self) -> Iterator[ApiToken]: ...
    def all_background_work(self) -> Iterator[tuple[BackgroundKind, bytes, bytes]]:
        """Yield (kind, subject, cursor)."""
