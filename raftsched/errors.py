"""Define every error that a user of raftsched can meet, under one root, in four families.

`Invalid`          the request is malformed: fix it; nothing was stored. `Rejected`         well-formed, but not legal
in the present state; nothing was changed. `Unavailable`      no leader, overload, or the outcome is unknown: retry with
the same idempotency key. `InvariantBroken`  our bug: the process stops because its state cannot be right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class RaftschedError(Exception):
    """An error of raftsched.

    `code` is stable and machine-readable, `http_status` is what the API answers, and `retryable` says whether the
    same request, with the same idempotency key, may succeed later.
    """

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    request_id: str = ""
    """The id of the request that the server answered with it, by which its logs name it; "" if there was none."""


class Invalid(RaftschedError):
    """The request is malformed; nothing was stored."""

    code = "invalid"
    http_status = 422

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Malformed(Invalid):
    """The body is not the JSON that this route takes; nothing was stored."""

    code = "malformed"
    http_status = 400


class TooLarge(Invalid):
    """The request is larger than a limit allows; nothing was stored."""

    code = "too_large"
    http_status = 413


class UnsupportedMediaType(Invalid):
    """The content type is not application/json; nothing was stored."""

    code = "unsupported_media_type"
    http_status = 415


class Rejected(RaftschedError):
    """Not legal in the present state; nothing was changed. `code` says which rule refused it.

    `field` is the path of the field at fault, `job_id` the conflicting job, and `members` the names in a
    cycle; empty if not applicable.
    """

    http_status = 409

    def __init__(
        self,
        code: str,
        message: str,
        *,
        http_status: int = 409,
        field: str = "",
        job_id: str = "",
        members: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]  # an instance's own rule, if the class has none
        self.http_status = http_status  # type: ignore[misc]
        self.field = field
        self.job_id = job_id
        self.members = tuple(members)


class NotFound(Rejected):
    """There is no such object, or this caller may not know that there is."""

    def __init__(self, message: str) -> None:
        super().__init__("not_found", message, http_status=404)


class Unauthorized(Rejected):
    """The request has no valid token; nothing was changed."""

    code = "unauthorized"

    def __init__(self, message: str) -> None:
        super().__init__(self.code, message, http_status=401)


class Forbidden(Rejected):
    """The token of the request does not allow this; nothing was changed."""

    code = "forbidden"

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(self.code, message, http_status=403, field=field)


class Unavailable(RaftschedError):
    """The cluster can't take the request now; it was not accepted. Retry after a moment."""

    code = "unavailable"
    http_status = 503
    retryable = True


class NotLeader(Unavailable):
    """This node doesn't lead; `leader` is the id of the node that does, or "" while none is known."""

    code = "not_leader"

    def __init__(self, leader: str = "") -> None:
        super().__init__(f"this node does not lead the cluster; the leader is {leader or 'not known yet'}")
        self.leader = leader


class NoMajority(Unavailable):
    """This node led until a majority of nodes did not answer in time; it was not accepted. Ask another node."""

    code = "no_majority"

    def __init__(self) -> None:
        super().__init__("this node no longer leads: a majority of nodes did not answer; ask another node")


class DiskStalled(Unavailable):
    """The disk of this node has not answered for longer than an election takes; it was not accepted. Ask another node."""

    code = "disk_stalled"

    def __init__(self) -> None:
        super().__init__("the disk of this node does not answer: look at its health; ask another node")


class ChangeUnderWay(Unavailable):
    """Another change of the cluster's members is not committed yet; nothing was changed. Retry after a moment."""

    code = "change_under_way"


class BackupUnderWay(Unavailable):
    """The node makes a backup, or sends as many as it may. Ask another node, or retry later."""

    code = "backup_under_way"

    def __init__(self, node_id: str) -> None:
        super().__init__(f"node {node_id} makes or sends backups already: ask another node, or retry when it is done")


class UpgradeInProgress(Unavailable):
    """The operation needs a release that not all nodes run yet; nothing was changed. Retry once all are upgraded."""

    code = "upgrade_in_progress"


class QuotaExceeded(Unavailable):
    """A quota of the tenant is used up: nothing was stored. Retry later, with the same idempotency key.

    `retry_after_seconds` is the time after which the same request may be accepted.
    """

    code = "quota_exceeded"
    http_status = 429

    def __init__(self, message: str, *, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class OutcomeUnknown(Unavailable):
    """The request may or may not have taken effect: retry it with the same idempotency key to learn which."""

    code = "outcome_unknown"


class StorageFull(Unavailable):
    """The disk is nearly full: new work is refused while running work may still finish."""

    code = "storage_full"
    http_status = 507


class InvariantBroken(RaftschedError):
    """The state contradicts a safety invariant; the process must stop at once."""

    code = "invariant_broken"
