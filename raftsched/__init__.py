"""raftsched: a job scheduler that is one small Raft cluster and nothing else.

Importing it is cheap: the client and the worker are loaded when they are first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from raftsched import errors
from raftsched.errors import (
    Invalid,
    NotFound,
    OutcomeUnknown,
    RaftschedError,
    Rejected,
    Unavailable,
)

if TYPE_CHECKING:
    from raftsched.client import (
        BlockingClient,
        Client,
        ClientSettings,
        Dependency,
        Job,
        JobCancelled,
        JobFailed,
        JobInfo,
        JobSpec,
        RetryPolicy,
        Unique,
        Workflow,
        WorkflowNotCompleted,
        http_job,
        shell_job,
    )
    from raftsched.worker import Context, GiveUp, Retry, Snooze, Worker, WorkerSettings

__all__ = [
    "BlockingClient",
    "Client",
    "ClientSettings",
    "Context",
    "Dependency",
    "GiveUp",
    "Invalid",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobInfo",
    "JobSpec",
    "NotFound",
    "OutcomeUnknown",
    "RaftschedError",
    "Rejected",
    "Retry",
    "RetryPolicy",
    "Snooze",
    "Unavailable",
    "Unique",
    "Worker",
    "WorkerSettings",
    "Workflow",
    "WorkflowNotCompleted",
    "errors",
    "http_job",
    "shell_job",
]

_CLIENT = frozenset(
    (
        "BlockingClient",
        "Client",
        "ClientSettings",
        "Dependency",
        "Job",
        "JobCancelled",
        "JobFailed",
        "JobInfo",
        "JobSpec",
        "RetryPolicy",
        "Unique",
        "Workflow",
        "WorkflowNotCompleted",
        "http_job",
        "shell_job",
    )
)
_WORKER = frozenset(("Context", "GiveUp", "Retry", "Snooze", "Worker", "WorkerSettings"))


if not TYPE_CHECKING:  # a type checker that saw it would let every misspelt name pass

    def __getattr__(name: str) -> object:
        if name in _CLIENT:
            return getattr(import_module("raftsched.client"), name)
        if name in _WORKER:
            return getattr(import_module("raftsched.worker"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
