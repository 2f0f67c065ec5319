"""Worlds whose members change: they hold what the others hold, and the checks on them bite."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from chaos.sim.world import World, run_seed
from raftsched.consensus.configuring import Configuring
from raftsched.consensus.greetings import Greeting
from raftsched.consensus.membership import CONFIGURATION
from raftsched.consensus.ports import NodeId
from tests.chaos.test_sim import fingerprint_in_a_process


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.mark.parametrize(("seed", "nodes"), [(8, 3), (11, 3), (36, 3), (8, 5)])
def test_a_seed_whose_members_change_shows_no_violation(seed: int, nodes: int) -> None:
    outcome = run_seed(seed, node_count=nodes)
    assert not outcome.violations, f"replay: python -m chaos.sim --seed {seed} --nodes {nodes} --trace"
    assert outcome.counts["members: voter added"] > 0
    assert outcome.counts["members: voter removed"] > 0


def test_a_seed_whose_members_change_is_the_same_run_in_two_processes() -> None:
    assert fingerprint_in_a_process(8, 3) == fingerprint_in_a_process(8, 3)


def is_found(what: str, seeds: range) -> bool:
    """Whether one of the seeds shows a violation that says so."""
    return any(what in violation for seed in seeds for violation in run_seed(seed, node_count=3).violations)


def test_a_wiped_node_that_is_taken_for_the_member_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_objection(_self: Greeting, _peer: NodeId) -> str:
        return ""

    monkeypatch.setattr(Greeting, "_objection", no_objection)
    assert is_found("takes part, although its disk is not the member's", range(300_003, 300_020))


def test_a_quorum_counted_over_the_old_configuration_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    adopt, apply = Configuring._adopt, Configuring._apply

    def adopt_the_committed(self: Configuring) -> None:
        adopt(self)
        voters = self._configurations[0][1].voters
        self._voters = voters
        self.other_nodes = {self.nodes[peer] for peer in sorted(voters) if peer in self.nodes}

    def apply_and_adopt(self: Configuring, command: bytes, index: int, term: int) -> object:
        result = apply(self, command, index, term)
        if command[:1] == CONFIGURATION:
            self._adopt()
        return result

    monkeypatch.setattr(Configuring, "_adopt", adopt_the_committed)
    monkeypatch.setattr(Configuring, "_apply", apply_and_adopt)
    assert is_found("on_most_disks_when_applied", range(8, 40))


def test_a_node_that_knows_none_of_the_members_that_are_left_hears_of_them() -> None:
    """As in a world of seed 300168: down while one joined and one left, and then the third lost its disk."""
    world = World(5, 3)
    operator = world.operator

    def finish_change() -> None:
        while operator.is_busy:
            world.run(0.05)

    try:
        world.start()
        world.run(3.0)
        last = world.leader
        assert last is not None
        behind, other = (host for host in world.hosts.values() if host is not last)
        behind.crash(power_loss=True)
        operator.add_member()
        finish_change()
        operator._begin(operator._remove(other))
        finish_change()
        last.wipe()
        last.start()
        behind.start()
        world.run(8.0)
        assert world.leader is not None
        assert world.network.counts["hello: guest linked"] > 0
        operator._begin(operator._replace(last))
        world.heal()
        assert world.membership.ids == (behind.id, "n4", "n5")
        assert not world.faults
    finally:
        world.close()


def test_a_newcomer_that_loses_its_disk_is_given_up_for_another() -> None:
    """Seed 412244: a bit of its journal changed before it was a voter, and the operator waited for it for ever."""
    outcome = run_seed(412244, node_count=3)
    assert outcome.violations == []
