"""Define the errors of waiting for a job or a workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftsched.errors import RaftschedError

if TYPE_CHECKING:
    from raftsched.client.records import JobInfo, WorkflowInfo


class JobNotCompleted(RaftschedError):
    """The job is finished and has no result; `job` is its final state."""

    code = "job_not_completed"

    def __init__(self, job: JobInfo) -> None:
        reason = f": {job.failure_reason}" if job.failure_reason else ""
        fault = f" ({job.error.type}: {job.error.message})" if job.error else ""
        super().__init__(f"job {job.id} ({job.name}) ended {job.status}{reason}{fault}")
        self.job = job


class JobFailed(JobNotCompleted):
    """The job is in the dead-letter queue, failed, or was skipped; `job.failure_reason` has the reason."""

    code = "job_failed"


class JobCancelled(JobNotCompleted):
    """The job was cancelled."""

    code = "job_cancelled"


class JobUnfinished(RaftschedError):
    """The job has no result yet; `job` is its current state."""

    code = "job_unfinished"

    def __init__(self, job: JobInfo) -> None:
        super().__init__(f"job {job.id} ({job.name}) is {job.status}; it has no result yet")
        self.job = job


def wait_timeout_error(subject: str, timeout_seconds: float | None, status: str | None) -> TimeoutError:
    """Return the error for a wait that timed out, with the timeout and the last status that was read."""
    detail = f"it is {status}" if status else "its status could not be read in that time"
    return TimeoutError(f"{subject} was not finished within {timeout_seconds} seconds: {detail}")


class WorkflowNotCompleted(RaftschedError):
    """The workflow is finished, and not all its jobs are completed; `workflow` is its final state."""

    code = "workflow_not_completed"

    def __init__(self, workflow: WorkflowInfo) -> None:
        counts = (workflow.failed_count, workflow.cancelled_count, workflow.skipped_count)
        detail = "{} failed, {} cancelled, {} skipped".format(*counts)
        super().__init__(f"workflow {workflow.id} ({workflow.name}) ended {workflow.status}: {detail}")
        self.workflow = workflow
