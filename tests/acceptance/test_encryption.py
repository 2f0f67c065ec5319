"""Keys of encryption at rest are needed, can be replaced under load, and cover what was stored before."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import BlockingClient
from tests.acceptance.canaries import Canaries
from tests.acceptance.conftest import StartCluster, run_cli
from tests.acceptance.http import ask
from tests.acceptance.test_failures import Submitter
from tests.acceptance.test_membership import add, says

QUEUE = "secret-work"


def write_keys(path: Path, *ids: str, secret: bytes | None = None) -> dict[str, str]:
    """Write a keys file, and return the setting that names it."""
    path.touch(mode=0o600)
    lines = [f"{key_id} {base64.b64encode(secret or key_id.encode() * 16).decode()}" for key_id in ids]
    path.write_text("# keys of the test\n" + "\n".join(lines) + "\n")
    return {"keys_file": str(path)}


def restart(cluster: LocalCluster) -> None:
    """Restart the nodes one by one."""
    for node in cluster.nodes:
        assert node.stop() == 0
        cluster.start_node(node)
        cluster.wait_until_ready(node)


def statuses(cluster: LocalCluster) -> Iterator[dict[str, Any]]:
    for node in cluster.nodes:
        yield node.get("/api/v1/cluster/encryption")


def test_keys_are_rotated_under_load_and_a_kill_and_are_never_given_up_in_silence(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    cluster = start_cluster(encryption=write_keys(keys, "k1"))
    urls = " ".join(cluster.urls)
    payload = {"to": "canary-of-rotation"}
    with BlockingClient(*cluster.urls) as client:
        first = [result["id"] for result in ask(cluster.urls[0], "POST", "/jobs/batch", _batch(payload))["results"]]
        submitter = Submitter(client, QUEUE)
        submitter.start()
        try:
            write_keys(keys, "k2", "k1")
            for node in cluster.nodes:
                node.signal(signal.SIGHUP)
            switched = {("k2", "incomplete")}
            cluster.wait_until(
                lambda: {(each["key"], each["state"]) for each in statuses(cluster)} == switched, what="the new key"
            )
            begun = run_cli("encryption", "rotate", "--no-wait", RAFTSCHED_URL=urls)
            assert begun.returncode == 0, begun.stderr
            leader = cluster.wait_for_leader()
            leader.kill()
            cluster.wait_for_leader()
            cluster.start_node(leader)
            cluster.wait_until_ready(leader)
            rotated = run_cli("encryption", "rotate", RAFTSCHED_URL=urls)
            assert rotated.returncode == 0, rotated.stderr
        finally:
            acknowledged = submitter.stop()
        for status in statuses(cluster):
            needed = {key["id"]: key["needed"] for key in status["keys"]}
            assert (status["state"], status["plain_rows"], needed) == ("complete", 0, {"k2": True, "k1": False})
        write_keys(keys, "k2")
        restart(cluster)
        add(cluster, cluster.new_node())  # its log begins behind what the others have dropped, so it gets a snapshot
        assert {client.get(job_id).payload["to"] for job_id in first[::50]} == {"canary-of-rotation"}
        assert [client.get(job_id).payload for job_id in acknowledged] == list(range(len(acknowledged)))
    shown_status = run_cli("encryption", "status", "--json", RAFTSCHED_URL=urls)
    assert shown_status.returncode == 0, shown_status.stderr
    assert [node["state"] for node in json.loads(shown_status.stdout)["nodes"]] == ["complete"] * 4
    assert "snapshot_copied" in "".join(node.log_file.read_text() for node in cluster.nodes)
    _is_refused_without_its_key(cluster, keys)


def _batch(payload: Any) -> dict[str, Any]:
    return {"jobs": [{"name": "echo", "queue": "kept", "payload": payload}] * 1_000}


def _is_refused_without_its_key(cluster: LocalCluster, keys: Path) -> None:
    """A node whose keys file lacks a key, has other bytes under its id, or is missing, names it and does not start."""
    node = cluster.nodes[0]
    assert node.stop() == 0
    before = {file: file.read_bytes() for file in node.data_directory.rglob("*") if file.is_file()}
    for ids, secret, reason in ((["k1"], None, "has only k1"), (["k2"], b"9" * 32, "other bytes under that id")):
        write_keys(keys, *ids, secret=secret)
        node.start(cluster.config)
        assert node.wait(30) == 70
        assert reason in node.last_words()
        assert "k2" in node.last_words()
    settings = cluster.config.read_text()
    cluster.config.write_text(settings.replace(str(keys), ""))
    node.start(cluster.config)
    assert node.wait(30) == 70
    assert "encryption.keys_file is not set" in node.last_words()
    assert {file: file.read_bytes() for file in node.data_directory.rglob("*") if file.is_file()} == before
    cluster.config.write_text(settings)
    write_keys(keys, "k2")
    cluster.start_node(node)
    cluster.wait_until_ready(node)


def test_encryption_is_turned_on_for_nodes_that_run_and_covers_what_they_hold(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    cluster = start_cluster(encryption={"keys_file": ""})
    canary = Canaries()
    ask(cluster.urls[0], "POST", "/jobs", {"name": "x", "queue": "kept", "payload": canary("old")})
    settings = cluster.config.read_text()
    write_keys(keys, "k1")
    cluster.config.write_text(settings.replace('keys_file = ""', f'keys_file = "{keys}"'))
    first, *others = cluster.nodes
    assert first.stop() == 0
    cluster.start_node(first)
    cluster.wait_until_ready(first)
    leader = cluster.wait_for_leader()
    while leader is not first:
        ask(leader.api, "POST", "/cluster/transfer")
        leader = cluster.wait_for_leader()
    for node in others:
        says(cluster, node, "this node encrypts nothing")
        assert node.stop() == 0
        cluster.start_node(node)
        cluster.wait_until_ready(node)
    done = run_cli("encryption", "rotate", RAFTSCHED_URL=" ".join(cluster.urls))
    assert done.returncode == 0, done.stderr
    ask(cluster.wait_for_leader().api, "POST", "/jobs", {"name": "x", "queue": "kept", "payload": canary("new")})
    cluster.stop()
    for node in cluster.nodes:
        compacted = run_cli("compact", "--data-dir", str(node.data_directory), "--keys-file", str(keys))
        assert compacted.returncode == 0, compacted.stderr
        assert canary.found_below(node.data_directory) == set()
    cluster.start()
    cluster.wait_for_leader()
    jobs = "/api/v1/jobs?queue=kept&consistency=stale"
    cluster.wait_until(lambda: len(canary.found_in(str(first.get(jobs)))) == 2, what="both texts to be shown")
