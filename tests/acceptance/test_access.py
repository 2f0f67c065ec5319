"""Tokens on a cluster of real nodes: each node knows them at once, and no file has them but the one of the admin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline
from raftsched.cli.local.cluster import LOOPBACK_TARGETS, LocalCluster
from raftsched.client import BlockingClient
from tests.acceptance.conftest import FAST, run_cli
from tests.acceptance.http import call
from tests.acceptance.test_failures import Submitter

Made = dict[str, Any]


class Tokens:
    """The tokens of the tests, made on one cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        assert cluster.token_file is not None
        self.cluster = cluster
        self.admin = cluster.token_file.read_text().strip()
        self.texts: list[str] = []

    def asked(self, url: str, token: str, path: str = "/jobs", *, method: str = "GET", body: Any = None) -> int:
        return call(url, method, f"/api/v1{path}", body, Authorization=f"Bearer {token}")[0]

    def ask(self, method: str, path: str, body: Any = None, *, node: int = 0, by: str = "") -> Any:
        url, token = self.cluster.urls[node], by or self.admin
        status, answer = call(url, method, f"/api/v1{path}", body, Authorization=f"Bearer {token}")
        assert status in (200, 201), answer
        return answer

    def made(self, role: str, tenant: str = "default", *, node: int = 0) -> Made:
        made: Made = self.ask("POST", "/tokens", {"role": role, "tenant": tenant}, node=node)
        self.texts.append(made["token"])
        return made

    def rotated(self, token: Made, **wanted: Any) -> str:
        text: str = self.ask("POST", f"/tokens/{token['id']}/rotate", wanted)["token"]
        self.texts.append(text)
        return text

    def statuses(self, token: str, path: str = "/jobs") -> list[int]:
        """Return how each node answers, in turn and without a wait."""
        return [self.asked(url, token, path) for url in self.cluster.urls]

    def client(self, token: str) -> BlockingClient:
        return BlockingClient(*self.cluster.urls, token=token)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    settings = FAST | {"http_targets": LOOPBACK_TARGETS, "executors": {"http": True}}
    with LocalCluster(tmp_path_factory.mktemp("access"), settings=settings, with_tokens=True) as cluster:
        cluster.wait_for_leader()
        for node in cluster.nodes:
            cluster.wait_until_ready(node)
        yield Tokens(cluster)


@pytest.fixture
def start_worker(tokens: Tokens) -> Iterator[Callable[[str, str], subprocess.Popen[bytes]]]:
    """Start a worker process of a queue with a token; its log is beside those of the nodes."""
    started: list[subprocess.Popen[bytes]] = []

    def start(queue: str, token: str) -> subprocess.Popen[bytes]:
        directory = tokens.cluster.directory
        told = {"RAFTSCHED_URL": " ".join(tokens.cluster.urls), "RAFTSCHED_TOKEN": token}
        told |= {"TEST_DIRECTORY": str(directory), "TEST_QUEUES": queue}
        with (directory / f"worker{len(list(directory.iterdir()))}.log").open("ab") as log:
            process = subprocess.Popen(  # our own module, by our own interpreter
                [
                    sys.executable,
                    "-m",
                    "raftsched",
                    "worker",
                    "--app",
                    "tests.acceptance.handlers:worker",
                    UNTIL_STDIN_ENDS,
                ],
                env=os.environ | told,
                cwd=Path(__file__).parents[2],
                stdin=lifeline(),
                stdout=log,
                stderr=log,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_token_counts_at_each_node_at_once_and_its_end_too_also_after_a_restart(tokens: Tokens) -> None:
    for node in range(3):
        made = tokens.made("viewer", node=node)
        paths = ("/jobs", "/cluster", "/openapi.json")
        assert [tokens.statuses(made["token"], path) for path in paths] == [[200] * 3] * 3
        tokens.ask("DELETE", f"/tokens/{made['id']}", node=(node + 1) % 3)
        assert tokens.statuses(made["token"]) == [401] * 3
    kept = tokens.made("viewer")["token"]
    for member in tokens.cluster.nodes:
        assert member.stop() == 0
        tokens.cluster.start_node(member)
        tokens.cluster.wait_until_ready(member)
    tokens.cluster.wait_for_leader()
    assert tokens.statuses(made["token"]) == [401] * 3
    assert tokens.statuses(kept) == [200] * 3


def test_last_use_of_a_token_is_known_also_if_only_a_follower_saw_it(tokens: Tokens) -> None:
    used, unused = tokens.made("viewer"), tokens.made("viewer")
    leader = tokens.cluster.wait_for_leader()
    follower = next(node for node in tokens.cluster.nodes if node is not leader)
    assert tokens.asked(follower.api, used["token"], "/jobs?consistency=stale") == 200

    def last_used(listed: Any) -> dict[str, Any]:
        return {token["id"]: token["last_used_at"] for token in listed}

    def is_noted() -> bool:
        return last_used(tokens.ask("GET", "/tokens?limit=1000")["tokens"])[used["id"]] is not None

    tokens.cluster.wait_until(is_noted, what="the use to be noted")
    listed = run_cli("token", "list", "--json", RAFTSCHED_URL=leader.api, RAFTSCHED_TOKEN=tokens.admin)
    found = last_used(json.loads(listed.stdout))
    assert (found[used["id"]][13:], found[unused["id"]]) == (":00:00.000Z", None)


def test_rotation_with_an_overlap_loses_no_request(tokens: Tokens) -> None:
    """Two programs that submit all the time: one takes the new text during the overlap, the other one is not told."""
    made = tokens.made("submitter")
    with tokens.client(made["token"]) as former:
        submitters = [Submitter(former, "rotation")]
        submitters[0].start()
        submitters[0].wait_for(tokens.cluster, 20)
        text = tokens.rotated(made, overlap_seconds=60)
        with tokens.client(text) as current:
            submitters.append(Submitter(current, "rotation"))
            submitters[1].start()
            for submitter in submitters:
                submitter.wait_for(tokens.cluster, len(submitter.acknowledged) + 20)
            ids = [job_id for submitter in submitters for job_id in submitter.stop()]
    listed = {job["id"] for job in tokens.ask("GET", "/jobs?queue=rotation&limit=1000")["jobs"]}
    assert listed == set(ids)
    assert tokens.statuses(tokens.rotated(made)) == [200] * 3
    assert tokens.statuses(text) == [401] * 3, "without an overlap the former text is refused at once"


class Target(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name is that of the base class
        del format, args


def test_executors_of_nodes_work_for_all_tenants(tokens: Tokens) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Target) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        body = {"http": {"method": "GET", "url": f"http://127.0.0.1:{server.server_port}/"}, "tenant": "acme"}
        job_id = tokens.ask("POST", "/jobs", body, by=tokens.made("submitter", "acme")["token"])["id"]
        tokens.cluster.wait_until(
            lambda: tokens.ask("GET", f"/jobs/{job_id}")["status"] == "completed", what="the request of the job"
        )
        server.shutdown()


def test_workers_of_two_tenants_get_only_the_jobs_of_their_own(
    tokens: Tokens, start_worker: Callable[[str, str], subprocess.Popen[bytes]]
) -> None:
    names = ("acme", "zeta")
    workers = {name: tokens.made("worker", name) for name in names}
    processes = {name: start_worker("shared-work", workers[name]["token"]) for name in names}
    submitters = {name: tokens.made("submitter", name)["token"] for name in names}
    viewers = {name: tokens.made("viewer", name)["token"] for name in names}
    for number in range(10):
        for text in submitters.values():
            tokens.ask("POST", "/jobs", {"name": "echo", "payload": number, "queue": "shared-work"}, by=text)

    def ended(name: str) -> list[Any]:
        jobs: list[Any] = tokens.ask("GET", "/jobs?queue=shared-work&status=completed", by=viewers[name])["jobs"]
        return jobs

    for name in names:
        tokens.cluster.wait_until(partial(lambda name: len(ended(name)) == 10, name), what=f"ten jobs of {name}")
        runs = [tokens.ask("GET", f"/jobs/{job['id']}/runs")["runs"] for job in ended(name)]
        assert {each["worker"].partition(":")[0] for [run] in runs for each in run["attempts"]} == {name}
    for process in processes.values():
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert not any(text.encode() in shown for text in tokens.texts)
    tokens.ask("DELETE", f"/tokens/{workers['acme']['id']}")
    tokens.ask("POST", "/jobs", {"name": "echo", "queue": "shared-work"}, by=submitters["acme"])
    assert processes["acme"].wait(90) not in (0, None), "a worker whose token was revoked ends"
    assert processes["zeta"].poll() is None


def test_command_line_finds_its_token_in_the_environment(tokens: Tokens) -> None:
    cluster = tokens.cluster
    environment = {"RAFTSCHED_URL": cluster.urls[0], "RAFTSCHED_TOKEN_FILE": str(cluster.token_file)}
    ran = run_cli("token", "create", "--role", "viewer", "--tenant", "acme", "--json", **environment)
    assert ran.returncode == 0, ran.stderr
    assert '"token"' in ran.stdout
    refused = run_cli("list", RAFTSCHED_URL=cluster.urls[0], RAFTSCHED_TOKEN="rs_nobody_canary-of-the-environment")
    assert (refused.returncode, "unauthorized" in refused.stderr) == (1, True), refused
    assert "canary" not in refused.stdout + refused.stderr


def test_no_file_has_a_token_but_that_of_the_admin(tokens: Tokens) -> None:
    """It runs last in its process: journals, states, snapshots and logs of what other tests did there, too."""
    for node in range(3):
        made = tokens.made("submitter", node=node)
        tokens.rotated(made, overlap_seconds=60)
        assert tokens.statuses(made["token"]) == [200, 200, 200]
    secrets = {text.split("_", 2)[-1] for text in tokens.texts} | {tokens.admin}
    files = [
        file for file in tokens.cluster.directory.rglob("*") if file.is_file() and file != tokens.cluster.token_file
    ]
    found = [(file.name, secret[:4]) for file in files for secret in secrets if secret.encode() in file.read_bytes()]
    assert (len(files) > 10, found) == (True, [])
