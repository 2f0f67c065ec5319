"""configs/five-regions.toml: a node of each region reads it, and its timeouts have room for the round trips of drills."""

from __future__ import annotations

import tomllib
from pathlib import Path

from chaos.drills.regions.world import JITTER, ROUND_TRIPS_MS
from raftsched import config
from raftsched.consensus.ports import Timing
from raftsched.consensus.raft.clocks.round_trips import RoundTrips

ROOT = Path(__file__).parents[2]
PATH = ROOT / "configs" / "five-regions.toml"


def test_each_node_reads_it_without_a_warning_and_round_trips_stay_below_half_of_what_its_timeouts_allow() -> None:
    ids = [node["id"] for node in tomllib.loads(PATH.read_text(encoding="utf-8"))["nodes"]]
    assert len(ids) == 5
    for node_id in ids:
        loaded = config.load(PATH, {"RAFTSCHED_NODE_ID": node_id})
        assert loaded.member.id == node_id
        assert loaded.warnings() == []
    timing = Timing(
        heartbeat_seconds=loaded.heartbeat_seconds,
        election_min_seconds=loaded.election_seconds_min,
        election_max_seconds=loaded.election_seconds_max,
    )
    longest_seconds = max(map(max, ROUND_TRIPS_MS)) * (1 + JITTER) / 1000
    assert longest_seconds < RoundTrips(timing).limit_seconds / 2
    assert loaded.max_clock_skew_ms > longest_seconds * 1000
    assert loaded.lease_seconds >= 4 * loaded.election_seconds_max


def test_the_documentation_shows_its_timeouts() -> None:
    settings = tomllib.loads(PATH.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    section = page.partition("## Five regions\n")[2].partition("\n## ")[0]
    shown = tomllib.loads(section.partition("```toml\n")[2].partition("```")[0])
    assert set(shown) >= {"heartbeat_seconds", "election_seconds_min", "election_seconds_max", "lease_seconds"}
    assert {name: settings[name] for name in shown} == shown
