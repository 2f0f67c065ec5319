"""Rolling upgrades in whole worlds: they reach the later version, and a leader that goes ahead too soon is found out."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from chaos.sim.run.seed import run_seed
from chaos.sim.run.verdict import Outcome
from chaos.sim.world.upgrades import SHARE, upgrade_dice
from raftsched.consensus.raft.log import entry_versions as versions
from raftsched.consensus.raft.log.entry_versions import PeerVersion

SEEDS = [seed for seed in range(1, 100) if upgrade_dice(seed).random() < SHARE]
WHOLE, HALF = (16, 99), 124
"""Seeds: all hosts are upgraded, one goes back and is upgraded again; one host never is."""


def run(seed: int) -> Outcome:
    return run_seed(seed, node_count=3, fault_seconds=5.0)


def test_about_one_seed_in_seven_has_an_upgrade() -> None:
    assert 10 <= len(SEEDS) <= 20


@pytest.mark.parametrize("seed", WHOLE)
def test_an_upgrade_of_all_hosts_comes_into_force_and_stops_nobody(seed: int) -> None:
    outcome = run(seed)
    assert outcome.violations == []
    assert outcome.counts["upgrades: upgrade"] == 4
    assert outcome.counts["upgrades: downgrade"] == outcome.counts["upgrades: in force"] == 1


def test_an_upgrade_of_some_hosts_never_comes_into_force_and_stops_nobody() -> None:
    outcome = run(HALF)
    assert outcome.violations == []
    assert outcome.counts["upgrades: upgrade"] == 2
    assert outcome.counts["upgrades: not complete"] == 1


def test_a_leader_that_ignores_what_members_read_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(in_force: int, own: int, _others: Iterable[PeerVersion | None]) -> int:
        return max(in_force, own)

    monkeypatch.setattr(versions, "agreed_version", at_once)
    found = (violation for seed in (*WHOLE, *SEEDS) for violation in run(seed).violations)
    assert any("can't read" in violation for violation in found)
