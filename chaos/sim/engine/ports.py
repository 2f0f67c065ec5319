"""The view of the checker on a node of a bare cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from chaos.sim.engine.machine import HistoryMachine, MachineDisk
from chaos.sim.network.links import SimulatedTransport
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.consensus.raft.replication.snapshots import Work


@dataclass(slots=True)
class Running:
    """The part of a node that a crash takes away."""

    engine: RaftEngine
    journal: Journal
    machine: HistoryMachine
    transport: SimulatedTransport
    syncing: bool = False
    finished_work: list[tuple[Work, Exception | None]] = field(default_factory=list)
    checkpoint_at: float = inf
    wake_at: float = inf


class Watched(Protocol):
    """A node, as the checker sees it."""

    id: NodeId
    running: Running | None
    """None while it is down."""
    machine_disk: MachineDisk
    durable_terms: dict[int, int]
    """While down: index -> term of what was durable in its journal."""
    lost_terms: dict[int, int]
    """The same of a disk that it had before."""
