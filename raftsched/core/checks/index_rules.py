"""Check indexes against the records, in both directions.

An index is compared with the records without being loaded: each of its entries must be the one that its record requires,
and the counts must agree. Only if they differ, a second pass names the missing entries. The rules are independent of the
storage code that derives indexes, so a fault there can't hide itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, NamedTuple

from raftsched.core.checks.violation import Violation, named
from raftsched.core.operations.control import DeadlineKind
from raftsched.core.records.bounds import PRIORITY_MAX
from raftsched.core.records.ids import TENANT_DEFAULT, JobId, name_tag
from raftsched.core.records.job import FINISHED, LEASED, PARKED, WAITING, Job, Status
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Schedule, ScheduleId
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.entries import BlockedEntry, DeadlineEntry, FacetEntry, FacetKind, TimerEntry, WaitingEntry
from raftsched.core.state.view import AuditableView

Record = Job | Schedule | Queue | Workflow


class Index(NamedTuple):
    """Describe an index to compare with its records.

    `entry_of` returns the entry that a record requires, or None, or a list of them; `find` returns the record of an entry.
    `group_and_key` gives the order that readers need: within a group keys rise strictly, and a group is contiguous;
    None = no order.
    """

    name: str
    entries: Callable[[AuditableView], Iterator[Any]]
    entry_of: Callable[[Any], Hashable | list[Any]]
    record_id: Callable[[Any], bytes]
    group_and_key: Callable[[Any], tuple[str, Any]] | None = None
    noun: str = "job"
    find: Callable[[AuditableView, Any], Record | None] | None = None
    """None = a job, by its id."""
    records: Callable[[AuditableView], Iterator[Any]] = lambda view: view.all_jobs()

    def record(self, view: AuditableView, entry: Any) -> Record | None:
        return view.job(JobId(self.record_id(entry))) if self.find is None else self.find(view, entry)

    def expected_entries(self, record: Any) -> list[Any]:
        """Return the entries that `record` requires."""
        entry = self.entry_of(record)
        if isinstance(entry, list):
            return entry
        return [] if entry is None else [entry]


# -- the entries that records require ---------------------------------------------------------------------------------


def _waiting_entry(job: Job) -> WaitingEntry | None:
    if job.status not in WAITING or job.blocked:
        return None
    spec, tag = job.spec, name_tag(job.spec.handler)
    return WaitingEntry(spec.queue, job.tenant, spec.priority, tag, job.due_at_ms, job.id, spec.region)


def _blocked_entry(job: Job) -> BlockedEntry | None:
    spec = job.spec
    if job.status not in WAITING or not job.blocked or spec.options is None:
        return None
    return BlockedEntry(spec.queue, job.key_group, spec.priority, job.due_at_ms, job.id, spec.region)


def _timer_entry(job: Job) -> TimerEntry | None:
    if not job.timed or job.status not in WAITING:
        return None
    spec, tag = job.spec, name_tag(job.spec.handler)
    return TimerEntry(job.due_at_ms, job.id, spec.queue, job.tenant, spec.priority, tag, spec.region)


def _unique_entry(job: Job) -> tuple[str, bytes, JobId] | None:
    options = job.spec.options
    if options is None or not options.unique_key or (job.status in FINISHED and not options.unique_until_ms):
        return None
    return job.tenant, options.unique_key, job.id


def _workflow_job_entry(job: Job) -> tuple[bytes, JobId] | None:
    return (job.spec.workflow_id, job.id) if job.spec.workflow_id else None


def _schedule_job_entry(job: Job) -> tuple[bytes, JobId] | None:
    return (job.spec.schedule_id, job.id) if job.spec.schedule_id else None


def _facet_entries(job: Job) -> list[FacetEntry]:
    ended = int(job.status) if job.status in FINISHED else 0
    spec = job.spec
    by_queue_and_name = (
        [(FacetKind.QUEUE_AND_NAME, spec.queue)]
        if spec.queue == spec.name
        else [(FacetKind.QUEUE, spec.queue), (FacetKind.NAME, spec.name)]
    )
    by_tag = [(FacetKind.TAG, tag) for tag in dict.fromkeys(spec.tags)]
    by_tenant = [(FacetKind.TENANT, job.tenant)] if job.tenant != TENANT_DEFAULT else []
    return [FacetEntry(kind, value, ended, job.id) for kind, value in by_queue_and_name + by_tag + by_tenant]


def _job_deadline(job: Job) -> DeadlineEntry | None:
    if job.spec.options is None and job.pause is None and not job.kept_until_ms:
        return None
    return DeadlineEntry(DeadlineKind.JOB, job.next_deadline_ms, job.id) if job.next_deadline_ms else None  # type: ignore[arg-type]


def _other_deadline(record: Schedule | Queue | Workflow) -> DeadlineEntry | None:
    if not record.next_deadline_ms:
        return None
    match record:
        case Schedule():
            return DeadlineEntry(DeadlineKind.SCHEDULE, record.next_deadline_ms, record.id)  # type: ignore[arg-type]
        case Workflow():
            return DeadlineEntry(DeadlineKind.WORKFLOW, record.next_deadline_ms, record.id)  # type: ignore[arg-type]
        case Queue():
            return DeadlineEntry(DeadlineKind.QUEUE, record.next_deadline_ms, record.name.encode())  # type: ignore[arg-type]


def _record_of_deadline(view: AuditableView, entry: DeadlineEntry) -> Record | None:
    if entry.kind is DeadlineKind.QUEUE:
        return view.queue(entry.subject.decode())
    if entry.kind is DeadlineKind.SCHEDULE:
        return view.schedule(ScheduleId(entry.subject))
    return view.workflow(WorkflowId(entry.subject))


def _others(view: AuditableView) -> Iterator[Record]:
    yield from view.all_schedules()
    yield from view.all_queues()
    yield from view.all_workflows()


JOB_INDEXES: Final = (
    Index(
        "ready index",
        lambda view: view.all_waiting(),
        _waiting_entry,
        lambda entry: entry.job_id,
        lambda entry: (
            entry.queue,
            (entry.region, entry.tenant, PRIORITY_MAX - entry.priority, entry.tag, entry.due_at_ms, entry.job_id),
        ),
    ),
    Index(
        "blocked index",
        lambda view: view.all_blocked(),
        _blocked_entry,
        lambda entry: entry.job_id,
        lambda entry: (
            entry.queue,
            (entry.concurrency_key, entry.region, PRIORITY_MAX - entry.priority, entry.due_at_ms, entry.job_id),
        ),
    ),
    Index(
        "timers",
        lambda view: view.all_timers(),
        _timer_entry,
        lambda entry: entry.job_id,
        lambda entry: ("", (entry.due_at_ms, entry.job_id)),
    ),
    Index(
        "leased index",
        lambda view: view.all_leased(),
        lambda job: job.id if job.status in LEASED else None,
        lambda entry: entry,
    ),
    Index(
        "parked index",
        lambda view: view.all_parked(),
        lambda job: (job.status, job.id) if job.status in PARKED else None,
        lambda entry: entry[1],
        lambda entry: ("", entry),
    ),
    Index(
        "finished index",
        lambda view: view.all_finished(),
        lambda job: (job.finished_at_ms, job.id) if job.status in FINISHED else None,
        lambda entry: entry[1],
    ),
    Index(
        "dead letters by reason",
        lambda view: view.all_dead_letters(),
        lambda job: (job.reason, job.finished_at_ms, job.id) if job.status is Status.DEAD_LETTER else None,
        lambda entry: entry[2],
        lambda entry: ("", entry),
    ),
    Index(
        "idempotency keys",
        lambda view: view.all_keys(),
        lambda job: (job.tenant, job.idempotency_key, job.id) if job.idempotency_key else None,
        lambda entry: entry[2],
    ),
    Index("unique keys", lambda view: view.all_unique_keys(), _unique_entry, lambda entry: entry[2]),
    Index(
        "jobs of workflows",
        lambda view: view.all_workflow_jobs(),
        _workflow_job_entry,
        lambda entry: entry[1],
    ),
    Index(
        "jobs of schedules",
        lambda view: view.all_schedule_jobs(),
        _schedule_job_entry,
        lambda entry: entry[1],
    ),
    Index(
        "lists by queue, name, tag and tenant",
        lambda view: view.all_facets(),
        _facet_entries,
        lambda entry: entry.job_id,
        lambda entry: ("", entry),
    ),
    Index(
        "deadlines of jobs",
        lambda view: (entry for entry in view.all_deadlines() if entry.kind is DeadlineKind.JOB),
        _job_deadline,
        lambda entry: entry.subject,
        lambda entry: ("", entry),
    ),
)
"""Indexes of jobs; the expected entries are counted in the one pass over all jobs."""

OTHER_INDEXES: Final = (
    Index(
        "deadlines",
        lambda view: (entry for entry in view.all_deadlines() if entry.kind is not DeadlineKind.JOB),
        _other_deadline,
        lambda entry: entry.subject,
        lambda entry: ("", entry),
        noun="record",
        find=_record_of_deadline,
        records=_others,
    ),
    Index(
        "keys of workflows",
        lambda view: view.all_workflow_keys(),
        lambda workflow: (workflow.tenant, workflow.idempotency_key, workflow.id) if workflow.idempotency_key else None,
        lambda entry: entry[2],
        noun="workflow",
        find=lambda view, entry: view.workflow(entry[2]),
        records=lambda view: view.all_workflows(),
    ),
    Index(
        "names of schedules",
        lambda view: view.all_schedule_names(),
        lambda schedule: (schedule.tenant, schedule.name, schedule.id),
        lambda entry: entry[2],
        noun="schedule",
        find=lambda view, entry: view.schedule(entry[2]),
        records=lambda view: view.all_schedules(),
    ),
)


# -- the check --------------------------------------------------------------------------------------------------------


def check_job_indexes(view: AuditableView, expected: Counter[str]) -> Iterator[Violation]:
    """Yield the faults of the indexes of jobs; `expected` has the count of entries by the name of the index."""
    for index in JOB_INDEXES:
        yield from _check_index(view, index, expected[index.name])


def check_other_indexes(view: AuditableView) -> Iterator[Violation]:
    for index in OTHER_INDEXES:
        expected_count = sum(len(index.expected_entries(record)) for record in index.records(view))
        yield from _check_index(view, index, expected_count)


def _check_index(view: AuditableView, index: Index, expected_count: int) -> Iterator[Violation]:
    count = 0
    previous: object = None
    for entry in index.entries(view):
        record = index.record(view, entry)
        subject = named(index.noun, index.record_id(entry))
        if record is None:
            yield Violation(f"{index.name}: each entry has its record", subject, repr(entry))
        elif entry not in index.expected_entries(record):
            yield Violation(f"{index.name}: each entry is what its record calls for", subject, repr(entry))
        elif entry == previous:
            yield Violation(f"{index.name}: no entry is there twice", subject, repr(entry))
        else:
            count += 1
        previous = entry
    if count != expected_count:
        yield from _missing(view, index)
    if index.group_and_key is not None:
        yield from _check_order(view, index, index.group_and_key)


def _missing(view: AuditableView, index: Index) -> Iterator[Violation]:
    present = set(index.entries(view))
    for record in index.records(view):
        for entry in index.expected_entries(record):
            if entry not in present:
                subject = named(index.noun, index.record_id(entry))
                yield Violation(f"{index.name}: each record that calls for an entry has one", subject, repr(record))


def _check_order(
    view: AuditableView, index: Index, group_and_key: Callable[[Any], tuple[str, Any]]
) -> Iterator[Violation]:
    groups: set[str] = set()
    group: str | None = None
    key: Any = None
    for entry in index.entries(view):
        next_group, next_key = group_and_key(entry)
        in_order = next_key > key if next_group == group else next_group not in groups
        if not in_order:
            subject = named(index.noun, index.record_id(entry))
            yield Violation(f"{index.name}: entries are in order", subject, repr(entry))
        groups.add(next_group)
        group, key = next_group, next_key
