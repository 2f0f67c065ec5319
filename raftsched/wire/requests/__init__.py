"""What clients send: a strict struct for each request, with its bounds in its types.

Decoding checks them and the OpenAPI document is generated from them, so what is published is what is enforced. Unknown
fields are refused: a misspelt `max_attempts` must not turn a limited job into an unlimited one. `null` means the same
as leaving an optional field out, but for an amendment, where it takes away what the job had. A `Raw` field is JSON of
any kind, kept byte for byte.

One module per noun; this one gives them all under one name.
"""

from __future__ import annotations

from raftsched.wire.requests.bulk import (
    BulkRequest,
    DeadLetterFilter,
    DeadLettersRequest,
    JobFilter,
)
from raftsched.wire.requests.cluster import MemberRequest
from raftsched.wire.requests.common import (
    COMPLETION_ID_PATTERN,
    COMPLETION_ID_RULE,
    KEY_PATTERN,
    KEY_RULE,
    MEMBER_ID_PATTERN,
    MEMBER_ID_RULE,
    NAME_PATTERN,
    NAME_RULE,
    PATTERN_RULES,
    CompletionId,
    DelaySeconds,
    IdempotencyKey,
    Name,
    Request,
    Tag,
    Token,
)
from raftsched.wire.requests.controls import (
    AmendRequest,
    CancelQuery,
    PauseRequest,
    ReplayRequest,
    RetryRequest,
)
from raftsched.wire.requests.jobs import (
    MAX_ATTEMPTS_DEFAULT,
    PRIORITY_DEFAULT,
    BatchRequest,
    DependencyRequest,
    JobBody,
    JobRequest,
    RetryPolicyRequest,
    SeedRequest,
    TimedJobBody,
    UniqueRequest,
)
from raftsched.wire.requests.queries import (
    DeadLettersQuery,
    ListQuery,
    LogQuery,
    QueuesQuery,
    ReadQuery,
)
from raftsched.wire.requests.workers import (
    ErrorReport,
    HeartbeatRequest,
    HeldLease,
    LeaseRequest,
    LogRequest,
    OutcomeReport,
    OutcomesRequest,
    ProgressRequest,
    StartRequest,
)
from raftsched.wire.requests.workflows import (
    GraphQuery,
    TaskDependencyRequest,
    TaskRequest,
    WorkflowRequest,
    WorkflowsQuery,
)

__all__ = [
    "COMPLETION_ID_PATTERN",
    "COMPLETION_ID_RULE",
    "KEY_PATTERN",
    "KEY_RULE",
    "MAX_ATTEMPTS_DEFAULT",
    "MEMBER_ID_PATTERN",
    "MEMBER_ID_RULE",
    "NAME_PATTERN",
    "NAME_RULE",
    "PATTERN_RULES",
    "PRIORITY_DEFAULT",
    "AmendRequest",
    "BatchRequest",
    "BulkRequest",
    "CancelQuery",
    "CompletionId",
    "DeadLetterFilter",
    "DeadLettersQuery",
    "DeadLettersRequest",
    "DelaySeconds",
    "DependencyRequest",
    "ErrorReport",
    "GraphQuery",
    "HeartbeatRequest",
    "HeldLease",
    "IdempotencyKey",
    "JobBody",
    "JobFilter",
    "JobRequest",
    "LeaseRequest",
    "ListQuery",
    "LogQuery",
    "LogRequest",
    "MemberRequest",
    "Name",
    "OutcomeReport",
    "OutcomesRequest",
    "PauseRequest",
    "ProgressRequest",
    "QueuesQuery",
    "ReadQuery",
    "ReplayRequest",
    "Request",
    "RetryPolicyRequest",
    "RetryRequest",
    "SeedRequest",
    "StartRequest",
    "Tag",
    "TaskDependencyRequest",
    "TaskRequest",
    "TimedJobBody",
    "Token",
    "UniqueRequest",
    "WorkflowRequest",
    "WorkflowsQuery",
]
