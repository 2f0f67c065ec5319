"""Walks of everything that is stored, for checks and tests. They go in steps, so that no walk loads a table."""

from __future__ import annotations

from collections.abc import Iterator

from raftsched.core.control_operations import ChoreKind
from raftsched.core.ids import JobId, TimeMs
from raftsched.core.job import Dependency, Job, Status, decode_job
from raftsched.core.queue import Queue, decode_queue
from raftsched.core.schedule import Firing, Schedule, ScheduleId, decode_firing, decode_schedule
from raftsched.core.view import AlarmEntry, Dependant, FacetEntry, HeldEntry, LogSize, TimerEntry, WaitingEntry
from raftsched.core.workflow import Workflow, WorkflowId, decode_workflow
from raftsched.storage import edges, keys, logs
from raftsched.storage.store import Store, Table, all_rows


class Walks:
    """A part of `StateReader`: what `raftsched.core.view.AuditableView` walks, each in the order of its keys."""

    _store: Store

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def all_jobs(self) -> Iterator[Job]:
        return (decode_job(record) for _, record in all_rows(self._store, Table.JOBS))

    def all_payload_ids(self) -> Iterator[JobId]:
        return (JobId(key) for key, _ in all_rows(self._store, Table.PAYLOADS))

    def all_result_ids(self) -> Iterator[JobId]:
        return (JobId(key) for key, _ in all_rows(self._store, Table.RESULTS))

    def all_dependencies(self) -> Iterator[tuple[JobId, tuple[Dependency, ...]]]:
        return edges.all_dependencies(self._store)

    def all_logs(self) -> Iterator[tuple[JobId, int, int, LogSize]]:
        """(job id, run, attempt, size)."""
        return logs.all_logs(self._store)

    # -- indexes of jobs ----------------------------------------------------------------------------------------------

    def all_waiting(self) -> Iterator[WaitingEntry]:
        return (keys.read_waiting_key(key) for key, _ in all_rows(self._store, Table.WAITING))

    def all_held(self) -> Iterator[HeldEntry]:
        return (keys.read_held_key(key) for key, _ in all_rows(self._store, Table.HELD))

    def all_timers(self) -> Iterator[TimerEntry]:
        return (keys.read_timer(key, value) for key, value in all_rows(self._store, Table.TIMERS))

    def all_leased(self) -> Iterator[JobId]:
        return (JobId(key) for key, _ in all_rows(self._store, Table.LEASED))

    def all_parked(self) -> Iterator[tuple[Status, JobId]]:
        return (keys.read_parked_key(key) for key, _ in all_rows(self._store, Table.PARKED))

    def all_finished(self) -> Iterator[tuple[TimeMs, JobId]]:
        """(finished time, job id), status by status."""
        return (keys.read_finished_key(key) for key, _ in all_rows(self._store, Table.FINISHED))

    def all_keys(self) -> Iterator[tuple[str, str, JobId]]:
        """(tenant, idempotency key, job id)."""
        return ((*keys.read_dedup_key(key), JobId(job_id)) for key, job_id in all_rows(self._store, Table.KEYS))

    def all_unique_keys(self) -> Iterator[tuple[str, bytes, JobId]]:
        """(tenant, unique key, job id)."""
        return ((*keys.read_unique_key(key), JobId(job_id)) for key, job_id in all_rows(self._store, Table.UNIQUE))

    def all_dependants(self) -> Iterator[tuple[JobId, Dependant]]:
        """(parent, its dependant)."""
        return edges.all_dependants(self._store)

    def all_workflow_jobs(self) -> Iterator[tuple[WorkflowId, JobId]]:
        for key, _ in all_rows(self._store, Table.WORKFLOW_JOBS):
            workflow_id, job_id = keys.read_pair_key(key)
            yield WorkflowId(workflow_id), job_id

    def all_schedule_jobs(self) -> Iterator[tuple[ScheduleId, JobId]]:
        for key, _ in all_rows(self._store, Table.SCHEDULE_JOBS):
            schedule_id, job_id = keys.read_pair_key(key)
            yield ScheduleId(schedule_id), job_id

    def all_facets(self) -> Iterator[FacetEntry]:
        return (keys.read_facet_key(key) for key, _ in all_rows(self._store, Table.FACETS))

    # -- other records ------------------------------------------------------------------------------------------------

    def all_alarms(self) -> Iterator[AlarmEntry]:
        return (keys.read_alarm_key(key) for key, _ in all_rows(self._store, Table.ALARMS))

    def all_workflows(self) -> Iterator[Workflow]:
        return (decode_workflow(record) for _, record in all_rows(self._store, Table.WORKFLOWS))

    def all_workflow_keys(self) -> Iterator[tuple[str, str, WorkflowId]]:
        """(tenant, idempotency key, workflow id)."""
        rows = all_rows(self._store, Table.WORKFLOW_KEYS)
        return ((*keys.read_dedup_key(key), WorkflowId(workflow_id)) for key, workflow_id in rows)

    def all_schedules(self) -> Iterator[Schedule]:
        return (decode_schedule(record) for _, record in all_rows(self._store, Table.SCHEDULES))

    def all_schedule_names(self) -> Iterator[tuple[str, str, ScheduleId]]:
        """(tenant, name, schedule id)."""
        rows = all_rows(self._store, Table.SCHEDULE_NAMES)
        return ((*keys.read_dedup_key(key), ScheduleId(schedule_id)) for key, schedule_id in rows)

    def all_firings(self) -> Iterator[tuple[ScheduleId, Firing]]:
        rows = all_rows(self._store, Table.FIRINGS)
        return ((keys.schedule_of_firing(key), decode_firing(line)) for key, line in rows)

    def all_queues(self) -> Iterator[Queue]:
        return (decode_queue(record) for _, record in all_rows(self._store, Table.QUEUES))

    def all_chores(self) -> Iterator[tuple[ChoreKind, bytes, bytes]]:
        """(kind, subject, where it stands)."""
        return ((*keys.read_chore_key(key), cursor) for key, cursor in all_rows(self._store, Table.CHORES))
