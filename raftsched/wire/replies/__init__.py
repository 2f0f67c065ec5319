"""What the API answers: a struct for each reply, encoded as it stands and published in the OpenAPI document.

Times are RFC 3339 in UTC with milliseconds. `null` stands where there is none. One module per noun; this one gives them
all under one name.
"""

from __future__ import annotations

from raftsched.wire.replies.cluster import HealthReply, MembersReply, TransferReply
from raftsched.wire.replies.common import Json, Reply, Time
from raftsched.wire.replies.jobs import (
    BatchItem,
    BatchReply,
    BulkFailure,
    BulkReply,
    DependencyReply,
    ErrorReply,
    JobReply,
    JobsPage,
    PauseReply,
    ResultReply,
    RetryPolicyReply,
    SeedReply,
)
from raftsched.wire.replies.queues import QueueReply, QueuesReply
from raftsched.wire.replies.records import (
    AttemptReply,
    EventReply,
    ExplainReply,
    HistoryReply,
    LogReply,
    ReasonReply,
    RunReply,
    RunsReply,
)
from raftsched.wire.replies.workers import (
    HeartbeatReply,
    LeaseReply,
    LeasesReply,
    LeaseState,
    LoggedReply,
    OutcomeReply,
    OutcomesReply,
    ProgressReply,
    StartReply,
    WorkerReply,
    WorkersReply,
)
from raftsched.wire.replies.workflows import (
    EdgeReply,
    GraphReply,
    NodeReply,
    SubmittedWorkflowReply,
    WorkflowReply,
    WorkflowsPage,
)

__all__ = [
    "AttemptReply",
    "BatchItem",
    "BatchReply",
    "BulkFailure",
    "BulkReply",
    "DependencyReply",
    "EdgeReply",
    "ErrorReply",
    "EventReply",
    "ExplainReply",
    "GraphReply",
    "HealthReply",
    "HeartbeatReply",
    "HistoryReply",
    "JobReply",
    "JobsPage",
    "Json",
    "LeaseReply",
    "LeaseState",
    "LeasesReply",
    "LogReply",
    "LoggedReply",
    "MembersReply",
    "NodeReply",
    "OutcomeReply",
    "OutcomesReply",
    "PauseReply",
    "ProgressReply",
    "QueueReply",
    "QueuesReply",
    "ReasonReply",
    "Reply",
    "ResultReply",
    "RetryPolicyReply",
    "RunReply",
    "RunsReply",
    "SeedReply",
    "StartReply",
    "SubmittedWorkflowReply",
    "Time",
    "TransferReply",
    "WorkerReply",
    "WorkersReply",
    "WorkflowReply",
    "WorkflowsPage",
]
