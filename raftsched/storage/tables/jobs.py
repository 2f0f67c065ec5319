"""Read jobs by their ids and keys, and by their indexes. Each read is bounded by `limit`.

An index entry without its record raises `InvariantBroken`: an index with one wrong entry can't be trusted at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from heapq import merge
from itertools import islice

from raftsched.core.records.ids import JobId, NameTag, TimeMs
from raftsched.core.records.job import (
    FINISHED,
    WAITING,
    Dependency,
    Job,
    Status,
    Worker,
    decode_job,
    decode_worker,
)
from raftsched.core.records.schedule import ScheduleId
from raftsched.core.state.entries import (
    BlockedEntry,
    Dependant,
    LogSize,
    TimerEntry,
    WaitingEntry,
)
from raftsched.errors import InvariantBroken
from raftsched.storage.store.port import Rows, Table, all_rows
from raftsched.storage.tables import edges, keys, logs
from raftsched.storage.tables.facets import HIGHEST_ID, LOWEST_ID, Facets, page_of_facets
from raftsched.storage.tables.leased_counts import RunningCounts
from raftsched.storage.tables.pages import JobPage, check_cursor, page_by_status
from raftsched.storage.tables.unfinished_counts import UnfinishedCounts


class JobReads:
    """Implement the reads of jobs in `raftsched.core.state.view.View`, and those of the leader.

    It is a part of `StateReader` and of `StateFork`.
    """

    _store: Rows
    _unfinished: UnfinishedCounts

    # -- records ------------------------------------------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        record = self._store.get(Table.JOBS, job_id)
        return None if record is None else decode_job(record)

    def payload(self, job_id: JobId | ScheduleId) -> bytes:
        """Return the JSON text (for a schedule, its template's); b"" if there is none."""
        return self._store.get(Table.PAYLOADS, job_id) or b""

    def result(self, job_id: JobId) -> bytes:
        """Return the JSON text; b"" if there is none."""
        return self._store.get(Table.RESULTS, job_id) or b""

    def job_id_for_key(self, tenant: str, idempotency_key: str) -> JobId | None:
        found = self._store.get(Table.KEYS, keys.dedup_key(tenant, idempotency_key))
        return None if found is None else JobId(found)

    def job_id_for_unique(self, tenant: str, unique_key: bytes) -> JobId | None:
        found = self._store.get(Table.UNIQUE, keys.unique_key(tenant, unique_key))
        return None if found is None else JobId(found)

    def dependencies(self, child: JobId) -> tuple[Dependency, ...]:
        """Return the job's dependencies, in the order of its submission."""
        return edges.dependencies(self._store, child)

    def dependants(self, parent: JobId, *, after: JobId | None, limit: int) -> list[Dependant]:
        """Return jobs that depend on `parent`, finished or not, by id, behind `after`."""
        return edges.dependants(self._store, parent, after=after, limit=limit)

    def log_size(self, job_id: JobId, run_number: int, attempt_number: int) -> LogSize:
        return logs.size(self._store, job_id, run_number, attempt_number)

    def log(
        self, job_id: JobId, run_number: int, attempt_number: int, *, offset: int = 0, bytes_max: int
    ) -> logs.LogPart:
        """Return an attempt's log from `offset` on; see `raftsched.storage.tables.logs.read`."""
        return logs.read(self._store, job_id, run_number, attempt_number, offset=offset, bytes_max=bytes_max)

    def logs(self, job_id: JobId) -> list[tuple[int, int, LogSize]]:
        """Return (run, attempt, size) of every log of the job, in order; at most `limits.SCAN_ROWS_MAX`."""
        return logs.attempts(self._store, job_id)

    def worker(self, name: str) -> Worker | None:
        record = self._store.get(Table.WORKERS, keys.name_key(name))
        return None if record is None else decode_worker(record)

    def workers(self) -> list[Worker]:
        """Return every worker that has a mark, by name."""
        return [decode_worker(record) for _, record in all_rows(self._store, Table.WORKERS)]

    # -- limits -------------------------------------------------------------------------------------------------------

    @cached_property
    def _running(self) -> RunningCounts:
        return RunningCounts(self.leased_jobs())

    def unfinished_count(self, tenant: str) -> int:
        """Return how many jobs of the tenant are unfinished, in whatever queues; reads no table."""
        return self._unfinished.of(tenant)

    def running_count(self, queue: str) -> int:
        """Return how many jobs of the queue are leased."""
        return self._running.of_queue(queue)

    def key_running_count(self, queue: str, concurrency_key: str) -> int:
        """Return how many jobs of the queue with this concurrency key are leased."""
        return self._running.of_key(queue, concurrency_key)

    def first_blocked(
        self, queue: str, concurrency_key: str, region: str = "", *, after: JobId | None = None
    ) -> JobId | None:
        """Return the next blocked job of this key and region, behind the blocked job `after`.

        The order is falling priority, due time, id.
        """
        group = start = keys.blocked_region(queue, concurrency_key, region)
        if after is not None:
            job = self._indexed_job(after)
            start = keys.after(keys.blocked_key(group, job.spec.priority, job.due_at_ms, job.id))
        rows = self._store.scan(Table.BLOCKED, start, keys.after_texts(group), limit=1)
        return keys.job_id_at_end(rows[0][0]) if rows else None

    def blocked_regions(self, queue: str, concurrency_key: str, *, limit: int) -> list[str]:
        """Return the first `limit` regions of blocked jobs of this key, by name; costs one look-up a region."""
        regions: list[str] = []
        start = keys.blocked_group(queue, concurrency_key)
        stop = keys.after_texts(start)
        while len(regions) < limit and (rows := self._store.scan(Table.BLOCKED, start, stop, limit=1)):
            regions.append(keys.read_blocked_key(rows[0][0]).region)
            start = keys.after_texts(keys.blocked_region(queue, concurrency_key, regions[-1]))
        return regions

    def blocked_jobs(self, queue: str, *, after: BlockedEntry | None = None, limit: int) -> list[JobId]:
        """Return blocked jobs of the queue by key, region, falling priority, due time and id, behind `after`.

        `after` need not exist any more.
        """
        group = start = keys.blocked_queue(queue)
        if after is not None:
            region = keys.blocked_region(after.queue, after.concurrency_key, after.region)
            start = max(start, keys.after(keys.blocked_key(region, after.priority, after.due_at_ms, after.job_id)))
        rows = self._store.scan(Table.BLOCKED, start, keys.after_texts(group), limit=limit)
        return [keys.job_id_at_end(key) for key, _ in rows]

    # -- indexes ------------------------------------------------------------------------------------------------------

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
        """Return waiting jobs of a queue, tenant, priority, name and region up to `due_until_ms`, earliest first."""
        group = keys.waiting_group(queue, tenant, priority, tag, region)
        start = group if after is None else keys.after(keys.waiting_key(group, after.due_at_ms, after.job_id))
        rows = self._store.scan(Table.WAITING, start, group + keys.time(due_until_ms + 1), limit=limit)
        return [
            WaitingEntry(queue, tenant, priority, tag, keys.waiting_due(key), keys.job_id_at_end(key), region)
            for key, _ in rows
        ]

    def first_of_lanes(self, queue: str) -> list[WaitingEntry]:
        """Return the earliest entry, due or not, of each region, tenant, priority and name that has one."""
        return self._firsts(keys.text(queue), keys.after_waiting_queue(queue))

    def first_of_lane(self, queue: str, tenant: str, region: str) -> list[WaitingEntry]:
        """Return the tenant's earliest entry in this region for each priority and name that has one."""
        start = keys.waiting_lane(queue, region, tenant)
        return self._firsts(start, keys.after_texts(start))

    def _firsts(self, start: bytes, stop: bytes) -> list[WaitingEntry]:
        """Return the first entry of each group between these keys; costs one look-up a group."""
        firsts: list[WaitingEntry] = []
        while rows := self._store.scan(Table.WAITING, start, stop, limit=1):
            first = keys.read_waiting_key(rows[0][0])
            firsts.append(first)
            start = keys.after_waiting_group(keys.waiting_group_of(rows[0][0]))
        return firsts

    def tenants_of_region(self, queue: str, region: str) -> list[str]:
        """Return the tenants with waiting, not blocked jobs of this region in the queue, by name.

        Costs one look-up a tenant.
        """
        tenants: list[str] = []
        start = keys.waiting_region(queue, region)
        stop = keys.after_texts(start)
        while rows := self._store.scan(Table.WAITING, start, stop, limit=1):
            tenants.append(keys.read_waiting_key(rows[0][0]).tenant)
            start = keys.after_texts(keys.waiting_region(queue, region) + keys.text(tenants[-1]))
        return tenants

    def waiting_queues(self) -> list[str]:
        """Return the queues with waiting, not blocked jobs, due or not, by name; costs one look-up a queue."""
        names: list[str] = []
        start = b""
        while head := self._store.scan(Table.WAITING, start, None, limit=1):
            names.append(keys.read_waiting_key(head[0][0]).queue)
            start = keys.after_waiting_queue(names[-1])
        return names

    def timers(
        self, *, until_ms: int, limit: int, after: TimerEntry | None = None, from_ms: int = 0
    ) -> list[TimerEntry]:
        """Return timed waiting jobs with `from_ms` <= due <= `until_ms`, earliest first."""
        found: list[TimerEntry] = []
        for status in WAITING:
            start = keys.timers_until(status, from_ms)
            if after is not None:
                start = max(start, keys.after(keys.timer_key(status, after.due_at_ms, after.job_id)))
            rows = self._store.scan(Table.TIMERS, start, keys.timers_until(status, until_ms + 1), limit=limit)
            found += [keys.read_timer(key, value) for key, value in rows]
        return sorted(found)[:limit]

    def leased_jobs(self) -> list[Job]:
        """Return every leased job; the workers' capacities bound their number."""
        return [self._indexed_job(JobId(key)) for key, _ in all_rows(self._store, Table.LEASED)]

    def finished_between(
        self, after: tuple[TimeMs, JobId] | None, before_ms: int, *, limit: int
    ) -> list[tuple[TimeMs, JobId]]:
        """Return finished jobs behind `after` with finished time < `before_ms`, by time and id."""
        rows = (
            self._store.scan(
                Table.FINISHED,
                bytes([status]) if after is None else keys.after(keys.finished_key(status, *after)),
                keys.finished_until(status, before_ms),
                limit=limit,
            )
            for status in FINISHED
        )
        return list(islice(merge(*([keys.read_finished_key(key) for key, _ in found] for found in rows)), limit))

    # -- lists --------------------------------------------------------------------------------------------------------

    def list_jobs(self, *, after: bytes | None = None, limit: int, descending: bool = False) -> list[Job]:
        """Return the next jobs by id, that is by age, behind the id `after`.

        Raises `Invalid` for an impossible `after`.
        """
        check_cursor(after or b"")
        start = keys.after(after) if after and not descending else b""
        stop = after if after and descending else None
        rows = self._store.scan(Table.JOBS, start, stop, limit=limit, reverse=descending)
        return [decode_job(record) for _, record in rows]

    def list_jobs_by_status(
        self,
        status: Status,
        *,
        now_ms: int,
        queue: str = "",
        due_queues: Sequence[str] | None = None,
        reason: str = "",
        after: bytes | None = None,
        limit: int,
        descending: bool = False,
    ) -> JobPage:
        """Return the next jobs that users see as `status` at `now_ms`; see `raftsched.storage.tables.pages`.

        `queue`: only jobs of that queue; possible for the statuses that wait for time. Raises `Invalid` for other statuses,
        and for an impossible cursor.
        """
        return page_by_status(
            self._store,
            self._indexed_job,
            status,
            now_ms=now_ms,
            queue=queue,
            due_queues=due_queues,
            reason=reason,
            after=after or b"",
            limit=limit,
            descending=descending,
        )

    def list_jobs_of(
        self,
        facets: Facets,
        *,
        low: bytes = LOWEST_ID,
        high: bytes = HIGHEST_ID,
        after: bytes = b"",
        limit: int,
        descending: bool = False,
    ) -> JobPage:
        """Return the next jobs of `facets`, by id; see `raftsched.storage.tables.facets`."""
        return page_of_facets(
            self._store,
            self._indexed_job,
            facets,
            low=low,
            high=high,
            after=after,
            limit=limit,
            descending=descending,
        )

    def _indexed_job(self, job_id: JobId) -> Job:
        job = self.job(job_id)
        if job is None:
            raise InvariantBroken(f"an index names job {job_id.hex()}, which does not exist")
        return job
