"""The state as the leader's services read it; `raftsched.storage.state.State` is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from raftsched.core.operations.control import AlarmKind, ChoreKind
from raftsched.core.records.ids import JobId, NameTag, TimeMs
from raftsched.core.records.job import Job, Status, Worker
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, Schedule, ScheduleId
from raftsched.core.state.entries import AlarmEntry, AuditEntry, TimerEntry, WaitingEntry
from raftsched.storage.tables.pages import Page

FinishedPlace = tuple[TimeMs, JobId]
"""When a job ended, and its id: its place among the finished."""


class LeaderView(Protocol):
    """Reads of the replicated state. None of them writes; each costs time in proportion to what it returns."""

    @property
    def cluster_time_ms(self) -> TimeMs: ...
    @property
    def outage_ended_at_ms(self) -> TimeMs:
        """When a leader took over after the latest outage; 0 = there was none."""

    @property
    def zone_rules(self) -> str:
        """The version of the time zone rules by which next instants were computed; "" = not known."""

    def list_schedules(self, *, after: bytes = b"", limit: int) -> Page[Schedule]:
        """The next schedules by id, behind the cursor `after`."""

    def queue(self, name: str) -> Queue | None:
        """The queue's settings; None where nobody made any."""

    def queues(self) -> list[Queue]:
        """Every queue that has settings, by name."""

    def running_count(self, queue: str) -> int:
        """Jobs of the queue that are leased."""

    def key_running_count(self, queue: str, concurrency_key: str) -> int:
        """Jobs of the queue with this concurrency key that are leased."""

    def held_jobs(self, queue: str, *, limit: int) -> list[JobId]:
        """The first `limit` jobs of the queue that are held for their concurrency key."""

    def job(self, job_id: JobId) -> Job | None: ...
    def payload(self, job_id: JobId) -> bytes: ...
    def worker(self, name: str) -> Worker | None: ...
    def workers(self) -> list[Worker]: ...
    def waiting_tenants(self, queue: str) -> list[str]:
        """Tenants that have any waiting job in the queue, due or not, whatever its region."""

    def tenants_of_region(self, queue: str, region: str) -> list[str]:
        """Tenants that have any waiting job of this region in the queue, due or not."""

    def first_of_lanes(self, queue: str) -> list[WaitingEntry]:
        """The waiting job that is due first of each region, tenant, priority and name of the queue that has any."""

    def first_of_lane(self, queue: str, tenant: str, region: str) -> list[WaitingEntry]:
        """The waiting job that is due first of each priority and name that a tenant has any of in this region."""

    def waiting_queues(self) -> list[str]:
        """The queues with any waiting job that is not held, due or not, by name."""

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
        """The first `limit` waiting jobs of a queue, tenant, priority, name and region, by due time and id, behind
        `after`.
        """

    def timers(self, *, until_ms: int, limit: int, after: TimerEntry | None = None) -> list[TimerEntry]:
        """The first `limit` timed jobs that are due up to `until_ms`, by due time and id, behind `after`."""

    def next_alarm(self, kind: AlarmKind) -> int | None:
        """When the next alarm of this kind is, in cluster milliseconds; None where there is none."""

    def alarms_due(self, kind: AlarmKind, now_ms: int, *, limit: int, after_ms: int = 0) -> list[AlarmEntry]:
        """The first `limit` alarms of this kind later than `after_ms`, up to `now_ms`."""

    def schedule(self, schedule_id: ScheduleId) -> Schedule | None: ...
    def firings(
        self, schedule_id: ScheduleId, *, after: Firing | None, until_ms: int | None, limit: int
    ) -> list[Firing]:
        """Lines of the schedule's ledger by instant and kind, behind `after`, with instant < `until_ms`."""

    def newest_firings(self, schedule_id: ScheduleId, *, limit: int) -> list[Firing]:
        """The last `limit` lines of the schedule's ledger by instant and kind, newest first."""

    def oldest_audit(self, *, limit: int) -> list[AuditEntry]:
        """The first `limit` lines of the audit trail, oldest first."""

    def chores(self, *, limit: int, after: tuple[ChoreKind, bytes] | None = None) -> list[tuple[ChoreKind, bytes]]:
        """Long work that is not done, by kind and subject."""

    def leased_jobs(self) -> list[Job]: ...
    def finished_between(self, after: FinishedPlace | None, before_ms: int, *, limit: int) -> list[FinishedPlace]:
        """Finished jobs behind `after` that ended before `before_ms`, by time and id."""

    def used_queues(self, tenant: str | None = None, *, after: str = "") -> Iterator[str]:
        """The queues that hold jobs, of one tenant or of all, by name, behind `after`."""

    def queue_counts(self, queue: str, tenant: str | None = None) -> dict[Status, int]:
        """The jobs of a queue by stored status, of one tenant or of all."""
