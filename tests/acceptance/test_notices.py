"""Messages to the owner of a schedule on a real cluster, at a target that receives them."""

from __future__ import annotations

import json
from typing import Any

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.conftest import StartWorker
from tests.acceptance.http import ask
from tests.acceptance.test_http_jobs import serving
from tests.executors.http.target import Target


def test_schedule_that_fails_each_second_sends_one_message_and_one_when_it_has_recovered(
    cluster: LocalCluster, start_worker: StartWorker, queue: str
) -> None:
    with serving() as target:
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
