"""One drill: a cluster under load, rounds of faults, the heal, and the verdict on all of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.checkers import History, Report
from chaos.checkers.history.events import AnyEvent, Healed, Members, Setup, write_history
from chaos.drills.backends import Backend, Need
from chaos.drills.cluster import Cluster, MakeNode
from chaos.drills.faults import Fault, Scene
from chaos.drills.founding import found
from chaos.drills.history.disks import FIRST_INDEX, NodeDisk, read_back, read_disk
from chaos.drills.history.observed import read_observed
from chaos.drills.history.recorder import Recorder, in_order
from chaos.drills.load.load import Load
from chaos.drills.names_node import NAMES_NODE
from chaos.drills.nodes import LEASE_SECONDS, STOP_SECONDS_MAX, Node
from chaos.drills.observed_node import OBSERVED_NODE, observed_file, settings_of
from chaos.drills.readiness import ReadinessWatch, Sight
from chaos.drills.releases import faults_by
from chaos.drills.rounds import Round, run_round
from chaos.drills.shims import Shims
from chaos.drills.verdict import Together, directory_faults, judge, lost_and_acknowledged_jobs
from raftsched import limits
from raftsched.errors import RaftschedError

_SMALL_DISK_BYTES = 600 * 1024 * 1024
_SHORT_LOG = "journal_tail_bytes = 0\njournal_segment_bytes = 65536\n"
"""The first node keeps its whole log: it is read back in the end."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """A drill that is to be run."""

    faults: Sequence[Fault]
    """One a round, in order."""
    node_count: int
    seed: int
    out: Path
    """Of the history and the logs."""
    entry: Sequence[str] = OBSERVED_NODE
    """The module that nodes run."""
    configuration: str = ""
    """Lines of all nodes' configuration, beside those that every drill has."""
    hosts: Sequence[Sequence[str]] = ()
    """As `Load` has them."""
    syncs: str = ""
    """Mode of all syncs from the start on (`shims/sync.c`)."""
    bug: str = ""
    """The bug that they have (`bugs`); "" = none."""
    begins: Sequence[float] = ()
    """For each round, the seconds since the start of the drill before which it does not begin; () = at once."""


@dataclass(slots=True)
class Result:
    """The result of a drill."""

    rounds: list[Round] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Faults found beside those of rounds and history."""
    report: Report | None = None
    lost_and_acknowledged_jobs: tuple[int, int] = (0, 0)
    events: list[AnyEvent] = field(default_factory=list)
    together: Together | None = None
    sights: list[Sight] = field(default_factory=list)
    """The readiness of nodes over time."""

    @property
    def violations(self) -> list[str]:
        in_history = [
            f"{name}: {violation}"
            for name, found in (self.report.violations if self.report else {}).items()
            for violation in found
        ]
        return [*(text for each in self.rounds for text in each.violations), *self.faults, *in_history]


async def run(plan: Plan, backend: Backend, say: Say) -> Result:
    """Run all rounds, and judge; everything that was started has ended when this returns."""
    result, recorder = Result(), Recorder(plan.out / "harness.jsonl")
    recorder.add(Setup, **_setup(plan))
    await backend.open()
    try:
        cluster = Cluster(range(1, plan.node_count + 1), _maker(plan, backend, recorder))
        try:
            load = await _run_rounds(plan, Scene(cluster, backend, random.Random(plan.seed), ()), recorder, result, say)
        finally:
            await cluster.close()
        say("reading the logs of the nodes back, and judging")
        await asyncio.to_thread(_judge, plan, cluster, load, recorder, result)
    finally:
        await backend.close()
    write_history(plan.out / "history.jsonl", result.events)
    return result


def _setup(plan: Plan) -> dict[str, Any]:
    return {
        "nodes": tuple(f"n{number}" for number in range(1, plan.node_count + 1)),
        "seed": plan.seed,
        "lease_ttl_ms": round(LEASE_SECONDS * 1000),
        "lost_attempts_max": limits.LOST_WORKERS_DEFAULT,
        "first_index": FIRST_INDEX,
    }


def _maker(plan: Plan, backend: Backend, recorder: Recorder) -> MakeNode:
    needs = frozenset().union(*(fault.needs for fault in plan.faults))
    shims = Shims(plan.out) if Need.SHIMS in needs else None
    entry = plan.entry
    if entry is OBSERVED_NODE and Need.NAMES in needs:
        entry = NAMES_NODE
    short_log = _SHORT_LOG if any(fault.short_logs for fault in plan.faults) else ""

    def make(number: int, hosts: Mapping[str, int]) -> Node:
        of_node = shims.of_node(plan.out, f"n{number}") if shims is not None else None
        if of_node is not None:
            of_node.set_syncs(plan.syncs)
        node = Node(
            number,
            hosts,
            backend,
            plan.out,
            shims=of_node,
            entry=entry,
            configuration=plan.configuration + (short_log if number > 1 else ""),
        )
        node.settings.update(settings_of(node.id, plan.out, recorder.origin_ns, plan.bug))
        if needs & {Need.SMALL_DISK, Need.DISKS, Need.READ_ONLY}:
            backend.mount_small(node.disk, _SMALL_DISK_BYTES)
        return node

    return make


async def _run_rounds(plan: Plan, scene: Scene, recorder: Recorder, result: Result, say: Say) -> Load:
    cluster = scene.cluster
    result.rounds += await found(scene, [fault for fault in plan.faults if fault.at_founding], recorder)
    for each in result.rounds:
        say(str(each))
    watch = ReadinessWatch(cluster, recorder)
    result.sights = watch.sights
    load = Load(cluster.nodes, plan.out, recorder, scene.random, plan.hosts)
    scene.workers, scene.crowds = load.workers, load.crowds
    try:
        await load.start()
        await asyncio.sleep(1.0)
        async with watch:
            for number, fault in enumerate(plan.faults):
                if fault.at_founding:
                    continue
                if plan.begins:
                    await asyncio.sleep(plan.begins[number] - recorder.t / 1e6)
                scene.random = random.Random(f"{plan.seed} {number}")
                result.rounds.append(await run_round(scene, fault, load, recorder))
                say(str(result.rounds[-1]))
        recorder.add(Members, nodes=tuple(node.id for node in cluster.nodes))
        recorder.add(Healed)
        await load.probe()
        load.check()
        if left := await load.drain():
            result.faults.append(f"after the heal not all jobs ended: {left}")
        quiet_at, indexes = recorder.t, await cluster.converged()
        result.together = Together(quiet_at, recorder.t, indexes)
    finally:
        await load.close()
    for node in await cluster.stop():
        result.faults.append(f"{node.id} did not end within {STOP_SECONDS_MAX:.0f} s of SIGTERM; see {node.log}")
    return load


def _judge(plan: Plan, cluster: Cluster, load: Load, recorder: Recorder, result: Result) -> None:
    recorder.close()
    told = read_observed({node.id: observed_file(node.id, plan.out) for node in cluster.all_nodes})
    seen = in_order([*recorder.events, *load.events_of_processes(), *told.leaders])
    end = max(recorder.t, seen[-1].t)
    with_disks = [node for node in cluster.all_nodes if node.data.exists()]
    former = {node.id for node in with_disks if node not in cluster.nodes}
    log = read_back(_disks(with_disks, result, t=end), t=end, applied_at=told.applied_at, former=former)
    if not log.is_whole:
        result.faults.append(
            "the log was compacted: what became of unknown operations can't be settled; run fewer rounds"
        )
    result.events = in_order([*seen, *log.events])
    result.report = judge(seen, log, result.together)
    result.lost_and_acknowledged_jobs = lost_and_acknowledged_jobs(History(result.events))
    release, directories = cluster.nodes[0].release, [node.data for node in with_disks]
    result.faults += directory_faults(directories) if release is None else faults_by(release, directories)


def _disks(nodes: Sequence[Node], result: Result, *, t: int) -> list[NodeDisk]:
    """Read all disks; one that can't be read is a fault of the result."""
    disks = []
    for node in nodes:
        try:
            disks.append(read_disk(node.id, node.data, t=t))
        except (RaftschedError, OSError) as error:
            result.faults.append(f"{node.id}: its disk can't be read: {error}")
    return disks
