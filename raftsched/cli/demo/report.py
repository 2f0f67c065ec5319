"""Judge the records of the cluster and the receiver by the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from raftsched.cli.demo import checks
from raftsched.cli.demo.checks import Check
from raftsched.cli.demo.evidence import Evidence
from raftsched.cli.demo.plan import Planned
from raftsched.client import JobInfo


@dataclass(slots=True)
class Report:
    """The demo's verdict; `faults` describes errors besides the checks."""

    statuses: Counter[str] = field(default_factory=Counter)
    """Number of jobs by final status."""
    retried: int = 0
    """Jobs that took several attempts."""
    checks: list[Check] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """From the first request to the last job's end."""
    leader_changes: int = 0
    seconds_without_leader: float = 0.0

    @property
    def is_right(self) -> bool:
        return not self.faults and bool(self.checks) and all(check.holds for check in self.checks)


def judge(evidence: Evidence) -> Report:
    """Return the verdict on all evidence."""
    found = evidence.found.values()
    return Report(
        statuses=Counter(job.status for job in found),
        retried=sum(job.attempt_number > 1 for job in found),
        checks=[*compare(evidence), *(check(evidence) for check in checks.ALL)],
    )


def compare(evidence: Evidence) -> list[Check]:
    """Compare each job with its plan, and with the receiver's records."""
    planned, found, recorded = evidence.planned, evidence.found, evidence.recorded
    lost = [f"job {job_id}, {planned[job_id].kind}, is lost" for job_id in planned.keys() - found.keys()]
    twice = [f"run {run_id} was recorded {len(values)} times" for run_id, values in recorded.items() if len(values) > 1]
    known = {_last_run(job_id, job) for job_id, job in planned.items()}
    strange = [f"job {job_id} was never submitted" for job_id in found.keys() - planned.keys()]
    strange += [f"run {run_id} belongs to no planned job" for run_id in recorded.keys() - known]
    differences: list[str] = []
    for job_id, job in planned.items():
        if job_id in found:
            differences += _differences(job, found[job_id], recorded.get(_last_run(job_id, job), ()))
    return [
        Check("jobs lost", len(planned), lost),
        Check("runs recorded twice", len(recorded), twice),
        Check("jobs or runs that were never submitted", len(found), strange),
        Check("ends, results or digests not as planned", len(found), differences),
    ]


def _last_run(job_id: str, plan: Planned) -> str:
    return f"{job_id}.{plan.runs}"


def _is_expected(result: Any, expected: Any) -> bool:
    if isinstance(expected, dict) and isinstance(result, dict):
        return all(result.get(name) == value for name, value in expected.items())
    return bool(result == expected)


def _differences(plan: Planned, job: JobInfo, recorded: Sequence[str]) -> list[str]:
    what = f"{plan.kind} {job.id}"
    if job.status != plan.ends_as:
        reason = f": {job.error.message}" if job.error else ""
        return [f"{what} ended as {job.status}, not {plan.ends_as}{reason}"]
    faults = []
    if not _is_expected(job.result, plan.result):
        faults.append(f"{what} has the result {job.result!r}, not {plan.result!r}")
    if job.attempt_number < plan.attempts:
        faults.append(f"{what} took {job.attempt_number} attempts, not {plan.attempts}")
    expected = [] if plan.recorded is None else [plan.recorded]
    if list(recorded) != expected:
        faults.append(f"{what}: the receiver recorded {list(recorded)!r}, not {expected!r}")
    return faults
