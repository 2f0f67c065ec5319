"""Production's HTTP client and server between simulated processes: what becomes of requests when connections break."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from chaos.checkers.history.events import Invoke
from chaos.sim.machine.loop import ProcessLoop
from chaos.sim.network.sockets import SimulatedPool
from chaos.sim.rates import Rates
from chaos.sim.run.seed import run_world
from chaos.sim.world.world import World
from raftsched.client import Client, ClientSettings
from raftsched.errors import OutcomeUnknown, Unavailable
from raftsched.exchange import Broken, Exchange, TimedOut, Timeouts

PATIENT = Timeouts(connect_seconds=1.0, total_seconds=2.0)


def calm(rates: Rates) -> Rates:
    return replace(rates, lost_reply=0.0, uses_lmdb=False)


@pytest.fixture
def world() -> Iterator[World]:
    """Three nodes, one of which leads; nothing befalls them but what a test does."""
    world = World(1, 3, alter=calm)
    world.start()
    while world.leader is None or not world.leader.node or not world.leader.node.backend.is_leading:
        world.run(0.1)
    world.run(0.5)
    yield world
    world.close()


def run(world: World, work: Coroutine[Any, Any, Any], *, seconds: float = 5.0) -> asyncio.Task[Any]:
    """Run it in the users' process; what it comes to is asked of the task."""
    task = world.loop.create_task(work)
    world.run(seconds)
    assert task.done()
    return task


def leader_and_follower(world: World) -> tuple[str, str]:
    assert world.leader is not None
    leader = world.leader.id
    return leader, next(node for node in world.ids if node != leader)


def url_of(world: World, node: str) -> str:
    host, port = world.hosts[node].api_address
    return f"http://{host}:{port}"


def reading(world: World, node: str) -> Exchange:
    return Exchange("GET", f"{url_of(world, node)}/api/v1/jobs", headers={})


def test_a_request_is_answered_by_any_node_over_one_connection(world: World) -> None:
    async def work() -> list[int]:
        pool = SimulatedPool()
        exchanges = [reading(world, node) for node in leader_and_follower(world) for _ in range(3)]
        replies = [await pool.send(exchange, PATIENT) for exchange in exchanges]
        await pool.close()
        return [reply.status for reply in replies]

    assert run(world, work()).result() == [200] * 6
    assert world.sockets.connection_count == 3  # one of them from the follower to the leader


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_request_to_a_node_that_dies_is_sent_once(world: World, method: str) -> None:
    leader, _ = leader_and_follower(world)
    kept: list[Exchange] = []

    async def work() -> None:
        pool = SimulatedPool()
        await pool.send(reading(world, leader), PATIENT)
        kept.append(Exchange(method, f"{url_of(world, leader)}/api/v1/schedules/x", headers={}))
        world.timeline.after(0.0006, lambda: world.hosts[leader].crash(power_loss=False))
        await pool.send(kept[0], PATIENT)

    assert type(run(world, work()).exception()) is Broken
    assert kept[0].is_sent


def test_a_node_that_does_not_run_refuses_connections(world: World) -> None:
    leader, _ = leader_and_follower(world)
    world.hosts[leader].crash(power_loss=False)
    exchange = reading(world, leader)
    assert type(run(world, SimulatedPool().send(exchange, PATIENT)).exception()) is Broken
    assert not exchange.is_sent


def test_a_node_that_stands_still_takes_connections_and_says_nothing(world: World) -> None:
    leader, _ = leader_and_follower(world)
    world.hosts[leader].pause(60.0)
    exchange = reading(world, leader)
    assert type(run(world, SimulatedPool().send(exchange, PATIENT)).exception()) is TimedOut
    assert exchange.is_sent


def test_what_is_sent_over_a_cut_link_arrives_when_it_heals(world: World) -> None:
    leader, follower = leader_and_follower(world)
    loop = world.hosts[follower].loop
    assert isinstance(loop, ProcessLoop)
    pool = SimulatedPool()
    warm = loop.create_task(pool.send(reading(world, leader), Timeouts(1.0)))
    world.run(0.5)
    assert warm.result().status == 200
    world.network.cut(leader, follower)
    waiting = loop.create_task(pool.send(reading(world, leader), Timeouts(1.0)))
    world.run(0.3)
    assert not waiting.done()
    world.network.heal(leader, follower)
    world.run(0.3)
    assert waiting.result().status == 200


def test_a_deletion_that_the_dying_leader_was_sent_is_unknown_to_who_asked_its_follower(world: World) -> None:
    leader, follower = leader_and_follower(world)

    async def work() -> None:
        settings = ClientSettings(retry_seconds=0.0)
        client = Client(
            url_of(world, follower),
            settings=settings,
            clock=world.clock,
            randomness=world.random,
            http=SimulatedPool(),
        )
        client._connection.nodes.follow = lambda *_: None  # type: ignore[method-assign]  # it asks the follower
        await client.schedules.save("nightly", {"name": "x"}, every="1h")
        world.hosts[leader].slow_sync_until = world.timeline.now + 60.0
        world.timeline.after(0.02, lambda: world.hosts[leader].crash(power_loss=False))
        await client.schedules.delete("nightly")

    assert type(run(world, work(), seconds=15.0).exception()) is OutcomeUnknown


def test_a_submit_that_nobody_was_sent_is_unavailable(world: World) -> None:
    for host in world.hosts.values():
        host.crash(power_loss=False)

    async def work() -> None:
        urls = [url_of(world, node) for node in world.ids]
        settings = ClientSettings(retry_seconds=1.0)
        client = Client(*urls, settings=settings, clock=world.clock, randomness=world.random, http=SimulatedPool())
        await client.submit("x")

    assert type(run(world, work()).exception()) is Unavailable


def test_users_with_productions_client_ask_for_everything_over_connections_that_break() -> None:
    with closing(World(3, 3, alter=lambda rates: replace(rates, lost_reply=0.1, uses_lmdb=False))) as world:
        outcome = run_world(world)
        calls = [event for event in world.recorder.events if isinstance(event, Invoke)]
    assert not outcome.violations
    assert all(outcome.counts[f"http: {fate}"] for fate in ("before", "after", "held"))
    asked = {call.f for call in calls if call.process.startswith("u")}
    assert asked == {"submit", "cancel", "get", "save_schedule", "control_schedule"}
