"""TLS on both ports of real nodes: every way to them, and new certificates and authorities while requests run."""

from __future__ import annotations

import http.server
import json
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from raftsched.cli.local.cluster import LOOPBACK_TARGETS, LocalCluster, LocalNode
from raftsched.client import BlockingClient
from raftsched.errors import RaftschedError
from raftsched.node.check import check_directories
from tests.acceptance.conftest import FAST, StartCluster, StartWorker, run_cli
from tests.acceptance.http import call_once
from tests.acceptance.test_failures import Submitter
from tests.secured import SecuredCluster

QUEUE = "tls"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    settings = FAST | {"executors": {"http": True}, "http_targets": LOOPBACK_TARGETS}
    with SecuredCluster(tmp_path / "cluster", settings=settings) as made:
        made.wait_for_leader()
        for node in made.nodes:
            made.wait_until_ready(node)
        yield made
    directories = [node.data_directory for node in made.nodes]
    assert check_directories(directories).violations == ()


class Load:
    """Requests that run until this is left: what was acknowledged, and what failed."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self._cluster = cluster
        self._is_over = threading.Event()
        self.acknowledged: list[str] = []
        self.faults: list[str] = []
        self._threads = [threading.Thread(target=self._client)]
        self._threads += [threading.Thread(target=self._connections, args=(node,)) for node in cluster.nodes]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(30)

    def _client(self) -> None:
        """Submit over kept connections."""
        with BlockingClient(*self._cluster.urls, ca_file=self._cluster.trusted) as client:
            while not self._is_over.is_set():
                try:
                    self.acknowledged.append(client.submit("echo", {"n": 1}, queue=QUEUE).id)
                except RaftschedError as error:
                    self.faults.append(f"client: {error}")
                self._is_over.wait(0.02)

    def _connections(self, node: LocalNode) -> None:
        """Submit to one node, a new connection each time; two of three are forwarded."""
        job = {"name": "echo", "payload": {"n": 1}, "queue": QUEUE}
        while not self._is_over.is_set():
            try:
                tls = self._cluster.client_context()
                status, answer = call_once(node.api, "POST", "/api/v1/jobs", job, tls=tls)
            except OSError as error:
                self.faults.append(f"{node.id}: {error}")
                continue
            if status == 201:
                self.acknowledged.append(answer["id"])
            else:
                self.faults.append(f"{node.id}: {status} {answer}")
            self._is_over.wait(0.05)


@pytest.mark.essential
def test_certificates_and_the_authority_are_replaced_under_load_and_nothing_is_lost(
    cluster: SecuredCluster, start_worker: StartWorker
) -> None:
    start_worker(cluster, RAFTSCHED_CA_FILE=str(cluster.trusted), TEST_QUEUES=QUEUE)
    first = shown_by(cluster.nodes[0])
    with Load(cluster) as load:
        wait_for(lambda: len(load.acknowledged) > 20, "requests to run")
        cluster.issue("ca1")
        cluster.wait_for_renewals(1)  # found by looking, without a signal
        assert shown_by(cluster.nodes[0]) != first
        steps: list[Callable[[], object]] = [
            lambda: cluster.trust("ca1", "ca2"),
            lambda: cluster.issue("ca2"),
            lambda: cluster.trust("ca2"),
        ]
        for number, step in enumerate(steps, start=2):
            step()
            cluster.hang_up()
            cluster.wait_for_renewals(number)
            seen = len(load.acknowledged)
            wait_for(lambda seen=seen: len(load.acknowledged) > seen + 20, "requests to run")
    assert load.faults == []
    with BlockingClient(*cluster.urls, ca_file=cluster.trusted) as client:
        for job_id in load.acknowledged:
            client.wait(job_id, timeout=30)

        # Links that begin now use the new files, on both sides, and whoever has the old ones is nobody.
        victim = next(node for node in cluster.nodes if not node.says_it_leads())
        victim.kill()
        cluster.start_node(victim)
        cluster.wait_until_ready(victim)
        client.submit("echo", {"n": 1}, queue=QUEUE).wait(timeout=30)
    old_authority = cluster.files / "ca1" / "ca.crt"
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        call_once(victim.api, "GET", "/healthz", tls=ssl.create_default_context(cafile=old_authority))
    assert "certificates_refused" not in "".join(node.log_file.read_text() for node in cluster.nodes)


def wait_for(happened: Any, what: str) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)


def shown_by(node: LocalNode) -> str:
    """The certificate that a node's API shows to a new connection."""
    host, port = node.api.removeprefix("https://").split(":")
    return ssl.get_server_certificate((host, int(port)))


def test_every_way_to_the_cluster_works_by_https_only(cluster: SecuredCluster, tmp_path: Path) -> None:
    node = cluster.nodes[0]
    trusting = {"RAFTSCHED_URL": node.api, "RAFTSCHED_CA_FILE": str(cluster.trusted)}
    submitted = run_cli("submit", "echo", "{}", "--queue", "nobody", "--json", **trusting)
    assert submitted.returncode == 0, submitted.stderr
    job = json.loads(submitted.stdout)["id"]
    by_option = run_cli("get", job, "--url", node.api, "--ca-file", str(cluster.trusted), "--json")
    assert json.loads(by_option.stdout)["id"] == job
    status = run_cli("cluster", "status", "--json", **trusting)
    assert {each["api"] for each in json.loads(status.stdout)["nodes"]} == set(cluster.urls)
    assert run_cli("healthcheck", node.api, **trusting).returncode == 0
    assert "certificate verify failed" in run_cli("healthcheck", node.api).stderr
    assert run_cli("healthcheck", node.api.removeprefix("https://"), **trusting).returncode == 1
    with received_requests() as (url, received), BlockingClient(node.api, ca_file=cluster.trusted) as client:
        client.http(url, body={"sent": "by an executor"}).wait(timeout=30)
        assert received == [b'{"sent":"by an executor"}']
    host, port = node.api.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(ConnectionError):
            assert b"HTTP" not in plain.recv(4096)


@contextmanager
def received_requests() -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a server on loopback, and the bodies that it has received."""
    received: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", received
        server.shutdown()
        thread.join()


def test_a_cluster_with_a_secret_serves_replaces_it_and_is_deaf_to_others(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    secret, old, new = tmp_path / "secret", "o" * 40, "n" * 40
    secret.write_text(old)
    cluster = start_cluster(cluster_secret_file=str(secret))
    cluster.wait_for_leader()
    with BlockingClient(*cluster.urls) as client:
        submitter = Submitter(client, "nobody")
        submitter.start()
        try:
            for linked, lines in zip(cluster.nodes, ((old, new), (new, old), (new,)), strict=True):
                for node in cluster.nodes:
                    secret.write_text("\n".join(lines))  # only this node reads it now
                    reread(node)
                    if node is linked:  # to nodes of which none, some, or all have the same lines
                        link_again(cluster, node)
                        submitter.wait_for(cluster, len(submitter.acknowledged))
                    secret.write_text("not read by anybody")
            secret.write_text(new)
            of_a_stranger = tmp_path / "stranger"
            of_a_stranger.write_text(old)
            stranger = cluster.new_node()
            assert stranger.own_config is not None
            config = stranger.own_config.read_text()
            stranger.own_config.write_text(config.replace(str(secret), str(of_a_stranger)))
            stranger.start(cluster.config)
            wait_for(lambda: "wrong_mac" in stranger.log_file.read_text(), "the stranger to be refused")
        finally:
            acknowledged = submitter.stop()
        assert [client.get(job_id).payload for job_id in acknowledged] == list(range(len(acknowledged)))
        assert len(client.cluster()["nodes"]) == 3
        assert "peer_up" not in stranger.log_file.read_text()
    stranger.kill()
    cluster.nodes.remove(stranger)


def reread(node: LocalNode) -> None:
    """Let a node read its settings again, which have other secrets."""
    before = node.log_file.read_text().count('"cluster_secret_file"')
    node.signal(signal.SIGHUP)
    wait_for(lambda: node.log_file.read_text().count('"cluster_secret_file"') > before, "other secrets")


def link_again(cluster: LocalCluster, node: LocalNode) -> None:
    """Pause a node until the others have cut their links to it, which are replaced by new ones then."""

    def count(event: str) -> int:
        return sum(other.log_file.read_text().count(f'"{event}"') for other in cluster.nodes if other is not node)

    downs, ups = count("peer_down"), count("peer_up")
    node.signal(signal.SIGSTOP)
    wait_for(lambda: count("peer_down") >= downs + 2, "both others to be without it")
    node.signal(signal.SIGCONT)
    wait_for(lambda: count("peer_up") >= ups + 2, "both others to be linked to it")
