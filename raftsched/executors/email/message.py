"""Make the message that is sent for an e-mail."""

from __future__ import annotations

from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final

from raftsched.executors.email.payload import Email

_POLICY: Final = SMTP.clone(cte_type="7bit")
"""Seven bits, so that any server takes it, and none changes it on the way."""


def message_id(run_id: str, sender: Address) -> str:
    """Return the Message-ID: the same for all attempts of a run, so that servers and readers know a repetition."""
    return f"<{run_id}@{sender.domain}>"


def message_of(email: Email, run_id: str, sender: Address, now: datetime) -> bytes:
    """Return the message as bytes; those who get it as `bcc` are not in it."""
    message = EmailMessage(policy=_POLICY)
    message["From"] = sender
    message["To"] = email.to
    for header, addresses in (("Cc", email.cc), ("Reply-To", email.reply_to)):
        if addresses:
            message[header] = addresses
    message["Subject"] = email.subject
    message["Date"] = format_datetime(now)
    message["Message-ID"] = message_id(run_id, sender)
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no vacation note answers it
    if email.text is not None:
        message.set_content(email.text)
    if email.html is not None and email.text is not None:
        message.add_alternative(email.html, subtype="html")
    elif email.html is not None:
        message.set_content(email.html, subtype="html")
    return message.as_bytes()
