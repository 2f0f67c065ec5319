"""Give a message to an SMTP server, and say what its answers mean.

An answer to MAIL, RCPT or DATA is about the message: 5xx is final, 4xx is tried again. What precedes is about the server
and this executor, so it is always tried again. Once a recipient is accepted the message is sent, and nobody gets it
twice: those who are refused are part of the result.

aiosmtplib belongs to the extra `node`, so it is imported by the functions that need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from raftsched.executors.email.verdicts import MessageDeferred, MessageRefused, NoSession

if TYPE_CHECKING:
    import aiosmtplib

_QUIT_SECONDS: Final = 1.0
"""The message is sent by then, so nothing depends on the answer."""
_FINAL: Final = 500


class Delivery(NamedTuple):
    """The answers of a server that took a message."""

    answer: str
    accepted: Sequence[str]
    refused: Mapping[str, str]
    """Address -> answer."""


async def deliver(client: aiosmtplib.SMTP, sender: str, recipients: Sequence[str], message: bytes) -> Delivery:
    """Send a message by a client that is not connected yet, and close it.

    Raises a verdict, and `TimeoutError`.
    """
    try:
        with _about_session():
            await client.connect()
        with _about_message():
            delivery = await _sent(client, sender, recipients, message)
        await _quit(client)
        return delivery
    finally:
        client.close()


async def _sent(client: aiosmtplib.SMTP, sender: str, recipients: Sequence[str], message: bytes) -> Delivery:
    from aiosmtplib import SMTPRecipientRefused

    await client.mail(sender)
    refused: dict[str, SMTPRecipientRefused] = {}
    for address in recipients:
        try:
            await client.rcpt(address)
        except SMTPRecipientRefused as error:
            refused[address] = error
    answers = {address: f"{error.code} {error.message}" for address, error in refused.items()}
    if len(refused) == len(recipients):
        is_final = all(error.code >= _FINAL for error in refused.values())
        text = "; ".join(f"{address}: {answer}" for address, answer in answers.items())
        raise (MessageRefused if is_final else MessageDeferred)(f"the server refuses all recipients: {text}")
    code, text = await client.data(message)
    return Delivery(f"{code} {text}", [each for each in recipients if each not in refused], answers)


async def _quit(client: aiosmtplib.SMTP) -> None:
    from aiosmtplib import SMTPException

    with suppress(OSError, SMTPException):
        async with asyncio.timeout(_QUIT_SECONDS):
            await client.quit()


@contextmanager
def _about_session() -> Iterator[None]:
    from aiosmtplib import SMTPException, SMTPResponseException

    try:
        yield
    except TimeoutError:
        raise
    except SMTPResponseException as error:
        raise NoSession(f"the server refuses this executor: {error.code} {error.message}") from None
    except (SMTPException, OSError, ValueError) as error:
        raise NoSession(f"{type(error).__name__}: {error}") from None


@contextmanager
def _about_message() -> Iterator[None]:
    from aiosmtplib import SMTPException, SMTPResponseException

    try:
        yield
    except TimeoutError:
        raise
    except SMTPResponseException as error:
        verdict = MessageRefused if error.code >= _FINAL else MessageDeferred
        raise verdict(f"the server refuses the message: {error.code} {error.message}") from None
    except (SMTPException, OSError) as error:
        raise NoSession(f"{type(error).__name__}: {error}") from None
