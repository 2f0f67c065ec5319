"""Directed schedules: a world in which a script, and not chance, says what befalls the cluster, and when.

A script is a generator that is given the `Stage` and yields how many seconds of virtual time are to pass before it
continues. While it plays, only the script uses the cluster. Then all is as in any other world: the usual clients
come, everything heals, and the same checkers judge. The nodes are production code, as always; delays, timeouts and phases
still come from a seed, so a script waits for what it needs to see (`until`) instead of counting seconds.

    SCHEDULE = Schedule(script, node_count=5)
    run_schedule(SCHEDULE, seed=1)

A script whose event does not happen raises `NotReached`: its world has gone another way. It is judged, too, and counted as
`schedule: not reached`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from chaos.sim.features import NO_FEATURES
from chaos.sim.hosts.host import Host
from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.network.links import LinkRates, Network
from chaos.sim.rates import Rates
from chaos.sim.record.trace import Trace
from chaos.sim.run.seed import conclude
from chaos.sim.run.verdict import Outcome
from chaos.sim.users.callers import Refusal, Unknown
from chaos.sim.users.clients import Client, Submission
from chaos.sim.users.crowd import Crowd
from chaos.sim.users.workers import WorkerProcess
from chaos.sim.world.world import World
from raftsched.consensus.net.framing import FrameDecoder, FrameError, encode_frame
from raftsched.consensus.net.handshake import hello_of
from raftsched.consensus.ports import Sizes
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.consensus.raft.messages import Message
from raftsched.errors import Unavailable

NOT_REACHED = "schedule: not reached"
_LOOK_SECONDS = 0.002
_PLAY_SECONDS_MAX = 60.0
_NEVER_SECONDS = 1e6

Play = Generator[float, None, None]
Script = Callable[["Stage"], Play]
Ear = Callable[[str, str, Message], None]
"""Gets (sender, receiver, message)."""


class NotReached(Exception):
    """The event that the script waited for did not happen."""


def calm(rates: Rates) -> Rates:
    """Nothing happens that the script doesn't do: fast even links, exact clocks, patient workers, short elections."""
    return replace(
        rates,
        fault_weights={},
        links=LinkRates(delay_seconds=(0.001, 0.003)),
        election=(0.6, 1.2),
        heartbeat=0.1,
        sync=0.002,
        snapshot_work=0.1,
        clock_rate_error=0.0,
        wall_error_ms=0,
        sizes=Sizes(tail_bytes=30_000, hold_bytes=120_000, append_bytes=4_000, appends_in_flight=16),
        segment_bytes=50_000,
        checkpoint=0.25,
        lease=1.5,
        retention=86_400.0,
        client_count=2,
        worker_count=2,
        think=0.25,
        probe=0.3,
        worker_stall=0.0,
        worker_death=0.0,
        lost_reply=0.0,
        uses_lmdb=False,
        is_harsh=False,
        features=NO_FEATURES,
        asks_majorities=False,
        has_twins=False,
    )


@dataclass(frozen=True, slots=True)
class Schedule:
    """A script, and the world that it plays in."""

    script: Script
    node_count: int = 3
    alter: Callable[[Rates], Rates] = calm

    @property
    def name(self) -> str:
        return self.script.__name__


class Stage:
    """The view and the actions of a script. Nodes are named by their ids, n1 and so on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.on_frame: Ear = lambda _sender, _receiver, _message: None
        """Called for each frame, right before it is delivered."""
        self.is_over = False
        self._nobody = Crowd(world)
        self._submit_count = 0
        network = world.network
        self._recorded, network._on_frame = network._on_frame, self._hear  # noqa: SLF001  # an ear of our own

    def _hear(self, sender: str, receiver: str, message: Message) -> None:
        self.on_frame(sender, receiver, message)
        self._recorded(sender, receiver, message)

    # -- what is seen -------------------------------------------------------------------------------------------------

    @property
    def ids(self) -> list[str]:
        return self.world.ids

    def others(self, *ids: str) -> list[str]:
        return [node_id for node_id in self.ids if node_id not in ids]

    @property
    def network(self) -> Network:
        return self.world.network

    def host(self, node_id: str) -> Host:
        return self.world.hosts[node_id]

    def node(self, node_id: str) -> SimulatedNode:
        """Raises `NotReached` where it doesn't run."""
        node = self.host(node_id).node
        if node is None or not node.is_built:
            raise NotReached(f"{node_id} is down")
        return node

    def engine(self, node_id: str) -> RaftEngine:
        return self.node(node_id)._replica._engine  # noqa: SLF001  # scripts look where no operator can

    def last_index(self, node_id: str) -> int:
        return self.engine(node_id).log.last_index

    def is_checkpointed(self, node_id: str) -> bool:
        """Whether its state has made durable all that was applied."""
        state = self.node(node_id).state
        return state.durable_index == state.applied_index

    def serves(self, node_id: str) -> bool:
        """Whether it would answer a fresh read."""
        try:
            self.node(node_id).backend.fresh_state()
        except (Unavailable, NotReached):
            return False
        return True

    def leader_among(self, ids: Iterable[str]) -> str:
        """Return which of these serves; "" if none does."""
        return next((node_id for node_id in ids if self.serves(node_id)), "")

    def stands_in(self, node_id: str) -> float:
        """Seconds until the node asks the others for their votes."""
        engine = self.engine(node_id)
        return engine.core.election_deadline - engine.clock.read()

    def until(self, condition: Callable[[], object], *, seconds: float = 10.0) -> Play:
        """Let time pass until `condition` holds; while a node that it looks at is down, it doesn't."""
        limit = self.world.timeline.now + seconds
        while not self._holds(condition):
            if self.world.timeline.now > limit:
                raise NotReached(f"nothing after {seconds} s")
            yield _LOOK_SECONDS

    @staticmethod
    def _holds(condition: Callable[[], object]) -> bool:
        try:
            return bool(condition())
        except NotReached:
            return False

    def settled(self, leader: str = "") -> Generator[float, None, str]:
        """Wait until one node, `leader` if given, serves and all have its whole log; return it."""
        for _ in range(len(self.ids) + 2):
            yield from self.until(lambda: self.leader_among(self.ids))
            yield from self.until(self._all_agree)
            found = self.leader_among(self.ids)
            if found and leader in ("", found):
                return found
            if found:
                self.transfer_leadership(found)
                yield from self.until(lambda: not self.serves(found))  # noqa: B023  # called before it changes
        raise NotReached(f"{leader} never leads")

    def _all_agree(self) -> bool:
        engines = [self.engine(node_id) for node_id in self.ids]
        return len({engine.log.last_index for engine in engines}) == len({e.applied_index for e in engines}) == 1

    # -- what is done -------------------------------------------------------------------------------------------------

    def cut(self, senders: Collection[str], receivers: Collection[str]) -> None:
        """Hold whatever these send to those."""
        for sender in senders:
            for receiver in receivers:
                self.network.cut(sender, receiver)

    def part(self, side: Collection[str], other_side: Collection[str]) -> None:
        self.cut(side, other_side)
        self.cut(other_side, side)

    def heal(self, senders: Collection[str], receivers: Collection[str]) -> None:
        """Deliver what these sent to those."""
        for sender in senders:
            for receiver in receivers:
                self.network.heal(sender, receiver)

    def join(self, side: Collection[str], other_side: Collection[str]) -> None:
        self.heal(side, other_side)
        self.heal(other_side, side)

    def drop_links(self, side: Collection[str], other_side: Collection[str]) -> None:
        """Lose what is on its way between these and those, or held."""
        for one in side:
            for other in other_side:
                self.network.break_link(one, other)

    def restart(self, node_id: str) -> None:
        """The power fails for a moment."""
        self.host(node_id).crash(power_loss=True)
        self.host(node_id).start()

    def transfer_leadership(self, node_id: str) -> None:
        self.request(node_id, lambda node: node.backend.transfer_leadership())

    def request(self, node_id: str, handler: Callable[[SimulatedNode], Any]) -> None:
        """Have a handler run at a node; nobody waits for its answer."""
        self.host(node_id).request(handler, lambda _result, _error: None)

    def submit(self, node_id: str) -> None:
        """A client that submits one job here, and has short timeouts."""
        self._submit_count += 1
        client = Client(self._nobody, f"d{self._submit_count}", node=node_id)
        self.world.loop.create_task(_heard(client.submit_once()))

    def submit_later(self, node_id: str, delay_ms: int) -> None:
        """A client that submits one job here, which is due after `delay_ms`."""
        self._submit_count += 1
        client, op = Client(self._nobody, f"d{self._submit_count}", node=node_id), self.world.recorder.new_op()
        submission = Submission(self.world, op, "")
        submission.delay_ms = delay_ms
        self.world.loop.create_task(_heard(client.submit(submission, op)))

    def submits(self, node_id: str, count: int) -> Play:
        """Each in an entry of its own."""
        for _ in range(count):
            self.submit(node_id)
            yield 0.01

    def lease_and_die(self) -> None:
        """A worker that asks for jobs until it gets any, and is never heard again."""
        self._submit_count += 1
        worker = WorkerProcess(self._nobody, f"x{self._submit_count}")
        self.world.loop.create_task(worker.lease_once())

    def receive(self, node_id: str, peer: str, frame: bytes) -> None:
        """Bytes that nobody of this cluster sends come over the link from `peer`; as in production, they may end it."""
        decoder = FrameDecoder()
        decoder.feed(encode_frame(hello_of(peer, "simulated")))
        try:
            messages = decoder.feed(frame)
        except FrameError:
            self.network.break_link(node_id, peer)
            return
        for message in messages:
            self.network._transports[node_id].receive(peer, message)  # noqa: SLF001  # the frame has no sender

    def fault(self, what: str) -> None:
        """A violation of a bound that the script itself sets."""
        self.world.fault(what)

    # -- the play -----------------------------------------------------------------------------------------------------

    def play(self, script: Script) -> None:
        timeline = self.world.timeline
        steps = script(self)

        def step() -> None:
            try:
                pause = next(steps)
            except StopIteration:
                self.is_over = True
            except NotReached as missed:
                self.world.trace.say("schedule", f"not reached: {missed}")
                self.world.count(NOT_REACHED)
                self.is_over = True
            else:
                timeline.after(pause, step)

        timeline.after(0.5, step)
        limit = timeline.now + _PLAY_SECONDS_MAX
        while not self.is_over and timeline.now < limit and not self.world.faults:
            self.world.run(0.05)
        if not self.is_over and not self.world.faults:
            self.world.count(NOT_REACHED)
        self.on_frame = lambda _sender, _receiver, _message: None
        self.network.loses = lambda _sender, _receiver, _message: False


async def _heard(request: Coroutine[Any, Any, object]) -> None:
    with suppress(Refusal, Unknown):
        await request


def run_schedule(schedule: Schedule, seed: int, *, trace: Trace | None = None) -> Outcome:
    """Play a schedule in a world of this seed; return the verdict."""
    world = World(seed, schedule.node_count, trace=trace, alter=schedule.alter)
    try:
        usual = world.rates
        world.rates = replace(usual, client_count=0, sdk_count=0, worker_count=0, probe=_NEVER_SECONDS)
        world.start()
        Stage(world).play(schedule.script)
        if world.faults:  # no need of more
            return Outcome(seed, schedule.node_count, violations=world.faults)
        world.rates = usual
        return conclude(world, Crowd(world))
    finally:
        world.close()
        del world
        gc.collect()


def frames_of(kind: str, seen: Ear) -> Ear:
    """An ear for messages of one type."""

    def hear(sender: str, receiver: str, message: Message) -> None:
        if message["type"] == kind:
            seen(sender, receiver, message)

    return hear
