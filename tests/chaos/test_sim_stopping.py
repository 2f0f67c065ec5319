"""A node that is told to stop is gone soon, whatever has become of the others."""

from __future__ import annotations

from tests.chaos.worlds import running

_TWO_ELECTION_TIMEOUTS_SECONDS = 2.0


def test_leader_that_is_told_to_stop_as_the_others_go_waits_for_nobody() -> None:
    """The one that it told to lead dies in that moment, so it is left without anybody, and without anything to do."""
    with running(5, 3, seconds=4.0) as world:
        leader = world.leader
        assert leader is not None
        stopping = leader.node
        assert stopping is not None
        leader.stop()
        while not stopping._replica._engine.transfer.target:
            world.run(0.001)
        for host in world.hosts.values():
            if host is not leader:
                host.crash(power_loss=False)
        world.run(_TWO_ELECTION_TIMEOUTS_SECONDS)
        assert leader.node is not stopping, "it has ended, and may have been started again"
