"""Provide the client: `Client` for asyncio, `BlockingClient` for other code. It uses HTTP only.

From the outside in: `client` (the calls, and the same without `await`, by `blocking`). `jobs`, `schedules`,
`workflows`, `queues`, `bulk` and `events` (the calls on each) use `http.calls` (send a document, return a struct).
`submit` (a future for each job) uses `http.batches` (send until every item has its answer) and `http.gather` (join
items into requests). `http.connection` (a request, with or without retries) uses `http.nodes` (choose the node) and
`http.retries` (choose the time). The documents are those of `raftsched.wire`.
"""

from raftsched.client.client import BlockingClient, Client
from raftsched.client.errors import JobCancelled, JobFailed, JobNotCompleted, JobUnfinished, WorkflowNotCompleted
from raftsched.client.http.settings import ClientSettings
from raftsched.client.jobs import BlockingJob, Job
from raftsched.client.kinds import HttpOptions, ShellOptions, http_job, shell_job
from raftsched.client.queues import Queue
from raftsched.client.records import (
    AuditEntry,
    BulkResult,
    Event,
    Firing,
    JobInfo,
    LogLine,
    QueueInfo,
    QueueScale,
    QueueSettings,
    Rate,
    ScheduleInfo,
    TenantInfo,
    TokenInfo,
    WorkflowInfo,
)
from raftsched.client.specs import Dependency, JobOptions, JobSpec, RetryPolicy, Unique
from raftsched.client.workflows import BlockingWorkflowRun, Task, Workflow, WorkflowRun

__all__ = [
    "AuditEntry",
    "BlockingClient",
    "BlockingJob",
    "BlockingWorkflowRun",
    "BulkResult",
    "Client",
    "ClientSettings",
    "Dependency",
    "Event",
    "Firing",
    "HttpOptions",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobInfo",
    "JobNotCompleted",
    "JobOptions",
    "JobSpec",
    "JobUnfinished",
    "LogLine",
    "Queue",
    "QueueInfo",
    "QueueScale",
    "QueueSettings",
    "Rate",
    "RetryPolicy",
    "ScheduleInfo",
    "ShellOptions",
    "Task",
    "TenantInfo",
    "TokenInfo",
    "Unique",
    "Workflow",
    "WorkflowInfo",
    "WorkflowNotCompleted",
    "WorkflowRun",
    "http_job",
    "shell_job",
]
