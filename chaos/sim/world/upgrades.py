"""Rolling upgrades: hosts go over, one by one, to a release that reads log entries of one version more.

In a share of the seeds each host begins with today's release, and an operator replaces it at random moments, by a restart
in order or by a crash. Some roll-outs stop half-way for good, and some hosts go back to today's release before all were
upgraded, which is legal until then. Hosts that join come with the later release. Both releases know the same operations,
so all that differs is the number, and who may get which entries.

Checked: no entry of the later version becomes durable anywhere while a member of that log can't read it; no member ever
stops because it met one; and once all members are upgraded, the later version is in force in the end.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from chaos.sim.hosts.host import Host
from chaos.sim.rates import MEMBER_FAULTS
from chaos.sim.record.replay import NEWEST
from chaos.sim.world.world import World
from raftsched.core.operations.codec import CODEC_VERSION

SHARE: Final = 0.15
"""Part of the seeds that have an upgrade."""


def upgrade_dice(seed: int) -> Random:
    """A seed's dice for its upgrade, apart, so that all its other dice don't depend on them; the first says whether."""
    return Random(f"upgrades of {seed}")


class Upgrades:
    """Decides when each host gets another release."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._releases = world.releases
        self._random = upgrade_dice(world.seed)

    def begin(self, *, seconds: float) -> None:
        """In some seeds, replace the releases of all hosts within that time, or of some."""
        random = self._random
        self._releases.is_on = random.random() < SHARE
        if not self._releases.is_on:
            return
        order = random.sample(self._world.ids, len(self._world.ids))
        if random.random() < 0.2:
            order.pop()
        moments = sorted(random.uniform(0.5, seconds - 1.0) for _ in order)
        for node_id, moment in zip(order, moments, strict=True):
            self._world.timeline.after(moment, partial(self._upgrade, node_id))
        may_go_back = not self._world.rates.fault_weights.keys() & set(MEMBER_FAULTS)
        if len(order) > 1 and may_go_back and random.random() < 0.7:
            # Most telling shortly before the last one is upgraded. If members leave, an operator could not know when
            # all are upgraded, so nobody goes back there.
            node_id, back = random.choice(order[:-1]), random.choice((0.05, 0.3, 5.0)) * random.random()
            self._world.timeline.after(max(0.0, moments[-1] - back), partial(self._go_back, node_id))
            self._world.timeline.after(seconds, partial(self._upgrade, node_id))

    def _upgrade(self, node_id: str) -> None:
        if self._releases.versions[node_id] == NEWEST:
            return
        self._strike("upgrade", node_id)
        self._releases.versions[node_id] = NEWEST
        host = self._world.hosts[node_id]
        if self._random.random() < 0.5:
            host.stop()
        else:
            self._kill(host, pause=0.1 * self._random.random())

    def _go_back(self, node_id: str) -> None:
        """The process first: from then on nothing of the later release is left that could still promise anything."""
        if self._releases.versions[node_id] == CODEC_VERSION or CODEC_VERSION not in self._releases.versions.values():
            return
        self._strike("downgrade", node_id)
        self._kill(self._world.hosts[node_id], pause=self._random.choice((0.1, 3.0)) * self._random.random())
        self._releases.versions[node_id] = CODEC_VERSION

    def _strike(self, what: str, node_id: str) -> None:
        self._world.count(f"upgrades: {what}")
        self._world.recorder.nemesis(what, node_id)

    def _kill(self, host: Host, *, pause: float) -> None:
        host.crash(power_loss=self._random.random() < 0.5)
        self._world.timeline.after(pause, host.start)


def judge_upgrade(world: World) -> None:
    """Count what became of the roll-out; a complete one must have come into force."""
    releases = world.releases
    if not releases.is_on:
        return
    members = world.membership.ids
    nodes = [world.hosts[node_id].node for node_id in members]
    in_force = [node.state.operation_version for node in nodes if node is not None and node.is_built]
    if NEWEST in in_force:
        world.count("upgrades: in force")
    elif all(releases.reads(node_id) == NEWEST for node_id in members) and len(in_force) == len(members):
        world.fault(f"all members are upgraded, and the version in force is still {max(in_force, default=0)}")
    else:
        world.count("upgrades: not complete")
