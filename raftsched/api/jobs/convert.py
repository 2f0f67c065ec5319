"""From a job as clients ask for it to the operation that stores it: seconds become milliseconds, words become numbers.

What few jobs ask for is made by `job_options`, times by `times`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from raftsched import limits
from raftsched.api.backend import TENANT_DEFAULT
from raftsched.api.jobs.options import claims_of, dependencies_of, options_of
from raftsched.api.jobs.unique_key import digest_of
from raftsched.api.json.times import due_at_ms, due_or_now_ms, milliseconds, span_ms
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.bounds import utf8_bytes
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.retry import Backoff, RetryPolicy
from raftsched.core.records.spec import JobSpec, Options
from raftsched.errors import Invalid, Malformed
from raftsched.values import check_value
from raftsched.wire.jobs import MAX_ATTEMPTS_DEFAULT, JobBody, JobRequest, RetryPolicyRequest, TimedJobBody

PRIORITIES: Final = {"low": 2, "normal": 5, "high": 8}
_POLICY_DEFAULT: Final = RetryPolicy()
NULL: Final = msgspec.Raw(b"null")


def submit_operation(
    wanted: JobRequest, *, job_id: JobId, now_ms: int, key: str = "", fingerprint: bytes = b"", at: str = ""
) -> SubmitJob:
    """Return the operation that stores `wanted` under `job_id`.

    Raises `Malformed`, `TooLarge` or `Invalid` naming the field, behind the path `at`.
    """
    prefix = f"{at}." if at else ""
    due_ms = due_at_ms(wanted.run_at, wanted.delay_seconds, now_ms, prefix)
    claims = claims_of(wanted, has_key=bool(key), now_ms=now_ms, prefix=prefix)
    operation = body_operation(
        wanted,
        job_id=job_id,
        tenant=wanted.tenant or TENANT_DEFAULT,
        due_ms=due_ms,
        options=options_of(wanted, due_at_ms=due_ms, now_ms=now_ms, prefix=prefix, **claims),
        prefix=prefix,
    )
    if not (key or wanted.depends_on):
        return operation
    depends_on = dependencies_of(wanted.depends_on, prefix) if wanted.depends_on else ()
    return msgspec.structs.replace(operation, idempotency_key=key, fingerprint=fingerprint, depends_on=depends_on)


def body_operation(
    wanted: TimedJobBody, *, job_id: JobId, tenant: str, due_ms: TimeMs | None, options: Options | None, prefix: str
) -> SubmitJob:
    """Return the operation that stores a job without a key, which depends on nothing; raises as `submit_operation`."""
    return SubmitJob(
        id=job_id,
        tenant=tenant,
        spec=JobSpec(
            name=wanted.name,
            queue=wanted.queue or wanted.name,
            priority=priority_number(wanted.priority),
            max_attempts=max_attempts_of(wanted, prefix),
            timeout_ms=span_ms(wanted.timeout_seconds),
            retry=_POLICY_DEFAULT if wanted.retry_policy is None else policy_of(wanted.retry_policy, prefix),
            tags=tags_of(wanted.tags, prefix) if wanted.tags else (),
            region=wanted.region or "",
            options=options,
        ),
        due_at_ms=due_or_now_ms(due_ms),
        payload=json_bytes(wanted.payload, limits.PAYLOAD_BYTES_MAX, f"{prefix}payload"),
        paused=wanted.paused,
    )


def fingerprint_of(document: dict[str, Any]) -> bytes:
    """Return the digest of a document, whatever the order of its keys; the idempotency key does not count."""
    return digest_of({name: value for name, value in document.items() if name != "idempotency_key"})


def json_bytes(raw: msgspec.Raw | UnsetType, bytes_max: int, field: str) -> bytes:
    """Return the JSON text as it was sent, b"" for none and for null; raises `TooLarge` or `Malformed` naming `field`."""
    if raw is UNSET or raw == NULL:
        return b""
    text = bytes(raw)
    check_value(text, bytes_max=bytes_max, field=field)
    return text


def priority_number(priority: int | str) -> int:
    """Return a priority given as a number or a word."""
    return PRIORITIES[priority] if isinstance(priority, str) else priority


def max_attempts_of(wanted: JobBody, prefix: str) -> int:
    """Return how often a job may fail, from `max_attempts` or `max_retries`; raises `Invalid` where both are given."""
    if wanted.max_retries is None:
        return MAX_ATTEMPTS_DEFAULT if wanted.max_attempts is UNSET else wanted.max_attempts
    if wanted.max_attempts is not UNSET:
        field = f"{prefix}max_retries"
        raise Invalid(f"{field}: give either max_attempts or max_retries, not both", field=field)
    return wanted.max_retries + 1


def tags_of(tags: list[str], prefix: str) -> tuple[str, ...]:
    """Return the tags, each once, in order; raises `Malformed` naming one that is too long."""
    for position, tag in enumerate(tags):
        if utf8_bytes(tag) > limits.TAG_CHARS_MAX:
            field = f"{prefix}tags[{position}]"
            raise Malformed(f"{field}: must be at most {limits.TAG_CHARS_MAX} bytes of UTF-8", field=field)
    return tuple(dict.fromkeys(tags))


def policy_of(wanted: RetryPolicyRequest, prefix: str) -> RetryPolicy:
    """Return the policy in integers; raises `Invalid` where the delays and the backoff don't fit."""
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
