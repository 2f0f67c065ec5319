"""Judge a drill: its history by `chaos.checkers`, and the directories that its nodes left behind by `raftsched check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from msgspec.structs import replace as replace_struct

from chaos.checkers import History, Report, check_all
from chaos.checkers.history.events import AnyEvent, Change, Downstream, Effect, FinalState, Healed, Members, Setup
from chaos.checkers.history.views import Answer
from chaos.checkers.jobs.effects import effects_disjoint, timed_effect_count
from chaos.checkers.liveness import healed_count, nodes_converge
from chaos.checkers.report import Violation
from chaos.drills.history.disks import ReadBack
from chaos.drills.history.recorder import in_order
from chaos.drills.load.processes import HTTP_EXECUTOR, SDK_WORKER
from raftsched.errors import RaftschedError
from raftsched.node.check import check_directories

NEED_TIMES: Final = frozenset(
    {
        "acknowledged_control_is_kept",
        "nobody_is_passed_over",
        "ready_jobs_are_given",
        "shown_is_applied",
    }
)
"""Properties that say nothing if nobody saw when an entry was applied."""


@dataclass(frozen=True, slots=True)
class Together:
    """The indexes that the nodes had applied while all of them still ran.

    They stop one after the other, so their disks differ by what the others did meanwhile.
    """

    quiet_at: int
    """The time from which on nobody asked for anything."""
    seen_at: int
    indexes: Mapping[str, int]
    """By node; one that did not answer is not there."""

    def events(self) -> Iterator[AnyEvent]:
        yield Healed(t=self.quiet_at)
        for node, index in self.indexes.items():
            yield FinalState(t=self.seen_at, node=node, index=index, state="", jobs={})


def judge(events: Sequence[AnyEvent], read_back: ReadBack | None = None, together: Together | None = None) -> Report:
    """Return the verdict of the checkers on a history, which what was read back from the disks completes."""
    found = read_back or ReadBack()
    replay = found.replay if found.is_whole else None
    history = History(in_order([*events, *found.events]), replay=replay)
    report = check_all(history)
    violations, evidence = dict(report.violations), dict(report.evidence)
    if together is not None:
        known = [event for event in events if isinstance(event, Setup | Members)]
        converging = History([*known, *together.events()])
        violations[nodes_converge.__name__] = nodes_converge(converging)
        evidence[nodes_converge.__name__] = healed_count(converging)
    if not history.setup.workers_keep_time:
        keeping = History(_of_sdk_workers(history))
        violations[effects_disjoint.__name__] = effects_disjoint(keeping)
        evidence[effects_disjoint.__name__] = timed_effect_count(keeping)
    violations[completed_was_received.__name__] = completed_was_received(history)
    evidence[completed_was_received.__name__] = len(_completed_by_executors(history))
    if not any(change.t >= 0 for change in history.changes):
        violations |= {name: [] for name in NEED_TIMES}
        evidence |= dict.fromkeys(NEED_TIMES, 0)
    return replace(report, violations={name: each for name, each in violations.items() if each}, evidence=evidence)


def _of_sdk_workers(history: History) -> list[AnyEvent]:
    """Those of the SDK's workers, who stop a run at its deadline. Workers of raw HTTP overstay on purpose."""
    effects = [effect for effect in history.of(Effect) if effect.worker.startswith(SDK_WORKER)]
    return [replace_struct(history.setup, workers_keep_time=True), *effects, *history.of(Change)]


def completed_was_received(history: History) -> list[Violation]:
    """An HTTP job that is recorded as completed had its effect at the target, under the token of its outcome."""
    accepted = {(event.resource, event.token) for event in history.of(Downstream) if event.accepted}
    return [
        Violation(f"{answer.operation} is accepted, but the target did not take it", answer.reply.t)
        for answer in _completed_by_executors(history)
        if (f"{answer.call.job}.{answer.call.run}", answer.call.token) not in accepted
    ]


def _completed_by_executors(history: History) -> list[Answer]:
    return [
        answer
        for answer in history.answers("outcome")
        if answer.call.outcome == "completed" and answer.call.worker.startswith(HTTP_EXECUTOR)
    ]


def directory_faults(directories: Sequence[Path]) -> list[str]:
    """Return what is wrong with the data directories of stopped nodes, and where they differ."""
    try:
        found = check_directories(directories)
    except RaftschedError as error:
        return [f"check: {error}"]
    own = [f"{each.node_id}: {fault}" for each in found.reports for fault in each.violations]
    return [*own, *found.violations]


def lost_and_acknowledged_jobs(history: History) -> tuple[int, int]:
    """Return how many acknowledged jobs some node does not have at the end, and how many were acknowledged at all."""
    acknowledged = {answer.reply.job for answer in history.answers("submit")}
    kept = [final.jobs.keys() | history.purged for final in history.finals.values()]
    return len({job for job in acknowledged if any(job not in jobs for jobs in kept)}), len(acknowledged)
