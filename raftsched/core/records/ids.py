"""Define a type for each kind of id: job ids, run ids, fencing tokens and times.

A job id is a UUIDv7 (RFC 9562): 48 bits of the leader's clock, then a counter and random bits. It is time-ordered
because a random key costs LMDB ten times as much as one that is appended.

A run is one execution of a job from `queued` to a final outcome. All its attempts have the same run id, so receivers can
use it as an idempotency key (RELIABILITY G6). It consists of the job's id and the run's number, so finding the job of a
run needs no index.
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
"""A number that rises with every lease in the whole cluster and is never used twice."""
TimeMs = NewType("TimeMs", int)
"""Milliseconds since 1970-01-01 UTC, by the cluster's time."""
LogIndex = NewType("LogIndex", int)
NameTag = NewType("NameTag", bytes)
"""A digest in place of a job's name in keys, which have no space for another text."""

NAME_TAG_BYTES: Final = 8
"""Two names have the same tag once in 10^17; then a worker may get a job without having a handler for it."""
_NAME_TAGS_KEPT: Final = 10_000
_ID_BYTES = 16
_COUNTER_MAX = 0xFFF
_RUN_NUMBER_DIGITS_MAX = 9
TENANT_DEFAULT: Final = "default"
"""The tenant of a job that names none."""
_KEY_GROUPS_KEPT = 4_096
_KEY_GROUP_BYTES = 16


@lru_cache(_NAME_TAGS_KEPT)
def name_tag(name: str) -> NameTag:
    """Return the tag of a job's name; it never changes."""
    return NameTag(blake2b(name.encode(), digest_size=NAME_TAG_BYTES).digest())


@lru_cache(_KEY_GROUPS_KEPT)
def key_group(tenant: str, concurrency_key: str) -> str:
    """Return the name of the jobs of a queue that a concurrency key limits: those of one tenant with this key.

    Those of the default tenant are named by the key itself. Other names begin with NUL, which no key contains, and are
    short enough to share a key of the store with a queue and a region.
    """
    if tenant == TENANT_DEFAULT:
        return concurrency_key
    digest = blake2b(f"{tenant}\0{concurrency_key}".encode(), digest_size=_KEY_GROUP_BYTES)
    return f"\0{digest.hexdigest()}"


class JobIdFactory:
    """Make rising job ids from the caller's clock and randomness.

    Each id is greater than every earlier one of this factory, even if the clock stops or steps back: the 12-bit counter
    rises, and when it overflows, the time part moves one millisecond ahead.
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
    """Return the id as the canonical text of a UUID."""
    digits = job_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_job_id(text: str, *, field: str = "id") -> JobId:
    """Parse a job id; raises `Invalid` with `field` for anything but the canonical text of a UUID."""
    try:
        job_id = JobId(bytes.fromhex(text.replace("-", "")))
    except ValueError:
        job_id = JobId(b"")
    if len(job_id) != _ID_BYTES or job_id_text(job_id) != text.lower():
        raise Invalid(f"{field}: not a job id, expected a UUID", field=field)
    return job_id


def run_id_text(job_id: JobId, run_number: int) -> str:
    """Return the run id as workers and receivers see it: the job's id, a dot, the run's number."""
    return f"{job_id_text(job_id)}.{run_number}"


def parse_run_id(text: str, *, field: str = "run_id") -> tuple[JobId, int]:
    """Parse a run id into (job id, run number); raises `Invalid` with `field`."""
    head, dot, number = text.partition(".")
    canonical = number.isascii() and number.isdecimal() and len(number) <= _RUN_NUMBER_DIGITS_MAX
    if not dot or not canonical or number.startswith("0"):
        raise Invalid(f"{field}: not a run id, expected <job id>.<number>", field=field)
    return parse_job_id(head, field=field), int(number)
