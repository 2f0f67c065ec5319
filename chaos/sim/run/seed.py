"""Run one seed: a world, its users, what befalls them, and the verdict.

faults      for `FAULT_SECONDS`, or as long as is asked for, anything may happen, and only safety is demanded
heal        the network is whole, every node that can start runs, clocks are kept
a change of the members that is under way ends
liveness    within `Setup.operation_bound_ms` each node's clients can submit, lease and complete a job
quiet       clients stop; all nodes reach the same index
verdict     the checkers over the history; invariants, digests and a replay over the nodes' states
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable

from chaos.sim.rates import Rates
from chaos.sim.record.trace import Trace
from chaos.sim.run.verdict import Outcome, judge
from chaos.sim.users.crowd import Crowd
from chaos.sim.world.faults import Faults
from chaos.sim.world.upgrades import Upgrades
from chaos.sim.world.world import CALM_SECONDS, QUIET_SECONDS, World, unaltered

FAULT_SECONDS = 16.0


def run_seed(
    seed: int,
    *,
    node_count: int,
    fault_seconds: float = FAULT_SECONDS,
    trace: Trace | None = None,
    alter: Callable[[Rates], Rates] = unaltered,
) -> Outcome:
    """Run one seed from birth to verdict; `alter` changes what it drew for itself."""
    world = World(seed, node_count, trace=trace, alter=alter)
    try:
        return run_world(world, fault_seconds=fault_seconds)
    finally:
        world.close()
        del world
        gc.collect()


def run_world(world: World, *, fault_seconds: float = FAULT_SECONDS) -> Outcome:
    """Run a world, which is of no more use then."""
    workload = begin(world, fault_seconds=fault_seconds)
    world.run(fault_seconds)
    return conclude(world, workload)


def begin(world: World, *, fault_seconds: float = FAULT_SECONDS) -> Crowd:
    """Start all nodes and all that use or befall them; for `fault_seconds` anything may happen."""
    world.start()
    workload = Crowd(world)
    Faults(world, seconds=fault_seconds)
    Upgrades(world).begin(seconds=fault_seconds)
    return workload


def conclude(world: World, workload: Crowd) -> Outcome:
    """Run what comes after the faults: heal, demand liveness, be quiet, judge."""
    outcome = Outcome(world.seed, world.node_count)
    world.heal()
    workload.calm_down()
    world.recover(CALM_SECONDS)
    for user in sorted(world.unserved_users):
        world.fault(f"no submit of {user} is answered since the heal")
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
