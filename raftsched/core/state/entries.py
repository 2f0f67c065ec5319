"""Define rows of the state that are not records: entries of indexes, edges between jobs, lines of the audit trail."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from raftsched.core.operations.control import DeadlineKind
from raftsched.core.records.ids import JobId, NameTag, TimeMs
from raftsched.core.records.job import Condition, Status, Verdict
from raftsched.core.records.origin import Origin


class Dependant(NamedTuple):
    """Describe the edge from a parent to a job that depends on it."""

    child: JobId
    condition: Condition
    verdict: Verdict = Verdict.PENDING


class LogSize(NamedTuple):
    """Carry the stored size of an attempt's log."""

    byte_count: int
    last_sequence: int
    """The worker's number of the last piece; 0 = none."""
    piece_count: int


class WaitingEntry(NamedTuple):
    """Carry an entry of the ready index; it sorts by queue, region, tenant, falling priority, name tag, due time, id."""

    queue: str
    tenant: str
    priority: int
    tag: NameTag
    due_at_ms: TimeMs
    job_id: JobId
    region: str = ""


class TimerEntry(NamedTuple):
    """Carry an entry of the timers: a job that becomes due later."""

    due_at_ms: TimeMs
    job_id: JobId
    queue: str
    tenant: str
    priority: int
    tag: NameTag
    region: str = ""


class CounterKey(NamedTuple):
    tenant: str
    queue: str
    status: Status


class DeadlineEntry(NamedTuple):
    """Carry a record's next deadline; it sorts by kind, then time, then subject."""

    kind: DeadlineKind
    at_ms: TimeMs
    subject: bytes


class BlockedEntry(NamedTuple):
    """Carry a blocked job; it sorts by queue, key, region, falling priority, due time, id."""

    queue: str
    concurrency_key: str
    priority: int
    due_at_ms: TimeMs
    job_id: JobId
    region: str = ""


class FacetKind(IntEnum):
    """Enumerate the properties by which jobs are listed. The stored number never changes its meaning."""

    QUEUE = 1
    """The job's queue, if its name is different."""
    QUEUE_AND_NAME = 2
    """The job's queue and name, if they are equal, as for most jobs: one entry for both."""
    NAME = 3
    """The job's name, if its queue is different."""
    TAG = 4
    TENANT = 5
    """The job's tenant, if it is not the default one: a small tenant's lists must not walk over everybody's jobs."""


class FacetEntry(NamedTuple):
    """Carry a job's entry by queue, name, tag or tenant; it sorts by kind, value, unfinished before finished, id."""

    kind: FacetKind
    value: str
    ended: int
    """0 = not finished, else its status."""
    job_id: JobId


class AuditEntry(msgspec.Struct, frozen=True, array_like=True):
    """Record a line of the audit trail: who did what to which record."""

    at_ms: TimeMs
    actor: str
    action: str
    """`job.cancel`, `schedule.save`, `queue.pause`, …"""
    subject: str
    """`job:<id>`, `schedule:<id>`, `queue:<name>`, `workflow:<id>`."""
    tenant: str = ""
    detail: str = ""
    """The change, for people: before and after."""
    revision: int = 0
    origin: Origin | None = None
    """The origin of the request; None for what the cluster did by itself."""
