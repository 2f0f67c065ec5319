r"""Encode the keys of the tables as bytes that sort like the tuples they represent.

Theory of operation. A fixed-width part is a big-endian unsigned number or a job id. A text followed by other parts is
encoded in UTF-8, which sorts by code point as Python's `str` does. It ends with a zero byte, which is below all others; a
zero byte inside a text is written 00 FF. No part that follows a text begins with FF: priorities are 0 to 9, statuses are
small, UTF-8 has no such byte, and bytes of any value have a 01 before them. So `a` sorts before `a\0`, and both before
`ab`, whatever follows.

A key over LMDB's limit raises `InvariantBroken`. Names are limited before they enter the log, in encoded bytes, since a
node that finds such a name while applying can only stop (case R22).
"""

from __future__ import annotations

from functools import lru_cache

from raftsched import limits
from raftsched.core.operations.control import BackgroundKind, DeadlineKind
from raftsched.core.records.ids import NAME_TAG_BYTES, JobId, NameTag, TimeMs
from raftsched.core.records.job import Status
from raftsched.core.records.schedule import FiringKind, ScheduleId
from raftsched.core.state.entries import (
    BlockedEntry,
    CounterKey,
    DeadlineEntry,
    FacetEntry,
    FacetKind,
    TimerEntry,
    WaitingEntry,
)
from raftsched.errors import InvariantBroken
from raftsched.storage.store.port import check_key

_PRIORITY_MAX = 9
_AFTER_TEXTS = b"\xff"
"""Above every part that may follow a text."""
_BEFORE_BYTES = b"\x01"
"""Between a text and bytes that may begin with FF."""
_TIME_BYTES = 8
_ID_BYTES = 16
_COUNT_BYTES = 4
_TAIL_BYTES = _TIME_BYTES + _ID_BYTES


def text(value: str) -> bytes:
    """Encode a text that other parts follow."""
    encoded = value.encode()
    if 0 in encoded:
        encoded = encoded.replace(b"\0", b"\0\xff")
    return encoded + b"\0"


def _read_text(key: bytes, start: int = 0) -> tuple[str, int]:
    """Return the text that begins at `start`, and the position of the next part."""
    end = key.index(b"\0", start)
    while key[end + 1 : end + 2] == b"\xff":
        end = key.index(b"\0", end + 2)
    return key[start:end].replace(b"\0\xff", b"\0").decode(), end + 1


def _checked(key: bytes, tail_bytes: int = 0) -> bytes:
    check_key(key, bytes_max=limits.KEY_BYTES_MAX - tail_bytes)
    return key


def time(value: int) -> bytes:
    """Encode a time in eight bytes; raises `InvariantBroken` for a time before 1970."""
    if value < 0:
        raise InvariantBroken(f"a time before 1970 in an index: {value}")
    return value.to_bytes(_TIME_BYTES, "big")


def after(key: bytes) -> bytes:
    """Return the least key above `key`."""
    return key + b"\0"


# -- waiting: queue, region, tenant, 9 - priority, name tag, due, id ---------------------------------------------------


@lru_cache(limits.ENCODED_QUEUES_MAX)
def waiting_group(queue: str, tenant: str, priority: int, tag: NameTag, region: str) -> bytes:
    """Return the prefix of the entries of a queue, region, tenant, priority and name; higher priorities sort first."""
    return _checked(waiting_lane(queue, region, tenant) + _priority(priority) + tag, _TAIL_BYTES)


def waiting_key(group: bytes, due_at_ms: int, job_id: JobId) -> bytes:
    return group + time(due_at_ms) + job_id


def after_waiting_group(group: bytes) -> bytes:
    """Return the first key behind one queue, region, tenant, priority and name."""
    start = group.rstrip(b"\xff")  # a tag may end so, but the priority before it is none
    return start[:-1] + bytes([start[-1] + 1])


def after_waiting_queue(queue: str) -> bytes:
    """Return the first key behind all regions of a queue."""
    return text(queue) + _AFTER_TEXTS


def waiting_region(queue: str, region: str) -> bytes:
    """Return the prefix of the entries of one region of a queue."""
    return text(queue) + text(region)


def waiting_lane(queue: str, region: str, tenant: str) -> bytes:
    """Return the prefix of the entries of one tenant in a region of a queue."""
    return waiting_region(queue, region) + text(tenant)


def waiting_group_of(key: bytes) -> bytes:
    """Return the part of an entry's key before due time and id."""
    return key[:-_TAIL_BYTES]


def waiting_due(key: bytes) -> TimeMs:
    return TimeMs(int.from_bytes(key[-_TAIL_BYTES:-_ID_BYTES], "big"))


def job_id_at_end(key: bytes) -> JobId:
    """Return the job id at the end of a key; every index of jobs has it there."""
    return JobId(key[-_ID_BYTES:])


def read_waiting_key(key: bytes) -> WaitingEntry:
    queue, position = _read_text(key)
    region, position = _read_text(key, position)
    tenant, position = _read_text(key, position)
    priority, tag = _PRIORITY_MAX - key[position], NameTag(key[position + 1 : -_TAIL_BYTES])
    return WaitingEntry(queue, tenant, priority, tag, waiting_due(key), job_id_at_end(key), region)


def _priority(priority: int) -> bytes:
    if not 0 <= priority <= _PRIORITY_MAX:
        raise InvariantBroken(f"priority {priority} is not between 0 and {_PRIORITY_MAX}")
    return bytes([_PRIORITY_MAX - priority])


# -- blocked: queue, concurrency key, region, 9 - priority, due, id ---------------------------------------------------


def blocked_queue(queue: str) -> bytes:
    """Return the prefix of the blocked jobs of one queue."""
    return text(queue)


def blocked_group(queue: str, concurrency_key: str) -> bytes:
    """Return the prefix of the blocked jobs of one concurrency key."""
    return text(queue) + text(concurrency_key)


def blocked_region(queue: str, concurrency_key: str, region: str) -> bytes:
    """Return the prefix of the blocked jobs of one concurrency key and region."""
    return blocked_group(queue, concurrency_key) + text(region)


def blocked_key(region: bytes, priority: int, due_at_ms: int, job_id: JobId) -> bytes:
    """Return the key of a blocked job; `region` is a `blocked_region`."""
    return _checked(region + _priority(priority), _TAIL_BYTES) + time(due_at_ms) + job_id


def after_texts(start: bytes) -> bytes:
    """Return the first key behind all that have the prefix `start`, if a text or a priority follows it."""
    return start + _AFTER_TEXTS


def read_blocked_key(key: bytes) -> BlockedEntry:
    queue, position = _read_text(key)
    concurrency_key, position = _read_text(key, position)
    region, position = _read_text(key, position)
    priority = _PRIORITY_MAX - key[position]
    return BlockedEntry(queue, concurrency_key, priority, waiting_due(key), job_id_at_end(key), region)


# -- timers: status, due, id → priority, name tag, tenant, queue, region ----------------------------------------------


def timer_key(status: Status, due_at_ms: int, job_id: JobId) -> bytes:
    return bytes([status]) + time(due_at_ms) + job_id


def timers_until(status: Status, due_at_ms: int) -> bytes:
    """Return the least key of `status` at `due_at_ms`; it is also the end of all that are due earlier."""
    return bytes([status]) + time(due_at_ms)


@lru_cache(limits.ENCODED_QUEUES_MAX)
def timer_value(priority: int, tag: NameTag, tenant: str, queue: str, *, region: str) -> bytes:
    return bytes([priority]) + tag + text(tenant) + text(queue) + region.encode()


def read_timer(key: bytes, value: bytes) -> TimerEntry:
    tag = NameTag(value[1 : 1 + NAME_TAG_BYTES])
    tenant, position = _read_text(value, 1 + NAME_TAG_BYTES)
    queue, position = _read_text(value, position)
    region = value[position:].decode()
    return TimerEntry(waiting_due(key), job_id_at_end(key), queue, tenant, value[0], tag, region)


# -- parked: status, id -----------------------------------------------------------------------------------------------


def parked_key(status: Status, job_id: JobId) -> bytes:
    return bytes([status]) + job_id


def read_parked_key(key: bytes) -> tuple[Status, JobId]:
    return Status(key[0]), job_id_at_end(key)


# -- deadlines: kind, time, id or name --------------------------------------------------------------------------------


def deadline_key(kind: DeadlineKind, at_ms: int, subject: bytes) -> bytes:
    return _checked(bytes([kind]) + time(at_ms) + subject)


def deadlines_until(kind: DeadlineKind, at_ms: int) -> bytes:
    """Return the least key of `kind` at `at_ms`; it is also the end of all earlier ones."""
    return bytes([kind]) + time(at_ms)


def read_deadline_key(key: bytes) -> DeadlineEntry:
    at_ms = TimeMs(int.from_bytes(key[1 : 1 + _TIME_BYTES], "big"))
    return DeadlineEntry(DeadlineKind(key[0]), at_ms, key[1 + _TIME_BYTES :])


# -- finished: status, finished time, id ------------------------------------------------------------------------------


def finished_key(status: Status, finished_at_ms: int, job_id: JobId) -> bytes:
    return bytes([status]) + time(finished_at_ms) + job_id


def finished_until(status: Status, finished_at_ms: int) -> bytes:
    """Return the least key of `status` at `finished_at_ms`; it is also the end of all that finished earlier."""
    return bytes([status]) + time(finished_at_ms)


def read_finished_key(key: bytes) -> tuple[TimeMs, JobId]:
    return TimeMs(int.from_bytes(key[1 : 1 + _TIME_BYTES], "big")), job_id_at_end(key)


# -- dead letters: reason, finished time, id --------------------------------------------------------------------------


def dead_letter_key(reason: str, finished_at_ms: int, job_id: JobId) -> bytes:
    return text(reason) + time(finished_at_ms) + job_id


def read_dead_letter_key(key: bytes) -> tuple[str, TimeMs, JobId]:
    reason, _ = _read_text(key)
    return reason, waiting_due(key), job_id_at_end(key)


# -- facets: kind, text, 0 or the status it ended in, id ---------------------------------------------------------------


@lru_cache(limits.ENCODED_QUEUES_MAX)
def facet_group(kind: FacetKind, value: str, ended: int) -> bytes:
    """Return the prefix of the entries of a queue, name, tag or tenant; `ended`: 0 for unfinished jobs, or the status."""
    return _checked(bytes([kind]) + text(value) + bytes([ended]), _ID_BYTES)


def read_facet_key(key: bytes) -> FacetEntry:
    value, position = _read_text(key, 1)
    return FacetEntry(FacetKind(key[0]), value, key[position], job_id_at_end(key))


# -- names ------------------------------------------------------------------------------------------------------------


def dedup_key(tenant: str, name: str) -> bytes:
    """Return the key of a name that is unique within a tenant: an idempotency key, or a schedule's name."""
    return _checked(text(tenant) + name.encode())


def read_dedup_key(key: bytes) -> tuple[str, str]:
    tenant, position = _read_text(key)
    return tenant, key[position:].decode()


def unique_key(tenant: str, digest: bytes) -> bytes:
    return _checked(text(tenant) + _BEFORE_BYTES + digest)


def read_unique_key(key: bytes) -> tuple[str, bytes]:
    tenant, position = _read_text(key)
    return tenant, key[position + len(_BEFORE_BYTES) :]


def name_key(name: str) -> bytes:
    """Return the key of a worker or a queue."""
    return _checked(text(name))


def counter_key(tenant: str, queue: str, status: Status) -> bytes:
    return _checked(text(tenant) + text(queue) + bytes([status]))


def read_counter_key(key: bytes) -> CounterKey:
    tenant, position = _read_text(key)
    queue, position = _read_text(key, position)
    return CounterKey(tenant, queue, Status(key[position]))


_NO_STATUS = 0
"""In place of a counter's status: no status has this number."""


def reason_key(tenant: str, reason: str) -> bytes:
    """Return the key of the counter of a tenant's dead letters of one reason."""
    return _checked(text(tenant) + text(reason) + bytes([_NO_STATUS]))


def is_reason_key(key: bytes) -> bool:
    """Return whether a key of `COUNTERS` counts dead letters of one reason."""
    return key[-1] == _NO_STATUS


def read_reason_key(key: bytes) -> tuple[str, str]:
    """Return the tenant and the reason."""
    tenant, position = _read_text(key)
    return tenant, _read_text(key, position)[0]


# -- pairs of ids: parent and child, workflow and job -----------------------------------------------------------------


def pair_key(first: bytes, second: bytes) -> bytes:
    return first + second


def read_pair_key(key: bytes) -> tuple[bytes, JobId]:
    return key[:_ID_BYTES], JobId(key[_ID_BYTES:])


def after_id(start: bytes) -> bytes | None:
    """Return the least key above all that have the prefix `start`, of any length; None if there is none."""
    number = int.from_bytes(start, "big") + 1
    return None if number >> (8 * len(start)) else number.to_bytes(len(start), "big")


# -- ledger: schedule, fire time, kind --------------------------------------------------------------------------------


def firing_key(schedule_id: ScheduleId, fire_time_ms: int, kind: FiringKind) -> bytes:
    return schedule_id + time(fire_time_ms) + bytes([kind])


def firings_until(schedule_id: ScheduleId, fire_time_ms: int) -> bytes:
    """Return the least key of the schedule's lines at `fire_time_ms`; it is also the end of all earlier ones."""
    return schedule_id + time(fire_time_ms)


def schedule_of_firing(key: bytes) -> ScheduleId:
    return ScheduleId(key[:_ID_BYTES])


# -- background work: kind, id or name --------------------------------------------------------------------------------


def background_key(kind: BackgroundKind, subject: bytes) -> bytes:
    return _checked(bytes([kind]) + subject)


def read_background_key(key: bytes) -> tuple[BackgroundKind, bytes]:
    return BackgroundKind(key[0]), key[1:]


# -- logs: job, run, attempt, offset ----------------------------------------------------------------------------------


def log_key(job_id: JobId, run_number: int, attempt_number: int) -> bytes:
    return job_id + run_number.to_bytes(_COUNT_BYTES, "big") + attempt_number.to_bytes(_COUNT_BYTES, "big")


def log_piece_key(log: bytes, offset: int) -> bytes:
    return log + offset.to_bytes(_TIME_BYTES, "big")


def read_log_key(key: bytes) -> tuple[JobId, int, int]:
    run_number = int.from_bytes(key[_ID_BYTES : _ID_BYTES + _COUNT_BYTES], "big")
    attempt_number = int.from_bytes(key[_ID_BYTES + _COUNT_BYTES : _ID_BYTES + 2 * _COUNT_BYTES], "big")
    return JobId(key[:_ID_BYTES]), run_number, attempt_number


LOG_END = b"\xff" * _TIME_BYTES
"""Behind all offsets of a log."""


def log_offset(key: bytes) -> int:
    """Return the offset at which the piece begins in its log."""
    return int.from_bytes(key[-_TIME_BYTES:], "big")


# -- audit: log index, number within it -------------------------------------------------------------------------------


def audit_key(index: int, number: int = 0) -> bytes:
    return index.to_bytes(_TIME_BYTES, "big") + number.to_bytes(_COUNT_BYTES, "big")
