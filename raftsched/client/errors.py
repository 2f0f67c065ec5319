"""How waiting for a job can end other than with its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftsched.errors import RaftschedError

if TYPE_CHECKING:
    from raftsched.client.jobs import JobInfo


class JobNotCompleted(RaftschedError):
    """The job is finished and has no result; `job` is how it ended."""

    code = "job_not_completed"

    def __init__(self, job: JobInfo) -> None:
        reason = f": {job.failure_reason}" if job.failure_reason else ""
        fault = f" ({job.error.type}: {job.error.message})" if job.error else ""
        super().__init__(f"job {job.id} ({job.name}) ended {job.status}{reason}{fault}")
        self.job = job


class JobFailed(JobNotCompleted):
    """The job is in the dead letters, failed, or was skipped; `job.failure_reason` says why."""

    code = "job_failed"


class JobCancelled(JobNotCompleted):
    """The job was cancelled."""

    code = "job_cancelled"
