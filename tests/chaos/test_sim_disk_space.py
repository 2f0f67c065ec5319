"""Disks that run low, in simulated clusters: who leads, and when new jobs are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from chaos.sim.hosts.host import Host
from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.rates import Rates
from chaos.sim.world.world import World
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CancelJob
from raftsched.core.state.results import Refused
from raftsched.errors import StorageFull
from tests.chaos.worlds import running
from tests.core.scene import job_id, submit_operation

SOON_SECONDS = 4.0


def right_clocks(rates: Rates) -> Rates:
    """A node whose clock is off is given no lead, whatever room it has."""
    return replace(rates, wall_error_ms=0)


@pytest.fixture(params=[3, 5])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with running(5, request.param, alter=right_clocks, seconds=4.0) as world:
        yield world


def leader_of(world: World) -> Host:
    leader = world.leader
    assert leader is not None
    return leader


def ask(world: World, operation: Operation) -> str:
    """What becomes of an operation at the leader: "done", or the code of the error."""
    outcome: list[str] = []

    async def propose(node: SimulatedNode) -> object:
        return await node.backend.propose(operation)

    def answer(result: object, error: BaseException | None) -> None:
        assert error is None or isinstance(error, StorageFull), error
        assert not isinstance(result, Refused), result
        outcome.append("done" if error is None else error.code)

    leader_of(world).request(propose, answer)
    world.run(1.0)
    [answered] = outcome
    return answered


def submit(world: World, number: int) -> str:
    return ask(world, submit_operation(number))


def warning_of(host: Host) -> str:
    assert host.node is not None
    return host.node.backend.readiness()[1]


def cancel(number: int) -> CancelJob:
    return CancelJob(job_id(number), "default")


def test_lead_moves_once_to_a_node_with_room_and_jobs_are_accepted_meanwhile(world: World) -> None:
    first = leader_of(world)
    first.is_nearly_full = True
    for number in range(4):
        assert submit(world, number) == "done"
    second = leader_of(world)
    assert second is not first
    assert "this node's disk is nearly full" in warning_of(first)
    assert not warning_of(second)
    # The roles are changed round: no node is asked to lead again before it has room by a good measure.
    first.is_nearly_full, second.is_nearly_full = False, True
    world.run(SOON_SECONDS)
    third = leader_of(world)
    assert third is not second
    assert submit(world, 5) == "done"
    world.run(SOON_SECONDS)
    assert leader_of(world) is third


def test_jobs_are_refused_before_a_majority_of_disks_is_full_and_cancels_pass(world: World) -> None:
    assert submit(world, 1) == "done"
    leader = leader_of(world)
    others = [host for host in world.hosts.values() if host is not leader]
    low = others[: len(world.hosts) // 2]
    for host in low:
        host.is_nearly_full = True
    world.run(SOON_SECONDS)
    assert leader_of(world) is leader
    assert submit(world, 2) == "done", "a minority is low"
    others[-1].is_nearly_full = True
    world.run(SOON_SECONDS)
    assert submit(world, 3) == "storage_full"
    assert ask(world, cancel(1)) == "done"
    assert "too few nodes have free disk space" in warning_of(leader)
    assert leader.node is not None
    status = leader.node.backend.cluster_status()
    assert "too few nodes have free disk space" in status.warning
    assert {node.id for node in status.nodes if node.disk_low} == {host.id for host in (*low, others[-1])}
    for host in low:
        host.is_nearly_full = False
    world.run(SOON_SECONDS)
    assert submit(world, 4) == "done"
    assert not warning_of(leader)


def test_no_lead_moves_while_nobody_has_room(world: World) -> None:
    leader = leader_of(world)
    for host in world.hosts.values():
        host.is_nearly_full = True
    world.run(2 * SOON_SECONDS)
    assert leader_of(world) is leader
    assert submit(world, 1) == "storage_full"
