"""Send the message of each run of the jobs `email`: `worker.job("email")(executor.send)` registers it.

Each message has a connection of its own. A run that was interrupted after its message had left is repeated, and its
message has the same Message-ID. Errors and results have no secrets, also if the server sends them back.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, Final

from raftsched.errors import Invalid
from raftsched.executors.email.delivery import Delivery, deliver
from raftsched.executors.email.message import message_id, message_of
from raftsched.executors.email.payload import email_of
from raftsched.executors.email.settings import EmailSettings
from raftsched.executors.email.verdicts import InvalidEmail, NoAnswerInTime, NoSession
from raftsched.executors.secrets import MissingSecret, Redaction
from raftsched.worker.handlers.context import Context
from raftsched.worker.handlers.verdicts import Verdict

NAME: Final = "email"
"""Name of the jobs, and of their queue."""
_ANSWER_CHARS_MAX: Final = 500


class EmailExecutor:
    """Run e-mail jobs; raises `Invalid` if aiosmtplib is not installed."""

    def __init__(self, settings: EmailSettings) -> None:
        if find_spec("aiosmtplib") is None:
            raise Invalid("email: aiosmtplib is missing; install it with: pip install 'raftsched[node]'", field="email")
        self._settings = settings

    async def send(self, ctx: Context, payload: Any) -> dict[str, Any]:
        """Return the Message-ID and the answers of the server; raises verdicts, whose error types `verdicts` defines."""
        settings = self._settings
        try:
            email = email_of(payload)
            sender = settings.sender_of(email.sender)
        except Invalid as error:
            raise InvalidEmail(str(error)) from None
        try:
            password = settings.password()
        except MissingSecret as error:
            raise NoSession(str(error)) from None
        message = message_of(email, ctx.run_id, sender, datetime.now(UTC))
        redaction = _redaction(settings, password)
        try:
            delivery = await self._deliver(sender.addr_spec, email.recipients, message, password)
        except TimeoutError:
            raise NoAnswerInTime(f"no whole answer within {settings.timeout_seconds:g} s") from None
        except Verdict as verdict:
            raise type(verdict)(_shown(str(verdict), redaction, chars_max=2 * _ANSWER_CHARS_MAX)) from None
        return {
            "message_id": message_id(ctx.run_id, sender),
            "answer": _shown(delivery.answer, redaction),
            "accepted": delivery.accepted,
            "refused": {address: _shown(answer, redaction) for address, answer in delivery.refused.items()},
        }

    async def _deliver(self, sender: str, recipients: list[str], message: bytes, password: str | None) -> Delivery:
        import aiosmtplib

        settings = self._settings
        client = aiosmtplib.SMTP(
            hostname=settings.server.host,
            port=settings.server.port,
            use_tls=settings.server.is_tls,
            start_tls=settings.start_tls,
            username=settings.user,
            password=password,
            timeout=None,  # one bound for all of it
        )
        async with asyncio.timeout(settings.timeout_seconds):
            return await deliver(client, sender, recipients, message)


def _redaction(settings: EmailSettings, password: str | None) -> Redaction:
    if password is None or settings.password_secret is None:
        return Redaction({})
    as_plain = base64.b64encode(f"\0{settings.user}\0{password}".encode()).decode()
    values: Mapping[str, str] = {settings.password_secret: password, f"{settings.password_secret} in AUTH": as_plain}
    return Redaction(values)


def _shown(text: str, redaction: Redaction, *, chars_max: int = _ANSWER_CHARS_MAX) -> str:
    """Return a text of the server in one line, without secrets, and cut."""
    valid = text.encode("utf-8", "surrogateescape").decode(errors="replace")
    return " ".join(redaction.text(valid).split())[:chars_max]
