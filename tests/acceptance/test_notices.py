"""Messages to the owner of a schedule on a real cluster, at a target that receives them."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import trustme

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.conftest import StartWorker
from tests.acceptance.http import ask, submit
from tests.acceptance.test_running import ended
from tests.acceptance.threads import in_thread
from tests.executors.email.mail_server import USER, running_mail_server
from tests.executors.http.target import Target, running_target


def test_schedule_that_fails_each_second_sends_one_message_and_one_when_it_has_recovered(
    cluster: LocalCluster, start_worker: StartWorker, queue: str
) -> None:
    with in_thread(running_target()) as target:
        failed, recovered = _messages_of_a_schedule(cluster, start_worker, queue, target)
    assert "is in the dead-letter queue (" in failed
    assert "succeeded; there were problems since" in recovered


def _messages_of_a_schedule(cluster: LocalCluster, start_worker: StartWorker, queue: str, target: Target) -> list[Any]:
    """Let a schedule fail thrice and succeed twice, and return the texts of the messages that its owner got."""
    start_worker(cluster, "--http", "--queue", queue, "--queue", "http", "--allow-target", "127.0.0.1")
    base = cluster.nodes[0].api
    call = {"url": f"{target.url}/status?code=404", "method": "PUT"}
    schedule = {
        "name": queue,
        "every": "1s",
        "job": {"http": call, "queue": queue},
        "notify": [{"on": ["dead_letter", "recovered"], "slack": f"{target.url}/echo"}],
    }
    ask(base, "POST", "/schedules", schedule)

    def run_count(status: str) -> int:
        return len(ask(base, "GET", f"/jobs?queue={queue}&status={status}")["jobs"])

    def messages() -> list[Any]:
        return [json.loads(request.body)["text"] for request in target.received if request.method == "POST"]

    cluster.wait_until(lambda: run_count("dead_letter") > 2, what="three runs to fail")
    assert [alarm["event"] for alarm in ask(base, "GET", f"/schedules/{queue}")["alarms"]] == ["dead_letter"]
    ask(base, "PATCH", f"/schedules/{queue}", {"job": {"http": {"url": f"{target.url}/status"}}})
    cluster.wait_until(lambda: run_count("completed") > 1, what="two runs to succeed")
    cluster.wait_until(lambda: len(messages()) > 1, what="the second message")
    ask(base, "DELETE", f"/schedules/{queue}")
    return messages()


def test_schedule_whose_run_fails_sends_one_mail_by_an_email_worker_and_its_password_is_recorded_nowhere(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, tmp_path: Path
) -> None:
    authority, certificate = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(certificate)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    base, password = cluster.nodes[0].api, "canary-of-the-password-of-a-mail-server"
    with in_thread(running_mail_server(certificate=certificate, password=password)) as server:
        server.answers.append("451 greylisted")
        start_worker(cluster)
        start_worker(
            *(cluster, "--email", "--smtp-from", "Jobs <jobs@example.org>"),
            *("--smtp-user", USER, "--smtp-password-secret", "smtp"),
            RAFTSCHED_SMTP_URL=f"smtp://localhost:{server.port}",
            RAFTSCHED_SECRET_SMTP=password,
            SSL_CERT_FILE=str(tmp_path / "ca.pem"),
        )
        schedule = {
            "name": queue,
            "every": "1s",
            "max_firings": 3,
            "job": {"name": "flaky", "queue": queue, "payload": {"failures": 9}, "max_attempts": 1},
            "notify": [{"on": ["dead_letter"], "email": {"to": ["ops@example.org"]}}],
        }
        ask(base, "POST", "/schedules", schedule)
        failed = f"/jobs?queue={queue}&status=dead_letter"
        cluster.wait_until(lambda: len(ask(base, "GET", failed)["jobs"]) == 3, what="three runs to fail")
        [notice] = ask(base, "GET", "/jobs?queue=email")["jobs"]
        sent = ended(cluster, notice["id"], "completed")
        refused = submit(base, name="email", payload={"to": "ops@example.org", "subject": "a\nBcc: x@example.org"})
        ended(cluster, refused["id"], "dead_letter")
    [letter] = server.letters
    message_id = f"<{notice['id']}.1@example.org>"
    assert sent["attempt_number"] == 2
    assert sent["result"] == {
        "message_id": message_id,
        "answer": "250 accepted as 7",
        "accepted": ["ops@example.org"],
        "refused": {},
    }
    assert (letter.recipients, letter.message["Message-ID"]) == (["ops@example.org"], message_id)
    assert letter.text.splitlines()[0] == letter.message["Subject"]
    assert f"Schedule {queue}: the run for" in letter.message["Subject"]
    assert "Error:      RuntimeError: attempt 1 fails" in letter.text
    assert server.has_tls == [True, True]
    records = [*tmp_path.glob("worker*.log"), *(p for node in cluster.nodes for p in node.data_directory.rglob("*"))]
    assert not any(password.encode() in path.read_bytes() for path in records if path.is_file())
