"""One seed's world: a cluster, its clients, what befalls them, and the verdict.

    faults      for `FAULT_SECONDS` anything may happen, and only safety is demanded
    heal        the network is whole, every node that can start runs, clocks are kept
    liveness    within `Setup.operation_bound_ms` each node's clients can submit, lease and complete a job
    quiet       clients stop; all nodes reach the same index
    verdict     the checkers over the history; invariants, digests and a replay over the nodes' states

A node that stops by itself without an injected fault of its disk is a violation at once, and so is an exception that
nobody handles.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from chaos.checkers.history import Setup
from chaos.sim.faults import Faults
from chaos.sim.loop import EPOCH_MS, ProcessClock, ProcessLoop
from chaos.sim.network import Network
from chaos.sim.node import Host, Reset, SimulatedNode, Unreachable
from chaos.sim.rates import Rates, draw
from chaos.sim.recorder import Recorder
from chaos.sim.trace import Trace
from chaos.sim.verdict import judge
from chaos.sim.workload import Workload
from raftsched import limits
from raftsched.consensus.messages import Message
from raftsched.errors import Unavailable
from tests.simulated.clock import Timeline

T = TypeVar("T")
FAULT_SECONDS = 16.0
CALM_SECONDS = 9.0
QUIET_SECONDS = 3.0
OPERATION_BOUND_MS = 10_000
_REQUEST_SECONDS = 0.001
_FAULTS_MAX = 20
_COLLECTIONS = 3
"""What a coroutine leaves when it is closed, its error and traceback, is garbage for the next one."""


@dataclass(slots=True)
class Outcome:
    """What became of a seed."""

    seed: int
    node_count: int
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Faults by kind, fault points, and what else was counted."""
    operations: Counter[str] = field(default_factory=Counter)
    evidence: Counter[str] = field(default_factory=Counter)
    simulated_seconds: float = 0.0
    fingerprint: str = ""
    trace: list[str] = field(default_factory=list)


def _unaltered(rates: Rates) -> Rates:
    return rates


class World:
    """Everything of a run; made, used and thrown away by `run_seed`."""

    def __init__(
        self, seed: int, node_count: int, *, trace: Trace | None = None, alter: Callable[[Rates], Rates] = _unaltered
    ) -> None:
        self.seed = seed
        self.random = Random(seed * 1_000_003 + node_count)
        self.rates = alter(draw(self.random, seed))
        self.timeline = Timeline()
        self.started_at = self.timeline.now
        self.ids = [f"n{number}" for number in range(1, node_count + 1)]
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        """Violations that were seen while it happened."""
        self.graveyard: list[tuple[SimulatedNode, ProcessLoop]] = []
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
        self.loop = ProcessLoop(self.timeline, self.clock, self.random, on_error=self._on_client_error)
        self.hosts = {node_id: Host(self, node_id, self.directory / node_id) for node_id in self.ids}
        self.is_healed = False
        self.served: dict[str, set[str]] = {}
        """By kind of operation: the nodes that have served one since the heal."""

    def _setup(self) -> Setup:
        rates = self.rates
        keeps_time = rates.wall_error_ms <= 200
        return Setup(
            nodes=tuple(self.ids),
            seed=self.seed,
            lease_ttl_ms=round(rates.lease * 1000),
            cancel_grace_ms=round(rates.cancel_grace * 1000),
            lost_attempts_max=limits.LOST_ATTEMPTS_MAX,
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
        shutil.rmtree(self.directory)

    # -- what others need ---------------------------------------------------------------------------------------------

    def count(self, what: str) -> None:
        self.counts[what] += 1

    @property
    def leader(self) -> Host | None:
        """The host of the node that leads the highest term."""
        leading = [host for host in self.hosts.values() if host.node is not None and host.node.leads]
        return max(leading, key=lambda host: host.node.term if host.node is not None else 0, default=None)

    def restart_later(self, host: Host) -> None:
        pause = 0.01 + self.random.choice((0.05, 0.3, 1.0, 3.0)) * self.random.random()
        self.timeline.after(0.01 if self.is_healed else pause, host.start)

    async def call(self, node_id: str, handler: Callable[[SimulatedNode], Awaitable[T]], *, seconds: float) -> T:
        """A client's request; raises what the handler raises, `Unreachable`, `Reset`, or TimeoutError."""
        future: asyncio.Future[T] = self.loop.create_future()
        cancel: list[Callable[[], None]] = []
        loses_reply = not self.is_healed and self.random.random() < self.rates.lost_reply

        def answer(result: Any, error: BaseException | None) -> None:
            if not loses_reply:
                self.timeline.after(self.random.random() * _REQUEST_SECONDS, lambda: _settle(future, result, error))

        def arrive() -> None:
            if not future.cancelled():
                cancel.append(self.hosts[node_id].request(handler, answer))

        self.timeline.after(self.random.random() * _REQUEST_SECONDS, arrive)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            if cancel and self.random.random() < 0.5:
                cancel[0]()
            raise

    # -- what is seen -------------------------------------------------------------------------------------------------

    def _on_frame(self, sender: str, receiver: str, message: Message) -> None:
        kind = message["type"]
        self.recorder.mark(f"{sender}{receiver}{kind}".encode())
        if self.trace.is_on and not (kind in ("append_entries", "next_node_idx") and not message.get("entries", True)):
            fields = {
                name: len(value) if isinstance(value, (bytes, list)) else value for name, value in message.items()
            }
            fields.pop("type")
            self.trace.say(f"{sender}>{receiver}", f"{kind} {fields}")

    def fault(self, what: str) -> None:
        """A violation that is seen while it happens."""
        self.trace.say("VIOLATION", what)
        if len(self.faults) < _FAULTS_MAX:
            self.faults.append(what)

    def on_exit(self, host: Host, error: BaseException | None) -> None:
        self.trace.say(host.id, f"ends: {error!r}")
        if error is None:
            self.count("stopped_gracefully")
        elif host.is_excused:
            self.count(f"refused: {type(error).__name__}")
            if type(error).__name__ == "JournalCorrupt":
                host.is_lost = True
        else:
            self.fault(f"{host.id} stops: {type(error).__name__}: {error}")

    def on_unhandled(self, host: Host, context: dict[str, Any]) -> None:
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

    def settle(self, seconds: float) -> None:
        """Run until all nodes have applied the same, a moment after the last client; at most `seconds`."""
        limit = self.timeline.now + seconds
        self.run(seconds / 2)
        while self.timeline.now < limit and not self._is_settled():
            self.run(0.01)

    def _is_settled(self) -> bool:
        nodes = [host.node for host in self.hosts.values() if not host.is_lost]
        applied = {node.state.applied_index if node is not None and node.is_built else -1 for node in nodes}
        return len(applied) == 1 and self.leader is not None

    def start(self) -> None:
        for host in self.hosts.values():
            host.clock_rate = 1.0 + self.rates.clock_rate_error * self.random.uniform(-1, 1)
            host.wall_error_ms = self.random.randint(-self.rates.wall_error_ms, self.rates.wall_error_ms)
            host.start()
        self.timeline.after(0.5, self._probe)

    def _probe(self) -> None:
        """Whoever believes that it may answer a fresh read has all that was ever acknowledged (G2)."""
        acknowledged = self.recorder.acknowledged_index
        for host in self.hosts.values():
            node, loop = host.node, host.loop
            if node is None or loop is None or loop.is_paused or not node.leads or not node.is_built:
                continue
            for what, ask in (("answer reads", node.fresh_state), ("renew leases", node.leadership)):
                with suppress(Unavailable):
                    ask()
                    self.counts["probes"] += 1
                    if node.state.applied_index < acknowledged:
                        self.fault(f"{host.id} would {what} at index {node.state.applied_index} of {acknowledged}")
        self.timeline.after(0.001 + 0.02 * self.random.random(), self._probe)

    def heal(self) -> None:
        """Everything works again from now on."""
        self.is_healed = True
        self.network.heal_all()
        for host in self.hosts.values():
            host.is_nearly_full = False
            host.slow_sync_until = 0.0
            host.machine.stop_at("", after=0)
            host.set_wall_error(0)
            host.resume()
            host.start()
        self.recorder.healed()


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def run_seed(
    seed: int,
    *,
    node_count: int,
    trace: Trace | None = None,
    alter: Callable[[Rates], Rates] = _unaltered,
) -> Outcome:
    """Run one seed from birth to verdict; `alter` changes what it drew for itself."""
    world = [World(seed, node_count, trace=trace, alter=alter)]
    try:
        return run_world(world[0])
    finally:
        world[0].close()
        _forget(world)


def _forget(world: list[World]) -> None:
    """Let go of a world: Python closes the coroutines of killed processes then, and would complain of each."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            world.clear()
            for _ in range(_COLLECTIONS):
                gc.collect()
    finally:
        sys.unraisablehook = hook


def run_world(world: World) -> Outcome:
    """Run a world, which is of no more use then."""
    outcome = Outcome(world.seed, len(world.ids))
    world.start()
    workload = Workload(world)
    Faults(world, seconds=FAULT_SECONDS)
    world.run(FAULT_SECONDS)
    world.heal()
    workload.calm_down()
    world.run(CALM_SECONDS)
    workload.stop()
    world.settle(QUIET_SECONDS)
    judge(world, outcome)
    outcome.simulated_seconds = world.timeline.now - world.started_at
    outcome.counts += world.counts
    outcome.counts += world.network.counts
    for host in world.hosts.values():
        outcome.counts += Counter({f"point: {name}": count for name, count in host.machine.points.items()})
    outcome.fingerprint = world.recorder.fingerprint
    outcome.trace = world.trace.lines
    return outcome
