"""The state as it is read: records by their keys, and jobs by their indexes, each read bounded by `limit`.

Reads see all writes executed so far, committed or not. An index entry without its record is not passed over: it raises
`InvariantBroken`, since an index that is wrong once can't be trusted at all.

The walks of everything (`all_…`) are for checks and tests. They go in steps, so that no walk loads a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from raftsched.core.ids import FencingToken, JobId, TimeMs
from raftsched.core.job import FINISHED, Job, Status, Worker, decode_job, decode_worker
from raftsched.core.view import CounterKey, TimerEntry, WaitingEntry
from raftsched.errors import InvariantBroken
from raftsched.storage import keys
from raftsched.storage.counters import Counters
from raftsched.storage.pages import JobPage, check_cursor, page_by_status
from raftsched.storage.position import Configuration, read_configuration, read_position
from raftsched.storage.store import Store, StoreFigures, Table, all_rows


class StateReader:
    """`raftsched.core.view.AuditableView`, and the reads of leader and API, over a `Store`.

    Raises `UnknownFormat` when made over data of another format. Single-threaded, as its store is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        position = read_position(store)
        self._counters = Counters(store)
        self.applied_index: int = position.applied_index
        """Log index of the last applied entry; 0 before the first."""
        self.applied_term: int = position.applied_term
        self.cluster_time_ms: TimeMs = position.cluster_time_ms
        self.fence: FencingToken = position.fence
        self.operation_version: int = position.operation_version
        """The highest version of the entries applied (`core.operations`); 0 before the first."""
        self.configuration: Configuration | None = read_configuration(store)
        """The cluster's configuration that was applied last; None while there was none."""

    # -- records ------------------------------------------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        record = self._store.get(Table.JOBS, job_id)
        return None if record is None else decode_job(record)

    def payload(self, job_id: JobId) -> bytes:
        """Return the JSON text; b"" where there is none."""
        return self._store.get(Table.PAYLOADS, job_id) or b""

    def result(self, job_id: JobId) -> bytes:
        """Return the JSON text; b"" where there is none."""
        return self._store.get(Table.RESULTS, job_id) or b""

    def job_id_for_key(self, tenant: str, idempotency_key: str) -> JobId | None:
        found = self._store.get(Table.KEYS, keys.dedup_key(tenant, idempotency_key))
        return None if found is None else JobId(found)

    def worker(self, name: str) -> Worker | None:
        record = self._store.get(Table.WORKERS, keys.worker_key(name))
        return None if record is None else decode_worker(record)

    def workers(self) -> list[Worker]:
        """Return every worker that has a mark, by name."""
        return [decode_worker(record) for _, record in all_rows(self._store, Table.WORKERS)]

    def counters(self) -> dict[CounterKey, int]:
        """Return the count of jobs of each tenant, queue and stored status; only those above zero."""
        return self._counters.all()

    # -- indexes ------------------------------------------------------------------------------------------------------

    def waiting(
        self, queue: str, priority: int, *, due_until_ms: int, limit: int, after: WaitingEntry | None = None
    ) -> list[WaitingEntry]:
        """Return waiting jobs of one queue and priority with due <= `due_until_ms`, first due first."""
        group = keys.waiting_group(queue, priority)
        start = group if after is None else keys.after(keys.waiting_key(*after))
        rows = self._store.scan(Table.WAITING, start, group + keys.time(due_until_ms + 1), limit=limit)
        return [WaitingEntry(queue, priority, keys.waiting_due(key), keys.job_id_at_end(key)) for key, _ in rows]

    def waiting_queues(self) -> list[str]:
        """Return the queues with any waiting job, due or not, by name; costs one look-up a queue."""
        names: list[str] = []
        start = b""
        while head := self._store.scan(Table.WAITING, start, None, limit=1):
            names.append(keys.read_waiting_key(head[0][0]).queue)
            start = keys.after_waiting_queue(names[-1])
        return names

    def timers(
        self, *, until_ms: int, limit: int, after: TimerEntry | None = None, from_ms: int = 0
    ) -> list[TimerEntry]:
        """Return timed waiting jobs with `from_ms` <= due <= `until_ms`, first due first."""
        start = keys.time(from_ms)
        if after is not None:
            start = max(start, keys.after(keys.timer_key(after.due_at_ms, after.job_id)))
        rows = self._store.scan(Table.TIMERS, start, keys.time(until_ms + 1), limit=limit)
        return [keys.read_timer(key, value) for key, value in rows]

    def leased_jobs(self) -> list[Job]:
        """Return every job that a worker holds; as many as the workers' capacities allow."""
        return [self._indexed_job(job_id) for job_id in self.all_leased()]

    def finished_before(self, ms: int, *, limit: int) -> list[JobId]:
        """Return finished jobs with finished time < `ms`, first finished first."""
        rows = (
            self._store.scan(Table.FINISHED, bytes([status]), keys.finished_until(status, ms), limit=limit)
            for status in FINISHED
        )
        by_time = merge(*([keys.read_finished_key(key) for key, _ in found] for found in rows))
        return [job_id for _, job_id in islice(by_time, limit)]

    # -- lists --------------------------------------------------------------------------------------------------------

    def list_jobs(self, *, after: bytes | None = None, limit: int, descending: bool = False) -> list[Job]:
        """Return the next jobs by id, that is by age; `after` is the id of the last job seen.

        Raises `Invalid` for an impossible `after`.
        """
        check_cursor(after or b"")
        start = keys.after(after) if after and not descending else b""
        stop = after if after and descending else None
        rows = self._store.scan(Table.JOBS, start, stop, limit=limit, reverse=descending)
        return [decode_job(record) for _, record in rows]

    def list_jobs_by_status(
        self, status: Status, *, now_ms: int, after: bytes | None = None, limit: int, descending: bool = False
    ) -> JobPage:
        """Return the next jobs that users see as `status` at `now_ms`; see `raftsched.storage.pages`.

        Raises `Invalid` for an impossible cursor.
        """
        return page_by_status(
            self._store,
            self._indexed_job,
            status,
            now_ms=now_ms,
            after=after or b"",
            limit=limit,
            descending=descending,
        )

    # -- walks of everything ------------------------------------------------------------------------------------------

    def all_jobs(self) -> Iterator[Job]:
        return (decode_job(record) for _, record in all_rows(self._store, Table.JOBS))

    def all_waiting(self) -> Iterator[WaitingEntry]:
        return (keys.read_waiting_key(key) for key, _ in all_rows(self._store, Table.WAITING))

    def all_timers(self) -> Iterator[TimerEntry]:
        return (keys.read_timer(key, value) for key, value in all_rows(self._store, Table.TIMERS))

    def all_leased(self) -> Iterator[JobId]:
        return (JobId(key) for key, _ in all_rows(self._store, Table.LEASED))

    def all_finished(self) -> Iterator[tuple[TimeMs, JobId]]:
        """(finished time, job id), status by status."""
        return (keys.read_finished_key(key) for key, _ in all_rows(self._store, Table.FINISHED))

    def all_keys(self) -> Iterator[tuple[str, str, JobId]]:
        """(tenant, idempotency key, job id)."""
        return ((*keys.read_dedup_key(key), JobId(job_id)) for key, job_id in all_rows(self._store, Table.KEYS))

    def all_payload_ids(self) -> Iterator[JobId]:
        return (JobId(key) for key, _ in all_rows(self._store, Table.PAYLOADS))

    def all_result_ids(self) -> Iterator[JobId]:
        return (JobId(key) for key, _ in all_rows(self._store, Table.RESULTS))

    # -- the store ----------------------------------------------------------------------------------------------------

    def figures(self) -> StoreFigures:
        """How full the state's file and its disk are."""
        return self._store.figures()

    def check_readers(self) -> int:
        """Free what readers of dead processes still hold, so that old pages are used again (case R20)."""
        return self._store.check_readers()

    def close(self) -> None:
        """Let go of the file; what was not checkpointed is dropped, and the journal has it."""
        self._store.close()

    def _indexed_job(self, job_id: JobId) -> Job:
        job = self.job(job_id)
        if job is None:
            raise InvariantBroken(f"an index names job {job_id.hex()}, which does not exist")
        return job
