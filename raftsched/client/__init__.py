"""The client: `Client` for asyncio, `BlockingClient` for everything else, over HTTP and nothing else.

From the outside in: `client` (the calls) and `blocking` (its twin on a thread of its own); `submits` (a future for
each job) over `batches` (send until every item has its answer) and `gather` (which items travel together);
`connection` (one request, or one with retries) over `nodes` (whom to ask) and `retries` (when). `problems`, `jobs`,
`documents` and `keys` are the words they exchange.
"""

from raftsched.client.blocking import BlockingClient, BlockingJob
from raftsched.client.client import Client
from raftsched.client.errors import JobCancelled, JobFailed, JobNotCompleted
from raftsched.client.jobs import Job, JobInfo, JobSpec, RetryPolicy
from raftsched.client.settings import ClientSettings

__all__ = [
    "BlockingClient",
    "BlockingJob",
    "Client",
    "ClientSettings",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobInfo",
    "JobNotCompleted",
    "JobSpec",
    "RetryPolicy",
]
