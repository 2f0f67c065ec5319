"""The verdict on a world: its history by the checkers, and what its nodes hold at the end, looked at from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from chaos.checkers import History, check_all
from chaos.checkers.history.events import Applied, FinalState, Installed, StateDigest
from chaos.sim.record.recorder import Recorder, state_digest
from chaos.sim.record.replay import LogReplay
from chaos.sim.run import twins
from chaos.sim.world.upgrades import judge_upgrade
from chaos.sim.world.world import World
from raftsched.core.checks import invariants
from raftsched.errors import InvariantBroken
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore

_TWINS_MAX = 3
"""A process each, for as long as a campaign lasts."""


@dataclass(slots=True)
class Outcome:
    """The result of a seed."""

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


def judge(world: World, outcome: Outcome) -> None:
    """Fill `outcome` with what is wrong, and with how much was looked at."""
    judge_upgrade(world)
    outcome.violations += world.faults
    _look_at_nodes(world, outcome)
    history = History(world.recorder.events, replay=_Replay(world.recorder))
    report = check_all(history)
    outcome.operations += Counter(report.operations)
    outcome.evidence += Counter(report.evidence)
    for name, violations in report.violations.items():
        outcome.violations += [f"{name}: {violation}" for violation in violations[:3]]
    _ask_twins(world, outcome)


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
    """`chaos.checkers.history.views.Replay`: the log applied again, to an empty state of its own.

    If nobody has a digest to compare with, none is made. A log that contradicts itself can't be replayed beyond that
    place: what says so is in place of the digests.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._wanted = {
            event.index for event in recorder.events if isinstance(event, StateDigest | Installed | FinalState)
        }

    def __call__(self, log: Sequence[Applied]) -> Iterator[str]:
        replay = LogReplay(State(MemoryStore()))
        for index in range(1, log[0].index):
            replay.apply(self._recorder.entry(index))
        broken = ""
        for entry in log:
            try:
                if not broken:
                    replay.apply(self._recorder.entry(entry.index))
            except InvariantBroken as error:
                broken = str(error)
            yield broken or (state_digest(replay.state) if entry.index in self._wanted else "")


def _ask_twins(world: World, outcome: Outcome) -> None:
    """Have the log applied under other hash seeds, if the run is one of those."""
    count = min(world.node_count, _TWINS_MAX)
    if not world.rates.has_twins or outcome.violations:
        return
    log = world.recorder.log()
    outcome.evidence["hash_seeds"] += count * len(log)
    if different := twins.difference(log, count=count):
        outcome.violations.append(f"hash_seeds: {different}")
