"""Define the specification of a job to submit.

Omitted options have the cluster's defaults. Unknown ones are rejected: a misspelt `max_atempts` must not turn a limited
job into an unlimited one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypedDict, Unpack

import msgspec

from raftsched.client.http.documents import encode_fields
from raftsched.errors import Invalid
from raftsched.wire.jobs import ConditionName, DependencyReply, RetryPolicyRequest, UniqueRequest

Priority = int | Literal["low", "normal", "high"]
Condition = ConditionName
"""The required end of a parent: completed, dead-lettered, or any end."""
Moment = datetime | str
"""A `datetime` with a time zone, or RFC 3339 text."""
RetryPolicy = RetryPolicyRequest
Unique = UniqueRequest
Dependency = DependencyReply


class JobOptions(TypedDict, total=False):
    """The options of a job besides its name and payload; None or omitted means the cluster's default."""

    queue: str | None
    """None = the queue with the job's name; for `http` and `shell` the queue of that name."""
    http: Mapping[str, Any] | None
    """A request to send, in place of a handler, with the fields of `HttpCall`; `http_job` builds it."""
    shell: Mapping[str, Any] | None
    """A command to run, in place of a handler, with the fields of `ShellCommand`; `shell_job` builds it."""
    on_failure: JobSpec | Mapping[str, Any] | None
    """A job to submit if this one ends in the dead-letter queue, with the facts as its payload. None = its queue's."""
    on_success: JobSpec | Mapping[str, Any] | None
    """The same for a job that completes."""
    priority: Priority | None
    """0 to 9, or `low`, `normal`, `high`; higher first."""
    run_at: Moment | None
    """A past time means now."""
    delay_seconds: float | None
    """From now; instead of `run_at`."""
    timeout_seconds: float | None
    """Longest time of one attempt."""
    heartbeat_timeout_seconds: float | None
    """Longest time without a sign of life from the handler itself: progress or an explicit heartbeat."""
    max_attempts: int | None
    """Failures, timeouts included, after which the job is dead-lettered."""
    max_retries: int | None
    """`max_attempts` minus one. Give one of the two."""
    max_lost_workers: int | None
    """Lost workers after which the job is dead-lettered; 1,000,000 means no limit. None = its queue's setting, else
    3."""
    retry_policy: RetryPolicy | Mapping[str, Any] | None
    """Delays between attempts."""
    retry_on: Sequence[str] | None
    """Error types that are retried, by the names of their classes; all by default."""
    no_retry: Sequence[str] | None
    """Error types that are dead-lettered at once."""
    start: Literal["at_least_once", "at_most_once"] | None
    """`at_most_once`: once its worker has announced its start, the job is never leased again."""
    concurrency_key: str | None
    """Jobs of a queue with the same key share the queue's `key_concurrency`, 1 by default."""
    unique: Unique | Mapping[str, Any] | None
    """Limit of one job at a time with the same name, key or payload, until it is finished or for a period."""
    depends_on: Sequence[str | Dependency | Mapping[str, Any]] | None
    """Jobs that must end first; an id alone means that it must succeed."""
    on_dependency_failure: Literal["skip", "fail"] | None
    """The job is skipped or dead-lettered if a parent's end does not meet its condition."""
    expires_at: Moment | None
    """The job ends as `expired` if it has not started by then. Give this or `expires_in_seconds`."""
    expires_in_seconds: float | None
    """Counted from its due time."""
    deadline: Moment | None
    """The job ends as `expired` if it has not finished by then, even while it runs. Give this or
    `deadline_in_seconds`."""
    deadline_in_seconds: float | None
    """Counted from its due time."""
    paused: bool | None
    """Store the job `paused`, until it is resumed."""
    retention_seconds: float | None
    """Time to keep the finished job."""
    tags: Sequence[str] | None
    """Words by which the job is found in lists."""
    region: str | None
    """Only workers of this region run it; None = any worker."""
    tenant: str | None
    """Owner of the job, for the shares of a queue; None = the default tenant."""
    idempotency_key: str | None
    """A second submit with this key finds the job, as long as it exists, or for `idempotency_ttl_seconds`."""
    idempotency_ttl_seconds: float | None
    """Lifetime of the key; None = as long as the job exists."""
    traceparent: str | None
    """The span that submits it; None = the current one of OpenTelemetry, if there is any."""


_OPTIONS: Final = frozenset(JobOptions.__annotations__)


class JobSpec:
    """A job to submit: its name, its payload, and options. An option reads as an attribute, None if it is not given."""

    __slots__ = ("name", "options", "payload")

    def __init__(self, *, name: str = "", payload: Any = None, **options: Unpack[JobOptions]) -> None:
        if not options.keys() <= _OPTIONS:
            raise TypeError(f"jobs have no option {min(options.keys() - _OPTIONS)!r}")
        self.name = name
        """Only requests and commands can do without."""
        self.payload = payload
        """Any value with a JSON form of at most 256 KiB; None = no payload."""
        self.options = options

    def __getattr__(self, name: str) -> Any:
        if name in _OPTIONS:
            return self.options.get(name)
        raise AttributeError(f"a job has no {name!r}")

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"JobSpec(name={self.name!r}, payload={self.payload!r}{given})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JobSpec):
            return NotImplemented
        return (self.name, self.payload, self.options) == (other.name, other.payload, other.options)

    __hash__ = None  # type: ignore[assignment]  # a payload may be a list

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> JobSpec:
        """Return the job that `fields` describe; raises `Invalid` for an unknown field."""
        unknown = sorted(fields.keys() - _OPTIONS - {"name", "payload"})
        if unknown:
            raise Invalid(f"{unknown[0]}: jobs have no such field", field=unknown[0])
        if not (fields.get("name") or fields.get("http") or fields.get("shell")):
            raise Invalid("name: a job needs one, except with http or shell", field="name")
        return cls(**fields)

    def in_span(self, traceparent: str) -> JobSpec:
        """Return the same job, submitted by this span."""
        options: JobOptions = {**self.options, "traceparent": traceparent}
        return JobSpec(name=self.name, payload=self.payload, **options)

    def encoded(self, idempotency_key: str | None = None) -> bytes:
        """Return the job as JSON text, with `idempotency_key` if it has none of its own; raises `Invalid`."""
        fields = {name: field_of(value) for name, value in self.options.items() if value is not None}
        if self.name:
            fields["name"] = self.name
        if self.payload is not None:
            fields["payload"] = self.payload
        if idempotency_key is not None and "idempotency_key" not in fields:
            fields["idempotency_key"] = idempotency_key
        return encode_fields(fields, whole="job")


def field_of(option: Any) -> Any:
    """Return an option as a field of a document: a `JobSpec`, such as a hook, as JSON text; raises `Invalid`."""
    return msgspec.Raw(option.encoded()) if isinstance(option, JobSpec) else option


def job_text(job: JobSpec | Mapping[str, Any]) -> msgspec.Raw:
    """Return a job as JSON text for another document, without an added key; raises `Invalid`."""
    spec = job if isinstance(job, JobSpec) else JobSpec.read(job)
    return msgspec.Raw(spec.encoded())
