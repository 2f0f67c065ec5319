"""Rolling upgrades: hosts go over, one by one, to a release that reads log entries of one version more.

In a share of the seeds each host begins with today's release, and an operator replaces it at random moments, by a restart
in order or by a crash. Some roll-outs stop half-way for good, and some hosts go back to today's release before all were
upgraded, which is legal until then. Hosts that join come with the later release. Both releases know the same operations,
so all that differs is the number, and who may be told what.

Checked: no entry of the later version becomes durable anywhere while a member of that log can't read it; no member ever
stops because it met one; and once all members are upgraded, the later version is in force in the end.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from chaos.sim.rates import MEMBER_FAULTS
from raftsched.core.operations.codec import CODEC_VERSION, UnknownVersion, decode_batch

if TYPE_CHECKING:
    from chaos.sim.host import Host
    from chaos.sim.world import World

NEWEST: Final = CODEC_VERSION + 1
"""The version that upgraded hosts read."""
SHARE: Final = 0.15
"""Part of the seeds that have an upgrade."""
_COMMAND: Final = b"\x00"
_FAULTS_MAX: Final = 3


def upgrade_dice(seed: int) -> Random:
    """A seed's dice for its upgrade, apart, so that all its other dice don't depend on them; the first says whether."""
    return Random(f"upgrades of {seed}")


class Upgrades:
    """Which release each host has, and when that changes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = upgrade_dice(world.seed)
        self.is_on = False
        self._reads = dict.fromkeys(world.ids, CODEC_VERSION)
        self._fault_count = 0

    def reads(self, node_id: str) -> int:
        """The version that a host's release reads."""
        return self._reads.setdefault(node_id, NEWEST) if self.is_on else CODEC_VERSION

    # -- the roll-out -------------------------------------------------------------------------------------------------

    def begin(self, *, seconds: float) -> None:
        """In some seeds, replace the releases of all hosts within that time, or of some."""
        random = self._random
        self.is_on = random.random() < SHARE
        if not self.is_on:
            return
        order = random.sample(self._world.ids, len(self._world.ids))
        if random.random() < 0.2:
            order.pop()
        moments = sorted(random.uniform(0.5, seconds - 1.0) for _ in order)
        for node_id, moment in zip(order, moments, strict=True):
            self._world.timeline.after(moment, partial(self._upgrade, node_id))
        may_go_back = not self._world.rates.fault_weights.keys() & set(MEMBER_FAULTS)
        if len(order) > 1 and may_go_back and random.random() < 0.7:
            # Most telling shortly before the last one is upgraded. Where members leave, an operator could not know when
            # all are upgraded, so nobody goes back there.
            node_id, back = random.choice(order[:-1]), random.choice((0.05, 0.3, 5.0)) * random.random()
            self._world.timeline.after(max(0.0, moments[-1] - back), partial(self._go_back, node_id))
            self._world.timeline.after(seconds, partial(self._upgrade, node_id))

    def _upgrade(self, node_id: str) -> None:
        if self._reads[node_id] == NEWEST:
            return
        self._strike("upgrade", node_id)
        self._reads[node_id] = NEWEST
        host = self._world.hosts[node_id]
        if self._random.random() < 0.5:
            host.stop()
        else:
            self._kill(host, pause=0.1 * self._random.random())

    def _go_back(self, node_id: str) -> None:
        """The process first: from then on nothing of the later release is left that could still promise anything."""
        if self._reads[node_id] == CODEC_VERSION or CODEC_VERSION not in self._reads.values():
            return
        self._strike("downgrade", node_id)
        self._kill(self._world.hosts[node_id], pause=self._random.choice((0.1, 3.0)) * self._random.random())
        self._reads[node_id] = CODEC_VERSION

    def _strike(self, what: str, node_id: str) -> None:
        self._world.count(f"upgrades: {what}")
        self._world.recorder.nemesis(what, node_id)

    def _kill(self, host: Host, *, pause: float) -> None:
        host.crash(power_loss=self._random.random() < 0.5)
        self._world.timeline.after(pause, host.start)

    # -- what is checked ----------------------------------------------------------------------------------------------

    def durable(self, host: Host, command: bytes) -> None:
        """A host has made an entry durable: whoever is a member by its log must be able to read it."""
        if not self.is_on or command[:1] != _COMMAND or host.node is None:
            return
        version = decode_batch(command[1:], reads=NEWEST).version
        for node_id in host.node.membership.ids:
            if self.reads(node_id) < version and self._fault_count < _FAULTS_MAX:
                self._fault_count += 1
                self._world.fault(f"an entry of version {version} is written, and member {node_id} can't read it")

    def excuses(self, host: Host, error: BaseException | None) -> bool:
        """Whether a node may stop so: it is no member any more, and is told of what came after it."""
        if not isinstance(error, UnknownVersion):
            return False
        if self._world.membership.member(host.id) is not None:
            self._world.fault(f"{host.id} met an entry that it can't read: {error}")
        return True

    def judge(self) -> None:
        """Count what became of the roll-out; a complete one must have come into force."""
        if not self.is_on:
            return
        world = self._world
        members = world.membership.ids
        nodes = [world.hosts[node_id].node for node_id in members]
        in_force = [node.state.operation_version for node in nodes if node is not None and node.is_built]
        if NEWEST in in_force:
            world.count("upgrades: in force")
        elif all(self.reads(node_id) == NEWEST for node_id in members) and len(in_force) == len(members):
            world.fault(f"all members are upgraded, and the version in force is still {max(in_force, default=0)}")
        else:
            world.count("upgrades: not complete")
