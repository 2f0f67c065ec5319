"""Jobs as a client sees them: what it submits, what it reads, and the handle it gets back.

Fields that this version doesn't know are ignored in what is read and refused in what is submitted: a misspelt
`max_atempts` must not turn a limited job into an unlimited one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from raftsched.client.documents import encode_document
from raftsched.errors import Invalid

if TYPE_CHECKING:
    from raftsched.client.client import Client

FINISHED = frozenset({"completed", "failed", "dead_letter", "cancelled", "skipped"})
"""Statuses that nothing but a hand changes; see `raftsched.core.job.FINISHED`."""

Priority = int | Literal["low", "normal", "high"]


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


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job to submit; what is left out is the cluster's default."""

    name: str
    payload: Any = None
    """Anything with a JSON form, up to 256 KiB of it; None = no payload."""
    queue: str | None = None
    """None = the queue that is called like the job."""
    priority: Priority | None = None
    """0 to 9, or `low`, `normal`, `high`; higher first."""
    run_at: datetime | str | None = None
    """Aware, or RFC 3339 text; a past time means now."""
    delay_seconds: float | None = None
    timeout_seconds: float | None = None
    """Longest time of one attempt."""
    max_attempts: int | None = None
    retry_policy: RetryPolicy | Mapping[str, Any] | None = None
    tags: Sequence[str] | None = None
    region: str | None = None
    idempotency_key: str | None = None
    """The same key is the same job, for as long as that job exists."""

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> JobSpec:
        """Return the job that `fields` describe; raises `Invalid` for a field that jobs don't have."""
        unknown = sorted(set(fields) - set(cls.__struct_fields__))
        if unknown:
            raise Invalid(f"{unknown[0]}: jobs have no such field", field=unknown[0])
        if "name" not in fields:
            raise Invalid("name: a job needs one", field="name")
        return cls(**fields)

    def encoded(self, idempotency_key: str) -> bytes:
        """Return the job as JSON text, with `idempotency_key` if it has none of its own; raises `Invalid`."""
        key = self.idempotency_key or idempotency_key
        head = encode_document(msgspec.structs.replace(self, payload=None, idempotency_key=key), field="job")
        if self.payload is None:
            return head
        return b'%b,"payload":%b}' % (head[:-1], encode_document(self.payload, field="payload"))


class JobFault(msgspec.Struct, frozen=True):
    """What the handler of the latest attempt reported."""

    type: str = ""
    message: str = ""
    trace: str = ""


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stood when it was read."""

    id: str
    name: str = ""
    queue: str = ""
    tenant: str = ""
    status: str = ""
    priority: int = 0
    payload: Any = None
    run_at: datetime | None = None
    next_run_at: datetime | None = None
    timeout_seconds: float | None = None
    max_attempts: int = 0
    attempt_number: int = 0
    retry_policy: dict[str, Any] | None = None
    tags: list[str] = []
    region: str | None = None
    revision: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    queued_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    execution_time_ms: int | None = None
    failure_reason: str | None = None
    error: JobFault | None = None
    """Of the latest attempt, where it failed."""
    result: Any = None
    progress: Any = None
    schedule_id: str | None = None
    depends_on: list[str] = []
    run_id: str = ""
    failure_count: int = 0
    lost_count: int = 0
    worker: str | None = None
    """Who holds its lease."""
    idempotency_key: str | None = None

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED


class Job:
    """A submitted job: its id, and the client that submitted it."""

    __slots__ = ("_client", "duplicate", "id")

    def __init__(self, client: Client, job_id: str, *, duplicate: bool = False) -> None:
        self._client = client
        self.id = job_id
        self.duplicate = duplicate
        """True where an earlier submit with the same idempotency key made the job."""

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    async def get(self) -> JobInfo:
        """Read the job as it stands now."""
        return await self._client.get(self.id)

    async def cancel(self) -> JobInfo:
        """Cancel it; see `Client.cancel`."""
        return await self._client.cancel(self.id)

    async def wait(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109  # as asyncio.wait_for
        """Wait until it is finished and return its result; see `Client.wait`."""
        return await self._client.wait(self.id, timeout)
