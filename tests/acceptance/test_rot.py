"""A state that is not what was written, or not what the others have: nothing of it is served, and everybody says so."""

from __future__ import annotations

import json

from raftsched.cli.local.cluster import LocalNode
from raftsched.storage.store.lmdb_store import DATA_FILE, open_store
from raftsched.storage.store.port import Table
from tests.acceptance.conftest import StartCluster, run_cli
from tests.acceptance.http import call, call_once
from tests.acceptance.test_membership import add, follower_of, others, remove, retire, says

EXIT_FAULT = 70


def logged(node: LocalNode, event: str) -> list[dict[str, object]]:
    lines = node.log_file.read_text(encoding="utf-8").splitlines()
    return [entry for line in lines if line.startswith("{") and (entry := json.loads(line))["event"] == event]


def state_of(node: LocalNode, seen_by: LocalNode) -> str:
    nodes = seen_by.get("/api/v1/cluster")["nodes"]
    return next((each["state"] for each in nodes if each["id"] == node.id), "")


def test_a_node_whose_state_differs_serves_nothing_and_everybody_says_so(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    job = call(cluster.nodes[0].api, "POST", "/api/v1/jobs", {"name": "later", "delay_seconds": 3_600})[1]
    wrong = follower_of(cluster)
    wrong.stop()
    store = open_store(wrong.data_directory / "state")
    store.put(Table.PAYLOADS, b"\xff" * 16, b'"no entry of the log has brought this"')
    store.commit()
    store.close()
    cluster.start_node(wrong)
    says(cluster, wrong, "have")
    for leader in (other for other in others(cluster, wrong)):
        cluster.wait_until(lambda leader=leader: state_of(wrong, leader) == "differs", what="the others to say so")  # type: ignore[misc]
    assert logged(wrong, "state_differs")
    assert any(logged(other, "member_differs") for other in others(cluster, wrong))
    status, problem = call_once(wrong.api, "GET", f"/api/v1/jobs/{job['id']}?consistency=stale")
    assert (status, problem["code"]) == (503, "unavailable")
    assert "NEW id" in problem["detail"]
    shown = run_cli("cluster", "status", RAFTSCHED_URL=others(cluster, wrong)[0].api)
    assert "differs" in shown.stdout
    call(cluster.wait_for_leader().api, "POST", "/api/v1/cluster/transfer", {})
    assert cluster.wait_for_leader() is not wrong
    wrong.stop()
    cluster.start_node(wrong)
    says(cluster, wrong, "digest")
    remove(cluster, wrong)
    retire(cluster, wrong)
    add(cluster, cluster.new_node())


def test_a_flipped_bit_stops_a_node_where_it_is_read_and_is_not_served(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    leader = cluster.wait_for_leader()
    order = {"name": "pay", "payload": {"to": "account-7777"}, "delay_seconds": 3_600}
    job = call(leader.api, "POST", "/api/v1/jobs", order)[1]
    rotten = follower_of(cluster)
    read = f"/api/v1/jobs/{job['id']}?consistency=stale"
    cluster.wait_until(lambda: call_once(rotten.api, "GET", read)[0] == 200, what="the follower to have the job")
    rotten.stop()
    file = rotten.data_directory / "state" / DATA_FILE
    data = file.read_bytes()
    assert b"account-7777" in data
    file.write_bytes(data.replace(b"account-7777", b"account-?777"))
    rotten.start(cluster.config)
    served = None
    while rotten.is_running and served is None:
        try:
            status, answer = call_once(rotten.api, "GET", read, timeout=2)
        except OSError:
            continue
        served = answer if status == 200 else None
    assert served is None
    assert rotten.wait(timeout=30) == EXIT_FAULT
    assert "payloads" in rotten.last_words()
    assert "NEW id" in rotten.last_words()
    remove(cluster, rotten)
    retire(cluster, rotten)
    add(cluster, cluster.new_node())
