"""Send e-mail by SMTP from a handler of your own: `python examples/send_email.py`.

`raftsched worker --email` needs no handler; this is for what it leaves out, as attachments.
For the example a mail server of this program takes the messages; give `SMTP_URL` for a real one. The run id is the
Message-ID, so a mail server, or a reader, can tell a repetition from another message.
"""

from __future__ import annotations

import asyncio
import os
from email.message import EmailMessage
from typing import Any
from urllib.parse import urlsplit

import aiosmtplib
from aiosmtpd.smtp import SMTP

from raftsched import Client, Context, GiveUp, JobFailed, Retry, Worker

URL = os.environ.get("RAFTSCHED_URL", "http://127.0.0.1:8400")
QUEUE = "example-email"
worker = Worker(URL, queues=[QUEUE])


@worker.job("email", queue=QUEUE)
async def email(ctx: Context, payload: dict[str, Any]) -> dict[str, str]:
    """Send one message; an address that the server refuses for good is not tried again.

    Notices of schedules (`notify`) come as such jobs, too: with a list of addresses, and a `summary` as their text.
    """
    message = EmailMessage()
    message["From"] = payload.get("from", "jobs@example.org")
    to = payload["to"]
    message["To"] = to if isinstance(to, str) else ", ".join(to)
    message["Subject"] = payload["subject"]
    message["Message-ID"] = f"<{ctx.run_id}@example.org>"
    message.set_content(payload.get("text") or payload["summary"])
    server = urlsplit(os.environ["SMTP_URL"])
    try:
        _, answer = await aiosmtplib.send(message, hostname=server.hostname, port=server.port, timeout=30)
    except aiosmtplib.SMTPRecipientsRefused as error:
        codes = [refused.code for refused in error.recipients]
        if all(code >= 500 for code in codes):
            raise GiveUp(f"the server refuses {to} for good") from error
        raise Retry(f"the server does not take mail for {to} now") from error
    return {"message_id": str(message["Message-ID"]), "answer": answer}


class Mailbox:
    """Take what is sent, except to one address that does not exist."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802  # the name that aiosmtpd calls
        """Refuse the address that does not exist."""
        if address.startswith("nobody@"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802  # the name that aiosmtpd calls
        """Keep a message."""
        self.messages.append(envelope)
        return "250 accepted"


async def main() -> None:
    """Run the worker, and send two messages, one of them to an address that does not exist."""
    mailbox = Mailbox()
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(mailbox), "127.0.0.1", 0)
    os.environ.setdefault("SMTP_URL", f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    serving = asyncio.create_task(worker.serve())
    async with Client(URL) as client:
        letter = {"subject": "Your invoice", "text": "It is attached."}
        sent = await client.submit("email", letter | {"to": "alice@example.org"}, queue=QUEUE)
        refused = await client.submit("email", letter | {"to": "nobody@example.org"}, queue=QUEUE)
        print("the server answered", (await sent.wait())["answer"])
        try:
            await refused.wait()
        except JobFailed as error:
            print("the other failed:", error)
    worker.drain()
    await serving
    server.close()
    print("in the mailbox:", [each.rcpt_tos for each in mailbox.messages])


if __name__ == "__main__":
    asyncio.run(main())
