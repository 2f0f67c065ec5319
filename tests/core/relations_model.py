"""What becomes of jobs that depend on each other, told as simply as possible: no counts, no chores, no steps.

The model knows each job's end and which of its dependencies were met, and looks at everything again until nothing
changes any more. It says what must be so once all chores are done.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raftsched.core.records.job import Condition, Status
from raftsched.core.records.spec import OnDependencyFailure

READY = "ready"
WAITING = "waiting"
RUNNING = "running"
PAUSED = "paused"
ENDS = {
    "completed": Status.COMPLETED,
    "dead": Status.DEAD_LETTER,
    "cancelled": Status.CANCELLED,
    "skipped": Status.SKIPPED,
    "wanting": Status.DEAD_LETTER,
}
"""`wanting`: in the dead letters because of a parent."""
WANTED = {"skipped", "wanting"}


@dataclass
class ModelJob:
    number: int
    parents: dict[int, Condition]
    policy: OnDependencyFailure
    workflow: int = 0
    where: str = WAITING
    met: set[int] = field(default_factory=set)
    """Parents that ended as they should, once and for all."""
    run: int = 1
    is_gone: bool = False
    """Removed; its end still counts for those that were told."""

    @property
    def has_ended(self) -> bool:
        return self.where in ENDS


class RelationsModel:
    def __init__(self) -> None:
        self.jobs: dict[int, ModelJob] = {}
        self.staged: set[int] = set()
        """Workflows that are not whole."""

    def add(self, job: ModelJob) -> None:
        self.jobs[job.number] = job

    def end(self, number: int, how: str) -> None:
        self.jobs[number].where = how

    def cancel_workflow(self, number: int, *, force: bool = False) -> None:
        """All jobs of the workflow that have not ended are cancelled; those that run go on, unless by `force`."""
        for job in self.jobs.values():
            if job.workflow == number and not job.has_ended and (force or job.where != RUNNING):
                job.where = "cancelled"
        self.settle()

    def requeue(self, number: int) -> bool:
        """Whether the job may run again: its parents are judged anew, those that are gone by what was said before."""
        job = self.jobs[number]
        met = {
            parent
            for parent, condition in job.parents.items()
            if (parent in job.met if self.jobs[parent].is_gone else self._is_met(parent, condition))
        }
        if any(self.jobs[parent].has_ended for parent in job.parents.keys() - met):
            return False
        job.where, job.met = WAITING, met
        job.run += 1
        self._revive()
        return True

    def settle(self) -> None:
        """Let everything follow that follows."""
        while any(self._look_at(job) for job in self.jobs.values()):
            pass

    def unmet(self, job: ModelJob) -> list[int]:
        """Parents that ended otherwise than they should."""
        return [parent for parent in job.parents if parent not in job.met and self.jobs[parent].has_ended]

    def _look_at(self, job: ModelJob) -> bool:
        """Bring one job up to date; whether that changed anything."""
        if job.is_gone or job.where in {"completed", "dead", "cancelled", RUNNING}:
            return False
        before = (job.where, len(job.met))
        job.met |= {parent for parent, condition in job.parents.items() if self._is_met(parent, condition)}
        if job.where in {WAITING, PAUSED} and self.unmet(job):
            job.where = "skipped" if job.policy is OnDependencyFailure.SKIP else "wanting"
        if job.where == WAITING and len(job.met) == len(job.parents) and job.workflow not in self.staged:
            job.where = READY
        return before != (job.where, len(job.met))

    def _is_met(self, parent: int, condition: Condition) -> bool:
        where = self.jobs[parent].where
        if condition is Condition.COMPLETION:
            return where in ENDS
        return where == "completed" if condition is Condition.SUCCESS else where in {"dead", "wanting"}

    def _revive(self) -> None:
        """Who ended for want of parents none of whom is wanting any more waits again, and so on."""
        again = True
        while again:
            again = False
            for job in self.jobs.values():
                if job.where in WANTED and not job.is_gone and not self.unmet(job):
                    job.where, again = WAITING, True
                    job.run += 1
