"""Properties of jobs that depend on others, and of workflows.

Theory of operation. Along the log each dependency is judged at once, whenever its parent ends or begins again: met for
good, not met, or open. A job that a user tells to run again is judged again by all its parents. The server may judge
later, by steps; so what it does must fit this judgement at the moment that it does it, and within a bound all of it
must be done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from chaos.checkers.history.events import Change, Healed, WorkflowChanged
from chaos.checkers.history.views import NEW_RUN, History
from chaos.checkers.model import COMPLETED, DEAD_LETTER, ENDED, PURGED, SKIPPED, UNLEASED, stage_of
from chaos.checkers.report import Violation


class _Verdict(Enum):
    OPEN = "open"
    MET = "met"
    UNMET = "not met"


@dataclass(slots=True)
class _Child:
    on_failure: str
    wanted: dict[str, str]
    """Parent -> condition."""
    verdicts: dict[str, _Verdict]
    stage: str = ""
    judged_at: int = 0
    """The time of its last change, or of its last verdict's."""

    def waits_for(self) -> list[str]:
        return [parent for parent, verdict in self.verdicts.items() if verdict is not _Verdict.MET]

    def lacks(self) -> list[str]:
        return [parent for parent, verdict in self.verdicts.items() if verdict is _Verdict.UNMET]


@dataclass(slots=True)
class _Family:
    """The dependencies between jobs, along the log."""

    children: dict[str, _Child] = field(default_factory=dict)
    dependants: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    stages: dict[str, str] = field(default_factory=dict)

    def move(self, change: Change) -> None:
        stage = stage_of(change.status)
        if change.f == "submit" and change.depends_on:
            wanted = dict(change.depends_on)
            self.children[change.job] = _Child(change.on_failure, wanted, dict.fromkeys(wanted, _Verdict.OPEN))
            for parent in wanted:
                self.dependants[parent].append(change.job)
                self._judge(change.job, parent, self.stages.get(parent, ""), change.t)
        child = self.children.get(change.job)
        if child is not None:
            if change.f == "requeue":
                self._judge_anew(child)
            child.stage, child.judged_at = stage, max(child.judged_at, change.t)
        if stage == PURGED:
            self.stages.pop(change.job, None)
        else:
            self.stages[change.job] = stage
            for name in self.dependants.get(change.job, ()):
                self._judge(name, change.job, stage, change.t)

    def _judge_anew(self, child: _Child) -> None:
        """A user runs it: its parents count as they are; those that are gone, as they ended."""
        for parent in child.verdicts.keys() & self.stages.keys():
            child.verdicts[parent] = _verdict(self.stages[parent], child.wanted[parent])

    def _judge(self, name: str, parent: str, stage: str, t: int) -> None:
        child = self.children[name]
        old = child.verdicts[parent]
        new = old if old is _Verdict.MET else _verdict(stage, child.wanted[parent])
        if new is not old:
            child.verdicts[parent], child.judged_at = new, t


def _verdict(stage: str, condition: str) -> _Verdict:
    if stage not in ENDED:
        return _Verdict.OPEN
    wanted = {"success": stage == COMPLETED, "failure": stage == DEAD_LETTER, "completion": True}[condition]
    return _Verdict.MET if wanted else _Verdict.UNMET


def _walk(history: History) -> Iterator[tuple[Change, _Family]]:
    """Each change of a job with who depends on whom right after it."""
    family = _Family()
    for change in history.changes:
        family.move(change)
        yield change, family


def nothing_starts_before_its_parents(history: History) -> list[Violation]:
    """A dependant is released, and leased, only once each of its parents has ended as it should (G11)."""
    violations = []
    for change, family in _walk(history):
        child = family.children.get(change.job)
        if child is None or change.f not in ("release", "lease"):
            continue
        if waits_for := child.waits_for():
            what = f"{change.f} of job {change.job} at index {change.index}, which waits for {', '.join(waits_for)}"
            violations.append(Violation(what, change.t))
    return violations


def who_ends_for_want_has_a_cause(history: History) -> list[Violation]:
    """A job ends because of a parent only if one ended otherwise than it should, in the way that it chose (G11)."""
    violations = []
    for change, family in _walk(history):
        if change.f != "skip":
            continue
        child = family.children.get(change.job)
        if child is None or not child.lacks():
            what = f"job {change.job} ends because of a parent at index {change.index}, and none ended wrongly"
            violations.append(Violation(what, change.t))
        elif change.status != {"skip": SKIPPED, "fail": DEAD_LETTER}[child.on_failure]:
            what = f"job {change.job} is to {child.on_failure} because of a parent, and becomes {change.status}"
            violations.append(Violation(what, change.t))
    return violations


def nobody_waits_in_vain(history: History) -> list[Violation]:
    """After the heal, no job waits for parents that have all ended, or continues though one ended wrongly (L1, G11)."""
    if not history.of(Healed):
        return []
    family = _Family()
    for change in history.changes:
        family.move(change)
    healed = history.of(Healed)[-1].t
    staged = _staged_jobs(history)
    limit = history.end - history.setup.background_bound_ms * 1_000
    violations = []
    for name, child in family.children.items():
        if name in staged or max(child.judged_at, healed) > limit:
            continue
        waits = child.stage == "waiting_dependencies" and _Verdict.OPEN not in child.verdicts.values()
        if waits or (child.stage in UNLEASED and child.lacks()):
            violations.append(Violation(f"job {name} is {child.stage}, though its parents have ended", history.end))
    return violations


def dependant_count(history: History) -> int:
    return sum(1 for change in history.changes if change.f == "submit" and change.depends_on)


# -- workflows --------------------------------------------------------------------------------------------------------


def _staged_jobs(history: History) -> set[str]:
    """Jobs of workflows that are not whole at the end."""
    whole = {event.workflow for event in history.of(WorkflowChanged) if event.stored_count == event.job_count}
    return {change.job for change in history.changes if change.workflow and change.workflow not in whole}


def workflows_are_whole_or_not_at_all(history: History) -> list[Violation]:
    """Nothing of a workflow runs before all of its jobs are stored, and what is whole has them all (G11)."""
    jobs: dict[str, set[str]] = defaultdict(set)
    owner: dict[str, str] = {}
    stored: dict[str, WorkflowChanged] = {}
    violations = []
    for event in history.log_of(Change, WorkflowChanged):
        if isinstance(event, WorkflowChanged):
            stored[event.workflow] = event
        elif isinstance(event, Change):
            if event.workflow:
                owner[event.job] = event.workflow
                jobs[event.workflow].add(event.job)
            workflow = stored.get(owner.get(event.job, ""))
            if event.f == "lease" and workflow is not None and workflow.stored_count < workflow.job_count:
                what = f"job {event.job} is leased at index {event.index}, and its workflow is not whole"
                violations.append(Violation(what, event.t))
    for workflow_id, last in stored.items():
        if last.stored_count == last.job_count != len(jobs[workflow_id]):
            what = f"workflow {workflow_id} has {len(jobs[workflow_id])} jobs of {last.job_count}"
            violations.append(Violation(what, last.t))
    return violations


def cancelled_workflows_start_nothing(history: History) -> list[Violation]:
    """Once a workflow is cancelled, no job of it is leased, unless a user ran it again since (G10, G11)."""
    owner: dict[str, str] = {}
    cancelled: set[str] = set()
    spared: set[str] = set()
    violations = []
    for event in history.log_of(Change, WorkflowChanged):
        if isinstance(event, WorkflowChanged):
            if event.f == "cancel":
                cancelled.add(event.workflow)
                spared -= {job for job, workflow in owner.items() if workflow == event.workflow}
        elif isinstance(event, Change):
            if event.workflow:
                owner[event.job] = event.workflow
            if event.f in NEW_RUN:
                spared.add(event.job)
            if event.f == "lease" and owner.get(event.job, "") in cancelled and event.job not in spared:
                what = f"job {event.job} is leased at index {event.index}, after its workflow was cancelled"
                violations.append(Violation(what, event.t))
    return violations


def workflow_counts_are_right(history: History) -> list[Violation]:
    """At each of its changes, a workflow counts as unfinished just the jobs of it that are (G11, I3)."""
    owner: dict[str, str] = {}
    unfinished: dict[str, set[str]] = defaultdict(set)
    latest: dict[str, WorkflowChanged] = {}
    violations = []
    for index, events in history.log_by_index(Change, WorkflowChanged):
        touched: dict[str, WorkflowChanged] = {}
        for event in events:
            if isinstance(event, WorkflowChanged):
                touched[event.workflow] = latest[event.workflow] = event
            elif isinstance(event, Change):
                _count(event, owner, unfinished)
        for workflow_id, event in touched.items():
            count = len(unfinished[workflow_id])
            if event.f != "remove" and event.unfinished_count != count:
                what = f"workflow {workflow_id} counts {event.unfinished_count} unfinished jobs at index {index} of {count}"
                violations.append(Violation(what, event.t))
    return violations


def _count(change: Change, owner: dict[str, str], unfinished: dict[str, set[str]]) -> None:
    if change.workflow:
        owner[change.job] = change.workflow
    workflow = owner.get(change.job)
    if workflow is None:
        return
    if change.status in ENDED or change.status == PURGED:
        unfinished[workflow].discard(change.job)
    else:
        unfinished[workflow].add(change.job)


def workflow_count(history: History) -> int:
    return len({event.workflow for event in history.of(WorkflowChanged)})
