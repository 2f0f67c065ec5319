"""Make the message that is sent for an e-mail.

Its head is written here, not by `email`: that decodes encoded words of a given text (`=?utf-8?q?=0D=0A?=`) and writes the
line breaks of them into the head (CVE-2024-6923). Here a text with `=?` is encoded, so it is text for the reader, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from email.header import Header
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, quote
from typing import Final

from raftsched.executors.email.payload import Email

_POLICY: Final = SMTP.clone(cte_type="7bit")
"""Seven bits, so that any server takes it, and none changes it on the way."""
_LINE_CHARS_MAX: Final = 76
_LONGEST: Final = "Reply-To"
"""The longest name of a header with encoded words, for which the first line leaves room."""


def message_id(run_id: str, sender: Address) -> str:
    """Return the Message-ID: the same for all attempts of a run, so that servers and readers know a repetition."""
    return f"<{run_id}@{sender.domain}>"


def message_of(email: Email, run_id: str, sender: Address, now: datetime) -> bytes:
    """Return the message as bytes; those who get it as `bcc` are not in it."""
    head = "".join(f"{name}: {value}\r\n" for name, value in _headers(email, run_id, sender, now))
    return head.encode("ascii") + _body(email).as_bytes()


def _headers(email: Email, run_id: str, sender: Address, now: datetime) -> Iterator[tuple[str, str]]:
    for name, addresses in (("From", [sender]), ("To", email.to), ("Cc", email.cc), ("Reply-To", email.reply_to)):
        if addresses:
            yield name, _list(addresses)
    yield "Subject", _text(email.subject)
    yield "Date", format_datetime(now)
    yield "Message-ID", message_id(run_id, sender)
    yield "Auto-Submitted", "auto-generated"  # RFC 3834: no vacation note answers it


def _body(email: Email) -> EmailMessage:
    """Return the rest of the message, which begins with the headers of its form."""
    body = EmailMessage(policy=_POLICY)
    if email.text is not None:
        body.set_content(email.text)
    if email.html is not None and email.text is not None:
        body.add_alternative(email.html, subtype="html")
    elif email.html is not None:
        body.set_content(email.html, subtype="html")
    return body


def _list(addresses: Sequence[Address]) -> str:
    return ",\r\n ".join(
        f"{_name(each.display_name)} <{each.addr_spec}>" if each.display_name else each.addr_spec for each in addresses
    )


def _name(text: str) -> str:
    return f'"{quote(text)}"' if _is_plain(text) else _text(text)


def _text(text: str) -> str:
    """Return a text for a header: as it is, or as encoded words in lines of their own (RFC 2047)."""
    if _is_plain(text):
        return text
    return Header(text, "utf-8", maxlinelen=_LINE_CHARS_MAX, header_name=_LONGEST).encode(linesep="\r\n")


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and "=?" not in text and len(text) <= _LINE_CHARS_MAX
