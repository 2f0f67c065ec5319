"""A node whose state differs from that of the majority, and the checks that must find it."""

from __future__ import annotations

from typing import Any

from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.planted.scripts.stage import Play, Schedule, Stage
from raftsched.consensus.journal.recovery import DifferenceMark
from raftsched.consensus.raft.replication.state_comparison import StateComparison
from raftsched.core.records.ids import JobId
from raftsched.storage.store.port import Table

_NOBODYS = JobId(b"\xff" * 16)
"""The job of a payload that only one node stores."""
_FOUND_SECONDS = 5.0


def _applies_one_thing_more(node: SimulatedNode) -> None:
    """From its next write on, the node's state holds a row that no log entry has brought."""
    state = node.state
    execute = state.execute

    def differently(writes: Any) -> None:
        execute(writes)
        state._store.put(Table.PAYLOADS, _NOBODYS, b"{}")  # noqa: SLF001  # what no operation does

    state.execute = differently  # type: ignore[method-assign]


def _is_cured(node: SimulatedNode) -> None:
    """As an installed snapshot does it."""
    state = node.state
    vars(state).pop("execute", None)
    state._store.delete(Table.PAYLOADS, _NOBODYS)  # noqa: SLF001
    node._replica._engine.comparison.replaced()  # noqa: SLF001  # scripts do what no operator can


def _one_differs(stage: Stage, *, leads: bool) -> Play:
    leader = yield from stage.settled()
    wrong = leader if leads else stage.others(leader)[0]
    _applies_one_thing_more(stage.node(wrong))
    yield from stage.submits(leader, 3)
    yield _FOUND_SECONDS
    others = stage.others(wrong)
    if not stage.engine(wrong).comparison.difference:
        stage.fault(f"the state of {wrong} differs, and it does not know")
    if stage.serves(wrong):
        stage.fault(f"{wrong} serves with a state that differs")
    yield from stage.until(lambda: stage.leader_among(others))
    for other in others:
        if stage.engine(other).comparison.differing != {wrong}:
            stage.fault(f"{other} does not know that the state of {wrong} differs")
    stage.restart(wrong)
    yield from stage.until(lambda: stage.node(wrong))
    if not stage.engine(wrong).comparison.difference:
        stage.fault(f"{wrong} has forgotten that its state differs")
    _is_cured(stage.node(wrong))
    yield from stage.settled()


def the_leader_applies_something_differently(stage: Stage) -> Play:
    yield from _one_differs(stage, leads=True)


def a_follower_applies_something_differently(stage: Stage) -> Play:
    yield from _one_differs(stage, leads=False)


def compares_no_states(patch: Any) -> None:
    """Digests come and go, and nobody looks at them."""
    patch.setattr(StateComparison, "judge", lambda _self, _voters: None)


def forgets_that_it_differs(patch: Any) -> None:
    """A node that differs knows it until its next start."""
    patch.setattr(DifferenceMark, "write", lambda _self, _reason: None)


THE_LEADER_DIFFERS = Schedule(the_leader_applies_something_differently)
A_FOLLOWER_DIFFERS = Schedule(a_follower_applies_something_differently, node_count=5)
