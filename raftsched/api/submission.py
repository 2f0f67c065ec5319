"""From a job as clients ask for it to the operation that stores it: seconds become milliseconds, words become numbers.

The node's time enters here, where the request is read, and nowhere later: a delay counts from its arrival at the
leader.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from raftsched import limits
from raftsched.api.backend import TENANT_DEFAULT
from raftsched.api.requests import JobRequest, RetryPolicyRequest
from raftsched.core.ids import JobId, TimeMs
from raftsched.core.job import Backoff, RetryPolicy
from raftsched.core.operations import SubmitJob
from raftsched.errors import Invalid, Malformed, TooLarge

PRIORITIES: Final = {"low": 2, "normal": 5, "high": 8}
_FINGERPRINT_BYTES: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY_MS: Final = 86_400_000
_POLICY_DEFAULT: Final = RetryPolicy()
NULL: Final = msgspec.Raw(b"null")
_canonical = msgspec.json.Encoder(order="sorted").encode


def submit_operation(
    wanted: JobRequest, *, job_id: JobId, now_ms: int, key: str = "", fingerprint: bytes = b"", at: str = ""
) -> SubmitJob:
    """Return the operation that stores `wanted` under `job_id`.

    Raises `Malformed`, `TooLarge` or `Invalid` naming the field, behind the path `at`.
    """
    prefix = f"{at}." if at else ""
    priority = wanted.priority
    return SubmitJob(
        id=job_id,
        tenant=TENANT_DEFAULT,
        name=wanted.name,
        queue=wanted.queue or wanted.name,
        priority=priority if isinstance(priority, int) else PRIORITIES[priority],
        due_at_ms=_due_at_ms(wanted, now_ms, prefix),
        payload=json_bytes(wanted.payload, limits.PAYLOAD_BYTES_MAX, f"{prefix}payload"),
        max_attempts=wanted.max_attempts,
        timeout_ms=0 if wanted.timeout_seconds is None else max(1, milliseconds(wanted.timeout_seconds)),
        retry=_POLICY_DEFAULT if wanted.retry_policy is None else _policy(wanted.retry_policy, prefix),
        idempotency_key=key,
        fingerprint=fingerprint,
        tags=_tags(wanted.tags, prefix) if wanted.tags else (),
        region=wanted.region or "",
    )


def fingerprint_of(document: dict[str, Any]) -> bytes:
    """Return the digest of a job's document, whatever the order of its keys; the idempotency key does not count."""
    body = {name: value for name, value in document.items() if name != "idempotency_key"}
    return hashlib.blake2b(_canonical(body), digest_size=_FINGERPRINT_BYTES).digest()


def json_bytes(raw: msgspec.Raw | UnsetType, bytes_max: int, field: str) -> bytes:
    """Return the JSON text as it was sent, b"" for none and for null; raises `TooLarge` naming `field`."""
    if raw is UNSET or raw == NULL:
        return b""
    text = bytes(raw)
    if len(text) > bytes_max:
        raise TooLarge(f"{field}: has {len(text)} bytes, at most {bytes_max} are allowed", field=field)
    return text


def milliseconds(seconds: float) -> int:
    """Return a duration in whole milliseconds, to the nearest."""
    return round(seconds * 1000)


def _due_at_ms(wanted: JobRequest, now_ms: int, prefix: str) -> TimeMs:
    """0 = as soon as the operation is applied."""
    if wanted.run_at is None:
        return TimeMs(now_ms + milliseconds(wanted.delay_seconds) if wanted.delay_seconds else 0)
    field = f"{prefix}run_at"
    if wanted.delay_seconds is not None:
        raise Invalid(f"{field}: give either run_at or delay_seconds, not both", field=field)
    # Rounded up: a job never runs before its time.
    due_at_ms = -((_EPOCH - wanted.run_at) // _MILLISECOND)
    if due_at_ms < limits.RUN_AT_MS_MIN:
        raise Malformed(f"{field}: must not be before 1970-01-01T00:00:00Z", field=field)
    if due_at_ms - now_ms > limits.DELAY_MS_MAX:
        raise Malformed(f"{field}: must be at most {limits.DELAY_MS_MAX // _DAY_MS} days ahead", field=field)
    return TimeMs(due_at_ms)


def _tags(tags: list[str], prefix: str) -> tuple[str, ...]:
    for position, tag in enumerate(tags):
        if len(tag.encode()) > limits.TAG_CHARS_MAX:
            field = f"{prefix}tags[{position}]"
            raise Malformed(f"{field}: must be at most {limits.TAG_CHARS_MAX} bytes of UTF-8", field=field)
    return tuple(dict.fromkeys(tags))


def _policy(wanted: RetryPolicyRequest, prefix: str) -> RetryPolicy:
    field = f"{prefix}retry_policy.delays_seconds"
    delays = wanted.delays_seconds or []
    if bool(delays) != (wanted.backoff == "list"):
        raise Invalid(f"{field}: belongs to the backoff `list`, which needs it, and to no other", field=field)
    return RetryPolicy(
        backoff=Backoff[wanted.backoff.upper()],
        base_ms=milliseconds(wanted.base_seconds),
        factor_thousandths=round(wanted.factor * 1000),
        cap_ms=milliseconds(wanted.cap_seconds),
        jitter_thousandths=round(wanted.jitter * 1000),
        delays_ms=tuple(map(milliseconds, delays)),
    )
