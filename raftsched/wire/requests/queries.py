"""How fresh an answer must be, and which of many things it is about."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from raftsched import limits
from raftsched.wire.requests.common import (
    Cursor,
    DeadLetterReasonName,
    IdText,
    Moment,
    Name,
    Request,
    StatusName,
    Tag,
)

PageLimit = Annotated[int, Meta(ge=1, le=limits.PAGE_JOBS_MAX)]


class ReadQuery(Request, frozen=True):
    """How fresh an answer must be: `stale` is answered by any node from what it has, and says how old that is."""

    consistency: Literal["linearizable", "quorum", "stale"] = "linearizable"
    """`linearizable`: as new as any answer so far, by the leader, which a majority has answered within the election
    timeout. `quorum`: the same, but the leader asks a majority for this very request first, so that no clock is involved;
    it costs one round trip between nodes. `stale`: by any node from what it has."""


class ListQuery(ReadQuery, frozen=True):
    """Which jobs, and which page of them."""

    status: Annotated[list[StatusName], Meta(min_length=1, max_length=12)] | None = None
    """One or more, with commas between. Without `queue`, `name`, `tag`, `schedule` and `workflow`, or with `queue` and
    statuses that wait for time only, their jobs come one status after another."""
    queue: Name | None = None
    name: Name | None = None
    tag: Tag | None = None
    tenant: Name | None = None
    schedule: IdText | None = None
    """Id of the schedule that they are runs of."""
    workflow: IdText | None = None
    """Id of the workflow that they belong to."""
    reason: DeadLetterReasonName | None = None
    """Why they failed: of the dead letters, unless `status` says otherwise."""
    created_after: Moment | None = None
    """Submitted at or after then."""
    created_before: Moment | None = None
    limit: PageLimit = 100
    """Most jobs on the page. There may be fewer on it although `next_cursor` leads to more, where few of many match by
    `tenant`, `reason` or `status`; a page without jobs is the last one, unless 5 seconds of search found none."""
    order: Literal["asc", "desc"] = "asc"
    """`asc`: the oldest first; `desc`: the latest first. By submission; where jobs come one status after another, by
    what that status is kept in order of: when it was finished, or when it is due."""
    cursor: Cursor | None = None
    """`next_cursor` of the page before."""


class QueuesQuery(ReadQuery, frozen=True):
    """Which page of the queues."""

    limit: Annotated[int, Meta(ge=1, le=limits.PAGE_QUEUES_MAX)] = 100
    cursor: Cursor | None = None
    """`next_cursor` of the page before."""


class DeadLettersQuery(ReadQuery, frozen=True):
    """Which dead letters, and which page of them."""

    reason: DeadLetterReasonName | None = None
    queue: Name | None = None
    name: Name | None = None
    tag: Tag | None = None
    tenant: Name | None = None
    limit: PageLimit = 100
    order: Literal["asc", "desc"] = "desc"
    """By the time at which they were given up, with `queue`, `name` or `tag` by submission; the latest first."""
    cursor: Cursor | None = None


class LogQuery(ReadQuery, frozen=True):
    """Whose log, and from where on."""

    run: Annotated[int, Meta(ge=1)] | None = None
    """Number of the run; default: the latest. With `attempt`, the log of that attempt alone."""
    attempt: Annotated[int, Meta(ge=1)] | None = None
    cursor: Cursor | None = None
    """`next_cursor` of the part before."""
    wait_seconds: Annotated[float, Meta(ge=0, le=limits.LEASE_WAIT_SECONDS_MAX)] = 0.0
    """How long to wait for lines where there are none yet and more may come."""
    max_bytes: Annotated[int, Meta(ge=1, le=limits.LOG_BYTES_MAX)] = 256 * 1024
    """The part ends with the piece that passes this."""
