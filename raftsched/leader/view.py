"""The state as the leader's services read it; `raftsched.storage.state.State` is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from raftsched.core.ids import JobId, TimeMs
from raftsched.core.job import Job, Worker
from raftsched.core.view import CounterKey, TimerEntry, WaitingEntry


class LeaderView(Protocol):
    """Reads of the replicated state. None of them writes; each costs time in proportion to what it returns."""

    @property
    def cluster_time_ms(self) -> TimeMs: ...
    def job(self, job_id: JobId) -> Job | None: ...
    def payload(self, job_id: JobId) -> bytes: ...
    def worker(self, name: str) -> Worker | None: ...
    def workers(self) -> list[Worker]: ...
    def waiting(
        self, queue: str, priority: int, *, due_until_ms: int, limit: int, after: WaitingEntry | None = None
    ) -> list[WaitingEntry]:
        """The first `limit` waiting jobs of a queue and priority, by due time and id, behind `after`."""

    def timers(self, *, until_ms: int, limit: int, after: TimerEntry | None = None) -> list[TimerEntry]:
        """The first `limit` timed jobs that are due up to `until_ms`, by due time and id, behind `after`."""

    def leased_jobs(self) -> list[Job]: ...
    def finished_before(self, ms: int, *, limit: int) -> list[JobId]: ...
    def counters(self) -> Mapping[CounterKey, int]: ...
