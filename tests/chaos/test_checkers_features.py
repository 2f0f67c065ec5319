"""The checkers of schedules, dependencies, limits and control: clean worlds pass, and each broken promise is told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pytest

from chaos.checkers import FEATURES, PROPERTIES, check_all
from chaos.checkers.history.views import History
from chaos.checkers.leases.queue_limits import blocked_jobs_get_their_turn
from chaos.checkers.leases.terms import ends_of_belief
from chaos.checkers.liveness import nobody_is_passed_over, ready_jobs_are_given
from chaos.checkers.report import Violation
from tests.chaos import histories_broken_events
from tests.chaos.histories_broken import Mutation, NoPlace
from tests.chaos.histories_broken_features import (
    FEATURE_MUTATIONS,
    a_worker_waits_beside,
    an_offer,
    passed_over,
    with_others_blocked,
)
from tests.chaos.histories_features import good_feature_history
from tests.for_each import for_each

Found = TypeVar("Found")
SEEDS = (10, 8, 9, 3, 12, 16, 5, 7)
"""In the order in which they are tried: the first worlds are small, and show most of what is looked for."""


def test_good_histories_exercise_every_checker_of_features() -> None:
    idle = {each.name for each in FEATURES}
    for seed in SEEDS:
        report = check_all(good_feature_history(seed))
        assert report.is_clean
        idle = {name for name in idle if not report.evidence[name]}
        if not idle:
            return
    pytest.fail(f"{len(SEEDS)} histories have nothing to say to {idle}")


@for_each("mutation", FEATURE_MUTATIONS)
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


def _in_some_history(find: Callable[[History], Found]) -> Found:
    """What is found in the first history that has a place for it."""
    for seed in SEEDS:
        with suppress(NoPlace):
            return find(good_feature_history(seed))
    pytest.fail(f"there is no place for it in {len(SEEDS)} histories")


def test_blocked_jobs_are_none_too_many_while_one_of_their_key_is_offered() -> None:
    """So it is the forgotten offer, and nothing else of that mutation, that is flagged."""
    events = _in_some_history(lambda history: with_others_blocked(history, an_offer(history)))
    assert blocked_jobs_get_their_turn(History(events)) == []


def test_a_worker_may_wait_beside_a_job_of_another_region_and_beside_no_other() -> None:
    def told(history: History) -> dict[str, list[Violation]]:
        regions = ("", "north", "south")
        return {region: ready_jobs_are_given(History(a_worker_waits_beside(history, region))) for region in regions}

    found = _in_some_history(told)
    beside = {region for region, violations in found.items() if any("left" in str(each) for each in violations)}
    assert beside == {"", "north"}


def test_a_job_is_not_passed_over_by_workers_of_another_region() -> None:
    here, elsewhere = _in_some_history(lambda history: (passed_over(history), passed_over(history, "elsewhere")))
    assert nobody_is_passed_over(History(here))
    assert nobody_is_passed_over(History(elsewhere)) == []


def test_mutations_trigger_every_property_of_features() -> None:
    modules = {mutation.mutate.__module__ for mutation in FEATURE_MUTATIONS}
    assert histories_broken_events.__name__ in modules
    triggered = {name for mutation in FEATURE_MUTATIONS for name in mutation.flagged_by}
    assert {each.name for each in FEATURES} - triggered == set(), "never triggered"
    assert triggered <= {each.name for each in (*PROPERTIES, *FEATURES)}, "not a property"


def test_a_worker_that_leaves_its_run_to_a_callback_believes_in_its_lease_no_longer() -> None:
    """Also if the reply is late: the timeout of the callback may begin the next run meanwhile (found by seed 6100075)."""
    history = _in_some_history(_with_awaited_runs)
    ends = {grant.token: end for (_, grant), end in zip(history.grants, ends_of_belief(history), strict=True)}
    awaited = [operation for operation in history.operations if operation.call.f == "await"]
    assert [each.call.token for each in awaited if ends.get(each.call.token, 0) > each.start] == []


def _with_awaited_runs(history: History) -> History:
    if not any(operation.call.f == "await" for operation in history.operations):
        raise NoPlace
    return history
