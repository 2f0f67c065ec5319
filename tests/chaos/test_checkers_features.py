"""The checkers of schedules, dependencies, limits and control: clean worlds pass, and each broken promise is told."""

from __future__ import annotations

import pytest

from chaos.checkers import FEATURES, PROPERTIES, check_all
from chaos.checkers.queue_limits import held_jobs_get_their_turn
from chaos.checkers.views import History
from tests.chaos.histories_broken import Mutation, NoPlace
from tests.chaos.histories_broken_features import FEATURE_MUTATIONS, an_offer, with_others_held
from tests.chaos.histories_features import good_feature_history

SEEDS = range(7, 13)
"""The first two show all that the tests look for."""


def test_good_histories_exercise_every_checker_of_features() -> None:
    reports = [check_all(good_feature_history(seed)) for seed in SEEDS[:2]]
    assert all(report.is_clean for report in reports)
    names = [each.name for each in FEATURES]
    assert [name for name in names if not any(report.evidence[name] for report in reports)] == []


@pytest.mark.parametrize("mutation", FEATURE_MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutated_history_is_flagged_by_name(mutation: Mutation) -> None:
    for seed in SEEDS:
        try:
            events = mutation.mutate(good_feature_history(seed))
        except NoPlace:
            continue
        report = check_all(History(events))
        missed = set(mutation.flagged_by) - report.violations.keys()
        assert not missed, f"seed {seed}: {mutation.name} is not flagged by {missed}\n{report}"
        return
    pytest.fail(f"{mutation.name} finds a place in none of {len(SEEDS)} histories")


def test_held_jobs_are_none_too_many_while_one_of_their_key_is_offered() -> None:
    """So it is the forgotten offer, and nothing else of that mutation, that is flagged."""
    history = good_feature_history(SEEDS[0])
    events = with_others_held(history, an_offer(history))
    assert held_jobs_get_their_turn(History(events)) == []


def test_mutations_trigger_every_property_of_features() -> None:
    triggered = {name for mutation in FEATURE_MUTATIONS for name in mutation.flagged_by}
    assert {each.name for each in FEATURES} - triggered == set(), "never triggered"
    assert triggered <= {each.name for each in (*PROPERTIES, *FEATURES)}, "not a property"
