"""The verdict on a world: its history by the checkers, and what its nodes hold at the end, looked at from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chaos.checkers import History, check_all
from chaos.checkers.history import Applied, FinalState, Installed, StateDigest
from chaos.sim.recorder import Recorder, state_digest
from chaos.sim.upgrades import NEWEST
from raftsched.core import invariants
from raftsched.core.apply import apply
from raftsched.core.ids import TimeMs
from raftsched.core.operations import decode_batch
from raftsched.core.results import Context
from raftsched.errors import InvariantBroken
from raftsched.storage.memory_store import MemoryStore
from raftsched.storage.state import State

if TYPE_CHECKING:
    from chaos.sim.world import Outcome, World


def judge(world: World, outcome: Outcome) -> None:
    """Fill `outcome` with what is wrong, and with how much was looked at."""
    world.upgrades.judge()
    outcome.violations += world.faults
    _look_at_nodes(world, outcome)
    history = History(world.recorder.events, replay=_Replay(world.recorder))
    report = check_all(history)
    outcome.operations += Counter(report.operations)
    outcome.evidence += Counter(report.evidence)
    for name, violations in report.violations.items():
        outcome.violations += [f"{name}: {violation}" for violation in violations[:3]]


def _look_at_nodes(world: World, outcome: Outcome) -> None:
    recorder = world.recorder
    wanted = world.voters
    recorder.members(wanted)
    if joining := world.membership.joining:
        outcome.violations.append(f"{joining[0].id} still joins at the end")
    for host in world.hosts.values():
        node = host.node
        if node is None or not node.is_built:
            if host.id in wanted:
                outcome.violations.append(f"{host.id} does not run at the end")
            continue
        recorder.final(host.id, node.state)
        outcome.violations += [f"{host.id}: {violation}" for violation in invariants.check(node.state)]
    if world.leader is None:
        outcome.violations.append("nobody leads at the end")


class _Replay:
    """`chaos.checkers.views.Replay`: the log applied anew, to an empty state of its own.

    Where nobody has a digest to compare with, none is made. A log that contradicts itself can't be replayed beyond that
    place: what says so stands in place of the digests.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._commands = recorder.commands
        self._configurations = recorder.configurations
        self._wanted = {
            event.index for event in recorder.events if isinstance(event, StateDigest | Installed | FinalState)
        }

    def __call__(self, log: Sequence[Applied]) -> Iterator[str]:
        state = State(MemoryStore())
        for index in range(1, log[0].index):
            self._apply(state, index)
        broken = ""
        for entry in log:
            try:
                if not broken:
                    self._apply(state, entry.index)
            except InvariantBroken as error:
                broken = str(error)
            yield broken or (state_digest(state) if entry.index in self._wanted else "")

    def _apply(self, state: State, index: int) -> None:
        """As `ReplicatedState.apply`, written anew."""
        term, command = self._commands[index]
        now_ms, version = state.cluster_time_ms, state.operation_version
        if command is not None:
            batch = decode_batch(command, reads=NEWEST)
            now_ms, version = TimeMs(max(now_ms, batch.stamp_ms)), max(version, batch.version)
            context, written_count = Context(now_ms, index, version), 0
            for operation in batch.operations:
                _, writes = apply(state, operation, context)
                state.execute(writes)
                written_count += len(writes)
                context = context.after(written_count)
        elif index in self._configurations:
            state.configure(self._configurations[index])
        state.advance(index=index, term=term, now_ms=now_ms, version=version)
