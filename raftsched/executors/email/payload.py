"""Read the payload of an e-mail job: the message that it asks for, and the facts of a notice.

A field that is neither is refused, since a `bc` in place of `bcc` would drop its recipients in silence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from email.headerregistry import Address
from typing import Any, Final, NamedTuple

import msgspec

from raftsched import limits
from raftsched.errors import Invalid
from raftsched.executors.email.addresses import address_of

_SUBJECT_CHARS_MAX: Final = 2_000
"""A notice's subject has several facts of up to 500 characters."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_AT: Final = re.compile(r"(.*) - at `\$\.?(.+)`")


class EmailPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The payload of a job `email`."""

    to: str | list[str]
    subject: str
    text: str | None = None
    """By default `summary` and the facts below."""
    html: str | None = None
    """The same as HTML, beside `text` or alone."""
    cc: str | list[str] = []
    bcc: str | list[str] = []
    reply_to: str | list[str] = []
    sender: str | None = msgspec.field(default=None, name="from")
    """An address that the executor allows; by default its own."""
    summary: str | None = None
    """The facts of a notice begin here."""
    schedule: str | None = None
    event: str | None = None
    since: str | None = None
    fire_time: str | None = None
    name: str | None = None
    queue: str | None = None
    job_id: str | None = None
    run_id: str | None = None
    status: str | None = None
    reason: str | None = None
    attempts: int | None = None
    error: str | None = None


FACTS: Final = (
    *("schedule", "event", "since", "fire_time", "name", "queue", "job_id", "run_id"),
    *("status", "reason", "attempts", "error"),
)
"""The facts that a text names beside the summary, in its order."""


class Email(NamedTuple):
    """An e-mail whose parts are safe to send."""

    to: Sequence[Address]
    cc: Sequence[Address]
    bcc: Sequence[Address]
    reply_to: Sequence[Address]
    sender: Address | None
    subject: str
    text: str | None
    html: str | None

    @property
    def recipients(self) -> list[str]:
        """Return each address once."""
        return list(dict.fromkeys(each.addr_spec for each in (*self.to, *self.cc, *self.bcc)))


def email_of(payload: Any) -> Email:
    """Return the e-mail that a payload asks for; raises `Invalid` naming the field at fault."""
    asked = _converted(payload)
    if asked.text is None and asked.html is None and asked.summary is None:
        raise Invalid("text: give the message as text or html", field="text")
    text = asked.text
    if text is None and asked.html is None:
        text = facts_text(asked)
    email = Email(
        to=_addresses(asked.to, "to"),
        cc=_addresses(asked.cc, "cc"),
        bcc=_addresses(asked.bcc, "bcc"),
        reply_to=_addresses(asked.reply_to, "reply_to"),
        sender=None if asked.sender is None else address_of(asked.sender, "from"),
        subject=_subject(asked.subject),
        text=None if text is None else without_controls(text),
        html=None if asked.html is None else without_controls(asked.html),
    )
    if not email.to:
        raise Invalid("to: name at least one address", field="to")
    if len(email.recipients) > limits.EMAIL_JOB_RECIPIENTS_MAX:
        most = limits.EMAIL_JOB_RECIPIENTS_MAX
        raise Invalid(f"to: at most {most} addresses with those of cc and bcc; submit several jobs", field="to")
    return email


def facts_text(payload: EmailPayload) -> str:
    """Return the text of a notice: its sentence, and a line for each known fact."""
    facts = [(name.replace("_", " ").capitalize(), getattr(payload, name)) for name in FACTS]
    lines = [f"{label + ':':<12}{fact}" for label, fact in facts if fact not in (None, "", 0)]
    return "\n".join([payload.summary or "", *([""] if lines else []), *lines, ""])


def without_controls(text: str) -> str:
    """Return text with a mark in place of each control character but tabs and line breaks."""
    return _CONTROL.sub("\ufffd", text)


def _converted(payload: Any) -> EmailPayload:
    try:
        return msgspec.convert(payload, EmailPayload)
    except msgspec.ValidationError as error:
        found = _AT.fullmatch(str(error))
        text = f"{found[2]}: {found[1]}" if found else f"payload: {error}"
        raise Invalid(text, field=found[2] if found else "payload") from None


def _addresses(given: str | list[str], field: str) -> Sequence[Address]:
    if isinstance(given, str):
        return (address_of(given, field),)
    return tuple(address_of(text, f"{field}[{position}]") for position, text in enumerate(given))


def _subject(text: str) -> str:
    if len(text.splitlines()) != 1 or text.endswith(("\n", "\r")) or len(text) > _SUBJECT_CHARS_MAX:
        fault = f"must be one line of 1 to {_SUBJECT_CHARS_MAX} characters"
        raise Invalid(f"subject: {fault}", field="subject")
    return without_controls(text).replace("\t", " ")
