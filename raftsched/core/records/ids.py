"""Names of things: job ids, run ids, fencing tokens and times, each a type of its own.

A job id is a UUIDv7 (RFC 9562): 48 bits of the leader's clock, then a counter and random bits. It is time-ordered
because a random key costs LMDB ten times as much as one that is appended.

A run is one execution of a job from `queued` to a final outcome; every attempt of it carries the same run id, so that
a receiver can use it as an idempotency key (RELIABILITY G6). It is the job's id and the run's number, so finding the
job of a run needs no index.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NewType

from raftsched.errors import Invalid

JobId = NewType("JobId", bytes)
"""16 bytes, UUIDv7."""
FencingToken = NewType("FencingToken", int)
"""Rises with every lease in the whole cluster and is never given out twice."""
TimeMs = NewType("TimeMs", int)
"""Milliseconds since 1970-01-01 UTC, by the cluster's time."""
LogIndex = NewType("LogIndex", int)
NameTag = NewType("NameTag", bytes)
"""Stands for the name of a job in keys, which have no room for one text more."""

NAME_TAG_BYTES: Final = 8
"""Two names of one queue have the same tag once in 10^17: then a worker may get a job that it has no handler for."""
_NAME_TAGS_KEPT: Final = 10_000
_ID_BYTES = 16
_COUNTER_MAX = 0xFFF
_RUN_NUMBER_DIGITS_MAX = 9


@lru_cache(_NAME_TAGS_KEPT)
def name_tag(name: str) -> NameTag:
    """Return the tag of a job's name: a digest, the same on every node and for ever."""
    return NameTag(blake2b(name.encode(), digest_size=NAME_TAG_BYTES).digest())


class JobIdFactory:
    """Makes rising job ids from the caller's clock and randomness.

    Each id is greater than every earlier one of this factory, also when the clock stands still or steps back: the
    12-bit counter rises, and when it overflows, the time part moves one millisecond ahead.
    """

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._last_ms = 0
        self._counter = 0

    def next(self, now_ms: int) -> JobId:
        """Return a new id; `now_ms` is the leader's time in milliseconds."""
        if now_ms > self._last_ms:
            self._last_ms, self._counter = now_ms, 0
        elif self._counter < _COUNTER_MAX:
            self._counter += 1
        else:
            self._last_ms, self._counter = self._last_ms + 1, 0
        tail = bytearray(self._random_bytes(8))
        tail[0] = 0x80 | (tail[0] & 0x3F)
        head = (self._last_ms << 16) | 0x7000 | self._counter
        return JobId(head.to_bytes(8, "big") + bytes(tail))


def job_id_text(job_id: JobId) -> str:
    """Return the usual text of a UUID."""
    digits = job_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_job_id(text: str, *, field: str = "id") -> JobId:
    """Read a job id; raises `Invalid` naming `field` for anything but the canonical text of a UUID."""
    try:
        job_id = JobId(bytes.fromhex(text.replace("-", "")))
    except ValueError:
        job_id = JobId(b"")
    if len(job_id) != _ID_BYTES or job_id_text(job_id) != text.lower():
        raise Invalid(f"{field}: not a job id, expected a UUID", field=field)
    return job_id


def run_id_text(job_id: JobId, run_number: int) -> str:
    """Return the run id that workers and receivers see: the job's id, a dot, the run's number."""
    return f"{job_id_text(job_id)}.{run_number}"


def parse_run_id(text: str, *, field: str = "run_id") -> tuple[JobId, int]:
    """Read a run id into (job id, run number); raises `Invalid` naming `field`."""
    head, dot, number = text.partition(".")
    canonical = number.isascii() and number.isdecimal() and len(number) <= _RUN_NUMBER_DIGITS_MAX
    if not dot or not canonical or number.startswith("0"):
        raise Invalid(f"{field}: not a run id, expected <job id>.<number>", field=field)
    return parse_job_id(head, field=field), int(number)
