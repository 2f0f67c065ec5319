"""A host: the machine of a node, the process that runs on it, and what befalls both; it outlives every process.

Clients come through `Host.request`, in place of HTTP: a handler runs in the node's own loop, as a request's handler would.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.hosts.ports import Surroundings
from chaos.sim.hosts.storage import LmdbState, Machine, MachineDisk
from chaos.sim.machine.disk import PowerCut
from chaos.sim.machine.loop import ProcessClock, ProcessLoop
from raftsched.config import Member, NodeConfig
from raftsched.consensus.journal.segments import segment_number
from raftsched.consensus.net.address import Address
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.encryption.keys import KEY_BYTES, Key
from raftsched.storage.store.memory_store import MemoryStore

_SNAPSHOT_SECONDS_CALM = 0.1
Handler = Callable[[SimulatedNode], Awaitable[Any]]


class Unreachable(Exception):
    """Nobody listens there: the request was certainly not received."""


class Reset(Exception):
    """The connection broke: nobody knows what became of the request."""


class Answer(Protocol):
    """The waiter for a request's answer; called once, in the node's world."""

    def __call__(self, result: object, error: BaseException | None) -> None: ...


def member_of(node_id: str) -> Member:
    """A member of the config files: n7 listens on ports that end in 7."""
    number = int(node_id[1:])
    return Member(node_id, f"127.0.0.1:{7000 + number}", f"127.0.0.1:{8000 + number}")


class Host:
    """A machine of the cluster: starts its node's process, kills it, and passes requests to it.

    `listed` are the ids of its config file, its own among them.
    """

    def __init__(self, world: Surroundings, node_id: str, directory: Path, listed: Sequence[str]) -> None:
        self.world = world
        self.id = node_id
        self.member = member_of(node_id)
        world.sockets.places[self.api_address] = node_id
        self._members = tuple(map(member_of, listed))
        self._disk_number = 1
        self.machine = self._new_machine(directory)
        self.wall_error_ms = 0
        self.clock_rate = 1.0
        self.node: SimulatedNode | None = None
        self.loop: ProcessLoop | None = None
        self.is_lost = False
        """Its data is damaged: it may refuse to start, for ever."""
        self.is_damaged = False
        """A bit of its journal was changed."""
        self.is_forgetful = False
        """A part of its data is gone, but not its name: it must refuse to start."""
        self.is_excused = False
        """Its disk failed in this life: the node must stop, and is right to."""
        self.is_retired = False
        """It never starts again: its node was removed, or its disk is gone."""
        self.is_nearly_full = False
        self.slow_sync_until = 0.0
        self.snapshot_seconds: float | None = None
        """The time in which its thread makes or checks a copy, if a script says so."""
        self.lost_time = False
        """Its monotonic clock was stopped in this life: a leader's own reads and leases may rest on it no more."""
        self._answers: dict[int, Answer] = {}
        self._request_count = 0
        self._clock: ProcessClock | None = None

    # -- its disk -----------------------------------------------------------------------------------------------------

    def _cipher(self) -> Cipher:
        """Return the cipher of this host's disk: all nodes have the same keys, in an order of their own."""
        if not self.world.rates.is_encrypted:
            return NO_KEYS
        randomness = Random(f"keys of {self.id}")
        keys = [Key(f"k{number}", bytes([number]) * KEY_BYTES) for number in range(1, 4)]
        randomness.shuffle(keys)
        return Cipher(keys, randomness.randbytes)

    def _new_machine(self, directory: Path) -> Machine:
        machine = Machine(directory, self.world.random, self._cipher())
        machine.on_cut = self._power_is_cut
        directory.mkdir(parents=True)
        machine.snapshots.mkdir()
        return machine

    @property
    def api_address(self) -> tuple[str, int]:
        address = Address.parse(self.member.api)
        return address.host, address.port

    @property
    def incarnation(self) -> str:
        """Its data directory, as `raftsched.node.identity` would name it."""
        return f"{self.id} disk {self._disk_number}"

    @property
    def is_bad(self) -> bool:
        """Whether its disk is not what a member's must be: damaged, or another one."""
        return self.is_lost or self.is_damaged or self.is_forgetful or self.is_retired or self._disk_number > 1

    def wipe(self) -> None:
        """Crash, and lose the disk; whatever starts here again starts empty."""
        self.crash(power_loss=True)
        self.world.recorder.truncated(self.id, 1, wiped=True)
        points, directory = self.machine.points, self.machine.directory
        shutil.rmtree(directory)
        self.machine = self._new_machine(directory)
        self.machine.points = points
        self._disk_number += 1
        self.is_lost = self.is_damaged = False

    def lose_part(self) -> None:
        """Crash, and lose the journal, a part of it, or it and the state; node.json stays."""
        self.crash(power_loss=True)
        self.world.recorder.truncated(self.id, 1, wiped=True)
        machine = self.machine
        part = self.world.random.choice(("journal", "newest segment", "journal and state"))
        if part == "newest segment":
            # A later one may be there that was not in the register yet, so that nobody depends on it (seed 1770010).
            newest = machine.register.newest
            first = newest.number if newest is not None else 0
            for name in sorted(machine.disk.names()):
                number = segment_number(name)
                if number is not None and number >= first:
                    machine.disk.lose(name)
        else:
            machine.disk = MachineDisk(machine, self.world.random)
        if part == "journal and state":
            shutil.rmtree(machine.directory)
            machine.snapshots.mkdir(parents=True)
            machine.store = MemoryStore(machine.cipher)
        self.is_forgetful = True
        self.world.trace.say(self.id, f"loses its {part}, but not its node.json")

    # -- life ---------------------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """Stop for good."""
        self.is_retired = True
        if self.id in self.world.ids:
            self.world.ids.remove(self.id)
        if self.world.random.random() < 0.5:
            self.stop()
        else:
            self.crash(power_loss=False)

    def start(self) -> None:
        """Start the process, unless it runs, its data is given up, or it has retired."""
        if self.node is not None or self.is_lost or self.is_retired:
            return
        world = self.world
        self.is_excused = self.is_damaged or self.is_forgetful
        self.lost_time = False
        clock = ProcessClock(
            world.timeline,
            origin=world.random.uniform(0, 1e5),
            rate=self.clock_rate,
            wall_offset_ms=self.wall_error_ms,
        )
        loop = ProcessLoop(
            world.timeline,
            clock,
            world.random,
            work_seconds=self._work_seconds,
            on_error=self._on_unhandled,
            sockets=world.sockets,
            place=self.id,
        )
        node = SimulatedNode(self, self._config(), clock=clock, randomness=world.random)
        self._clock, self.loop, self.node = clock, loop, node
        loop.on_cycle = node.look
        loop.create_task(node.live(), name=f"{self.id}").add_done_callback(self._on_end)

    def _config(self) -> NodeConfig:
        rates = self.world.rates
        return NodeConfig(
            node_id=self.id,
            data_dir=str(self.machine.directory),
            nodes=self._members,
            auth="none",
            lease_seconds=rates.lease,
            cancel_grace_seconds=rates.cancel_grace,
            retention_seconds=rates.retention,
            election_seconds_min=rates.election[0],
            election_seconds_max=rates.election[1],
            heartbeat_seconds=rates.heartbeat,
        )

    def _work_seconds(self, executor: object) -> float:
        random, rates = self.world.random, self.world.rates
        if getattr(executor, "_thread_name_prefix", "") == "snapshot":
            return self._snapshot_seconds(random.random())
        slow = 0.5 if self.slow_sync_until > self.world.timeline.now else 0.0
        return (rates.sync + slow) * random.random()

    def _snapshot_seconds(self, part: float) -> float:
        """After the heal no copy takes long, because the nodes must agree soon."""
        if self.snapshot_seconds is not None:
            return self.snapshot_seconds
        longest = self.world.rates.snapshot_work
        return part * (min(longest, _SNAPSHOT_SECONDS_CALM) if self.world.is_healed else longest)

    def crash(self, *, power_loss: bool) -> None:
        """Lose the process, and with the power whatever was not synced."""
        node, loop = self.node, self.loop
        if node is None or loop is None:
            return
        self._bury(node, loop)
        if power_loss:
            self.machine.lose_power()
        else:
            self.machine.lose_process()

    def _bury(self, node: SimulatedNode, loop: ProcessLoop) -> None:
        loop.kill()
        self.world.sockets.died(loop)
        self.world.graveyard.append((node, loop))
        self.node = self.loop = None
        self.world.network.detach(self.id)
        machine = getattr(node, "_machine", None)
        if isinstance(machine, LmdbState):
            machine.forget()
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer(None, Reset())

    def _power_is_cut(self) -> None:
        """The machine stops at this very point; what is left to do is done outside of its code."""
        if self.loop is not None:
            self.loop.kill()
        self.world.timeline.after(0.0, self._finish_cut)

    def _finish_cut(self) -> None:
        if self.machine.is_cut:
            self.world.count("crashed_at_point")
            self.crash(power_loss=True)
            self.world.restart_later(self.id)

    def stop(self) -> None:
        """SIGTERM: the node ends by itself, in order."""
        if self.node is not None and self.loop is not None:
            self.loop.call_soon(self.node.stop)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """The process ends by itself: in order, or because it can't continue."""
        error = task.exception()
        if isinstance(error, PowerCut):
            return
        self.world.on_exit(self.id, error)
        self.world.timeline.after(0.0, lambda: self._exited(task))

    def _exited(self, task: asyncio.Task[None]) -> None:
        if self.loop is not None and task.get_loop() is self.loop:
            self.crash(power_loss=False)
            self.world.restart_later(self.id)

    def _on_unhandled(self, context: dict[str, Any]) -> None:
        self.world.on_unhandled(self.id, context)

    # -- what befalls it ----------------------------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        if self.loop is not None:
            self.loop.pause(seconds)

    def suspend(self, seconds: float) -> None:
        """Suspend the machine: its process is paused, and so is its monotonic clock."""
        if self._clock is not None:
            self._clock.stand_still(seconds)
            self.lost_time = True
        self.pause(seconds)

    def resume(self) -> None:
        if self.loop is not None:
            self.loop.resume()

    def set_wall_error(self, error_ms: int) -> None:
        """Somebody sets the clock."""
        self.wall_error_ms = error_ms
        if self._clock is not None:
            self._clock.wall_offset_ms = error_ms

    # -- the ear of the journal ---------------------------------------------------------------------------------------

    def durable(self, index: int, term: int, command: bytes) -> None:
        self.world.recorder.durable(self.id, index, term, command)
        if self.node is not None:
            self.world.releases.check_durable(self.node.membership.ids, command)

    def truncated(self, index: int) -> None:
        self.world.recorder.truncated(self.id, index)

    # -- clients ------------------------------------------------------------------------------------------------------

    def request(self, handler: Handler, answer: Answer) -> Callable[[], None]:
        """Have `handler` run in the node's loop; return what cancels it, as a client that goes away does."""
        node, loop = self.node, self.loop
        if node is None or loop is None or not node.is_built:
            answer(None, Unreachable())
            return lambda: None
        self._request_count += 1
        number = self._request_count
        self._answers[number] = answer
        task = loop.create_task(_run(handler, node), name="request")

        def done(finished: asyncio.Task[Any]) -> None:
            waiting = self._answers.pop(number, None)
            if waiting is None:
                return
            if finished.cancelled():
                waiting(None, Reset())
            else:
                error = finished.exception()
                waiting(None if error is not None else finished.result(), error)

        task.add_done_callback(done)
        return lambda: self._cancel(loop, task)

    def _cancel(self, loop: ProcessLoop, task: asyncio.Task[Any]) -> None:
        if not loop.is_dead and not task.done():
            loop.call_soon(task.cancel)


async def _run(handler: Handler, node: SimulatedNode) -> Any:
    return await handler(node)
