"""The client: `Client` for asyncio, `BlockingClient` for everything else, over HTTP and nothing else.

From the outside in: `client` (the calls) and `blocking` (its twin, made by `twins`); `jobs`, `schedules`, `workflows`,
`queues`, `bulk` and `events` (what can be made of each) over `calls` (a document out, a struct back); `submits` (a
future for each job) over `batches` (send until every item has its answer) and `gather` (which items travel together);
`connection` (one request, or one with retries) over `nodes` (whom to ask) and `retries` (when). `problems`, `specs`,
`records`, `documents` and `keys` are the words they exchange.
"""

from raftsched.client.blocking import BlockingClient, BlockingJob, BlockingWorkflowRun
from raftsched.client.client import Client
from raftsched.client.errors import JobCancelled, JobFailed, JobNotCompleted, JobUnfinished, WorkflowNotCompleted
from raftsched.client.http.settings import ClientSettings
from raftsched.client.jobs import Job
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
    WorkflowInfo,
)
from raftsched.client.specs import Dependency, JobOptions, JobSpec, RetryPolicy, Unique
from raftsched.client.workflows import Task, Workflow, WorkflowRun

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
    "Task",
    "Unique",
    "Workflow",
    "WorkflowInfo",
    "WorkflowNotCompleted",
    "WorkflowRun",
]
