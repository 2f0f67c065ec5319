"""Who finds that a node leads is served by it: there is no moment in between in which a request could be turned away."""

from __future__ import annotations

from contextlib import closing

import pytest

from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.world.world import World
from raftsched.errors import NotLeader


def test_a_node_serves_workers_from_the_moment_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    served, turned_away = set(), set()
    look = SimulatedNode.look

    def ask_and_look(node: SimulatedNode) -> None:
        look(node)
        if node.is_built and node.backend.is_leading:
            try:
                assert node._terms.current is not None
                node._terms.current.workers_for("mail")
                served.add(node.term)
            except NotLeader:
                turned_away.add(node.term)

    monkeypatch.setattr(SimulatedNode, "look", ask_and_look)
    with closing(World(5, 3)) as world:
        world.start()
        for _ in range(3):
            world.run(3.0)
            assert world.leader is not None
            world.leader.crash(power_loss=False)
            world.run(3.0)
            for host in world.hosts.values():
                host.start()
    assert len(served) > 3
    assert turned_away == set()
