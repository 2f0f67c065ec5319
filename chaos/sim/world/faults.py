"""Strike a cluster at random: the seed's rates say which kinds of faults, and how often.

Each fault is a method named as in `rates.FAULTS`; each strike is counted under its name and written into the history. A
disk that rots, or loses what it had promised, befalls a minority of the nodes only: more is outside of the fault model.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

from chaos.sim.hosts.host import Host
from chaos.sim.world.operator import Operator
from chaos.sim.world.world import World

_POINTS = (
    "before write",
    "after write",
    "before datasync",
    "after datasync",
    "before create",
    "after create",
    "before sync_directory",
    "after sync_directory",
    "before commit",
    "after commit",
)
_RARE_POINTS = (
    "before replace",
    "after replace",
    "before copy",
    "before install",
    "after install",
    "before remove",
    "after remove",
    "before register",
    "after register",
)
POINTS = (*_POINTS, *_RARE_POINTS)
"""Every place at which the power is cut."""
ALONE = frozenset(
    {"crash", "power_loss", "crash_point", "pause", "stop_gracefully", "disk_error", "disk_full", "disk_slow"}
)
"""Faults that can strike a node that has no peers."""


class Faults:
    """Strikes until `seconds` have passed."""

    def __init__(self, world: World, *, seconds: float) -> None:
        self._world = world
        self._operator = Operator(world)
        self._random = world.random
        self._timeline = world.timeline
        self._stop_at = world.timeline.now + seconds
        alone = len(world.ids) == 1
        weights = world.rates.fault_weights
        self._weights = {name: weight for name, weight in weights.items() if not alone or name in ALONE} or {
            "crash": 1.0
        }
        self._strikes: dict[str, Callable[[], None]] = {name: getattr(self, f"_{name}") for name in self._weights}
        self._timeline.after(1.0, self._strike)

    def _strike(self) -> None:
        if self._timeline.now >= self._stop_at:
            return
        kind = self._random.choices(tuple(self._weights), tuple(self._weights.values()))[0]
        self._strikes[kind]()
        self._timeline.after(self._random.expovariate(1 / self._world.rates.fault_pause), self._strike)

    def _struck(self, kind: str, target: str = "") -> None:
        self._world.count(f"fault: {kind}")
        self._world.recorder.nemesis(kind, target)

    def _host(self) -> Host:
        """Anybody, the leader more often than others."""
        leader = self._world.leader
        if leader is not None and self._random.random() < 0.4:
            return leader
        return self._world.hosts[self._random.choice(self._world.ids)]

    def _pair(self) -> tuple[str, str]:
        one, other = self._random.sample(self._world.ids, 2)
        return one, other

    def _seconds(self, *longest: float) -> float:
        return 0.05 + self._random.choice(longest) * self._random.random()

    # -- processes ----------------------------------------------------------------------------------------------------

    def _crash(self) -> None:
        self._stop(self._host(), power_loss=False)

    def _power_loss(self) -> None:
        self._stop(self._host(), power_loss=True)

    def _stop(self, host: Host, *, power_loss: bool) -> None:
        self._struck("power_loss" if power_loss else "crash", host.id)
        host.crash(power_loss=power_loss)
        self._world.restart_later(host.id)

    def _crash_all(self) -> None:
        self._struck("crash_all")
        for host in self._world.hosts.values():
            host.crash(power_loss=self._random.random() < 0.7)
            self._world.restart_later(host.id)

    def _crash_point(self) -> None:
        """The power goes at one of the places at which it hurts most."""
        if self._random.random() < 0.3:
            # Wait for the next one, whoever it befalls.
            point = self._random.choice(_RARE_POINTS)
            self._struck("crash_point", point)
            for host in self._world.hosts.values():
                host.machine.stop_at(point, after=0)
            return
        host = self._host()
        point = self._random.choice(_POINTS)
        self._struck("crash_point", f"{host.id} {point}")
        host.machine.stop_at(point, after=self._random.choice((0, 0, 1, 5)))

    def _stop_gracefully(self) -> None:
        host = self._host()
        self._struck("stop_gracefully", host.id)
        host.stop()

    def _pause(self) -> None:
        host = self._host()
        self._struck("pause", host.id)
        host.pause(self._seconds(0.1, 0.5, 2.0))

    def _suspend(self) -> None:
        """Suspend the machine of a node that doesn't lead: its monotonic clock is stopped meanwhile.

        A leader's is left to a directed schedule, because its own reads rest on that clock (`quorum_lease.py`).
        """
        host = self._host()
        if host.node is not None and not host.node.leads:
            self._struck("suspend", host.id)
            host.suspend(self._seconds(0.5, 2.0))

    def _pause_deaf(self) -> None:
        """Stop a node; what the others send it meanwhile comes only some time after it is back."""
        host = self._host()
        self._struck("pause_deaf", host.id)
        seconds = self._seconds(0.5, 1.5)
        host.pause(seconds)
        self._deafen(host.id, after=0.02 * self._random.random(), seconds=seconds + 0.5 * self._random.random())

    def _transfer(self) -> None:
        leader = self._world.leader
        if self._world.is_healed:
            return
        if leader is not None and leader.node is not None and leader.loop is not None:
            self._struck("transfer", leader.id)
            leader.request(lambda node: node.backend.transfer_leadership(), lambda _result, _error: None)
            if self._random.random() < 0.5:
                self._deafen(leader.id, after=0.02 * self._random.random(), seconds=0.5)

    # -- links --------------------------------------------------------------------------------------------------------

    def _deafen(self, node_id: str, *, after: float, seconds: float) -> None:
        """Hold whatever is sent to a node, for a while, from a moment on."""
        for other in self._world.ids:
            if other != node_id:
                self._hold(other, node_id, after=after, seconds=seconds)

    def _hold(self, sender: str, receiver: str, *, after: float, seconds: float) -> None:
        network = self._world.network

        def cut() -> None:
            if not self._world.is_healed:
                network.cut(sender, receiver)

        self._timeline.after(after, cut)
        self._timeline.after(after + seconds, partial(network.heal, sender, receiver))

    def _cut(self, pairs: set[tuple[str, str]]) -> None:
        seconds = self._seconds(0.3, 1.0, 3.0)
        for one, other in sorted(pairs):
            self._hold(one, other, after=0.0, seconds=seconds)
            if self._random.random() < 0.5:
                self._timeline.after(
                    seconds * self._random.random(), partial(self._world.network.break_link, one, other)
                )

    def _cut_pair(self) -> None:
        one, other = self._pair()
        self._struck("cut_pair", f"{one} {other}")
        self._cut({(one, other), (other, one)})

    def _cut_one_way(self) -> None:
        one, other = self._pair()
        self._struck("cut_one_way", f"{one} {other}")
        self._cut({(one, other)})

    def _part(self) -> None:
        """Split the cluster in two, sometimes in one direction only."""
        if self._world.is_healed:
            return
        ids = self._world.ids
        side = set(self._random.sample(ids, self._random.randint(1, len(ids) - 1)))
        self._struck("part", " ".join(sorted(side)))
        pairs = {(one, other) for one in side for other in ids if other not in side}
        if self._random.random() < 0.8:
            pairs |= {(other, one) for one, other in pairs}
        self._cut(pairs)

    def _slow_link(self) -> None:
        pair = self._pair()
        self._struck("slow_link", " ".join(pair))
        self._world.network.slow_until[pair] = self._timeline.now + self._seconds(0.3, 1.0, 3.0)

    def _reset_link(self) -> None:
        pair = self._pair()
        self._struck("reset_link", " ".join(pair))
        self._world.network.break_link(*pair)
        self._world.sockets.reset(*pair)

    def _desert_leader(self) -> None:
        """The followers lose the leader one after the other, and one may forget it by a quick restart."""
        leader = self._world.leader
        if leader is None:
            return
        self._struck("desert_leader", leader.id)
        random = self._random
        others = [node_id for node_id in self._world.ids if node_id != leader.id]
        for position, other in enumerate(random.sample(others, len(others))):
            after = 0.25 + 0.5 * random.random() if position else 0.0
            seconds = 1.0 + random.random()
            self._hold(leader.id, other, after=after, seconds=seconds)
            self._hold(other, leader.id, after=after, seconds=seconds)
            if random.random() < 0.4:
                self._timeline.after(after, partial(self._restart, other))

    def _restart(self, node_id: str) -> None:
        """Crash, and be back at once."""
        if not self._world.is_healed:
            self._world.hosts[node_id].crash(power_loss=True)
            self._timeline.after(0.02 * self._random.random(), self._world.hosts[node_id].start)

    # -- members ------------------------------------------------------------------------------------------------------

    def _add_member(self) -> None:
        self._change_members("add_member")

    def _remove_member(self) -> None:
        self._change_members("remove_member")

    def _replace_member(self) -> None:
        self._change_members("replace_member")

    def _wipe_member(self) -> None:
        self._change_members("wipe_member")

    def _forget_member(self) -> None:
        self._change_members("forget_member")

    def _change_members(self, kind: str) -> None:
        """Have the operator begin a change, if there is none under way; often the leader fails in the midst of it."""
        target = getattr(self._operator, kind)()
        if not target:
            return
        self._struck(kind, target)
        if self._random.random() < 0.5:
            strike = self._random.choice((self._crash_leader, self._crash_leader, self._transfer, self._part))
            self._timeline.after(self._random.choice((0.01, 0.1, 0.5)) * self._random.random(), strike)

    def _crash_leader(self) -> None:
        """The leader loses power, at a call of its disk if one comes soon."""
        leader = self._world.leader
        if leader is None or self._world.is_healed:
            return
        if self._random.random() < 0.5:
            point = self._random.choice(_POINTS)
            self._struck("crash_point", f"{leader.id} {point}")
            leader.machine.stop_at(point, after=self._random.choice((0, 0, 1, 5)))
        else:
            self._stop(leader, power_loss=True)

    # -- clocks -------------------------------------------------------------------------------------------------------

    def _clock_jump(self) -> None:
        host, error = self._host(), self._world.rates.wall_error_ms
        if error:
            self._struck("clock_jump", host.id)
            host.set_wall_error(self._random.randint(-error, error))

    # -- disks --------------------------------------------------------------------------------------------------------

    def _disk_error(self) -> None:
        """One call fails, once; after it nobody knows what is on the disk."""
        host = self._host()
        if host.node is not None:
            call = self._random.choice(("write", "datasync", "datasync", "create", "replace", "sync_directory"))
            self._struck("disk_error", f"{host.id} {call}")
            host.is_excused = True
            host.machine.disk.fail(call, errno.EIO, skip=self._random.choice((0, 0, 3)))

    def _disk_full(self) -> None:
        """The disk has no room for the next write, which is done in part."""
        host = self._host()
        if host.node is not None:
            self._struck("disk_full", host.id)
            host.is_excused = True
            host.machine.disk.fail("write", errno.ENOSPC)

    def _disk_slow(self) -> None:
        host = self._host()
        self._struck("disk_slow", host.id)
        host.slow_sync_until = self._timeline.now + self._seconds(0.5, 2.0)

    def _commit_error(self) -> None:
        """The state's next commit fails."""
        host = self._host()
        if host.node is not None:
            self._struck("commit_error", host.id)
            host.is_excused = True
            host.machine.fails_next_commit = True

    def _storage_full(self) -> None:
        """Disks run low: of one node, which must not lead then, or of so many that new jobs must be refused."""
        ids = self._world.ids
        count = self._random.choice((1, 1, len(ids) // 2 + 1, len(ids)))
        hosts = [self._host()] if count == 1 else [self._world.hosts[each] for each in self._random.sample(ids, count)]
        self._struck("storage_full", " ".join(host.id for host in hosts))
        seconds = self._seconds(2.0, 5.0)
        for host in hosts:
            host.is_nearly_full = True
            self._timeline.after(seconds, partial(setattr, host, "is_nearly_full", False))

    def _bit_flip(self) -> None:
        """One bit of what a node's journal has proven to be synced changes; then the node starts again, or refuses to."""
        world = self._world
        host = self._host()
        if host.is_bad or not self._operator.may_lose(host.id):
            return
        place = host.machine.disk.proven_byte(self._random)
        if place is None:
            return
        self._struck("bit_flip", f"{host.id} {place}")
        host.is_damaged = True
        host.crash(power_loss=False)
        host.machine.disk.flip(*place, self._random.randint(0, 7))
        world.restart_later(host.id)
