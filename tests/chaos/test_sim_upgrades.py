"""Rolling upgrades in whole worlds: they reach the later version, and a leader that goes ahead too soon is found out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
import structlog

from chaos.sim.upgrades import SHARE, upgrade_dice
from chaos.sim.world import Outcome, run_seed
from raftsched.consensus import versions
from raftsched.consensus.versions import Heard

SEEDS = [seed for seed in range(1, 100) if upgrade_dice(seed).random() < SHARE]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def run(seeds: Iterable[int]) -> list[Outcome]:
    return [run_seed(seed, node_count=3) for seed in seeds]


def test_about_one_seed_in_seven_has_an_upgrade() -> None:
    assert 10 <= len(SEEDS) <= 20


def test_upgrades_come_into_force_and_stop_nobody() -> None:
    outcomes = run(SEEDS[:4])
    assert [outcome.violations for outcome in outcomes] == [[]] * 4
    counts = sum((outcome.counts for outcome in outcomes), Counter[str]())
    assert counts["upgrades: upgrade"] >= 8
    assert counts["upgrades: in force"] >= 1


def test_a_leader_that_ignores_what_members_read_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(in_force: int, own: int, _others: Iterable[Heard | None]) -> int:
        return max(in_force, own)

    monkeypatch.setattr(versions, "agreed_version", at_once)
    violations = [violation for outcome in run(SEEDS[:2]) for violation in outcome.violations]
    assert any("can't read it" in violation for violation in violations)
