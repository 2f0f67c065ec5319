"""Random faults and clients over a `SimulatedCluster`."""

from __future__ import annotations

from functools import partial

from chaos.sim.engine.cluster import SimulatedCluster


class Faults:
    """Strike a cluster until `stop_at`, and the clients that use it meanwhile."""

    def __init__(self, cluster: SimulatedCluster, *, seconds: float) -> None:
        self._cluster = cluster
        self._random = cluster.random
        self._timeline = cluster.timeline
        self._stop_at = self._timeline.now + seconds
        self._mean_pause = self._random.choice((0.15, 0.35, 0.8))
        self._proposal_count = 0
        self._timeline.after(0.5, self._client)
        self._timeline.after(0.5, self._reader)
        self._timeline.after(1.0, self._fault)

    # -- clients ------------------------------------------------------------------------------------------------------

    def _client(self) -> None:
        random = self._random
        for node in self._cluster.nodes.values():
            for _ in range(random.choice((1, 1, 2, 6))):
                self._proposal_count += 1
                node.propose(b"%d" % self._proposal_count + b"." * random.choice((5, 40, 90)))
        if self._timeline.now < self._stop_at + 2.0:
            self._timeline.after(random.uniform(0.005, 0.06), self._client)

    def _reader(self) -> None:
        for node in self._cluster.nodes.values():
            node.read()
        if self._timeline.now < self._stop_at + 2.0:
            self._timeline.after(self._random.uniform(0.001, 0.03), self._reader)

    # -- faults -------------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        if self._timeline.now >= self._stop_at:
            return
        alone = {self._crash: 20, self._crash_all: 4, self._pause: 16}
        linked = {self._cut_pair: 12, self._part: 12, self._slow: 10, self._break: 8}
        faults = alone | linked | {self._transfer: 8, self._desert_leader: 10} if len(self._cluster.ids) > 1 else alone
        fault = self._random.choices(list(faults), list(faults.values()))[0]
        self._cluster.count(fault.__name__.strip("_"))
        fault()
        self._timeline.after(self._random.expovariate(1 / self._mean_pause), self._fault)

    def _node(self) -> str:
        return self._random.choice(self._cluster.ids)

    def _pair(self) -> tuple[str, str]:
        one, other = self._random.sample(self._cluster.ids, 2)
        return one, other

    def _crash(self, node_id: str = "") -> None:
        node = self._cluster.nodes[node_id or self._node()]
        node.crash(power_loss=self._random.random() < 0.7)
        self._timeline.after(0.01 + self._random.choice((0.05, 0.3, 1.0, 3.0)) * self._random.random(), node.start)

    def _crash_all(self) -> None:
        for node_id in self._cluster.ids:
            self._crash(node_id)

    def _pause(self) -> None:
        """Stop a node for a while; what the others send it meanwhile may come only after it is back."""
        leader = self._cluster.leader
        node = leader if leader is not None and self._random.random() < 0.5 else self._cluster.nodes[self._node()]
        seconds = self._random.choice((0.1, 0.5, 1.5)) * self._random.random()
        node.pause(seconds)
        if self._random.random() < 0.5:
            self._deafen(node.id, after=0.02 * self._random.random(), seconds=seconds + 0.5 * self._random.random())

    def _deafen(self, node_id: str, *, after: float, seconds: float) -> None:
        """Hold whatever is sent to a node, for a while, from a moment on."""
        pairs = [(other, node_id) for other in self._cluster.ids if other != node_id]
        for one, other in pairs:
            self._timeline.after(after, partial(self._cluster.network.cut, one, other))
            self._timeline.after(after + seconds, partial(self._cluster.network.heal, one, other))

    def _desert_leader(self) -> None:
        """The followers lose the leader one after the other, and one may forget it by a quick restart."""
        leader = self._cluster.leader
        if leader is None:
            return
        random, network = self._random, self._cluster.network
        others = [node_id for node_id in self._cluster.ids if node_id != leader.id]
        for position, other in enumerate(random.sample(others, len(others))):
            after = 0.25 + 0.5 * random.random() if position else 0.0
            for one, two in ((leader.id, other), (other, leader.id)):
                self._timeline.after(after, partial(network.cut, one, two))
                self._timeline.after(after + 1.0 + random.random(), partial(network.heal, one, two))
            if random.random() < 0.4:
                self._timeline.after(after, partial(self._restart, other))

    def _restart(self, node_id: str) -> None:
        """Crash, and be back at once."""
        self._cluster.nodes[node_id].crash(power_loss=True)
        self._timeline.after(0.02 * self._random.random(), self._cluster.nodes[node_id].start)

    def _cut(self, pairs: set[tuple[str, str]]) -> None:
        random, network = self._random, self._cluster.network
        seconds = 0.1 + random.choice((0.3, 1.0, 3.0)) * random.random()
        for one, other in sorted(pairs):
            network.cut(one, other)
            if random.random() < 0.5:
                self._timeline.after(seconds * random.random(), partial(network.break_link, one, other))
            self._timeline.after(seconds, partial(network.heal, one, other))

    def _cut_pair(self) -> None:
        one, other = self._pair()
        self._cut({(one, other)} if self._random.random() < 0.4 else {(one, other), (other, one)})

    def _part(self) -> None:
        """Split the cluster in two, sometimes in one direction only."""
        ids = self._cluster.ids
        side = set(self._random.sample(ids, self._random.randint(1, len(ids) - 1)))
        pairs = {(one, other) for one in side for other in ids if other not in side}
        if self._random.random() < 0.8:
            pairs |= {(other, one) for one, other in pairs}
        self._cut(pairs)

    def _slow(self) -> None:
        self._cluster.network.slow_until[self._pair()] = self._timeline.now + self._random.choice((0.3, 1.0, 3.0))

    def _break(self) -> None:
        self._cluster.network.break_link(*self._pair())

    def _transfer(self) -> None:
        leader = self._cluster.leader
        if leader is not None and leader.running is not None and not leader.is_paused and not leader.running.syncing:
            leader.running.engine.start_transfer()
            if self._random.random() < 0.5:
                self._deafen(leader.id, after=0.02 * self._random.random(), seconds=0.5)
