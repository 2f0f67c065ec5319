r"""Keys of the tables: bytes that sort as the tuples they stand for.

Theory of operation. A fixed-width part is a big-endian unsigned number or a job id. A text followed by other parts is
its UTF-8, which sorts by code point as Python's `str` does, closed by a zero byte, which is below all else; a zero byte
inside a text is written 00 FF. No part that follows a text begins with FF: priorities are 0 to 9, statuses are small,
and UTF-8 has no such byte. So `a` sorts before `a\0` and both before `ab`, whatever follows.

A key over LMDB's limit raises `InvariantBroken`: names are limited before they enter the log, in bytes after encoding,
since a node that meets such a name while applying can only stop (case R22).
"""

from __future__ import annotations

from functools import lru_cache

from raftsched import limits
from raftsched.core.ids import JobId, TimeMs
from raftsched.core.job import Status
from raftsched.core.view import CounterKey, TimerEntry, WaitingEntry
from raftsched.errors import InvariantBroken
from raftsched.storage.store import check_key

_PRIORITY_MAX = 9
_AFTER_PRIORITIES = bytes([_PRIORITY_MAX + 1])
_TIME_BYTES = 8
_ID_BYTES = 16
_TAIL_BYTES = _TIME_BYTES + _ID_BYTES


def text(value: str) -> bytes:
    """A text that other parts follow."""
    encoded = value.encode()
    if 0 in encoded:
        encoded = encoded.replace(b"\0", b"\0\xff")
    return encoded + b"\0"


def _read_text(key: bytes, start: int = 0) -> tuple[str, int]:
    """Return the text that begins at `start`, and where the next part begins."""
    end = key.index(b"\0", start)
    while key[end + 1 : end + 2] == b"\xff":
        end = key.index(b"\0", end + 2)
    return key[start:end].replace(b"\0\xff", b"\0").decode(), end + 1


def _checked(key: bytes, tail_bytes: int = 0) -> bytes:
    check_key(key, bytes_max=limits.KEY_BYTES_MAX - tail_bytes)
    return key


def time(value: int) -> bytes:
    """Eight bytes; raises `InvariantBroken` for a time before 1970."""
    if value < 0:
        raise InvariantBroken(f"a time before 1970 in an index: {value}")
    return value.to_bytes(_TIME_BYTES, "big")


def after(key: bytes) -> bytes:
    """The least key above `key`."""
    return key + b"\0"


# -- waiting: queue, 9 - priority, due, id ----------------------------------------------------------------------------


@lru_cache(limits.ENCODED_QUEUES_MAX)
def waiting_group(queue: str, priority: int) -> bytes:
    """What the entries of one queue and priority begin with; higher priorities sort first."""
    if not 0 <= priority <= _PRIORITY_MAX:
        raise InvariantBroken(f"priority {priority} is not between 0 and {_PRIORITY_MAX}")
    return _checked(text(queue) + bytes([_PRIORITY_MAX - priority]), _TAIL_BYTES)


def waiting_key(queue: str, priority: int, due_at_ms: int, job_id: JobId) -> bytes:
    return waiting_group(queue, priority) + time(due_at_ms) + job_id


def after_waiting_group(group: bytes) -> bytes:
    """The first key behind one queue and priority."""
    return group[:-1] + bytes([group[-1] + 1])


def after_waiting_queue(queue: str) -> bytes:
    """The first key behind all priorities of a queue."""
    return text(queue) + _AFTER_PRIORITIES


def waiting_group_of(key: bytes) -> bytes:
    """The queue and priority part of an entry's key."""
    return key[:-_TAIL_BYTES]


def waiting_due(key: bytes) -> TimeMs:
    return TimeMs(int.from_bytes(key[-_TAIL_BYTES:-_ID_BYTES], "big"))


def job_id_at_end(key: bytes) -> JobId:
    """The job id that ends a key of `WAITING`, `TIMERS`, `LEASED` or `FINISHED`."""
    return JobId(key[-_ID_BYTES:])


def read_waiting_key(key: bytes) -> WaitingEntry:
    queue, position = _read_text(key)
    return WaitingEntry(queue, _PRIORITY_MAX - key[position], waiting_due(key), job_id_at_end(key))


# -- timers: due, id → status, priority, queue ------------------------------------------------------------------------


def timer_key(due_at_ms: int, job_id: JobId) -> bytes:
    return time(due_at_ms) + job_id


@lru_cache(limits.ENCODED_QUEUES_MAX)
def timer_value(status: Status, priority: int, queue: str) -> bytes:
    """The status comes first, so that a list of one status needs no record of another (`raftsched.storage.pages`)."""
    return bytes([status, priority]) + queue.encode()


def read_timer(key: bytes, value: bytes) -> TimerEntry:
    due_at_ms = TimeMs(int.from_bytes(key[:_TIME_BYTES], "big"))
    return TimerEntry(due_at_ms, JobId(key[_TIME_BYTES:]), value[2:].decode(), value[1])


# -- finished: status, finished time, id ------------------------------------------------------------------------------


def finished_key(status: Status, finished_at_ms: int, job_id: JobId) -> bytes:
    return bytes([status]) + time(finished_at_ms) + job_id


def finished_until(status: Status, finished_at_ms: int) -> bytes:
    """The least key of `status` at `finished_at_ms`; also the end of all that finished before."""
    return bytes([status]) + time(finished_at_ms)


def read_finished_key(key: bytes) -> tuple[TimeMs, JobId]:
    return TimeMs(int.from_bytes(key[1 : 1 + _TIME_BYTES], "big")), job_id_at_end(key)


# -- keys, workers, counters ------------------------------------------------------------------------------------------


def dedup_key(tenant: str, idempotency_key: str) -> bytes:
    return _checked(text(tenant) + idempotency_key.encode())


def read_dedup_key(key: bytes) -> tuple[str, str]:
    tenant, position = _read_text(key)
    return tenant, key[position:].decode()


def worker_key(name: str) -> bytes:
    return _checked(text(name))


def counter_key(tenant: str, queue: str, status: Status) -> bytes:
    return _checked(text(tenant) + text(queue) + bytes([status]))


def read_counter_key(key: bytes) -> CounterKey:
    tenant, position = _read_text(key)
    queue, position = _read_text(key, position)
    return CounterKey(tenant, queue, Status(key[position]))
