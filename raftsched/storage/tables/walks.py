"""Read all rows of the tables, for checks and tests. They are read in steps, so no table is loaded as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from itertools import pairwise
from typing import TypeVar

from raftsched.core.operations.control import BackgroundKind
from raftsched.core.records.api_token import ApiToken, decode_api_token
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import WAITING, Dependency, Job, Status, decode_job
from raftsched.core.records.queue import Queue, decode_queue
from raftsched.core.records.schedule import (
    Firing,
    Schedule,
    ScheduleId,
    decode_firing,
    decode_schedule,
)
from raftsched.core.records.tenant import Tenant, decode_tenant
from raftsched.core.records.workflow import Workflow, WorkflowId, decode_workflow
from raftsched.core.state.entries import (
    BlockedEntry,
    DeadlineEntry,
    Dependant,
    FacetEntry,
    LogSize,
    TimerEntry,
    WaitingEntry,
)
from raftsched.errors import InvariantBroken
from raftsched.storage.store.port import Rows, Table, all_rows
from raftsched.storage.tables import edges, keys, logs

_Item = TypeVar("_Item")


class UnreadableRow(InvariantBroken):
    """The row's seal is right, but this release can't read the row."""

    code = "unreadable_row"

    def __init__(self, table: Table, key: bytes, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        super().__init__(f"table {table.name.lower()}, key {key.hex()}: the row can't be read: {reason}")


class Walks:
    """Implement the full scans of `raftsched.core.state.view.AuditableView`, each in the order of its keys."""

    _store: Rows

    def _each(
        self, table: Table, read: Callable[[bytes, bytes], _Item], start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[_Item]:
        """Yield each row with start <= key < stop, converted by `read`; raises `UnreadableRow` if that fails."""
        for key, value in all_rows(self._store, table, start, stop):
            try:
                item = read(key, value)
            except (ValueError, LookupError, TypeError) as error:  # msgspec's errors and those of texts, too
                raise UnreadableRow(table, key, error) from error
            yield item

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def all_jobs(self) -> Iterator[Job]:
        return self._each(Table.JOBS, lambda _, record: decode_job(record))

    def all_payload_ids(self) -> Iterator[JobId]:
        return self._each(Table.PAYLOADS, lambda key, _: JobId(key))

    def all_result_ids(self) -> Iterator[JobId]:
        return self._each(Table.RESULTS, lambda key, _: JobId(key))

    def all_dependencies(self) -> Iterator[tuple[JobId, tuple[Dependency, ...]]]:
        return self._each(Table.DEPENDENCIES, edges.read_dependencies)

    def all_logs(self) -> Iterator[tuple[JobId, int, int, LogSize]]:
        """Yield (job id, run, attempt, size)."""
        return self._each(Table.LOG_SIZES, logs.read_size)

    # -- indexes of jobs ----------------------------------------------------------------------------------------------

    def all_waiting(self) -> Iterator[WaitingEntry]:
        return self._each(Table.WAITING, lambda key, _: keys.read_waiting_key(key))

    def all_blocked(self) -> Iterator[BlockedEntry]:
        return self._each(Table.BLOCKED, lambda key, _: keys.read_blocked_key(key))

    def all_timers(self) -> Iterator[TimerEntry]:
        """Yield timers by due time and id; also rows of no status, which can't be right, are read."""
        starts = [bytes([status]) for status in sorted(WAITING)]
        ranges = pairwise((b"", *starts, None))
        return merge(*(self._each(Table.TIMERS, keys.read_timer, start or b"", stop) for start, stop in ranges))

    def all_leased(self) -> Iterator[JobId]:
        return self._each(Table.LEASED, lambda key, _: JobId(key))

    def all_parked(self) -> Iterator[tuple[Status, JobId]]:
        return self._each(Table.PARKED, lambda key, _: keys.read_parked_key(key))

    def all_finished(self) -> Iterator[tuple[TimeMs, JobId]]:
        """Yield (finished time, job id), status by status."""
        return self._each(Table.FINISHED, lambda key, _: keys.read_finished_key(key))

    def all_dead_letters(self) -> Iterator[tuple[str, TimeMs, JobId]]:
        """Yield (reason, finished time, job id)."""
        return self._each(Table.DEAD_LETTERS, lambda key, _: keys.read_dead_letter_key(key))

    def all_keys(self) -> Iterator[tuple[str, str, JobId]]:
        """Yield (tenant, idempotency key, job id)."""
        return self._each(Table.KEYS, lambda key, job_id: (*keys.read_dedup_key(key), JobId(job_id)))

    def all_unique_keys(self) -> Iterator[tuple[str, bytes, JobId]]:
        """Yield (tenant, unique key, job id)."""
        return self._each(Table.UNIQUE, lambda key, job_id: (*keys.read_unique_key(key), JobId(job_id)))

    def all_dependants(self) -> Iterator[tuple[JobId, Dependant]]:
        """Yield (parent, its dependant)."""
        return self._each(Table.DEPENDANTS, edges.read_dependant)

    def all_workflow_jobs(self) -> Iterator[tuple[WorkflowId, JobId]]:
        for workflow_id, job_id in self._each(Table.WORKFLOW_JOBS, lambda key, _: keys.read_pair_key(key)):
            yield WorkflowId(workflow_id), job_id

    def all_schedule_jobs(self) -> Iterator[tuple[ScheduleId, JobId]]:
        for schedule_id, job_id in self._each(Table.SCHEDULE_JOBS, lambda key, _: keys.read_pair_key(key)):
            yield ScheduleId(schedule_id), job_id

    def all_facets(self) -> Iterator[FacetEntry]:
        return self._each(Table.FACETS, lambda key, _: keys.read_facet_key(key))

    # -- other records ------------------------------------------------------------------------------------------------

    def all_deadlines(self) -> Iterator[DeadlineEntry]:
        return self._each(Table.DEADLINES, lambda key, _: keys.read_deadline_key(key))

    def all_workflows(self) -> Iterator[Workflow]:
        return self._each(Table.WORKFLOWS, lambda _, record: decode_workflow(record))

    def all_workflow_keys(self) -> Iterator[tuple[str, str, WorkflowId]]:
        """Yield (tenant, idempotency key, workflow id)."""
        return self._each(
            Table.WORKFLOW_KEYS, lambda key, workflow_id: (*keys.read_dedup_key(key), WorkflowId(workflow_id))
        )

    def all_schedules(self) -> Iterator[Schedule]:
        return self._each(Table.SCHEDULES, lambda _, record: decode_schedule(record))

    def all_schedule_names(self) -> Iterator[tuple[str, str, ScheduleId]]:
        """Yield (tenant, name, schedule id)."""
        return self._each(
            Table.SCHEDULE_NAMES, lambda key, schedule_id: (*keys.read_dedup_key(key), ScheduleId(schedule_id))
        )

    def all_firings(self) -> Iterator[tuple[ScheduleId, Firing]]:
        return self._each(Table.FIRINGS, lambda key, line: (keys.schedule_of_firing(key), decode_firing(line)))

    def all_api_tokens(self) -> Iterator[ApiToken]:
        return self._each(Table.TOKENS, lambda _, record: decode_api_token(record))

    def all_tenants(self) -> Iterator[Tenant]:
        return self._each(Table.TENANTS, lambda _, record: decode_tenant(record))

    def all_queues(self) -> Iterator[Queue]:
        return self._each(Table.QUEUES, lambda _, record: decode_queue(record))

    def all_background_work(self) -> Iterator[tuple[BackgroundKind, bytes, bytes]]:
        """Yield (kind, subject, cursor)."""
        return self._each(Table.BACKGROUND_WORK, lambda key, cursor: (*keys.read_background_key(key), cursor))
