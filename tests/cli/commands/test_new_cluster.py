"""`raftsched restore` and `raftsched cluster recover`: what they ask for, take from the settings, and print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from raftsched.cli.main import main
from raftsched.node.identity import NODE_FILE, UNFINISHED, read_identity
from raftsched.node.new_cluster.recover import BEFORE
from tests.node.new_cluster.scene import make_backup, make_node

PLACE = ("--node-id", "n1", "--raft", "127.0.0.1:8401", "--api", "127.0.0.1:8400")
SETTINGS = """
cluster = "{cluster}"
auth = "none"
data_dir = "{data_dir}"
node_id = "n2"
nodes = [
  {{ id = "n1", raft = "host1:8401", api = "host1:8400" }},
  {{ id = "n2", raft = "host2:8401", api = "host2:8400" }},
]
"""


def run(*arguments: object, answer: str = "") -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments], input=answer)


def test_restore_says_what_to_do_next(tmp_path: Path) -> None:
    file = make_backup(tmp_path)
    done = run("restore", file, "--data-dir", tmp_path / "n1", *PLACE)
    assert done.exit_code == 0, done.output
    name = read_identity(tmp_path / "n1").cluster
    assert name.startswith("c-r")
    assert f'cluster = "{name}"' in done.stdout
    assert "1 running attempts ended as lost; 1 schedules paused" in done.stdout


def test_restore_takes_the_place_from_the_settings_and_options_win(tmp_path: Path) -> None:
    file, config = make_backup(tmp_path), tmp_path / "cluster.toml"
    config.write_text(SETTINGS.format(cluster="c", data_dir=tmp_path / "data"))
    refused = run("restore", file, "--config", config, "--cluster", "c")
    assert (refused.exit_code, "cluster: c is the name of the old cluster" in refused.stderr) == (1, True)
    derived = run("restore", file, "--config", config, "--data-dir", tmp_path / "derived", "--json")
    assert json.loads(derived.stdout)["cluster"].startswith("c-r")
    config.write_text(SETTINGS.format(cluster="next", data_dir=tmp_path / "data"))
    done = run("restore", file, "--config", config, "--resume-schedules", "--json")
    founded = json.loads(done.stdout)
    assert (founded["cluster"], founded["node_id"], founded["paused_schedules"]) == ("next", "n2", 0)
    assert read_identity(tmp_path / "data").node_id == "n2"
    again = run("restore", file, "--config", config, "--data-dir", tmp_path / "other", "--node-id", "n1", "--json")
    assert json.loads(again.stdout)["node_id"] == "n1"


def test_restore_names_what_is_missing(tmp_path: Path) -> None:
    file = make_backup(tmp_path)
    for options, field in ((PLACE, "--data-dir"), (("--data-dir", tmp_path / "n1", *PLACE[:4]), "--api")):
        refused = run("restore", file, *options)
        assert (refused.exit_code, field in refused.stderr) == (1, True), refused.output
    (tmp_path / "text").write_text("no backup")
    refused = run("restore", tmp_path / "text", "--data-dir", tmp_path / "n1", *PLACE)
    assert "is not a backup of raftsched" in refused.stderr
    assert not (tmp_path / "n1").exists()


def test_recover_asks_first_and_tells_what_may_be_missing(tmp_path: Path) -> None:
    directory = make_node(tmp_path / "n1", applied=4)
    refused = run("cluster", "recover", "--data-dir", directory, answer="n\n")
    assert refused.exit_code == 1
    for text in (
        "holds the log up to index 9, term 1",
        "Other members: n2, n3",
        "MAY BE MISSING: whatever",
        "behind index 9",
    ):
        assert text in refused.stderr
    assert read_identity(directory).cluster == "c"
    other = run("cluster", "recover", "--data-dir", directory, "--node-id", "n2", "--yes")
    assert "is of node n1" in other.stderr
    done = run("cluster", "recover", "--data-dir", directory, "--cluster", "next", answer="y\n")
    assert (done.exit_code, read_identity(directory).cluster) == (0, "next")
    assert "fencing tokens are above" in done.stdout


def test_recover_finishes_what_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_node(tmp_path / "n1")
    with monkeypatch.context() as patched:
        patched.setattr("raftsched.node.new_cluster.recover.finish", lambda _: None)
        run("cluster", "recover", "--data-dir", directory, "--cluster", "next", "--yes")
    assert (directory / BEFORE / NODE_FILE).exists()
    assert (directory / UNFINISHED / NODE_FILE).exists()
    done = run("cluster", "recover", "--data-dir", directory)
    assert (done.exit_code, "is finished now" in done.stderr) == (0, True)
    assert read_identity(directory).cluster == "next"


def test_a_node_without_a_vote_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.node.new_cluster.scene.MEMBERS", _without_n1())
    shown = run("cluster", "recover", "--data-dir", make_node(tmp_path / "n1"), answer="n\n")
    assert "THIS NODE HAS NO VOTE" in shown.stderr


def _without_n1() -> object:
    from tests.node.new_cluster.scene import MEMBERS

    return MEMBERS.without("n1")
