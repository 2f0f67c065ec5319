"""Define the documents of notices: the messages to the owner of a schedule about its events."""

from __future__ import annotations

from typing import Annotated, Generic, Literal

from msgspec import Meta

from raftsched import limits
from raftsched.wire.calls import Url
from raftsched.wire.common import Reply, Request, T
from raftsched.wire.jobs import HookBody

EventName = Literal["failed", "dead_letter", "missed", "late", "recovered", "success"]
ExpectedSeconds = Annotated[float, Meta(ge=1, le=limits.DELAY_MS_MAX / 1000)]


class EmailBody(Request, frozen=True):
    """An e-mail, as `raftsched worker --email` sends it: it runs the jobs `email` of the queue `email`."""

    to: Annotated[
        list[Annotated[str, Meta(max_length=254)]], Meta(min_length=1, max_length=limits.EMAIL_RECIPIENTS_MAX)
    ]
    """Addresses, such as `ops@example.com`."""
    subject: Annotated[str, Meta(min_length=1, max_length=200)] = "{{cause.summary}}"
    """One line. `{{cause.event}}` and other facts are filled in."""


class NoticeBody(Request, frozen=True):
    """A message about events of a schedule: one of `webhook`, `slack`, `email` and `job`."""

    on: Annotated[list[EventName], Meta(min_length=1, max_length=6)]
    """`failed`: an attempt failed and is tried again. `dead_letter`: a run ended in the dead-letter queue. `missed`: no run
    has succeeded for `expect_success_within_seconds`, or a fire time was skipped as a misfire or because of too many
    unfinished runs. `late`: a run started more than `late_after_seconds` after its fire time. `recovered`: the first run
    succeeded after a dead letter or a missed run. `success`: a run succeeded.

    A problem of one kind has one message until a run succeeds."""
    webhook: Url | None = None
    """Send the facts of the event as JSON to this address."""
    slack: Url | None = None
    """Send `{"text": "…"}` with a sentence about the event to this address, as Slack and similar services take it."""
    email: EmailBody | None = None
    job: HookBody | None = None
    """Submit any job. Its payload is the facts of the event, unless it has one with placeholders, as a hook has."""


class AlarmDocument(Reply, Generic[T], frozen=True):
    """A problem of a schedule that lasts."""

    event: Annotated[str, Meta(extra_json_schema={"enum": ["failed", "dead_letter", "missed", "late"]})]
    since: T
