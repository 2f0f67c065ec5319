"""The state as the leader's services read it; `raftsched.storage.state.State` is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from raftsched.core.operations.control import BackgroundKind, DeadlineKind
from raftsched.core.records.encryption import ClusterKey
from raftsched.core.records.ids import JobId, NameTag, TimeMs
from raftsched.core.records.job import Job, Status, Worker
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, Schedule, ScheduleId
from raftsched.core.records.tenant import Tenant
from raftsched.core.state.entries import AuditEntry, DeadlineEntry, TimerEntry, WaitingEntry
from raftsched.storage.tables.pages import Page

FinishedPlace = tuple[TimeMs, JobId]
"""(end time, id): a job's position among the finished."""


class LeaderView(Protocol):
    """Reads of the replicated state. None of them writes; each costs time in proportion to what it returns."""

    @property
    def cluster_time_ms(self) -> TimeMs: ...
    @property
    def outage_ended_at_ms(self) -> TimeMs:
        """Return when a leader took over after the latest outage; 0 = there was none."""

    @property
    def zone_rules(self) -> str:
        """Return the version of the time zone rules by which next fire times were computed; "" = not known."""

    @property
    def cluster_key(self) -> ClusterKey | None:
        """Return the key with which the leader encrypts its files; None if none has any."""

    def list_schedules(self, *, after: bytes = b"", limit: int) -> Page[Schedule]:
        """Return the next schedules by id, behind the cursor `after`."""

    def queue(self, name: str) -> Queue | None:
        """Return the queue's settings; None if it has none."""

    def queues(self) -> list[Queue]:
        """Return every queue that has settings, by name."""

    def running_count(self, queue: str) -> int:
        """Return the number of running jobs of the queue."""

    def key_running_count(self, queue: str, concurrency_key: str) -> int:
        """Return the number of running jobs of the queue with this concurrency key."""

    def blocked_jobs(self, queue: str, *, limit: int) -> list[JobId]:
        """Return the first `limit` jobs of the queue that are blocked by their concurrency key."""

    def tenant(self, name: str) -> Tenant | None:
        """Return the tenant's settings; None if it has none."""

    def job(self, job_id: JobId) -> Job | None: ...
    def payload(self, job_id: JobId) -> bytes: ...
    def worker(self, name: str) -> Worker | None: ...
    def workers(self) -> list[Worker]: ...
    def waiting_tenants(self, queue: str) -> list[str]:
        """Return the tenants that have any waiting job in the queue, due or not, of whatever region."""

    def tenants_of_region(self, queue: str, region: str) -> list[str]:
        """Return the tenants that have any waiting job of this region in the queue, due or not."""

    def first_of_lanes(self, queue: str) -> list[WaitingEntry]:
        """Return the job that is due first of each region, tenant, priority and name with waiting jobs in the queue."""

    def first_of_lane(self, queue: str, tenant: str, region: str) -> list[WaitingEntry]:
        """Return the job that is due first of each priority and name of a tenant's waiting jobs in this region."""

    def waiting_queues(self) -> list[str]:
        """Return the queues with any waiting job that is not blocked, due or not, by name."""

    def waiting(
        self,
        queue: str,
        tenant: str,
        priority: int,
        tag: NameTag,
        *,
        region: str = "",
        due_until_ms: int,
        limit: int,
        after: WaitingEntry | None = None,
    ) -> list[WaitingEntry]:
        """Return the first `limit` waiting jobs of a queue, tenant, priority, name and region, by due time and id,
        behind `after`.
        """

    def timers(self, *, until_ms: int, limit: int, after: TimerEntry | None = None) -> list[TimerEntry]:
        """Return the first `limit` timed jobs that are due up to `until_ms`, by due time and id, behind `after`."""

    def next_deadline(self, kind: DeadlineKind) -> int | None:
        """Return when the next deadline of this kind is, in cluster milliseconds; None if there is none."""

    def deadlines_due(self, kind: DeadlineKind, now_ms: int, *, limit: int, after_ms: int = 0) -> list[DeadlineEntry]:
        """Return the first `limit` deadlines of this kind later than `after_ms`, up to `now_ms`."""

    def schedule(self, schedule_id: ScheduleId) -> Schedule | None: ...
    def firings(
        self, schedule_id: ScheduleId, *, after: Firing | None, until_ms: int | None, limit: int
    ) -> list[Firing]:
        """Return lines of the schedule's ledger by fire time and kind, behind `after`, with fire time < `until_ms`."""

    def newest_firings(self, schedule_id: ScheduleId, *, limit: int) -> list[Firing]:
        """Return the last `limit` lines of the schedule's ledger by fire time and kind, newest first."""

    def oldest_audit(self, *, limit: int) -> list[AuditEntry]:
        """Return the first `limit` lines of the audit trail, oldest first."""

    def background_work(
        self, *, limit: int, after: tuple[BackgroundKind, bytes] | None = None
    ) -> list[tuple[BackgroundKind, bytes]]:
        """Return unfinished background steps, by kind and subject."""

    def leased_jobs(self) -> list[Job]: ...
    def finished_between(self, after: FinishedPlace | None, before_ms: int, *, limit: int) -> list[FinishedPlace]:
        """Return finished jobs behind `after` that ended before `before_ms`, by time and id."""

    def used_queues(self, tenant: str | None = None, *, after: str = "") -> Iterator[str]:
        """Return the queues that hold jobs, of one tenant or of all, by name, behind `after`."""

    def queue_counts(self, queue: str, tenant: str | None = None) -> dict[Status, int]:
        """Return the jobs of a queue by stored status, of one tenant or of all."""
