"""A world: a cluster of hosts, its network and clocks, what is seen while it runs, and its heal.

Operators, faults and users act upon a world; it knows none of them. A node that stops by itself without an injected fault
of its disk is a violation at once, and so is an exception that nobody handles.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

from chaos.checkers.history.events import Setup
from chaos.checkers.liveness import NEEDED
from chaos.sim.hosts.host import Host, Reset, Unreachable, member_of
from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.hosts.releases import Releases
from chaos.sim.machine.clock import Timeline
from chaos.sim.machine.loop import EPOCH_MS, ProcessClock, ProcessLoop
from chaos.sim.network.links import Network
from chaos.sim.network.sockets import Sockets
from chaos.sim.rates import Rates, draw
from chaos.sim.record.recorder import Recorder
from chaos.sim.record.trace import Trace
from raftsched import limits
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.membership.members import Member, Membership
from raftsched.consensus.raft.messages import Message
from raftsched.core.operations.codec import UnknownVersion
from raftsched.errors import Unavailable
from raftsched.node.node import Node

T = TypeVar("T")
CALM_SECONDS = 9.0
CALM_SECONDS_MIN = 2.5
"""With the least of the quiet phase, no run is shorter than 20 seconds."""
REGIONS_CALM_SECONDS_MIN = 5.0
"""For a region that has no worker until then, and whose jobs have their turn between those of others."""
QUIET_SECONDS = 3.0
CHANGE_SECONDS = 10.0
OPERATION_BOUND_MS = 10_000
_REQUEST_SECONDS = 0.001
_VOTES = frozenset({messages.VOTE, messages.PRE_VOTE_OK})
_FAULTS_MAX = 20
_ASKING_PROBES = 0.1
"""Part of the looks at whoever believes to lead in which a majority is asked as well."""


def unaltered(rates: Rates) -> Rates:
    return rates


class World:
    """Everything of a run; made, used and thrown away by `run.seed`."""

    def __init__(
        self, seed: int, node_count: int, *, trace: Trace | None = None, alter: Callable[[Rates], Rates] = unaltered
    ) -> None:
        self.seed = seed
        self.node_count = node_count
        """At the start."""
        self.random = Random(seed * 1_000_003 + node_count)
        random.seed(seed)  # aiohttp shuffles who waits for a connection
        self.rates = alter(draw(self.random, seed))
        self.timeline = Timeline()
        self.started_at = self.timeline.now
        self.ids = [f"n{number}" for number in range(1, node_count + 1)]
        """Of the hosts that are in use: those of members, of nodes that join, and of some that were removed just now."""
        founders = map(member_of, self.ids)
        self.membership = Membership.of(Member(member.id, member.raft, member.api) for member in founders)
        """The last configuration that was applied anywhere, hence committed."""
        self._membership_index = 0
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        """Violations that were seen while it happened."""
        self.is_healed = False
        self.graveyard: list[tuple[Node, ProcessLoop]] = []
        """Dead processes, kept so that nothing of them is finalized before the end."""
        shared_memory = Path("/dev/shm")  # for speed: syncing real files costs nothing there
        self.directory = Path(
            tempfile.mkdtemp(prefix="raftsched-sim-", dir=shared_memory if shared_memory.is_dir() else None)
        )
        self.trace = trace or Trace()
        self.recorder = Recorder(self.timeline, self._setup(), self.trace)
        self.trace.now = lambda: self.recorder.t
        self.network = Network(self.timeline, self.random, self.rates.links, self._on_frame)
        self.clock = ProcessClock(self.timeline)
        self.sockets = Sockets(
            self.timeline, self.random, self.network, break_rate=self.rates.lost_reply, count=self.count
        )
        self.releases = Releases(self.ids, self.fault)
        self.loop = ProcessLoop(
            self.timeline,
            self.clock,
            self.random,
            on_error=self._on_client_error,
            sockets=self.sockets,
            place="users",
        )
        self.hosts = {node_id: Host(self, node_id, self.directory / node_id, self.ids) for node_id in self.ids}
        self.is_changing = False
        """A change of the members is under way."""
        self.outcast: Host | None = None
        """A host that runs under the id of a member, but without its disk."""
        self._healed_at = 0.0
        self.served: dict[str, set[str]] = {}
        """By kind of operation: the nodes that have served one since the heal."""
        self.unserved_users: set[str] = set()
        """Users with production's client for whom no job was stored since the heal."""

    def _setup(self) -> Setup:
        rates = self.rates
        keeps_time = rates.wall_error_ms <= 200
        return Setup(
            nodes=tuple(self.ids),
            seed=self.seed,
            lease_ttl_ms=round(rates.lease * 1000),
            cancel_grace_ms=round(rates.cancel_grace * 1000),
            lost_attempts_max=limits.LOST_WORKERS_DEFAULT,
            rate_error_thousandths=max(1, round(rates.clock_rate_error * 1000)),
            epoch_ms=EPOCH_MS + round(self.started_at * 1000) if keeps_time else 0,
            clock_error_ms=500,
            first_index=2,
            operation_bound_ms=OPERATION_BOUND_MS,
            convergence_bound_ms=round(CALM_SECONDS + QUIET_SECONDS) * 1000,
            lease_bound_ms=5_000,
        )

    def close(self) -> None:
        self.loop.kill()
        for host in self.hosts.values():
            host.crash(power_loss=False)
        for loop in (self.loop, *(loop for _, loop in self.graveyard)):
            loop.bury()
        shutil.rmtree(self.directory)

    # -- what others need ---------------------------------------------------------------------------------------------

    def count(self, what: str) -> None:
        self.counts[what] += 1

    @property
    def leader(self) -> Host | None:
        """The host of the node that leads the highest term."""
        leading = [host for host in self.hosts.values() if host.node is not None and host.node.leads]
        return max(leading, key=lambda host: host.node.term if host.node is not None else 0, default=None)

    @property
    def wall_ms(self) -> int:
        """The time of a true clock on the wall."""
        return EPOCH_MS + round(self.timeline.now * 1000)

    @property
    def voters(self) -> tuple[str, ...]:
        """Of these something may be demanded: voters whose data is not lost."""
        return tuple(node_id for node_id in sorted(self.membership.voters) if not self.hosts[node_id].is_lost)

    def new_host(self) -> Host:
        """A host with an empty disk and an id of its own, whose config file lists the members and itself."""
        node_id = f"n{len(self.hosts) + 1}"
        host = Host(self, node_id, self.directory / node_id, (*self.membership.ids, node_id))
        self.hosts[node_id] = host
        self.ids.append(node_id)
        self._set_clock(host)
        return host

    def restart_later(self, host_id: str) -> None:
        pause = 0.01 + self.random.choice((0.05, 0.3, 1.0, 3.0)) * self.random.random()
        self.timeline.after(0.01 if self.is_healed else pause, self.hosts[host_id].start)

    async def call(self, node_id: str, handler: Callable[[SimulatedNode], Awaitable[T]], *, seconds: float) -> T:
        """A client's request; raises what the handler raises, `Unreachable`, `Reset`, or TimeoutError."""
        answered = asyncio.Event()
        outcome: list[tuple[Any, BaseException | None]] = []
        cancel: list[Callable[[], None]] = []
        gave_up = False
        loses_reply = not self.is_healed and self.random.random() < self.rates.lost_reply

        def answer(result: Any, error: BaseException | None) -> None:
            outcome.append((result, error))
            if not loses_reply:
                self.timeline.after(self.random.random() * _REQUEST_SECONDS, answered.set)

        def arrive() -> None:
            if not gave_up:
                cancel.append(self.hosts[node_id].request(handler, answer))

        self.timeline.after(self.random.random() * _REQUEST_SECONDS, arrive)
        try:
            async with asyncio.timeout(seconds):
                await answered.wait()
        except TimeoutError:
            gave_up = True
            if cancel and self.random.random() < 0.5:
                cancel[0]()
            raise
        result, error = outcome.pop()
        cancel.clear()
        try:
            if error is not None:
                raise error
            return cast("T", result)
        finally:
            del error  # it keeps this frame

    # -- what is seen -------------------------------------------------------------------------------------------------

    def _on_frame(self, sender: str, receiver: str, message: Message) -> None:
        kind = message["type"]
        if self.hosts[sender].is_forgetful:
            self.fault(f"{sender} says {kind} to {receiver}, though a part of its data is gone")
        if kind in _VOTES and self._is_outcast(sender):
            self.fault(f"{sender} gives its {kind} to {receiver}, on a disk that is not the member's")
        self.recorder.frame(sender, receiver, message)
        if self.trace.is_on and not (kind in ("append_entries", "next_node_idx") and not message.get("entries", True)):
            fields = {
                name: len(value) if isinstance(value, (bytes, list)) else value for name, value in message.items()
            }
            fields.pop("type")
            self.trace.say(f"{sender}>{receiver}", f"{kind} {fields}")

    def _is_outcast(self, node_id: str) -> bool:
        member = self.membership.member(node_id)
        return member is not None and member.incarnation not in ("", self.hosts[node_id].incarnation)

    def on_membership(self, index: int, membership: Membership) -> None:
        """A node has applied a configuration."""
        if index > self._membership_index:
            before, self._membership_index = self.membership, index
            self.membership = membership
            for node_id in membership.voters - before.voters:
                self.count("members: voter added")
                self.trace.say(node_id, "is a voter")
            for node_id in before.voters - membership.voters:
                self.count("members: voter removed")
                self.trace.say(node_id, "is removed")

    def fault(self, what: str) -> None:
        """A violation that is seen while it happens."""
        self.trace.say("VIOLATION", what)
        if len(self.faults) < _FAULTS_MAX:
            self.faults.append(what)

    def on_exit(self, host_id: str, error: BaseException | None) -> None:
        host = self.hosts[host_id]
        self.trace.say(host.id, f"ends: {error!r}")
        if error is None:
            self.count("stopped_gracefully")
        elif isinstance(error, UnknownVersion):
            self._left_behind(host, error)
        elif host.is_excused:
            self.count(f"refused: {type(error).__name__}")
            if type(error).__name__ in ("JournalCorrupt", "JournalLost"):
                host.is_lost = True
        else:
            self.fault(f"{host.id} stops: {type(error).__name__}: {error}")

    def _left_behind(self, host: Host, error: UnknownVersion) -> None:
        """A node met an entry that it can't read: it is no member any more, and gets what came after it."""
        if self.membership.member(host.id) is not None:
            self.fault(f"{host.id} met an entry that it can't read: {error}")
        self.count("upgrades: left behind")

    def on_unhandled(self, host_id: str, context: dict[str, Any]) -> None:
        host = self.hosts[host_id]
        error = context.get("exception")
        if isinstance(error, Unavailable) or error is None or host.is_excused:
            self.count(f"unhandled: {type(error).__name__}")
        else:
            self.fault(f"{host.id}: {context.get('message')}: {error!r}")

    def _on_client_error(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        assert isinstance(error, (Unavailable, Unreachable, Reset)), f"the simulator itself failed: {context}"

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        self.timeline.run_until(self.timeline.now + seconds)

    def recover(self, seconds: float) -> None:
        """Run until all that is demanded after the heal was seen, and a moment in any case; at most `seconds`."""
        limit = self.timeline.now + seconds
        self.run(REGIONS_CALM_SECONDS_MIN if self.rates.features.regions else CALM_SECONDS_MIN)
        while self.timeline.now < limit and not self._has_recovered():
            self.run(0.05)

    def _has_recovered(self) -> bool:
        """Whether each voter has served what it must, and no lease that was held at the heal is held any more."""
        voters = set(self.voters)
        if self.unserved_users:
            return False
        return not self.recorder.leases_before_heal and all(voters <= self.served.get(f, set()) for f in NEEDED)

    def settle(self, seconds: float) -> None:
        """Run until all nodes have applied the same, a moment after the last client.

        At most `seconds`, and longer only where the bound of convergence is: a snapshot may be on its way.
        """
        limit = max(self.timeline.now + seconds, self._healed_at + CALM_SECONDS + QUIET_SECONDS)
        self.run(seconds / 2)
        while self.timeline.now < limit and not self._is_settled():
            self.run(0.01)

    def _is_settled(self) -> bool:
        nodes = [self.hosts[node_id].node for node_id in self.voters]
        applied = {node.state.applied_index if node is not None and node.is_built else -1 for node in nodes}
        return len(applied) == 1 and self.leader is not None

    def start(self) -> None:
        for host in self.hosts.values():
            self._set_clock(host)
            host.start()
        self.timeline.after(0.5, self._probe)

    def _set_clock(self, host: Host) -> None:
        host.clock_rate = 1.0 + self.rates.clock_rate_error * self.random.uniform(-1, 1)
        host.wall_error_ms = self.random.randint(-self.rates.wall_error_ms, self.rates.wall_error_ms)

    def _probe(self) -> None:
        """Whoever believes that it may answer a fresh read has all that was ever acknowledged (G2)."""
        self._look_at_outcast()
        acknowledged = self.recorder.acknowledged_index
        for host in self.hosts.values():
            node, loop = host.node, host.loop
            if node is None or loop is None or loop.is_paused or not node.leads or not node.is_built:
                continue
            if self.rates.asks_majorities and self.random.random() < _ASKING_PROBES:
                self.ask_majority(host)
            for what, ask in (("answer reads", node.backend.fresh_state), ("renew leases", node.backend.leadership)):
                with suppress(Unavailable):
                    ask()
                    self.counts["probes"] += 1
                    if node.state.applied_index >= acknowledged:
                        continue
                    if host.lost_time:
                        self.count(f"would {what} behind a clock that was stopped")
                    else:
                        self.fault(f"{host.id} would {what} at index {node.state.applied_index} of {acknowledged}")
        self.timeline.after(0.001 + 0.02 * self.random.random(), self._probe)

    def ask_majority(self, host: Host) -> None:
        """A read that a majority confirms has all that was acknowledged before it was asked for, whatever clocks do."""
        acknowledged = self.recorder.acknowledged_index

        async def read(node: SimulatedNode) -> int:
            await node.backend.confirm_lead()
            return node.state.applied_index

        def answer(result: object, error: BaseException | None) -> None:
            applied = cast("int", result)
            self.count("majority asked: refused" if error is not None else "majority asked: confirmed")
            if error is None and applied < acknowledged:
                self.fault(f"{host.id} would answer a read of a majority at index {applied} of {acknowledged}")

        host.request(read, answer)

    def _look_at_outcast(self) -> None:
        """A host under the id of a member, but without its disk, takes no part until it was removed."""
        outcast = self.outcast
        if outcast is None or not self._is_outcast(outcast.id):
            return
        if outcast.node is not None and outcast.node.is_built and outcast.node.takes_part:
            self.fault(f"{outcast.id} takes part, although its disk is not the member's")
            self.outcast = None

    def heal(self) -> None:
        """Everything works again from now on."""
        self.is_healed = True
        self.sockets.break_rate = 0.0
        self._healed_at = self.timeline.now
        self.network.heal_all()
        for host in self.hosts.values():
            host.is_nearly_full = False
            host.slow_sync_until = 0.0
            host.machine.stop_nowhere()
            host.set_wall_error(0)
            host.resume()
            host.start()
        self._finish_change()
        self.served.clear()
        self.recorder.healed()

    def _finish_change(self) -> None:
        """A change of the members that was under way ends first: until then, a disk may be missing."""
        limit = self.timeline.now + CHANGE_SECONDS
        while self.is_changing and self.timeline.now < limit:
            self.run(0.05)
        if self.is_changing:
            self.fault(f"a change of the members is not over {CHANGE_SECONDS} s after the last fault")
