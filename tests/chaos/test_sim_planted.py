"""The planted bugs: the quick ones are found here, all of them by `python -m chaos.sim planted`."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from chaos.sim.planted import BUGS, Bug, planted
from chaos.sim.world import run_seed
from raftsched.consensus.journal import Journal

QUICK = (
    "no_fsync",
    "commits_alone",
    "gives_tokens_again",
    "ignores_cancels",
    "drops_idempotency",
    "lets_counters_drift",
)
SEEDS = range(1, 9)


pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Coroutines of killed processes complain, whenever they are collected, that they can't run any more."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def bug_of(name: str) -> Bug:
    return next(bug for bug in BUGS if bug.name == name)


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = bug_of(name)
    with planted(bug):
        assert any(run_seed(seed, node_count=bug.node_count).violations for seed in SEEDS)


def test_a_planted_bug_is_gone_afterwards() -> None:
    original = vars(Journal)["datasync"]
    with planted(bug_of("no_fsync")):
        assert vars(Journal)["datasync"] is not original
    assert vars(Journal)["datasync"] is original


def test_no_bug_is_listed_twice_and_there_are_enough() -> None:
    names = [bug.name for bug in BUGS]
    assert len(set(names)) == len(names) >= 40
