"""A cluster that was lost begins again: from a backup, or from its only node that is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from raftsched.cli.local.cluster import LocalCluster
from raftsched.cli.main import main
from tests.acceptance.conftest import FAST, checked, run_cli
from tests.acceptance.http import ask, call, call_once, lease, report, submit
from tests.drills import backup
from tests.drills.backup import join, rename, votes


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster that each test loses, and leaves complete again."""
    with checked(LocalCluster(tmp_path_factory.mktemp("lost") / "cluster", settings=FAST)) as cluster:
        yield cluster


@pytest.mark.essential
def test_all_that_was_acknowledged_before_a_backup_is_there_after_the_loss_of_all_nodes(
    lost: LocalCluster, tmp_path: Path
) -> None:
    """Case D42; `tests.drills.backup` does it for longer."""
    _, found = backup.run(lost, tmp_path, seconds=0.5)
    assert found == []


def test_backup_replaces_no_file_and_is_recorded_with_its_maker(lost: LocalCluster, tmp_path: Path) -> None:
    leader = lost.wait_for_leader()
    submit(leader.api, name="keep")
    file, again = tmp_path / "one.backup", tmp_path / "two.backup"

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["cluster", "backup", *arguments], env={"RAFTSCHED_URL": leader.api})

    def command(*arguments: str) -> int:
        return run(*arguments).exit_code

    assert command(str(file), "--actor", "ann", "--url", "http://127.0.0.1:1", "--url", leader.api) == 0
    again.write_bytes(run("-").stdout_bytes)
    assert command("--verify", str(again)) == 0
    assert command(str(file)) == 1
    content = file.read_bytes()
    assert command(str(file), "--force") == 0
    assert file.read_bytes() != content
    assert file.stat().st_mode & 0o077 == 0, "it holds all payloads"
    assert command("--verify", str(file)) == 0
    again.write_bytes(content[:-1])
    assert command("--verify", str(again)) == 1
    assert command(str(tmp_path / "nowhere" / "file")) == 1
    assert {path.name for path in tmp_path.iterdir()} == {file.name, again.name}
    assert leader.get("/api/v1/cluster")["last_backup"]["content_bytes"] > 0
    entries = ask(leader.api, "GET", "/audit?limit=10")["entries"]
    assert "ann" in {each["actor"] for each in entries if each["action"] == "cluster.backup"}


def test_one_node_that_is_left_becomes_a_new_cluster_and_the_lost_ones_never_come_back_into_it(
    lost: LocalCluster,
) -> None:
    leader = lost.wait_for_leader()
    left = next(node for node in lost.nodes if node is not leader)
    others = [node for node in lost.nodes if node is not left]
    done, running = (submit(leader.api, name="work", queue="recovery")["id"] for _ in range(2))
    first, second = (lease(leader.api, "w1", "recovery")[0] for _ in range(2))
    assert report(leader.api, "w1", first)[0] == 200
    for node in others:
        node.kill()
    lost.wait_until(lambda: not left.is_ready(), what="the last node to miss its majority")
    assert call_once(left.api, "POST", "/api/v1/jobs", {"name": "x"})[0] == 503
    left.stop()

    place = ("--data-dir", str(left.data_directory), "--json")
    asked = run_cli("cluster", "recover", *place)
    assert asked.returncode == 1, "nobody said yes"
    assert "MAY BE MISSING" in asked.stderr
    recovered = run_cli("cluster", "recover", *place, "--yes")
    assert recovered.returncode == 0, recovered.stderr
    founded = json.loads(recovered.stdout)
    assert founded["ended_leases"] == 1
    refused = run_cli("cluster", "recover", *place, "--yes")
    assert refused.returncode == 1

    rename(lost, founded["cluster"])
    lost.start_node(left)
    lost.wait_until_ready(left)
    assert ask(left.api, "GET", f"/jobs/{done}")["status"] == "completed"
    late = report(left.api, "w1", second)
    assert late[1].get("code", late[1].get("outcomes", [{}])[0].get("code")) == "lease_lost"
    (again,) = lease(left.api, "w2", "recovery")
    assert again["job_id"] == running
    assert again["fencing_token"] > founded["fencing_token"] > second["fencing_token"]
    assert report(left.api, "w2", again)[0] == 200

    for node in others:  # a majority of the old cluster, which somebody starts by mistake
        node.own_config = lost.directory / "old.toml"
        lost.start_node(node)
    old_leader = lost.wait_until(
        lambda: next((node for node in others if node.says_it_leads()), None), what="the old nodes to have a leader"
    )
    assert {each["id"]: each["state"] for each in old_leader.get("/api/v1/cluster")["nodes"]}[left.id] == "down"
    assert set(votes(left)) == {left.id}
    assert left.says_it_leads()
    assert call(left.api, "GET", f"/api/v1/jobs/{running}")[1]["status"] == "completed"
    for node in others:
        node.kill()
        node.own_config = None
        join(lost, left, node)
    lost.wait_for_leader()
