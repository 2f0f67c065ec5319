"""Turns of long work: each kind and each subject goes on, however much there is of the others."""

from __future__ import annotations

from raftsched.core.operations.control import BackgroundKind, DoBackgroundStep
from raftsched.core.state.writes import PutBackgroundWork, RemoveBackgroundWork
from raftsched.leader.maintenance.background_steps import PARALLEL_MAX, BackgroundSteps
from raftsched.leader.now import NEVER_MS
from tests.leader.scene import World


def subject(number: int) -> bytes:
    return number.to_bytes(16, "big")


def begin(world: World, kind: BackgroundKind, *subjects: int) -> None:
    world.state.execute([PutBackgroundWork(kind, subject(number)) for number in subjects])
    world.state.advance(index=world.state.applied_index + 1, term=1, now_ms=world.now.cluster_ms)


def finish(world: World, *background_work: DoBackgroundStep) -> None:
    world.state.execute([RemoveBackgroundWork(work.kind, work.subject) for work in background_work])
    world.state.advance(index=world.state.applied_index + 1, term=1, now_ms=world.now.cluster_ms)


def step(world: World, background_work: BackgroundSteps) -> list[DoBackgroundStep]:
    """What is proposed next; none of it comes to its end."""
    orders = [order for order in background_work.step(world.now) if isinstance(order, DoBackgroundStep)]
    assert len(orders) == len(set(orders)) <= PARALLEL_MAX
    return orders


def test_background_work_that_never_end_take_turns(world: World) -> None:
    begin(world, BackgroundKind.RESOLVE_DEPENDANTS, *range(10))
    background_work = BackgroundSteps(world.state)
    turns = [order.subject for _ in range(5) for order in step(world, background_work)]
    assert sorted(turns) == sorted(2 * [subject(number) for number in range(10)])


def test_background_step_of_another_kind_goes_on_with_every_step_beside_many_of_one(world: World) -> None:
    begin(world, BackgroundKind.RESOLVE_DEPENDANTS, *range(100))
    begin(world, BackgroundKind.DROP_WORKFLOW, 7)
    background_work = BackgroundSteps(world.state)
    for _ in range(10):
        orders = step(world, background_work)
        assert len(orders) == PARALLEL_MAX
        assert DoBackgroundStep(BackgroundKind.DROP_WORKFLOW, subject(7)) in orders


def test_kinds_take_turns_where_there_are_more_than_steps_at_a_time(world: World) -> None:
    for kind in BackgroundKind:
        begin(world, kind, 1, 2)
    background_work = BackgroundSteps(world.state)
    kinds = [order.kind for _ in range(len(BackgroundKind)) for order in step(world, background_work)]
    assert {kind: kinds.count(kind) for kind in BackgroundKind} == dict.fromkeys(BackgroundKind, PARALLEL_MAX)
    assert len(set(kinds[: len(BackgroundKind)])) == len(BackgroundKind), "each had a turn before any had two"


def test_background_work_come_to_an_end_and_are_looked_for_again_when_one_is_begun(world: World) -> None:
    begin(world, BackgroundKind.OPEN_WORKFLOW, *range(6))
    background_work = BackgroundSteps(world.state)
    count = 0
    while background_work.next_call_ms(world.now) < NEVER_MS:
        orders = step(world, background_work)
        finish(world, *orders)
        count += len(orders)
    assert count == 6
    begin(world, BackgroundKind.RELEASE_BLOCKED, 1)
    background_work.notify()
    assert step(world, background_work) == [DoBackgroundStep(BackgroundKind.RELEASE_BLOCKED, subject(1))]
