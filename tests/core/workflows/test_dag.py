from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar

import pytest

import raftsched
from raftsched.core.workflows.dag import find_cycle, unknown_names
from tests.for_each import for_each
from tests.steps import steps_of


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


@for_each("seed", range(30))
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


# -- cost -------------------------------------------------------------------------------------------------------------


class Node(str):
    """A node that counts how often any of them is looked up or compared, in a set as in a list."""

    __slots__ = ()
    looks: ClassVar[int] = 0

    def __hash__(self) -> int:
        Node.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Node.looks += 1
        return super().__eq__(other)


Parents = dict[Node, list[Node]]


def chain(count: int) -> Parents:
    """Each node before its parent, so that the way gets as long as it can."""
    nodes = [Node(number) for number in range(count)]
    return {node: [parent] for node, parent in pairwise(nodes)} | {nodes[-1]: []}


def closed(count: int) -> Parents:
    parents = chain(count)
    return parents | {next(reversed(parents)): [next(iter(parents))]}


def layers(count: int) -> Parents:
    """Ten nodes a layer, each with all nodes of the layer before as its parents."""
    nodes = [Node(number) for number in range(count)]
    return {node: nodes[number // 10 * 10 - 10 : number // 10 * 10] for number, node in enumerate(nodes)}


def test_find_cycle_takes_a_chain_of_any_length() -> None:
    assert find_cycle(chain(10_000)) == []
    assert len(find_cycle(closed(10_000))) == 10_001


@pytest.mark.parametrize("graph", [chain, closed, layers])
def test_find_cycle_looks_at_each_node_and_edge_a_few_times(graph: Callable[[int], Parents]) -> None:
    parents = graph(2_000)
    size = len(parents) + sum(map(len, parents.values()))
    Node.looks = 0
    steps = steps_of(lambda: find_cycle(parents), raftsched)
    assert size <= Node.looks < 5 * size
    assert size <= steps < 20 * size
