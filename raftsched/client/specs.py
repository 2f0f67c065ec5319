"""Jobs as a client asks for them.

What is left out is the cluster's default. Fields that jobs don't have are refused: a misspelt `max_atempts` must not
turn a limited job into an unlimited one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

import msgspec

from raftsched.client.http.documents import encode_document, encode_fields
from raftsched.errors import Invalid

Priority = int | Literal["low", "normal", "high"]
Condition = Literal["success", "failure", "completion"]
"""How a parent must end: completed, dead-lettered, or in any way."""
Moment = datetime | str
"""Aware, or RFC 3339 text."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long to wait between attempts; what is left out is the cluster's default."""

    backoff: Literal["exponential", "linear", "fixed", "list"] = "exponential"
    base_seconds: float | None = None
    factor: float | None = None
    cap_seconds: float | None = None
    jitter: float | None = None
    """The delay is spread over ± this share, 0 to 1."""
    delays_seconds: Sequence[float] | None = None
    """For `list`: the delay after each failure; the last one repeats."""


class Unique(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What makes a job unique within its tenant: there is at most one like it at a time."""

    by: Sequence[Literal["name", "key", "payload"]] | None = None
    """What must be equal; default: `name` and `key` where a key is given, else `name` and `payload`."""
    key: str | None = None
    for_seconds: float | None = None
    """How long it counts, also once the job is finished; by default until it is finished."""
    on_conflict: Literal["return", "reject"] | None = None
    """What a second submission gets: the job that is there, or `Rejected` with code `unique_conflict`."""


class Dependency(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that must end first, and how."""

    job: str
    condition: Condition = "success"


class JobOptions(TypedDict, total=False):
    """What can be asked of a job besides its name and payload; what each means stands at `JobSpec`."""

    queue: str | None
    priority: Priority | None
    run_at: Moment | None
    delay_seconds: float | None
    timeout_seconds: float | None
    heartbeat_timeout_seconds: float | None
    max_attempts: int | None
    max_retries: int | None
    max_lost_workers: int | None
    retry_policy: RetryPolicy | Mapping[str, Any] | None
    retry_on: Sequence[str] | None
    no_retry: Sequence[str] | None
    start: Literal["at_least_once", "at_most_once"] | None
    concurrency_key: str | None
    unique: Unique | Mapping[str, Any] | None
    depends_on: Sequence[str | Dependency | Mapping[str, Any]] | None
    on_dependency_failure: Literal["skip", "fail"] | None
    expires_at: Moment | None
    expires_in_seconds: float | None
    deadline: Moment | None
    deadline_in_seconds: float | None
    paused: bool | None
    retention_seconds: float | None
    tags: Sequence[str] | None
    region: str | None
    tenant: str | None
    idempotency_key: str | None
    idempotency_ttl_seconds: float | None


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job to submit; what is left out is the cluster's default."""

    name: str
    payload: Any = None
    """Anything with a JSON form, up to 256 KiB of it; None = no payload."""
    queue: str | None = None
    """None = the queue that is called like the job."""
    priority: Priority | None = None
    """0 to 9, or `low`, `normal`, `high`; higher first."""
    run_at: Moment | None = None
    """Aware, or RFC 3339 text; a past time means now."""
    delay_seconds: float | None = None
    timeout_seconds: float | None = None
    """Longest time of one attempt."""
    heartbeat_timeout_seconds: float | None = None
    """Longest silence of the handler itself, in progress or explicit heartbeats."""
    max_attempts: int | None = None
    """Failures, timeouts included, that end in the dead letters."""
    max_retries: int | None = None
    """Another way to say `max_attempts`: one less. Give either."""
    max_lost_workers: int | None = None
    """Lost workers that end in the dead letters, up to 1,000,000, which is any number; None = as its queue says, else 3."""
    retry_policy: RetryPolicy | Mapping[str, Any] | None = None
    retry_on: Sequence[str] | None = None
    """Error types that are tried again, by the names of their classes; all by default."""
    no_retry: Sequence[str] | None = None
    """Error types that go to the dead letters at once."""
    start: Literal["at_least_once", "at_most_once"] | None = None
    """`at_most_once`: once its worker has said that it starts, the job is never leased again, whatever happens."""
    concurrency_key: str | None = None
    """Jobs of a queue with the same key share the queue's `key_concurrency`, which is 1 unless it is set."""
    unique: Unique | Mapping[str, Any] | None = None
    depends_on: Sequence[str | Dependency | Mapping[str, Any]] | None = None
    """Jobs that must end first; an id alone means that it must succeed."""
    on_dependency_failure: Literal["skip", "fail"] | None = None
    """Whether it ends `skipped` or in the dead letters where a parent ends otherwise than it should."""
    expires_at: Moment | None = None
    """Not started by then, it ends as `expired`. Give it or `expires_in_seconds`."""
    expires_in_seconds: float | None = None
    """After its own time."""
    deadline: Moment | None = None
    """Not finished by then, it ends as `expired`, whatever it does. Give it or `deadline_in_seconds`."""
    deadline_in_seconds: float | None = None
    """After its own time."""
    paused: bool | None = None
    """It is stored `paused`, to be resumed by hand."""
    retention_seconds: float | None = None
    """How long it is kept once finished."""
    tags: Sequence[str] | None = None
    region: str | None = None
    tenant: str | None = None
    idempotency_key: str | None = None
    """The same key is the same job, for as long as that job exists, or for `idempotency_ttl_seconds`."""
    idempotency_ttl_seconds: float | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> JobSpec:
        """Return the job that `fields` describe; raises `Invalid` for a field that jobs don't have."""
        unknown = sorted(set(fields) - set(cls.__struct_fields__))
        if unknown:
            raise Invalid(f"{unknown[0]}: jobs have no such field", field=unknown[0])
        if "name" not in fields:
            raise Invalid("name: a job needs one", field="name")
        return cls(**fields)

    def encoded(self, idempotency_key: str | None = None) -> bytes:
        """Return the job as JSON text, with `idempotency_key` if it has none of its own; raises `Invalid`."""
        key = idempotency_key if self.idempotency_key is None else self.idempotency_key
        head = encode_fields(msgspec.structs.replace(self, payload=None, idempotency_key=key), whole="job")
        if self.payload is None:
            return head
        return b'%b,"payload":%b}' % (head[:-1], encode_document(self.payload, field="payload"))


def job_text(job: JobSpec | Mapping[str, Any]) -> msgspec.Raw:
    """Return a job without a key of its own, as part of another document; raises `Invalid`."""
    spec = job if isinstance(job, JobSpec) else JobSpec.read(job)
    return msgspec.Raw(spec.encoded())
