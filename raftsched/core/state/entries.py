"""Rows that the state shows beside its records: entries of indexes, edges between jobs, lines of the audit trail."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from raftsched.core.operations.control import DeadlineKind
from raftsched.core.records.ids import JobId, NameTag, TimeMs
from raftsched.core.records.job import Condition, Status, Verdict


class Dependant(NamedTuple):
    """A job that depends on another: the way from parent to child."""

    child: JobId
    condition: Condition
    verdict: Verdict = Verdict.PENDING


class LogSize(NamedTuple):
    """How much of an attempt's log is stored."""

    byte_count: int
    last_sequence: int
    """The worker's number of the last piece; 0 = none."""
    piece_count: int


class WaitingEntry(NamedTuple):
    """An entry of the ready index; it sorts by queue, region, tenant, falling priority, name tag, due time, id."""

    queue: str
    tenant: str
    priority: int
    tag: NameTag
    due_at_ms: TimeMs
    job_id: JobId
    region: str = ""


class TimerEntry(NamedTuple):
    """An entry of the timers: a job that becomes due later."""

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
    """Something that is due by time, of a kind; it sorts by kind, then time, then subject."""

    kind: DeadlineKind
    at_ms: TimeMs
    subject: bytes


class BlockedEntry(NamedTuple):
    """A job that waits for its concurrency key; sorts by queue, key, region, falling priority, due time, id."""

    queue: str
    concurrency_key: str
    priority: int
    due_at_ms: TimeMs
    job_id: JobId
    region: str = ""


class FacetKind(IntEnum):
    """By what jobs are listed. The stored number never changes its meaning."""

    QUEUE = 1
    """The job's queue, where its name is another."""
    QUEUE_AND_NAME = 2
    """The job's queue, which is called like the job: one entry stands for both, as for most jobs."""
    NAME = 3
    """The job's name, where its queue is another."""
    TAG = 4


class FacetEntry(NamedTuple):
    """A job by its queue, its name or one of its tags; sorts by kind, value, then open before ended, then id."""

    kind: FacetKind
    value: str
    ended: int
    """0 = not finished, else its status."""
    job_id: JobId


class AuditEntry(msgspec.Struct, frozen=True, array_like=True):
    """A line of the audit trail: who did what to what."""

    at_ms: TimeMs
    actor: str
    action: str
    """`job.cancel`, `schedule.save`, `queue.pause`, …"""
    subject: str
    """`job:<id>`, `schedule:<id>`, `queue:<name>`, `workflow:<id>`."""
    tenant: str = ""
    detail: str = ""
    """What changed, for people: before and after."""
    revision: int = 0
