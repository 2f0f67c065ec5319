from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.headerregistry import Address
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from raftsched.core.jobs.facts import FACTS
from raftsched.errors import Invalid
from raftsched.executors.email.executor import EmailExecutor
from raftsched.executors.email.settings import EmailSettings
from raftsched.executors.email.verdicts import (
    InvalidEmail,
    MessageDeferred,
    MessageRefused,
    NoAnswerInTime,
    NoSession,
)
from raftsched.executors.secrets import Secrets
from raftsched.worker import Context, Verdict
from tests.executors.email.mail_server import BREAKS, HANGS, USER, MailServer, running_mail_server, saying
from tests.for_each import for_each

PASSWORD = "canary-of-a-password/that+nobody may see"
SECRETS = Secrets(environment={"RAFTSCHED_SECRET_SMTP": PASSWORD, "RAFTSCHED_SECRET_WRONG": f"{PASSWORD}!"})
LOGIN: dict[str, Any] = {"user": USER, "password_secret": "smtp"}
LETTER = {"to": "ann@example.org", "subject": "Hello", "text": "How are you?"}
SENDER = "Jobs <jobs@example.org>"


@pytest.fixture
async def server() -> AsyncIterator[MailServer]:
    async with running_mail_server() as running:
        yield running


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The certificate of a server for localhost, by an authority that this process trusts."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return context


def settings_of(port: int, *, scheme: str = "smtp", **options: Any) -> EmailSettings:
    chosen: dict[str, Any] = {"url": f"{scheme}://localhost:{port}", "sender": SENDER, "secrets": SECRETS} | options
    return EmailSettings(**chosen)


async def send(port: int, payload: Any = LETTER, **options: Any) -> dict[str, Any]:
    """Run a job with this payload."""
    context = Context(job_id="j", run_id="j.1", fencing_token=7, attempt_number=1, name="email", queue="email")
    return await EmailExecutor(settings_of(port, **options)).send(context, payload)


async def verdict_of(port: int, payload: Any = LETTER, **options: Any) -> Verdict:
    with pytest.raises(Verdict) as raised:
        await send(port, payload, **options)
    return raised.value


async def test_message_has_the_parts_of_its_payload_and_is_recognisable(server: MailServer) -> None:
    payload = {
        "to": ["Ann Lee <ann@example.org>", '"Bö, Jr" <bo@exämple.org>'],
        "cc": "ann@example.org",
        "bcc": ["eve@example.org"],
        "reply_to": ["desk@example.org"],
        "subject": f"Größe {'ü' * 200}",
        "text": f".\n.dot\r\nüber {'x' * 2000}\x1b\n",
        "html": "<p>über</p>",
    }
    result = await send(server.port, payload)
    [(sender, recipients, message)] = server.letters
    everybody = ["ann@example.org", "bo@xn--exmple-cua.org", "eve@example.org"]
    assert (sender, recipients) == ("jobs@example.org", everybody)
    assert result == {
        "message_id": "<j.1@example.org>",
        "answer": "250 accepted as 7",
        "accepted": everybody,
        "refused": {},
    }
    named = {name: str(message[name]) for name in ("From", "To", "Cc", "Reply-To", "Subject", "Message-ID")}
    assert named == {
        "From": SENDER,
        "To": 'Ann Lee <ann@example.org>, "Bö, Jr" <bo@xn--exmple-cua.org>',
        "Cc": "ann@example.org",
        "Reply-To": "desk@example.org",
        "Subject": payload["subject"],
        "Message-ID": "<j.1@example.org>",
    }
    assert message["Auto-Submitted"] == "auto-generated"
    assert "eve" not in message.as_string()
    assert abs((parsedate_to_datetime(message["Date"]) - datetime.now(UTC)).total_seconds()) < 60
    assert server.letters[0].text.splitlines() == [".", ".dot", f"über {'x' * 2000}\ufffd"]
    html = message.get_body(("html",))
    assert html is not None
    assert html.get_content().strip() == "<p>über</p>"


async def test_message_of_html_alone_has_no_text(server: MailServer) -> None:
    await send(server.port, {"to": ["ann@example.org"], "subject": "x", "html": "<b>!</b>"})
    assert server.letters[0].message.get_content_type() == "text/html"


async def test_notice_has_its_sentence_and_its_facts_as_text(server: MailServer) -> None:
    facts = dict.fromkeys(FACTS) | {
        "summary": "Schedule dump: the run is in the dead-letter queue",
        "schedule": "dump",
        "event": "dead_letter",
        "fire_time": "2027-03-14T02:00:00Z",
        "attempts": 3,
        "error": "Boom: no\nspace",
    }
    await send(server.port, {"to": ["ops@example.org"], "subject": "It failed\x1b"} | facts)
    [letter] = server.letters
    assert letter.message["Subject"] == "It failed\ufffd"
    assert letter.text.splitlines() == [
        "Schedule dump: the run is in the dead-letter queue",
        "",
        "Schedule:   dump",
        "Event:      dead_letter",
        "Fire time:  2027-03-14T02:00:00Z",
        "Attempts:   3",
        "Error:      Boom: no",
        "space",
    ]


@for_each(
    ("change", "text"),
    [
        ({"to": []}, "to: name at least one address"),
        ({"to": "nobody"}, "to: 'nobody' is not one address"),
        ({"to": "a@b.c, d@e.f"}, "to: 'a@b.c, d@e.f' is not one address"),
        ({"to": ["a@b.c", "x@b.c>\r\nRCPT TO:<y@b.c"]}, "to[1]:"),
        ({"to": ["a@b.c\nBcc: x@b.c"]}, "to[0]:"),
        ({"to": [5]}, "to[0]: Expected `str`, got `int`"),
        ({"to": "x" * 251 + "@b.c"}, "to: an address has at most 254 characters"),
        ({"to": "ü@b.c"}, "not ASCII"),
        ({"to": "a@b..c"}, "to: 'a@b..c' is not one address"),
        ({"to": "a b@c"}, "to: 'a b@c' is not one address"),
        ({"to": '"a b"@c'}, "is not one address"),
        ({"to": "a@[127.0.0.1]"}, "is not one address"),
        ({"cc": "=?utf-8?q?a=0D=0ABcc?=@b.c"}, "is not one address"),
        ({"cc": "Eve\r\nBcc: x@b.c <a@b.c>"}, "cc: the name must be at most 200 printable characters"),
        ({"bcc": ["a@b.c\r"]}, "bcc[0]: "),
        ({"reply_to": "a@b.c\n"}, "reply_to: "),
        ({"subject": "a\r\nBcc: x@b.c"}, "subject: must be one line"),
        ({"subject": "a\n"}, "subject: must be one line"),
        ({"subject": "a\u2028b"}, "subject: must be one line"),
        ({"subject": ""}, "subject: must be one line"),
        ({"subject": "a" * 2001}, "subject: must be one line"),
        ({"subject": None}, "subject: Expected `str`, got `null`"),
        ({"text": None}, "text: give the message as text or html"),
        ({"from": "eve@example.net"}, "from: this executor may not send as eve@example.net"),
        ({"from": "jobs@example.org\nX: y"}, "from: "),
        ({"bc": "a@b.c"}, "unknown field `bc`"),
        ({"to": [f"{number}@b.c" for number in range(101)]}, "to: at most 100 addresses"),
    ],
)
async def test_payload_that_is_no_safe_email_is_refused_by_field_and_nothing_is_sent(
    server: MailServer, change: dict[str, Any], text: str
) -> None:
    verdict = await verdict_of(server.port, LETTER | change)
    assert isinstance(verdict, InvalidEmail)
    assert text in str(verdict)
    assert server.connection_count == 0


ENCODED = "=?utf-8?q?a=0D=0ABcc:_evil=40example.net=0D=0A=0D=0Abody?="
"""A line break and more, as an encoded word."""


@for_each(
    "text",
    [ENCODED, f"ü {ENCODED} ü", "=?utf-8?b?YQ0KQmNjOiBlQHgueQ0KDQpi?=", "a" * 200, 'a"b\\', "Lé, Ann; x@evil.net"],
)
async def test_texts_of_the_head_arrive_as_they_are_and_add_nothing_to_it(server: MailServer, text: str) -> None:
    named = {"to": f"{text} <ann@example.org>", "cc": [f"{text} <bo@example.org>", "al@example.org"]}
    await send(server.port, named | {"reply_to": named["to"], "subject": text, "text": "Hi"}, sender=named["to"])
    message, raw = server.letters[-1].message, server.letters[-1].message.as_bytes()
    assert set(message.keys()) == {
        *("From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-ID", "Auto-Submitted"),
        *("Content-Type", "Content-Transfer-Encoding", "MIME-Version"),
    }
    # Without spaces: Python keeps one between two encoded words of a name, which RFC 2047 says to drop.
    found = {name: [str(each).replace(" ", "") for each in message[name].addresses] for name in ("To", "Cc")}
    assert found == {
        "To": [str(Address(text, addr_spec="ann@example.org")).replace(" ", "")],
        "Cc": [str(Address(text, addr_spec="bo@example.org")).replace(" ", ""), "al@example.org"],
    }
    assert (message["Subject"], server.letters[-1].text.strip()) == (text, "Hi")
    assert max(map(len, raw.splitlines())) <= 100


@for_each("payload", [None, "text", [], {"to": "a@b.c"}])
async def test_payload_of_another_form_is_refused(payload: Any) -> None:
    assert isinstance(await verdict_of(1, payload), InvalidEmail)


async def test_job_may_name_a_sender_that_is_allowed(server: MailServer) -> None:
    allowed = {"allowed_senders": ["shop@example.net", "*@Example.com"]}
    for sender in ("Shop <shop@example.net>", "any@example.com", "jobs@example.org"):
        await send(server.port, LETTER | {"from": sender}, **allowed)
    assert [letter.sender for letter in server.letters] == ["shop@example.net", "any@example.com", "jobs@example.org"]
    assert [letter.message["Message-ID"] for letter in server.letters][1] == "<j.1@example.com>"
    assert isinstance(await verdict_of(server.port, LETTER | {"from": "x@example.net"}, **allowed), InvalidEmail)


@for_each(
    ("refused", "answers", "kind", "text"),
    [
        ({"ann@example.org": "550 no such mailbox"}, [], MessageRefused, "ann@example.org: 550 no such mailbox"),
        ({"ann@example.org": "450 later"}, [], MessageDeferred, "ann@example.org: 450 later"),
        ({"jobs@example.org": "550 not you"}, [], MessageRefused, "550 not you"),
        ({"jobs@example.org": "451 greylisted"}, [], MessageDeferred, "451 greylisted"),
        ({}, ["552 too large"], MessageRefused, "552 too large"),
        ({}, ["452 disk full"], MessageDeferred, "452 disk full"),
        ({}, [BREAKS], NoSession, "Disconnected"),
        ({"ann@example.org": "421 closing"}, [], MessageDeferred, "421 closing"),
    ],
)
async def test_answers_about_a_message_decide_between_another_attempt_and_the_dead_letters(
    refused: dict[str, str], answers: list[str], kind: type[Verdict], text: str
) -> None:
    async with running_mail_server() as server:
        server.refused, server.answers = refused, type(server.answers)(answers)
        verdict = await verdict_of(server.port)
        assert type(verdict) is kind
        assert text in str(verdict)
        server.refused = {}
        await send(server.port)  # once more, as after a delay
    assert [letter.message["Message-ID"] for letter in server.letters] == ["<j.1@example.org>"]


@for_each("greeting", [b"554 not you\r\n", b"421 later\r\n", b"HTTP/1.1 400 Bad Request\r\n", b"", b"220"])
async def test_server_that_refuses_the_session_is_tried_again(greeting: bytes) -> None:
    async with saying(greeting) as port:
        assert type(await verdict_of(port)) is NoSession
    assert type(await verdict_of(port)) is NoSession, "nobody listens"


async def test_recipients_who_are_refused_are_in_the_result_and_the_others_get_it_once(server: MailServer) -> None:
    server.refused = {"nobody@example.org": "550 no such mailbox", "full@example.org": "452 over quota"}
    everybody = ["nobody@example.org", "ann@example.org", "full@example.org"]
    result = await send(server.port, LETTER | {"to": everybody})
    assert (result["accepted"], result["refused"]) == (["ann@example.org"], server.refused)
    assert [letter.recipients for letter in server.letters] == [["ann@example.org"]]


async def test_all_recipients_refused_are_tried_again_if_one_may_be_accepted_later(server: MailServer) -> None:
    server.refused = {"nobody@example.org": "550 no such mailbox", "full@example.org": "452 over quota"}
    assert type(await verdict_of(server.port, LETTER | {"to": list(server.refused)})) is MessageDeferred


async def test_server_that_hangs_is_left_after_the_bound(server: MailServer) -> None:
    server.answers.append(HANGS)
    assert type(await verdict_of(server.port, timeout_seconds=0.2)) is NoAnswerInTime


async def test_message_that_was_taken_counts_as_sent_even_if_the_server_hangs_afterwards(server: MailServer) -> None:
    server.refused["QUIT"] = HANGS
    assert (await send(server.port))["accepted"] == ["ann@example.org"]


async def test_cancelled_run_closes_its_connection(server: MailServer) -> None:
    server.answers.append(HANGS)
    running = asyncio.create_task(send(server.port))
    async with asyncio.timeout(60):
        while server.answers:
            await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    server.release.set()
    assert len(server.letters) <= 1


async def test_tls_is_used_if_it_is_offered_and_by_default_required_for_a_password(certificate: ssl.SSLContext) -> None:
    async with running_mail_server(certificate=certificate) as server:
        await send(server.port)
        await send(server.port, tls="none")
    assert server.has_tls == [True, False]
    async with running_mail_server() as plain:
        await send(plain.port, tls="opportunistic")
        for options in ({"tls": "require"}, LOGIN):
            verdict = await verdict_of(plain.port, **options)
            assert isinstance(verdict, NoSession)
            assert "STARTTLS" in str(verdict)
    assert plain.has_tls == [False]


@pytest.mark.filterwarnings(
    "ignore:Requiring AUTH while not requiring TLS"
)  # the server does not see that smtps is TLS
@for_each("smtps", [False, True])
async def test_login_is_made_over_tls_and_the_password_is_shown_nowhere(
    certificate: ssl.SSLContext, caplog: pytest.LogCaptureFixture, smtps: bool
) -> None:
    scheme = "smtps" if smtps else "smtp"
    caplog.set_level("DEBUG")
    async with running_mail_server(certificate=certificate, smtps=smtps, password=PASSWORD) as server:
        result = await send(server.port, scheme=scheme, **LOGIN)
        verdict = await verdict_of(server.port, scheme=scheme, user=USER, password_secret="wrong")
        without = await verdict_of(server.port, scheme=scheme)
    assert [letter.recipients for letter in server.letters] == [["ann@example.org"]]
    assert server.logins[0] == USER
    assert isinstance(verdict, NoSession), "a wrong password is the executor's fault, not the message's"
    assert str(verdict) == f"the server refuses this executor: 535 {USER} may not say [secret wrong]"
    assert isinstance(without, MessageRefused)
    logged = [record.getMessage() for record in caplog.records if record.name != "mail.log"]  # that is the server's
    assert PASSWORD not in f"{result} {verdict!r} {without!r} {logged}"


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
@for_each("scheme", ["smtp", "smtps"])
async def test_server_with_an_untrusted_certificate_gets_nothing(
    certificate: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    async with running_mail_server(certificate=certificate, smtps=scheme == "smtps", password=PASSWORD) as server:
        for host in ("localhost", "127.0.0.1"):
            with monkeypatch.context() as changed:
                if host == "localhost":
                    changed.delenv("SSL_CERT_FILE")
                verdict = await verdict_of(server.port, url=f"{scheme}://{host}:{server.port}", **LOGIN)
            assert isinstance(verdict, NoSession)
            assert "certificate" in str(verdict).lower()
    assert server.logins == []


@for_each(
    ("options", "text"),
    [
        ({"url": f"smtp://me:{PASSWORD}@h"}, "smtp: user and password do not belong in the URL; give --smtp-user"),
        ({"url": f"smtp://{PASSWORD}:587"}, "smtp: "),
        ({"url": "http://h"}, "smtp: not a URL as smtp://mail.internal:587"),
        ({"url": "smtp://"}, "smtp: not a URL"),
        ({"url": "smtp://h/path"}, "smtp: not a URL"),
        ({"url": "h:25"}, "smtp: not a URL"),
        ({"url": "smtp://h:70000"}, "smtp: the port"),
        ({"sender": "jobs"}, "smtp-from: 'jobs' is not one address"),
        ({"sender": "a@b.c\nX: y"}, "smtp-from: "),
        ({"allowed_senders": ["*"]}, "smtp-allow-from: '*' is not one address"),
        ({"url": "smtps://h", "tls": "none"}, "smtp-tls: smtps:// is encrypted"),
        ({"user": "u"}, "smtp-user: needs smtp-password-secret"),
        ({"password_secret": "smtp"}, "smtp-user: needs smtp-password-secret"),
        ({"user": "u", "password_secret": "no"}, "smtp-password-secret: the secret no is missing"),
        (LOGIN | {"tls": "opportunistic"}, "smtp-tls: a password would be sent in the clear"),
    ],
)
def test_settings_are_refused_by_name_and_without_a_password(options: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid) as raised:
        settings_of(25, **options)
    assert text in str(raised.value)
    assert PASSWORD not in str(raised.value)


@for_each(
    ("url", "server"),
    [
        ("smtp://h", ("h", 587, False)),
        ("smtps://H.example.org/", ("h.example.org", 465, True)),
        ("smtp://[::1]:25", ("::1", 25, False)),
    ],
)
def test_url_names_the_server(url: str, server: tuple[str, int, bool]) -> None:
    assert settings_of(0, url=url).server == server


async def test_secret_that_is_gone_is_no_fault_of_the_message(server: MailServer) -> None:
    environment = {"RAFTSCHED_SECRET_SMTP": PASSWORD}
    settings = settings_of(server.port, secrets=Secrets(environment=environment), **LOGIN)
    environment.clear()
    context = Context(job_id="j", run_id="j.1", fencing_token=7, attempt_number=1, name="email", queue="email")
    with pytest.raises(NoSession, match="the secret smtp is missing"):
        await EmailExecutor(settings).send(context, LETTER)
