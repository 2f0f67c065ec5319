"""Define all metrics in ONE table. The exposition, the documentation and the tests are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from raftsched.histogram import DISK_BUCKETS


class Kind(Enum):
    """Enumerate the kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scope(Enum):
    """Enumerate whose numbers they are."""

    NODE = "each node"
    """Each node exports its own."""
    CLUSTER = "the leader"
    """The leader exports them for the whole cluster, while a majority confirms that it leads."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its names, and how it is counted."""

    name: str
    kind: Kind
    scope: Scope
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, in seconds."""


_STALL_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_REQUEST_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LAG_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0)
_RUN_BUCKETS: Final = (0.05, 0.25, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0)
_DELAY_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_NODE, _CLUSTER = Scope.NODE, Scope.CLUSTER
_QUEUE: Final = ("queue",)

# -- jobs -------------------------------------------------------------------------------------------------------------
JOBS: Final = Metric(
    "raftsched_jobs",
    _G,
    _CLUSTER,
    "Jobs by queue and status. A waiting job that is due is queued.",
    ("queue", "status"),
)
QUEUE_OLDEST_READY: Final = Metric(
    "raftsched_queue_oldest_ready_seconds",
    _G,
    _CLUSTER,
    "Time that the longest-due job of the queue has waited for a worker; 0 = none waits.",
    _QUEUE,
)
QUEUE_PAUSED: Final = Metric(
    "raftsched_queue_paused", _G, _CLUSTER, "1 if the queue is paused; for the label other, how many are.", _QUEUE
)
QUEUE_PAUSED_SINCE: Final = Metric(
    "raftsched_queue_paused_since_timestamp_seconds",
    _G,
    _CLUSTER,
    "Unix time since which the queue is paused; absent if it is not.",
    _QUEUE,
)
JOBS_SUBMITTED: Final = Metric("raftsched_jobs_submitted_total", _C, _CLUSTER, "Jobs stored.", _QUEUE)
JOBS_FINISHED: Final = Metric(
    "raftsched_jobs_finished_total", _C, _CLUSTER, "Jobs that reached a final status.", ("queue", "status")
)
ATTEMPTS: Final = Metric("raftsched_attempts_total", _C, _CLUSTER, "Attempts by how they ended.", ("queue", "end"))
START_LAG: Final = Metric(
    "raftsched_start_lag_seconds",
    _H,
    _CLUSTER,
    "Time from when a job could start until a worker had its lease.",
    _QUEUE,
    _LAG_BUCKETS,
)
RUN_SECONDS: Final = Metric(
    "raftsched_run_seconds", _H, _CLUSTER, "Time from the lease of an attempt to its end.", _QUEUE, _RUN_BUCKETS
)
DEAD_LETTERS: Final = Metric("raftsched_dead_letters", _G, _CLUSTER, "Dead letters by reason.", ("reason",))
LEASES_EXPIRED: Final = Metric(
    "raftsched_leases_expired_total", _C, _CLUSTER, "Leases that ended because their worker sent no heartbeat."
)
WORKERS: Final = Metric("raftsched_workers", _G, _CLUSTER, "Workers that made a request within the last lease term.")
LAST_BACKUP: Final = Metric(
    "raftsched_last_backup_timestamp_seconds",
    _G,
    _CLUSTER,
    "Unix time of the latest backup that was recorded as stored; absent if there was none.",
)

# -- schedules --------------------------------------------------------------------------------------------------------
FIRINGS: Final = Metric(
    "raftsched_firings_total",
    _C,
    _CLUSTER,
    "Decisions about fire times: fired, late (fired a minute after its time or more), or skipped with its reason.",
    ("outcome",),
)
SCHEDULE_DELAY: Final = Metric(
    "raftsched_schedule_delay_seconds",
    _H,
    _CLUSTER,
    "Time from a planned fire time until its job was stored.",
    buckets=_DELAY_BUCKETS,
)

# -- consensus --------------------------------------------------------------------------------------------------------
COMMIT_SECONDS: Final = Metric(
    "raftsched_commit_seconds",
    _H,
    _NODE,
    "Time from proposing a log entry until it was committed and applied, on the leader.",
    buckets=DISK_BUCKETS,
)
FSYNC_SECONDS: Final = Metric(
    "raftsched_fsync_seconds", _H, _NODE, "Time of one sync of the journal to disk.", buckets=DISK_BUCKETS
)
CHECKPOINT_SECONDS: Final = Metric(
    "raftsched_checkpoint_seconds", _H, _NODE, "Time of one synced commit of the state.", buckets=DISK_BUCKETS
)
EVENT_LOOP_STALL: Final = Metric(
    "raftsched_event_loop_stall_seconds",
    _H,
    _NODE,
    "Delay of a timer of the event loop, measured five times a second.",
    buckets=_STALL_BUCKETS,
)
RAFT_TERM: Final = Metric("raftsched_raft_term", _G, _NODE, "Term of Raft that the node knows.")
RAFT_COMMIT_INDEX: Final = Metric(
    "raftsched_raft_commit_index", _G, _NODE, "Log index up to which the node knows entries to be committed."
)
RAFT_APPLIED_INDEX: Final = Metric(
    "raftsched_raft_applied_index", _G, _NODE, "Log index up to which the node has applied entries."
)
IS_LEADER: Final = Metric(
    "raftsched_is_leader", _G, _NODE, "1 if the node leads and a majority has confirmed that lately; else 0."
)
FOLLOWER_LAG: Final = Metric(
    "raftsched_follower_lag_entries", _G, _CLUSTER, "Committed log entries that another node lacks.", ("node",)
)
NODE_CONNECTED: Final = Metric(
    "raftsched_node_connected", _G, _CLUSTER, "1 if the leader has a connection to the node; else 0.", ("node",)
)
LEADER_CHANGES: Final = Metric("raftsched_leader_changes_total", _C, _NODE, "New leaders that the node has seen.")
CLOCK_OFFSET: Final = Metric(
    "raftsched_clock_offset_seconds",
    _G,
    _NODE,
    "The node's wall clock minus cluster time; absent while that is unknown.",
)

# -- the process ------------------------------------------------------------------------------------------------------
STATE_BYTES: Final = Metric("raftsched_state_bytes", _G, _NODE, "Bytes of the state's file that are in use.")
JOURNAL_BYTES: Final = Metric("raftsched_journal_bytes", _G, _NODE, "Bytes of the journal's files.")
DISK_FREE_BYTES: Final = Metric("raftsched_disk_free_bytes", _G, _NODE, "Free space of the disk with the node's data.")
DISK_SIZE_BYTES: Final = Metric("raftsched_disk_size_bytes", _G, _NODE, "Size of the disk with the node's data.")
HTTP_REQUEST_SECONDS: Final = Metric(
    "raftsched_http_request_seconds",
    _H,
    _NODE,
    "Time from a request to its reply; waits of long polls count.",
    ("route", "status"),
    _REQUEST_BUCKETS,
)
CERTIFICATE_EXPIRES: Final = Metric(
    "raftsched_certificate_expires_timestamp_seconds",
    _G,
    _NODE,
    "Unix time at which the node's certificate of the API (api_tls) or between nodes (peer_tls) expires.",
    ("kind",),
)
BUILD_INFO: Final = Metric("raftsched_build_info", _G, _NODE, "Always 1; the labels describe the node.", ("version",))

METRICS: Final = tuple(value for value in globals().values() if isinstance(value, Metric))
"""All metrics, in the order of the output."""
