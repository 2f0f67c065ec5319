"""A real SMTP server that keeps what it gets, and misbehaves on demand."""

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any, NamedTuple

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

HANGS = "HANGS"
BREAKS = "BREAKS"
USER = "sender"


class Letter(NamedTuple):
    """A message as it arrived, and its envelope."""

    sender: str
    recipients: list[str]
    message: EmailMessage

    @property
    def text(self) -> str:
        body = self.message.get_body(("plain",))
        assert body is not None
        return str(body.get_content())


@dataclass(slots=True)
class MailServer:
    """The server. An answer of it may also be `HANGS`, or `BREAKS` for the end of the connection."""

    port: int = 0
    letters: list[Letter] = field(default_factory=list)
    answers: deque[str] = field(default_factory=deque)
    """Answers to the next messages, each used once."""
    refused: dict[str, str] = field(default_factory=dict)
    """Answers to addresses of senders and recipients, and to QUIT."""
    password: str = ""
    """The user `USER` has it."""
    logins: list[str] = field(default_factory=list)
    has_tls: list[bool] = field(default_factory=list)
    """Of each session that sent something."""
    connection_count: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends what hangs."""

    async def handle_MAIL(  # noqa: N802  # the name that aiosmtpd calls
        self, server: SMTP, session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        self.has_tls.append(session.ssl is not None)
        envelope.mail_from = address
        return await self._answer(server, self.refused.get(address))

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        answer = await self._answer(server, self.refused.get(address))
        if answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        answer = await self._answer(server, self.answers.popleft() if self.answers else "250 accepted as 7")
        if answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            message = email.message_from_bytes(envelope.content, policy=email.policy.default)
            assert isinstance(message, EmailMessage)
            self.letters.append(Letter(envelope.mail_from or "", envelope.rcpt_tos, message))
        return answer

    async def handle_QUIT(self, server: SMTP, _session: Session, _envelope: Envelope) -> str:  # noqa: N802
        return await self._answer(server, self.refused.get("QUIT", "221 bye"))

    async def _answer(self, server: SMTP, answer: str | None) -> str:
        if answer == HANGS:
            await self.release.wait()
        if answer == BREAKS:
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        return answer or "250 OK"

    def authenticate(self, _server: SMTP, _session: Session, _envelope: Envelope, _way: str, data: Any) -> AuthResult:
        """Compare user and password; a wrong one is sent back, as no server should."""
        assert isinstance(data, LoginPassword)
        user, password = data.login.decode(), data.password.decode()
        self.logins.append(user)
        if (user, password) == (USER, self.password):
            return AuthResult(success=True)
        return AuthResult(success=False, handled=False, message=f"535 {user} may not say {password}")


@asynccontextmanager
async def running_mail_server(
    *, certificate: ssl.SSLContext | None = None, smtps: bool = False, password: str = ""
) -> AsyncIterator[MailServer]:
    """Serve on loopback; with a certificate it offers STARTTLS, or speaks TLS from the start with `smtps`."""
    state, loop = MailServer(password=password), asyncio.get_running_loop()
    options: dict[str, Any] = {"loop": loop, "hostname": "localhost"}
    if certificate is not None and not smtps:
        options["tls_context"] = certificate
    if password:
        options |= {"authenticator": state.authenticate, "auth_required": True, "auth_require_tls": not smtps}

    def connected() -> SMTP:
        state.connection_count += 1
        return SMTP(state, **options)

    server = await loop.create_server(connected, "127.0.0.1", 0, ssl=certificate if smtps else None)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        state.release.set()
        server.close()


@asynccontextmanager
async def saying(greeting: bytes) -> AsyncIterator[int]:
    """Serve on loopback with this greeting and then the end of the connection; yield the port."""

    async def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
