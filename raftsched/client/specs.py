"""Jobs as a client asks for them.

What is left out is the cluster's default. Fields that jobs don't have are refused: a misspelt `max_atempts` must not
turn a limited job into an unlimited one.
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
"""How a parent must end: completed, dead-lettered, or in any way."""
Moment = datetime | str
"""Aware, or RFC 3339 text."""
RetryPolicy = RetryPolicyRequest
Unique = UniqueRequest
Dependency = DependencyReply


class JobOptions(TypedDict, total=False):
    """What can be asked of a job besides its name and payload; None or nothing is the cluster's default."""

    queue: str | None
    """None = the queue that is called like the job."""
    priority: Priority | None
    """0 to 9, or `low`, `normal`, `high`; higher first."""
    run_at: Moment | None
    """A past time means now."""
    delay_seconds: float | None
    """From now; instead of `run_at`."""
    timeout_seconds: float | None
    """Longest time of one attempt."""
    heartbeat_timeout_seconds: float | None
    """Longest silence of the handler itself, in progress or explicit heartbeats."""
    max_attempts: int | None
    """Failures, timeouts included, after which the job is dead-lettered."""
    max_retries: int | None
    """Another way to say `max_attempts`: one less. Give either."""
    max_lost_workers: int | None
    """Lost workers after which the job is dead-lettered, up to 1,000,000, which is any number; None = as its queue says,
    else 3."""
    retry_policy: RetryPolicy | Mapping[str, Any] | None
    """How long to wait between attempts."""
    retry_on: Sequence[str] | None
    """Error types that are tried again, by the names of their classes; all by default."""
    no_retry: Sequence[str] | None
    """Error types that are dead-lettered at once."""
    start: Literal["at_least_once", "at_most_once"] | None
    """`at_most_once`: once its worker has said that it starts, the job is never leased again, whatever happens."""
    concurrency_key: str | None
    """Jobs of a queue with the same key share the queue's `key_concurrency`, which is 1 unless it is set."""
    unique: Unique | Mapping[str, Any] | None
    """At most one such job at a time: by name, key or payload, until it is finished or for a period."""
    depends_on: Sequence[str | Dependency | Mapping[str, Any]] | None
    """Jobs that must end first; an id alone means that it must succeed."""
    on_dependency_failure: Literal["skip", "fail"] | None
    """Whether it is skipped or dead-lettered if a parent ends otherwise than it should."""
    expires_at: Moment | None
    """Not started by then, it ends as `expired`. Give it or `expires_in_seconds`."""
    expires_in_seconds: float | None
    """After its own time."""
    deadline: Moment | None
    """Not finished by then, it ends as `expired`, whatever it does. Give it or `deadline_in_seconds`."""
    deadline_in_seconds: float | None
    """After its own time."""
    paused: bool | None
    """It is stored `paused`, until somebody resumes it."""
    retention_seconds: float | None
    """How long it is kept once finished."""
    tags: Sequence[str] | None
    """Words to find it by."""
    region: str | None
    """Only workers of this region run it; None = any worker."""
    tenant: str | None
    """To whom it belongs, for shares of a queue; None = the default tenant."""
    idempotency_key: str | None
    """The same key is the same job, for as long as that job exists, or for `idempotency_ttl_seconds`."""
    idempotency_ttl_seconds: float | None
    """How long the key is valid; None = as long as the job exists."""


_OPTIONS: Final = frozenset(JobOptions.__annotations__)


class JobSpec:
    """A job to submit: its name, its payload, and options. An option reads as an attribute, None where it isn't given."""

    __slots__ = ("name", "options", "payload")

    def __init__(self, *, name: str, payload: Any = None, **options: Unpack[JobOptions]) -> None:
        if not options.keys() <= _OPTIONS:
            raise TypeError(f"jobs have no option {min(options.keys() - _OPTIONS)!r}")
        self.name = name
        self.payload = payload
        """Anything with a JSON form, up to 256 KiB of it; None = no payload."""
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
        """Return the job that `fields` describe; raises `Invalid` for a field that jobs don't have."""
        unknown = sorted(fields.keys() - _OPTIONS - {"name", "payload"})
        if unknown:
            raise Invalid(f"{unknown[0]}: jobs have no such field", field=unknown[0])
        if "name" not in fields:
            raise Invalid("name: a job needs one", field="name")
        return cls(**fields)

    def encoded(self, idempotency_key: str | None = None) -> bytes:
        """Return the job as JSON text, with `idempotency_key` if it has none of its own; raises `Invalid`."""
        fields: dict[str, Any] = {name: value for name, value in self.options.items() if value is not None}
        fields["name"] = self.name
        if self.payload is not None:
            fields["payload"] = self.payload
        if idempotency_key is not None and "idempotency_key" not in fields:
            fields["idempotency_key"] = idempotency_key
        return encode_fields(fields, whole="job")


def job_text(job: JobSpec | Mapping[str, Any]) -> msgspec.Raw:
    """Return a job without a key of its own, as part of another document; raises `Invalid`."""
    spec = job if isinstance(job, JobSpec) else JobSpec.read(job)
    return msgspec.Raw(spec.encoded())
