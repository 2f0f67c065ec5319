"""Worlds whose members change: they hold what the others hold, and the checks on them bite."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from chaos.sim.campaign.scoring import hunt
from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.network.links import LinkRates
from chaos.sim.rates import Rates
from chaos.sim.run.seed import run_seed
from chaos.sim.world.operator import Operator
from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft.membership.configuration import Configuration
from raftsched.consensus.raft.membership.peer_identity import PeerIdentity
from tests.chaos.worlds import running
from tests.core.scene import submit_operation


def with_many_changes(rates: Rates) -> Rates:
    """Members come and go, beside all that befalls the nodes in any case."""
    changes = {"add_member": 10.0, "remove_member": 10.0, "replace_member": 5.0, "wipe_member": 5.0}
    return replace(rates, fault_weights=rates.fault_weights | changes)


def test_a_seed_of_five_nodes_whose_members_change_shows_no_violation() -> None:
    for seed in (101, 102):  # 102 has shown a job that was passed over
        outcome = run_seed(seed, node_count=5, alter=with_many_changes)
        assert not outcome.violations
        assert outcome.counts["members: voter added"] > 0
        assert outcome.counts["members: voter removed"] > 0


def faults_while_a_wiped_node_is_replaced() -> list[str]:
    with running(5, 3, seconds=3.0) as world:
        assert Operator(world).wipe_member()
        world.run(3.0)
        world.heal()
        assert world.counts["members: replace done"] == 1
        return world.faults


def test_a_wiped_node_that_is_taken_for_the_member_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_objection(_self: PeerIdentity, _peer: NodeId) -> str:
        return ""

    assert not faults_while_a_wiped_node_is_replaced()
    monkeypatch.setattr(PeerIdentity, "_objection", no_objection)
    found = faults_while_a_wiped_node_is_replaced()
    assert any("takes part, although its disk is not the member's" in fault for fault in found)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_member_of_which_only_a_part_is_gone_refuses_to_start_and_is_replaced(seed: int) -> None:
    """Whatever part it is: journal, newest segment, or journal and state."""
    with running(seed, 3, seconds=3.0) as world:
        assert Operator(world).forget_member()
        world.run(3.0)
        world.heal()
        assert world.counts["refused: JournalLost"] >= 1
        assert world.counts["members: replace done"] == 1
        assert not world.faults


def test_a_member_that_starts_without_its_journal_is_found() -> None:
    assert hunt("starts_without_its_journal", range(1, 6)).violation


def many_changes(rates: Rates) -> Rates:
    """Members come and go, nothing else befalls them, and disks are slow."""
    weights = {"add_member": 1.0, "remove_member": 1.0}
    return replace(rates, fault_weights=weights, fault_pause=0.2, sync=0.03, client_count=1, worker_count=1)


def violations_of_many_changes(seed: int) -> list[str]:
    return run_seed(seed, node_count=3, fault_seconds=4.0, alter=many_changes).violations


def test_a_quorum_counted_over_the_old_configuration_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    adopt, apply = Configuration._adopt, Configuration.apply

    def adopt_the_committed(self: Configuration) -> None:
        adopt(self)
        voters = self._configurations[0][1].voters
        self._voters = voters
        self._voting.other_nodes = {self.nodes[peer] for peer in sorted(voters) if peer in self.nodes}

    def apply_and_adopt(self: Configuration, content: bytes, index: int, term: int) -> object:
        result = apply(self, content, index, term)
        self._adopt()
        return result

    assert not violations_of_many_changes(2)
    monkeypatch.setattr(Configuration, "_adopt", adopt_the_committed)
    monkeypatch.setattr(Configuration, "apply", apply_and_adopt)
    found = (violation for seed in range(2, 30) for violation in violations_of_many_changes(seed))
    assert any("on_most_disks_when_applied" in violation for violation in found)


def test_a_node_that_knows_none_of_the_members_that_are_left_hears_of_them() -> None:
    """As in a world of seed 300168: down while one joined and one left, and then the third lost its disk."""
    with running(5, 3, seconds=3.0) as world:
        operator = Operator(world)

        def finish_change() -> None:
            while world.is_changing:
                world.run(0.05)

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
        assert world.network.counts["hello: unknown caller linked"] > 0
        operator._begin(operator._replace(last))
        world.heal()
        assert world.membership.ids == (behind.id, "n4", "n5")
        assert not world.faults


def test_a_newcomer_that_loses_its_disk_is_given_up_for_another() -> None:
    """Seed 412244: a bit of its journal changed before it was a voter, and the operator waited for it for ever."""
    outcome = run_seed(412244, node_count=3)
    assert outcome.violations == []


def many_pieces(rates: Rates) -> Rates:
    """No log is left for a node that joins, and the state comes in many pieces."""
    sizes = replace(rates.sizes, tail_bytes=800, chunk_bytes=700, window_chunks=1)
    links = LinkRates(delay_seconds=(0.01, 0.02))
    return replace(rates, sizes=sizes, links=links, checkpoint=0.05, uses_lmdb=False)


def test_a_node_that_joins_tells_how_far_its_snapshot_is() -> None:
    with running(5, 3, alter=many_pieces, seconds=3.0) as world:
        assert world.leader is not None

        async def submit(node: SimulatedNode) -> None:
            await asyncio.gather(*(node.backend.propose(submit_operation(number)) for number in range(200)))

        world.leader.request(submit, lambda _result, _error: None)
        world.run(2.0)
        joining = world.hosts[Operator(world).add_member()]
        told: list[str] = []
        for _ in range(4_000):
            world.run(0.005)
            if joining.node is not None and joining.node.is_built:
                is_ready, text = joining.node.backend.readiness()
                if is_ready:
                    break
                if told[-1:] != [text]:
                    told.append(text)
    pieces = [text for text in told if re.fullmatch(r"a snapshot is on its way: [\d,]+ of [\d,]+ bytes", text)]
    assert len(pieces) > 3
    assert "it waits for the log, or a snapshot of the state" in told[told.index(pieces[0]) - 1]
    waits = [position for position, text in enumerate(told) if "it waits to be added" in text]
    assert max(waits, default=-1) < told.index(pieces[0])
