"""Compares what the cluster and the receiver recorded with what was planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raftsched.cli.demo.plan import HASH_KIND, Planned
from raftsched.client import JobInfo


@dataclass(slots=True)
class Report:
    """The demo's figures; `faults` says in words what is not as it must be."""

    submitted: int = 0
    completed: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    leader_changes: int = 0
    seconds_without_leader: float = 0.0
    lost: int = 0
    recorded_twice: int = 0
    digests_compared: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not self.faults and self.lost == 0 and self.recorded_twice == 0


def compare(
    planned: Mapping[str, Planned], found: Mapping[str, JobInfo], recorded: Mapping[str, Sequence[str]]
) -> Report:
    """Return the figures for jobs `planned` by id, `found` in the cluster, and `recorded` by the receiver (run id →
    values).
    """
    report = Report(submitted=len(planned))
    statuses = Counter(job.status for job in found.values())
    report.completed = statuses["completed"]
    report.dead = statuses["dead_letter"]
    report.cancelled = statuses["cancelled"]
    report.retried = sum(job.attempt_number > 1 for job in found.values())
    report.recorded_twice = sum(len(values) > 1 for values in recorded.values())
    report.lost = len(planned.keys() - found.keys())
    for job_id, plan in planned.items():
        if job_id in found:
            report.faults += _differences(plan, found[job_id], recorded.get(f"{job_id}.1", ()))
        report.digests_compared += plan.kind == HASH_KIND
    if unplanned := found.keys() - planned.keys():
        report.faults.append(f"{len(unplanned)} jobs that nobody submitted")
    return report


def _differences(plan: Planned, job: JobInfo, recorded: Sequence[str]) -> list[str]:
    what = f"{plan.kind} {job.id}"
    if job.status != plan.ends_as:
        return [f"{what} ended as {job.status}, not {plan.ends_as}"]
    faults = []
    if job.result != plan.result:
        faults.append(f"{what} has the result {job.result!r}, not {plan.result!r}")
    if job.attempt_number < plan.attempts:
        faults.append(f"{what} took {job.attempt_number} attempts, not {plan.attempts}")
    expected = list(plan.result.values()) if plan.result else []
    if list(recorded) != expected:
        faults.append(f"{what}: the receiver recorded {list(recorded)!r}, not {expected!r}")
    return faults
