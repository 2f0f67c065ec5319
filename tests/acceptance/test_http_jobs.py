"""HTTP jobs on a real cluster: executor processes, and a target that misbehaves on demand."""

from __future__ import annotations

import signal
import ssl
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trustme

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.conftest import StartWorker
from tests.acceptance.http import ask, call, job_of, submit
from tests.acceptance.test_running import ended
from tests.acceptance.threads import in_thread
from tests.executors.http.target import Target, running_target

CANARY = "canary-of-a-secret-that-nobody-may-see"


@pytest.fixture
def target() -> Iterator[Target]:
    with in_thread(running_target()) as running:
        yield running


def attempts(base: str, job_id: str) -> Any:
    return ask(base, "GET", f"/jobs/{job_id}/runs")["runs"][0]["attempts"]


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_http_job_is_sent_with_the_identity_of_its_run_and_its_secret_is_recorded_nowhere(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, target: Target, tmp_path: Path
) -> None:
    environment = {"RAFTSCHED_SECRET_TOKEN": CANARY, "RAFTSCHED_HTTP_ALLOW": "127.0.0.1"}
    start_worker(cluster, "--http", "--queue", queue, **environment)
    base = cluster.nodes[1].api
    http = {"url": f"{target.url}/echo", "body": {"run": "{{run_id}}"}, "bearer": {"secret": "token"}}
    job = ended(cluster, submit(base, queue=queue, http=http)["id"], "completed")
    failing = http | {"url": f"{target.url}/echo?code=404"}
    ended(cluster, submit(base, queue=queue, http=failing)["id"], "dead_letter")
    request = target.received[0]
    run_id = f"{job['id']}.1"
    assert request.headers["idempotency-key"] == request.headers["raftsched-run-id"] == run_id
    assert request.headers["raftsched-attempt"] == "1"
    assert int(request.headers["raftsched-fencing-token"]) > 0
    assert request.headers["authorization"] == f"Bearer {CANARY}"
    assert request.body.decode() == f'{{"run":"{run_id}"}}'
    result = job["result"]
    assert isinstance(result, dict)
    assert (result["status"], result["address"]) == (200, "127.0.0.1")
    assert "[secret token]" in result["body"]
    records = [*tmp_path.glob("worker*.log"), *(p for node in cluster.nodes for p in node.data_directory.rglob("*"))]
    read = [path.read_bytes() for path in records if path.is_file()]
    assert any(b"[secret token]" in content for content in read), "otherwise this looks at the wrong files"
    assert not any(CANARY.encode() in content for content in read)


def test_https_is_for_the_name_and_by_an_authority_that_the_executor_trusts(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, tmp_path: Path
) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    start_worker(
        cluster, "--http", "--queue", queue, "--allow-target", "127.0.0.1", SSL_CERT_FILE=str(tmp_path / "ca.pem")
    )
    base = cluster.nodes[0].api
    with in_thread(running_target(certificate=context)) as target:
        urls = {host: f"https://{host}:{target.port}/status" for host in ("localhost", "127.0.0.1")}
        jobs = {host: submit(base, queue=queue, http={"url": url}, max_attempts=1) for host, url in urls.items()}
        assert ended(cluster, jobs["localhost"]["id"], "completed")["result"]["address"] == "127.0.0.1"  # type: ignore[index]
        ended(cluster, jobs["127.0.0.1"]["id"], "dead_letter")
    [attempt] = attempts(base, jobs["127.0.0.1"]["id"])
    assert (attempt["error"]["type"], len(target.received)) == ("HttpConnection", 1)


def test_responses_decide_between_success_another_attempt_and_the_dead_letters(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, target: Target
) -> None:
    start_worker(cluster, "--http", "--queue", queue, "--allow-target", "127.0.0.0/8", "--deny-target", "127.0.0.9")
    base = cluster.nodes[0].api
    options = {
        "queue": queue,
        "max_attempts": 2,
        "retry_policy": {"backoff": "fixed", "base_seconds": 0.1, "jitter": 0},
    }
    urls = {
        "asked to wait": f"{target.url}/attempts?code=503&h=" + quote("Retry-After: 2"),
        "answer lost": f"{target.url}/attempts?lost=1",
        "not found": f"{target.url}/status?code=404",
        "always busy": f"{target.url}/status?code=503",
        "inner": "http://10.0.0.1/",
        "name of an inner address": f"http://localhost:{base.rpartition(':')[2]}/api/v1/jobs",
        "denied": f"http://127.0.0.9:{target.port}/status",
        "a node": f"{base}/api/v1/jobs",
        "redirect to a node": f"{target.url}/status?code=307&h=" + quote(f"Location: {base}/api/v1/jobs"),
        "no secret": f"{target.url}/status?never=sent",
    }
    for url in ("http://169.254.169.254/latest/meta-data/", "http://2130706433/", "file:///etc/passwd"):
        status, problem = call(base, "POST", "/api/v1/jobs", {"http": {"url": url}})
        assert (status, problem["field"]) == (422, "http.url"), problem
    jobs = {
        name: submit(base, http={"url": url, "max_redirects": 1} | ({"signing_secret": "x"} if name == "no secret" else {}),
                     **options)
        for name, url in urls.items()
    }  # fmt: skip
    found: dict[str, Any] = {name: ended(cluster, job["id"], "completed", "dead_letter") for name, job in jobs.items()}
    assert {name: (job["status"], job["attempt_number"], job["failure_reason"]) for name, job in found.items()} == {
        "asked to wait": ("completed", 2, None),
        "answer lost": ("completed", 2, None),
        "not found": ("dead_letter", 1, "rejected"),
        "always busy": ("dead_letter", 2, "attempts_exhausted"),
        "inner": ("dead_letter", 1, "target_refused"),
        "name of an inner address": ("dead_letter", 1, "target_refused"),
        "denied": ("dead_letter", 1, "target_refused"),
        "a node": ("dead_letter", 1, "target_refused"),
        "redirect to a node": ("dead_letter", 1, "target_refused"),
        "no secret": ("dead_letter", 1, "rejected"),
    }
    first, second = attempts(base, jobs["asked to wait"]["id"])
    assert seconds(second["started_at"]) - seconds(first["ended_at"]) >= 2
    types = {
        name: attempts(base, jobs[name]["id"])[-1]["error"]["type"] for name in ("not found", "a node", "no secret")
    }
    assert types == {"not found": "HttpStatus", "a node": "TargetRefused", "no secret": "HttpCall"}
    assert not any("never=sent" in request.target for request in target.received)


def test_answers_that_never_end_and_replies_that_are_no_http_end_the_attempt_in_bounds(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, target: Target
) -> None:
    start_worker(cluster, "--http", "--queue", queue, "--allow-target", "127.0.0.1")
    base = cluster.nodes[0].api
    expected: dict[str, str | None] = {
        "hang": "HttpTimeout",
        "drip?part=head": "HttpTimeout",
        "drip?part=body": "HttpTimeout",
        "endless?part=head": "HttpConnection",
        "raw?bytes=" + quote("no HTTP at all\r\n\r\n"): "HttpConnection",
        "endless?part=body": None,
        "bomb": None,
    }
    jobs = {
        path: submit(base, queue=queue, http={"url": f"{target.url}/{path}", "timeout_seconds": 2}, max_attempts=1)
        for path in expected
    }
    found: dict[str, Any] = {path: ended(cluster, job["id"], "completed", "dead_letter") for path, job in jobs.items()}
    assert {path: job["error"] and job["error"]["type"] for path, job in found.items()} == expected
    for path in ("endless?part=body", "bomb"):
        result = found[path]["result"]
        size = {"text": 64 * 1024, "base64": 87_384}[result["body_encoding"]]
        assert (result["truncated"], len(result["body"])) == (True, size), path


def test_redirects_are_judged_hop_by_hop_and_credentials_stay_with_their_host(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, target: Target
) -> None:
    start_worker(cluster, "--http", "--queue", queue, "--allow-target", "127.0.0.1", RAFTSCHED_SECRET_TOKEN=CANARY)
    base = cluster.nodes[0].api

    def redirected(location: str) -> str:
        return f"{target.url}/status?code=307&h=" + quote(f"Location: {location}")

    with in_thread(running_target()) as other:
        urls = {
            "elsewhere": redirected(f"{other.url}/status"),
            "inner": redirected("http://169.254.169.254/latest/meta-data/"),
            "spelled": redirected("http://0x7f.1/"),
            "too far": redirected(redirected(redirected(f"{other.url}/status?never=sent"))),
        }
        http = {"bearer": {"secret": "token"}, "headers": {"X-Key": "k"}, "max_redirects": 1}
        jobs = {name: submit(base, queue=queue, http=http | {"url": url}, max_attempts=1) for name, url in urls.items()}
        found: dict[str, Any] = {
            name: ended(cluster, job["id"], "completed", "dead_letter") for name, job in jobs.items()
        }
        [request] = other.received
    assert {name: job["failure_reason"] for name, job in found.items()} == {
        "elsewhere": None,
        "inner": "target_refused",
        "spelled": "target_refused",
        "too far": "rejected",
    }
    assert not {"authorization", "x-key"} & request.headers.keys()
    assert all(each.headers["authorization"] == f"Bearer {CANARY}" for each in target.received if "code" in each.target)


def test_line_breaks_and_headers_of_others_are_refused_and_the_rest_arrives_as_it_is(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, target: Target
) -> None:
    start_worker(cluster, "--http", "--queue", queue, "--allow-target", "127.0.0.1")
    base, url = cluster.nodes[0].api, f"{target.url}/status"
    for http in (
        {"headers": {"X-A": "b\r\nX-Evil: 1"}},
        {"headers": {"X-A\r\nX-Evil": "1"}},
        {"headers": {"Content-Length": "5"}},
        {"headers": {f"X-{number}": "x" * 8_000 for number in range(200)}},
        {"method": "GET / HTTP/1.1\r\nX: y"},
        {"url": f"{url} HTTP/1.1\r\nX: y"},
    ):
        status, problem = call(base, "POST", "/api/v1/jobs", {"queue": queue, "http": {"url": url} | http})
        assert status in (400, 413, 422), (http, problem)
        assert problem["field"].startswith("http"), problem
    job = submit(base, queue=queue, http={"url": url, "headers": {"X-A": "b"}})
    ended(cluster, job["id"], "completed")
    [request] = target.received
    own = {name for name in request.headers if name.startswith("raftsched-")}
    assert request.headers.keys() - own == {
        "host", "user-agent", "accept", "accept-encoding", "content-length", "x-a", "idempotency-key",
    }  # fmt: skip


def test_schedule_sends_a_request_at_each_fire_time(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, target: Target
) -> None:
    start_worker(cluster, "--http", "--queue", queue, "--allow-target", "127.0.0.1")
    base = cluster.nodes[2].api
    job = {"queue": queue, "http": {"url": f"{target.url}/status", "body": "{{fire_time}}"}}
    timing = {"every": "1s", "overlap": "buffer_all"}  # no fire time is skipped, however long the worker takes to start
    schedule = ask(base, "POST", "/schedules", {"name": queue, "job": job} | timing)
    cluster.wait_until(lambda: len(target.received) >= 2, what="two requests")
    ask(base, "DELETE", f"/schedules/{schedule['id']}")
    times = [request.headers["raftsched-scheduled-at"] for request in target.received[:2]]
    assert [request.body.decode() for request in target.received[:2]] == times
    assert seconds(times[1]) - seconds(times[0]) == 1


def test_cancel_ends_a_request_whose_target_hangs(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, target: Target
) -> None:
    start_worker(cluster, "--http", "--queue", queue, "--allow-target", "127.0.0.1")
    base = cluster.nodes[0].api
    job = submit(base, queue=queue, http={"url": f"{target.url}/hang", "timeout_seconds": 600})
    cluster.wait_until(lambda: target.hanging == 1, what="the request")
    ask(base, "DELETE", f"/jobs/{job['id']}")
    ended(cluster, job["id"], "cancelled")
    cluster.wait_until(lambda: target.closed_count == 1, what="the end of the connection")


def test_target_that_accepts_a_request_reports_its_outcome_at_any_node_though_executor_and_leader_are_gone(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, target: Target
) -> None:
    executor = start_worker(cluster, "--http", "--queue", queue, "--allow-target", "127.0.0.1")
    base = cluster.nodes[0].api
    http = {"url": f"{target.url}/status?code=202", "completion": "callback"}
    job = submit(base, queue=queue, http=http, timeout_seconds=600)

    def awaits() -> bool:
        reasons = ask(base, "GET", f"/jobs/{job['id']}/explain")["reasons"]
        return [reason["code"] for reason in reasons] == ["awaiting_callback"]

    cluster.wait_until(awaits, what="the run to await the report of its target")
    executor.kill()
    executor.wait()
    leader = cluster.wait_for_leader()
    leader.kill()
    survivor = next(node for node in cluster.nodes if node is not leader)
    cluster.start_node(leader)
    cluster.wait_until_ready(leader)
    [request] = target.received
    token = {"Raftsched_Callback_Token": request.headers["raftsched-callback-token"]}
    path = f"/runs/{request.headers['raftsched-run-id']}/complete"
    for _ in "12":
        assert ask(survivor.api, "POST", path, {"result": {"rows": 3}}, **token)["accepted"] is True
    assert ended(cluster, job["id"], "completed")["result"] == {"rows": 3}
    assert len(attempts(survivor.api, job["id"])) == len(target.received) == 1


def test_each_request_arrives_although_the_leader_and_an_executor_are_killed(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, target: Target
) -> None:
    """The target counts by run id, and could reject tokens that do not rise."""
    count = 300
    workers = [start_worker(cluster, "--http", "--queue", queue, "--allow-target", "127.0.0.1") for _ in range(2)]
    base = cluster.nodes[0].api
    body = {"jobs": [{"queue": queue, "http": {"url": f"{target.url}/status"}, "max_attempts": 9}] * count}
    results = ask(base, "POST", "/jobs/batch", body)["results"]
    cluster.wait_until(lambda: len(target.received) >= count // 10, what="the first requests")
    workers[0].send_signal(signal.SIGKILL)
    cluster.wait_for_leader().kill()
    running = next(node.api for node in cluster.nodes if node.is_running)
    for result in results:
        cluster.wait_until(
            lambda job_id=result["id"]: job_of(running, job_id)["status"] == "completed",  # type: ignore[misc]
            what="the job to complete",
            seconds=60,
        )
    tokens: dict[str, list[int]] = {}
    for request in target.received:
        tokens.setdefault(request.headers["idempotency-key"], []).append(
            int(request.headers["raftsched-fencing-token"])
        )
    assert tokens.keys() == {f"{result['id']}.1" for result in results}
    assert Counter(len(set(each)) == len(each) for each in tokens.values()) == {True: count}
