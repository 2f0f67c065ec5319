from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from raftsched.core.dag import find_cycle, unknown_names


def test_find_cycle_finds_none_in_a_diamond() -> None:
    assert find_cycle({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}) == []


def test_find_cycle_returns_the_members_in_order_and_not_what_leads_there() -> None:
    assert find_cycle({"x": ["a"], "a": ["b"], "b": ["y", "c"], "y": [], "c": ["a"]}) == ["a", "b", "c", "a"]


def test_find_cycle_knows_a_job_that_depends_on_itself() -> None:
    assert find_cycle({"a": ["a"]}) == ["a", "a"]


def test_find_cycle_leaves_parents_that_are_no_nodes_to_others() -> None:
    assert find_cycle({"a": ["elsewhere"], "b": ["a", "elsewhere"]}) == []


def test_unknown_names_lists_each_with_who_named_it() -> None:
    assert unknown_names({"a": ["b", "x"], "b": ["y"]}) == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize("seed", range(30))
def test_find_cycle_agrees_with_counting_down_the_roots(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"t{number}" for number in range(12)]
    parents = {name: rng.sample(names, rng.choice([0, 1, 1, 2])) for name in names}
    cycle = find_cycle(parents)
    assert bool(cycle) == bool(rest_without_roots(parents))
    assert all(parent in parents[child] for child, parent in pairwise(cycle))
    assert not cycle or (cycle[0] == cycle[-1] and len(set(cycle)) == len(cycle) - 1)


def rest_without_roots(parents: dict[str, list[str]]) -> set[str]:
    """What is left when nodes without parents are taken away again and again (Kahn 1962)."""
    rest = set(parents)
    while roots := {name for name in rest if not rest.intersection(parents[name])}:
        rest -= roots
    return rest


def test_find_cycle_takes_a_long_chain_and_wide_layers_in_a_moment() -> None:
    count = 10_000
    chain = {str(number): [str(number + 1)] for number in range(count)}
    closed = {**chain, str(count): ["0"]}
    layers = {str(number): [str(number % 100 + 100 * (number // 100 - 1))] * 10 for number in range(100, count)}
    started = time.process_time()
    assert find_cycle(chain) == []
    assert len(find_cycle(closed)) == count + 2
    assert find_cycle(layers) == []
    assert time.process_time() - started < 0.5, "some 10 ms each; the rest is for slow machines"
