"""Nodes are added, removed and replaced under load; a node that lost its disk takes no part under its old id."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from raftsched.cli.local.cluster import HOST, LocalCluster, LocalNode, free_ports
from raftsched.client import BlockingClient
from tests.acceptance.conftest import StartCluster, StartWorker, run_cli
from tests.acceptance.http import call, call_once
from tests.acceptance.test_failures import Submitter, completed

ClientOf = Callable[[LocalCluster], BlockingClient]


def members(node: LocalNode) -> dict[str, bool]:
    """id -> whether it votes, as one node lists the cluster."""
    return {each["id"]: each["voter"] for each in node.get("/api/v1/cluster")["nodes"]}


def add(cluster: LocalCluster, node: LocalNode) -> None:
    """Add a node with the command, start it, and return once it votes."""
    api = node.api.removeprefix("http://")
    added = run_cli("cluster", "add", node.id, "--raft", node.raft, "--api", api, RAFTSCHED_URL=" ".join(cluster.urls))
    assert added.returncode == 0, added.stderr
    assert "joining" in added.stdout
    cluster.start_node(node)
    leader = cluster.wait_for_leader()
    cluster.wait_until(lambda: members(leader).get(node.id), what=f"{node.id} to vote")
    cluster.wait_until_ready(node)


def remove(cluster: LocalCluster, node: LocalNode) -> None:
    removed = run_cli("cluster", "remove", node.id, RAFTSCHED_URL=" ".join(cluster.urls))
    assert removed.returncode == 0, removed.stderr
    cluster.wait_until(lambda: all(node.id not in members(other) for other in others(cluster, node)), what="the list")


def others(cluster: LocalCluster, node: LocalNode) -> list[LocalNode]:
    return [other for other in cluster.nodes if other is not node and other.is_running]


def follower_of(cluster: LocalCluster) -> LocalNode:
    leader = cluster.wait_for_leader()
    return next(node for node in cluster.nodes if node is not leader)


def why_not_ready(node: LocalNode) -> str:
    """What a node gives as the reason that it can't serve; "" where it can, or gives none yet."""
    try:
        _, answer = call_once(node.api, "GET", "/readyz", timeout=1)
    except OSError:
        return ""
    detail: str = answer.get("detail", "")
    return detail


def says(cluster: LocalCluster, node: LocalNode, text: str) -> None:
    cluster.wait_until(lambda: text in why_not_ready(node), what=f"{node.id} to say {text!r}")


def retire(cluster: LocalCluster, node: LocalNode) -> None:
    """Stop a node that is none of the cluster's any more, and forget it."""
    node.stop()
    cluster.nodes.remove(node)


def wipe(node: LocalNode) -> None:
    """Kill a node and put its data aside, as `restore` finds it."""
    node.kill()
    node.data_directory.rename(node.directory / "aside")


def restore(node: LocalNode) -> None:
    node.kill()
    shutil.rmtree(node.data_directory)
    (node.directory / "aside").rename(node.data_directory)


def job_ids(node: LocalNode) -> set[str]:
    """The jobs that one node by itself holds."""
    page: Any = node.get("/api/v1/jobs?consistency=stale&limit=1000", timeout=10)
    return {job["id"] for job in page["jobs"]}


def test_a_fourth_node_joins_under_load_and_the_leader_leaves(
    start_cluster: StartCluster, start_worker: StartWorker, client_of: ClientOf, queue: str
) -> None:
    cluster = start_cluster()
    client = client_of(cluster)
    start_worker(cluster)
    submitter = Submitter(client, queue)
    submitter.start()
    submitter.wait_for(cluster, 50)
    fourth = cluster.new_node()
    add(cluster, fourth)
    assert sorted(members(fourth)) == ["n1", "n2", "n3", "n4"]
    submitter.wait_for(cluster, len(submitter.acknowledged) + 50)

    leaving = cluster.wait_for_leader()
    remove(cluster, leaving)
    says(cluster, leaving, f"{leaving.id} was removed from the cluster")
    assert '"event": "removed"' in leaving.log_file.read_text() or '"event":"removed"' in leaving.log_file.read_text()
    retire(cluster, leaving)
    submitter.wait_for(cluster, len(submitter.acknowledged) + 50)

    follower_of(cluster).kill()  # quorum is 2 of 3 now, the fourth node included
    cluster.wait_for_leader()
    completed(cluster, client, submitter.stop())


def test_members_are_the_same_after_a_restart_whatever_the_config_file_says(
    start_cluster: StartCluster, client_of: ClientOf
) -> None:
    cluster = start_cluster()
    fourth = cluster.new_node()
    add(cluster, fourth)
    leaving = follower_of(cluster)
    remove(cluster, leaving)
    retire(cluster, leaving)
    client = client_of(cluster)
    ids = [client.submit("echo", number, queue="default").id for number in range(20)]
    cluster.kill()
    cluster.start()
    cluster.wait_for_leader()
    expected = {node.id: True for node in cluster.nodes}
    for node in cluster.nodes:
        cluster.wait_until_ready(node)
        assert members(node) == expected
    cluster.wait_until(lambda: all(job_ids(node) == set(ids) for node in cluster.nodes), what="all jobs on all nodes")
    refused = call(fourth.api, "POST", "/api/v1/cluster/members", {"id": leaving.id, "raft": "h:1", "api": "h:2"})
    assert (refused[0], refused[1]["code"]) == (409, "id_used")


def test_all_addresses_change_by_the_config_file(start_cluster: StartCluster, client_of: ClientOf) -> None:
    """Case R11: what was recorded of addresses never wins over the file."""
    cluster = start_cluster()
    client = client_of(cluster)
    ids = {client.submit("echo", number, queue="default").id for number in range(20)}
    cluster.stop()
    text = cluster.config.read_text()
    for node, (api, raft) in zip(cluster.nodes, batched(free_ports(2 * len(cluster.nodes))), strict=True):
        text = text.replace(node.raft, f"{HOST}:{raft}").replace(node.api.removeprefix("http://"), f"{HOST}:{api}")
        node.raft, node.api = f"{HOST}:{raft}", f"http://{HOST}:{api}"
    cluster.config.write_text(text)
    cluster.start()
    leader = cluster.wait_for_leader()
    listed = leader.get("/api/v1/cluster")["nodes"]
    assert {each["raft"] for each in listed} == {node.raft for node in cluster.nodes}
    assert {job.id for job in client_of(cluster).list(page_size=1000)} == ids


def batched(values: list[int]) -> list[tuple[int, int]]:
    return list(zip(values[::2], values[1::2], strict=True))


def refuses_with_its_name_alone(cluster: LocalCluster, wiped: LocalNode) -> None:
    """Of its old disk it has node.json and nothing else: it ends at once, and makes nothing."""
    wiped.data_directory.mkdir()
    shutil.copy(wiped.directory / "aside" / "node.json", wiped.data_directory)
    cluster.start_node(wiped)
    assert wiped.wait(60) == 70
    assert "journal_lost" in wiped.last_words()
    assert "raftsched cluster remove" in wiped.last_words()
    assert [path.name for path in wiped.data_directory.iterdir()] == ["node.json"]
    shutil.rmtree(wiped.data_directory)


def test_a_wiped_node_takes_no_part_under_its_old_id_and_is_replaced_under_a_new_one(
    start_cluster: StartCluster, start_worker: StartWorker, client_of: ClientOf, queue: str
) -> None:
    cluster = start_cluster()
    client = client_of(cluster)
    start_worker(cluster)
    submitter = Submitter(client, queue)
    submitter.start()
    submitter.wait_for(cluster, 50)
    wiped = follower_of(cluster)
    wipe(wiped)
    refuses_with_its_name_alone(cluster, wiped)
    cluster.start_node(wiped)
    says(cluster, wiped, "by another disk, and this one is empty")
    leader = cluster.wait_for_leader()
    cluster.wait_until(lambda: "member_refused" in leader.log_file.read_text(), what="the leader to refuse it")
    assert job_ids(wiped) == set()
    submitter.wait_for(cluster, len(submitter.acknowledged) + 50)

    remove(cluster, wiped)
    retire(cluster, wiped)
    replacement = cluster.new_node()
    add(cluster, replacement)
    follower_of(cluster).kill()
    cluster.wait_for_leader()
    submitter.wait_for(cluster, len(submitter.acknowledged) + 20)
    completed(cluster, client, submitter.stop())


def test_two_of_three_wiped_nodes_wait_for_the_third_ones_data_and_the_old_disks(
    start_cluster: StartCluster, client_of: ClientOf
) -> None:
    cluster = start_cluster()
    client = client_of(cluster)
    ids = {client.submit("echo", number, queue="default").id for number in range(50)}
    whole, *wiped = cluster.nodes
    cluster.wait_until(lambda: job_ids(whole) == ids, what="n1 to have all jobs")
    cluster.stop()
    for node in wiped:
        node.data_directory.rename(node.directory / "aside")
    cluster.start()
    for node in wiped:
        says(cluster, node, "by another disk, and this one is empty")
    says(cluster, whole, "not counted, because their disks are not those that they joined with: n2, n3")
    assert cluster.leader() is None
    status, answer = call_once(whole.api, "POST", "/api/v1/jobs", {"name": "echo"})
    assert status == 503, answer
    assert answer["code"] != "outcome_unknown"
    assert job_ids(whole) == ids

    for node in wiped:
        restore(node)
        cluster.start_node(node)
    cluster.wait_for_leader()
    assert {job.id for job in client.list(page_size=1000)} == ids
