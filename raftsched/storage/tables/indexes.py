"""Derive index entries from records, by pure functions.

Entries are derived from the record before and the record after, and only the difference is written. So a forgotten line
can't make an index disagree with the records, and a transition touches as few keys as possible: a lease removes one entry
and adds one, a cancel of a running job touches none.

Data that is written once with the record and read only by its id (payloads, dependencies, logs) has no index.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from raftsched import limits
from raftsched.core.operations.control import DeadlineKind
from raftsched.core.records.ids import TENANT_DEFAULT, name_tag
from raftsched.core.records.job import FINISHED, LEASED, PARKED, WAITING, Job, Status
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Schedule
from raftsched.core.records.workflow import Workflow
from raftsched.core.state.entries import FacetKind
from raftsched.storage.store.port import Table
from raftsched.storage.tables import keys

Entry = tuple[Table, bytes, bytes]
"""Table, key and value."""
Entries = tuple[Entry, ...]

# Members of an enumeration cost a look-up each, and these are used for every job written.
_WAITING_TABLE, _LEASED_TABLE, _FINISHED_TABLE = Table.WAITING, Table.LEASED, Table.FINISHED
_DEAD_LETTER = Status.DEAD_LETTER


# -- jobs -------------------------------------------------------------------------------------------------------------


def index_entries(job: Job | None) -> Entries:
    """Return the entries by which `job` is found; none for None."""
    if job is None:
        return ()
    if job.spec.options is None and job.pause is None and not job.kept_until_ms:
        return status_entries(job)
    return status_entries(job) + _relation_entries(job)


def status_entries(job: Job) -> Entries:
    """Return the entries that depend on the job's status alone."""
    status = job.status
    if status in WAITING:
        return _waiting_entries(job)
    if status in LEASED:
        return ((_LEASED_TABLE, job.id, b""),)
    if status in PARKED:
        return ((Table.PARKED, keys.parked_key(status, job.id), b""),)
    finished = (_FINISHED_TABLE, keys.finished_key(status, job.finished_at_ms, job.id), b"")
    if status is not _DEAD_LETTER:
        return (finished,)
    return (finished, (Table.DEAD_LETTERS, keys.dead_letter_key(job.reason, job.finished_at_ms, job.id), b""))


def have_same_relations(old: Job, new: Job) -> bool:
    """Return whether two records of one job differ in their `status_entries` alone, as for most transitions.

    It may return False for records that do not differ.
    """
    options = new.spec.options
    return (
        options is old.spec.options
        and (options is None or not options.unique_key)
        and old.next_deadline_ms == new.next_deadline_ms
    )


def _waiting_entries(job: Job) -> Entries:
    spec = job.spec
    if job.blocked:
        region = keys.blocked_region(spec.queue, job.key_group, spec.region)
        key = keys.blocked_key(region, spec.priority, job.due_at_ms, job.id)
        ready = (Table.BLOCKED, key, b"")
    else:
        group = keys.waiting_group(spec.queue, job.tenant, spec.priority, name_tag(spec.handler), spec.region)
        key = keys.waiting_key(group, job.due_at_ms, job.id)
        ready = (_WAITING_TABLE, key, b"")
    if not job.timed:
        return (ready,)
    value = keys.timer_value(spec.priority, name_tag(spec.handler), job.tenant, spec.queue, region=spec.region)
    return (ready, (Table.TIMERS, keys.timer_key(job.status, job.due_at_ms, job.id), value))


def _relation_entries(job: Job) -> Entries:
    entries: list[Entry] = []
    options = job.spec.options
    if options is not None:
        if has_unique_entry(job):
            entries.append((Table.UNIQUE, keys.unique_key(job.tenant, options.unique_key), job.id))
        if options.workflow_id:
            entries.append((Table.WORKFLOW_JOBS, keys.pair_key(options.workflow_id, job.id), b""))
        if options.schedule_id:
            entries.append((Table.SCHEDULE_JOBS, keys.pair_key(options.schedule_id, job.id), b""))
    return (*entries, *_deadline_entries(DeadlineKind.JOB, job.next_deadline_ms, job.id))


def has_unique_entry(job: Job) -> bool:
    """Return whether the job holds its unique key: while it is unfinished; with a time, until it is taken over."""
    options = job.spec.options
    if options is None or not options.unique_key:
        return False
    return options.unique_until_ms > 0 or job.status not in FINISHED


# -- lists of jobs ----------------------------------------------------------------------------------------------------


def facet_groups(job: Job | None) -> tuple[bytes, ...]:
    """Return the prefixes of the job's keys in `FACETS`: by queue, name, each tag, tenant. The key ends with its id.

    Most jobs write them twice, at submission and at their end. Entries for every status would cost one more write for
    each lease and each retry.
    """
    if job is None:
        return ()
    spec, status = job.spec, job.status
    return _facet_groups(spec.queue, spec.name, spec.tags, job.tenant, status if status in FINISHED else 0)


@lru_cache(limits.ENCODED_QUEUES_MAX)
def _facet_groups(queue: str, name: str, tags: tuple[str, ...], tenant: str, ended: int) -> tuple[bytes, ...]:
    if queue == name:
        first: tuple[bytes, ...] = (keys.facet_group(FacetKind.QUEUE_AND_NAME, queue, ended),)
    else:
        first = (keys.facet_group(FacetKind.QUEUE, queue, ended), keys.facet_group(FacetKind.NAME, name, ended))
    if tenant != TENANT_DEFAULT:
        first += (keys.facet_group(FacetKind.TENANT, tenant, ended),)
    return first + tuple(keys.facet_group(FacetKind.TAG, tag, ended) for tag in dict.fromkeys(tags))


# -- other records ----------------------------------------------------------------------------------------------------


def workflow_entries(workflow: Workflow | None) -> Entries:
    if workflow is None:
        return ()
    deadline = _deadline_entries(DeadlineKind.WORKFLOW, workflow.next_deadline_ms, workflow.id)
    if not workflow.idempotency_key:
        return deadline
    key = keys.dedup_key(workflow.tenant, workflow.idempotency_key)
    return ((Table.WORKFLOW_KEYS, key, workflow.id), *deadline)


def schedule_entries(schedule: Schedule | None) -> Entries:
    if schedule is None:
        return ()
    name = (Table.SCHEDULE_NAMES, keys.dedup_key(schedule.tenant, schedule.name), bytes(schedule.id))
    return (name, *_deadline_entries(DeadlineKind.SCHEDULE, schedule.next_deadline_ms, schedule.id))


def queue_entries(queue: Queue | None) -> Entries:
    return () if queue is None else _deadline_entries(DeadlineKind.QUEUE, queue.next_deadline_ms, queue.name.encode())


def _deadline_entries(kind: DeadlineKind, at_ms: int, subject: bytes) -> Entries:
    return ((Table.DEADLINES, keys.deadline_key(kind, at_ms, subject), b""),) if at_ms else ()


# -- what changes -----------------------------------------------------------------------------------------------------


def difference(before: Entries, after: Entries) -> tuple[Sequence[Entry], Sequence[Entry]]:
    """Return the entries to remove and then those to insert, to get from the entries `before` to `after`."""
    if before == after:
        return (), ()
    if len(before) + len(after) <= 2:  # they differ, so they have none in common
        return before, after
    return [entry for entry in before if entry not in after], [entry for entry in after if entry not in before]
