"""Define the documents of API tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Generic, Literal

from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import Cursor, Moment, QueuePattern, ReadQuery, Reply, Request, SpanSeconds, T, Time

RoleName = Literal["viewer", "submitter", "worker", "operator", "admin"]
TenantOrAll = Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX, description="the name of a tenant, or * for all")]


class TokenRequest(Request, frozen=True):
    """A token to make. Its text is shown once, in the reply."""

    role: RoleName
    """`viewer` reads; `submitter` also submits and controls jobs, schedules and workflows; `worker` only runs jobs;
    `operator` also changes queues and many jobs at once; `admin` does everything."""
    tenant: TenantOrAll | None = None
    """Default: the tenant of who makes it, or `default`."""
    name: (
        Annotated[str, Meta(min_length=1, max_length=limits.ACTOR_CHARS_MAX, pattern=r"^[^\x00-\x1f\x7f]+$")] | None
    ) = None
    """The actor in histories and in the audit trail. Default: its id."""
    queues: Annotated[Sequence[QueuePattern], Meta(max_length=limits.TOKEN_QUEUES_MAX)] = ()
    """Queues and patterns to which it is limited; none = all queues."""
    expires_at: Moment | None = None
    expires_in_seconds: SpanSeconds | None = None


class RotateTokenRequest(Request, frozen=True):
    """A request for another secret of a token."""

    overlap_seconds: Annotated[float, Meta(ge=0, le=limits.TOKEN_OVERLAP_SECONDS_MAX)] = 0.0
    """The former text of the token is accepted for this time, too."""


class TokenDocument(Reply, Generic[T], frozen=True):
    """A token, without its text, which nobody can read again."""

    id: str
    name: str
    role: RoleName
    tenant: str
    """`*` = all tenants."""
    queues: list[str]
    created_at: T
    created_by: str
    expires_at: T | None = None
    rotated_at: T | None = None
    former_until: T | None = None
    """The text before the last rotation is accepted until then."""
    last_used_at: T | None = None
    """The beginning of the hour in which it was last used, at whatever node; null if no use is known."""
    expired: bool = False
    token: str | UnsetType = UNSET
    """The text to send, only in the reply that made it."""


class TokenReply(TokenDocument[Time], frozen=True):
    """A token, without its text, which nobody can read again."""


class CallerReply(Reply, frozen=True):
    """The caller of a request, and what it may do."""

    name: str = ""
    """The actor in histories and in the audit trail."""
    role: str = ""
    tenant: str = ""
    """`*` = all tenants."""
    queues: Sequence[str] = ()
    """Queues and patterns to which it is limited; none = all queues."""
    may: Sequence[str] = ()
    """The rights of its role: `read`, `submit`, `operate`, `audit`, `admin`, `cluster`, …"""


class TokensQuery(ReadQuery, frozen=True):
    """A page of the list of tokens."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    cursor: Cursor | None = None


class TokensReply(Reply, frozen=True):
    """Tokens by id."""

    tokens: list[TokenReply]
    next_cursor: str | None = None


class RevokedReply(Reply, frozen=True):
    """A token that was revoked."""

    id: str
    name: str
    revoked: bool
