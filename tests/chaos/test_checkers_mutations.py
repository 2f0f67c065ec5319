"""Each mutation of a good history is flagged by the property it breaks, and each property by some mutation."""

from __future__ import annotations

from functools import cache

import pytest

from chaos.checkers import PROPERTIES, History, check_all
from tests.chaos import histories_broken_jobs, histories_broken_nodes, histories_broken_runs
from tests.chaos.histories import good_history, replay
from tests.chaos.histories_broken import MUTATIONS, Mutation, NoPlace
from tests.for_each import for_each

SEEDS = 60
PLACES_MIN = 3
"""A mutation is tried in this many histories."""


@cache
def _history(seed: int) -> History:
    return History(good_history(seed), replay=replay)


@for_each("mutation", MUTATIONS)
def test_mutated_history_is_flagged_by_name(mutation: Mutation) -> None:
    tried = 0
    for seed in range(SEEDS):
        try:
            events = mutation.mutate(_history(seed))
        except NoPlace:
            continue
        tried += 1
        report = check_all(History(events, replay=replay))
        missed = set(mutation.flagged_by) - report.violations.keys()
        assert not missed, f"seed {seed}: {mutation.name} is not flagged by {missed}\n{report}"
        if tried == PLACES_MIN:
            return
    pytest.fail(f"{mutation.name} finds a place in {tried} of {SEEDS} histories")


def test_mutations_are_many_and_trigger_every_property() -> None:
    triggered = {name for mutation in MUTATIONS for name in mutation.flagged_by}
    assert {each.name for each in PROPERTIES} - triggered == set(), "never triggered"
    assert triggered - {each.name for each in PROPERTIES} == set(), "not a property"
    assert len(MUTATIONS) >= 50
    assert {mutation.mutate.__module__ for mutation in MUTATIONS} == {
        histories_broken_jobs.__name__,
        histories_broken_nodes.__name__,
        histories_broken_runs.__name__,
    }
