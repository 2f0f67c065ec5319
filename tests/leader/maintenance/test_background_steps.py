"""Turns of long work: each kind and each subject goes on, however much there is of the others."""

from __future__ import annotations

from raftsched.core.operations.control import ChoreKind, DoChore
from raftsched.core.state.writes import PutChore, RemoveChore
from raftsched.leader.maintenance.background_steps import PARALLEL_MAX, BackgroundSteps
from raftsched.leader.now import NEVER_MS
from tests.leader.scene import World


def subject(number: int) -> bytes:
    return number.to_bytes(16, "big")


def begin(world: World, kind: ChoreKind, *subjects: int) -> None:
    world.state.execute([PutChore(kind, subject(number)) for number in subjects])
    world.state.advance(index=world.state.applied_index + 1, term=1, now_ms=world.now.cluster_ms)


def finish(world: World, *chores: DoChore) -> None:
    world.state.execute([RemoveChore(chore.kind, chore.subject) for chore in chores])
    world.state.advance(index=world.state.applied_index + 1, term=1, now_ms=world.now.cluster_ms)


def step(world: World, chores: BackgroundSteps) -> list[DoChore]:
    """What is proposed next; none of it comes to its end."""
    orders = [order for order in chores.step(world.now) if isinstance(order, DoChore)]
    assert len(orders) == len(set(orders)) <= PARALLEL_MAX
    return orders


def test_chores_that_never_end_take_turns(world: World) -> None:
    begin(world, ChoreKind.SETTLE_DEPENDANTS, *range(10))
    chores = BackgroundSteps(world.state)
    turns = [order.subject for _ in range(5) for order in step(world, chores)]
    assert sorted(turns) == sorted(2 * [subject(number) for number in range(10)])


def test_chore_of_another_kind_goes_on_with_every_step_beside_many_of_one(world: World) -> None:
    begin(world, ChoreKind.SETTLE_DEPENDANTS, *range(100))
    begin(world, ChoreKind.DROP_WORKFLOW, 7)
    chores = BackgroundSteps(world.state)
    for _ in range(10):
        orders = step(world, chores)
        assert len(orders) == PARALLEL_MAX
        assert DoChore(ChoreKind.DROP_WORKFLOW, subject(7)) in orders


def test_kinds_take_turns_where_there_are_more_than_steps_at_a_time(world: World) -> None:
    for kind in ChoreKind:
        begin(world, kind, 1, 2)
    chores = BackgroundSteps(world.state)
    kinds = [order.kind for _ in range(len(ChoreKind)) for order in step(world, chores)]
    assert {kind: kinds.count(kind) for kind in ChoreKind} == dict.fromkeys(ChoreKind, PARALLEL_MAX)
    assert len(set(kinds[: len(ChoreKind)])) == len(ChoreKind), "each had a turn before any had two"


def test_chores_come_to_an_end_and_are_looked_for_again_when_one_is_begun(world: World) -> None:
    begin(world, ChoreKind.OPEN_WORKFLOW, *range(6))
    chores = BackgroundSteps(world.state)
    count = 0
    while chores.next_call_ms(world.now) < NEVER_MS:
        orders = step(world, chores)
        finish(world, *orders)
        count += len(orders)
    assert count == 6
    begin(world, ChoreKind.RELEASE_HELD, 1)
    chores.heard()
    assert step(world, chores) == [DoChore(ChoreKind.RELEASE_HELD, subject(1))]
