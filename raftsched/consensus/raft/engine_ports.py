"""The ports that all parts of one engine share."""

from __future__ import annotations

from dataclasses import dataclass, field

from pysyncobj.transport import Transport as TransportPort

from raftsched.consensus.machine import StateMachine
from raftsched.consensus.ports import Log, NodeId, Sizes, Timing
from raftsched.consensus.raft.clocks.step_clock import StepClock
from raftsched.ports import Randomness


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePorts:
    """One node's surroundings: its log, its machine, the network, time and chance. `machine` gets the committed entries."""

    node_id: NodeId
    log: Log
    machine: StateMachine
    transport: TransportPort
    clock: StepClock
    randomness: Randomness
    timing: Timing = field(default_factory=Timing)
    sizes: Sizes = field(default_factory=Sizes)
