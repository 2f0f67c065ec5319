"""The planted bugs: the quick ones are found here, all of them by `python -m chaos.sim planted`."""

from __future__ import annotations

import re

import pytest

from chaos.sim.campaign.scoring import hunt
from chaos.sim.planted import BUGS, NOT_REACHED, Bug, Schedule, planted, run_schedule
from raftsched.consensus.journal.journal import Journal
from tests.for_each import for_each

QUICK = ("gives_tokens_again", "commits_alone", "lets_counters_drift")
SEEDS = range(19, 39)
"""In the world of the first one little is done, so it takes little time."""
DIRECTED = [bug for bug in BUGS if bug.schedule is not None]
SCHEDULES = list({bug.schedule.name: bug.schedule for bug in BUGS if bug.schedule is not None}.values())
SCHEDULE_SEEDS = (1, 2)

SOURCES = (
    *(f"P{number}" for number in range(1, 12)),
    *(f"defect {number}" for number in range(1, 13)),
    *("notrunc", "snapcommit", "rejhint", "snapstale", "selfsync", "sendsync", "ackterm", "votededup", "nextidx"),
    *("prevote", "commitclamp", "seed 100530", "ack before commit", "no fsync", "token reuse"),
    *("lease on a stale leader", "read without quorum contact", "non-idempotent replay", "lost snapshot chunk"),
    "early expiry after election",
    "a disk of which only part is gone",
    "an outage longer than a lease",
    "max_lost_workers",
)
"""All that RELIABILITY.md and PYSYNCOBJ.md name, and a simulator must be able to find."""


def bug_of(name: str) -> Bug:
    return next(bug for bug in BUGS if bug.name == name)


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    assert hunt(name, SEEDS).violation


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
def test_a_directed_schedule_reaches_its_end_and_finds_nothing_in_sound_code(schedule: Schedule) -> None:
    for seed in SCHEDULE_SEEDS:
        outcome = run_schedule(schedule, seed)
        assert not outcome.violations
        assert not outcome.counts[NOT_REACHED]


@pytest.mark.parametrize("bug", DIRECTED, ids=lambda bug: bug.name)
def test_a_directed_schedule_finds_its_bug(bug: Bug) -> None:
    assert bug.schedule is not None
    schedule = bug.schedule
    with planted(bug):
        assert any(run_schedule(schedule, seed).violations for seed in SCHEDULE_SEEDS)


def test_a_schedule_that_waits_in_vain_is_counted_and_judged() -> None:
    outcome = run_schedule(Schedule(lambda stage: stage.until(lambda: False, seconds=0.1)), 1)
    assert outcome.counts[NOT_REACHED] == 1
    assert outcome.operations["outcome ok"] > 0
    assert not outcome.violations


def test_a_schedule_is_the_same_run_each_time() -> None:
    schedule = SCHEDULES[0]
    assert run_schedule(schedule, 1).fingerprint == run_schedule(schedule, 1).fingerprint


def test_a_planted_bug_is_gone_afterwards() -> None:
    original = vars(Journal)["datasync"]
    with planted(bug_of("no_fsync")):
        assert vars(Journal)["datasync"] is not original
    assert vars(Journal)["datasync"] is original


def test_every_bug_replaces_something_that_is_there() -> None:
    for bug in BUGS:
        with planted(bug):
            pass


def test_no_bug_is_listed_twice() -> None:
    names = [bug.name for bug in BUGS]
    assert len(set(names)) == len(names)


@for_each("source", SOURCES)
def test_every_known_defect_is_planted(source: str) -> None:
    assert any(re.search(rf"\b{source}\b", bug.source) for bug in BUGS)
