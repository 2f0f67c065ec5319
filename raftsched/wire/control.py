"""Define the requests that change a job: amend, pause, retry, replay and cancel it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import (
    DelaySeconds,
    LostWorkers,
    Moment,
    Name,
    Priority,
    Request,
    SpanSeconds,
    Tag,
    TimeoutSeconds,
)

PauseReason = Annotated[str, Meta(max_length=limits.PAUSE_REASON_CHARS_MAX)]


class AmendRequest(Request, frozen=True):
    """Changes of a job that does not run. `null` removes a value; omitted fields stay as they are."""

    run_at: Moment | UnsetType = UNSET
    """A past time means now."""
    delay_seconds: DelaySeconds | UnsetType = UNSET
    """From now; 0 = now."""
    priority: Priority | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    payload: msgspec.Raw | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)] | UnsetType = UNSET
    max_retries: Annotated[int, Meta(ge=0, le=limits.ATTEMPTS_MAX - 1)] | UnsetType = UNSET
    max_lost_workers: LostWorkers | UnsetType | None = UNSET
    timeout_seconds: TimeoutSeconds | UnsetType | None = UNSET
    expires_at: Moment | UnsetType | None = UNSET
    expires_in_seconds: SpanSeconds | UnsetType = UNSET
    """Counted from the job's time after this change, as is `deadline_in_seconds`."""
    deadline: Moment | UnsetType | None = UNSET
    deadline_in_seconds: SpanSeconds | UnsetType = UNSET
    tags: Annotated[list[Tag], Meta(max_length=limits.TAGS_MAX)] | UnsetType | None = UNSET


class PauseRequest(Request, frozen=True):
    """The end of a pause, and its reason."""

    until: Moment | None = None
    """End of the pause; by default it lasts until it is resumed."""
    for_seconds: SpanSeconds | None = None
    reason: PauseReason | None = None


class RetryRequest(Request, frozen=True):
    """The time of the new run; now by default."""

    run_at: Moment | None = None
    delay_seconds: DelaySeconds | None = None


class ReplayRequest(Request, frozen=True):
    """The differences of a clone from its original."""

    run_at: Moment | None = None
    """Time to run; now by default."""
    delay_seconds: DelaySeconds | None = None
    payload: msgspec.Raw | UnsetType = UNSET
    queue: Name | None = None
    priority: Priority | None = None


class CancelQuery(Request, frozen=True):
    """The options for cancelling a running job."""

    force: bool = False
    """End its attempt at once instead of asking its worker first."""
