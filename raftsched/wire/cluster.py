"""Define the documents of the cluster: its nodes, its members and its health."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from raftsched.wire.common import MEMBER_ID_PATTERN, MEMBER_ID_RULE, Moment, Reply, Request

_INDEX_MAX: Final = (1 << 63) - 1


class MemberRequest(Request, frozen=True):
    """A node that shall join the cluster. Start it with an empty data directory and this id."""

    id: Annotated[str, Meta(pattern=MEMBER_ID_PATTERN, description=MEMBER_ID_RULE)]
    raft: Annotated[str, Meta(max_length=300)]
    """host:port at which the other nodes reach it."""
    api: Annotated[str, Meta(max_length=300)]
    """host:port of its API."""


class CertificateStatus(Reply, frozen=True):
    """A certificate that a node shows."""

    setting: str = ""
    """`api_tls` or `peer_tls`."""
    expires_at: str = ""
    days_left: int = 0
    """Whole days until then; negative if it has expired."""


class NodeFacts(Reply, frozen=True):
    """The facts that a node tells of itself."""

    id: str = ""
    release: str = ""
    started_at: str = ""
    uptime_seconds: int = 0
    is_ready: bool = False
    warnings: dict[str, str] = {}
    """Conditions that an operator should look at, by code; `not_ready` says why it can't serve."""
    disk_free_bytes: int = 0
    disk_total_bytes: int = 0
    state_bytes: int = 0
    """Disk space of its state."""
    journal_bytes: int = 0
    """Disk space of its journal."""
    encryption_key: str | None = None
    """Id of the key under which it encrypts its files; null if it encrypts nothing."""
    certificates: tuple[CertificateStatus, ...] = ()


class ClusterProblem(Reply, frozen=True):
    """Something that an operator should look at."""

    code: str = ""
    severity: str = ""
    """`critical`: work is not accepted. `warning`: it is, but a reserve is used up or will be. `note`: no fault."""
    node: str | None = None
    """The node that has it; null if it concerns the cluster."""
    text: str = ""
    since: str | None = None
    """Time from which the answering node has seen it without a break; null if it was not watched."""
    cure: str = ""
    """The next step for an operator."""


class NodeStatus(Reply, frozen=True):
    """One node as seen by the answering node; null if the answering node does not know a value."""

    id: str = ""
    api: str = ""
    """Base URL of its API."""
    state: str = ""
    """`leader`, `follower`, `candidate`, or `down` if the answering node has no connection to it.

    `differs` if its state is not the state of a majority of the voters: it serves no requests, and must be replaced.
    """
    applied: int | None = None
    """Index of the last log entry it applied, or is known to hold."""
    clock_offset_ms: float | None = None
    """Its wall clock minus the answering node's."""
    round_trip_ms: int | None = None
    """90th percentile of the round trip from the leader to it; only the leader knows it."""
    raft: str = ""
    """host:port at which the other nodes reach it."""
    voter: bool = True
    """False while it joins: it receives the log, and becomes a voter by itself when it has nearly all of it."""
    operations_read: int | None = None
    """The latest version of log entries that it reads."""
    disk_free_bytes: int | None = None
    disk_low: bool | None = None
    """Whether its free space is below its reserve (`disk_reserve_mib`)."""
    lag: int | None = None
    """Log entries of the leader that it does not hold yet; only the leader knows it."""
    facts: NodeFacts | None = None
    """Its own facts; null if it is down or did not answer in time."""


class BackupRequest(Request, frozen=True):
    """A backup that was verified and stored; the values are those of its manifest."""

    node: Annotated[str, Meta(pattern=MEMBER_ID_PATTERN, description=MEMBER_ID_RULE)]
    """The node whose state it is."""
    applied_index: Annotated[int, Meta(ge=1, le=_INDEX_MAX)]
    taken_at: Moment
    content_bytes: Annotated[int, Meta(ge=1, le=1 << 60)]
    content_sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class BackupStatus(Reply, frozen=True):
    """The latest backup that was recorded."""

    node: str
    applied_index: int
    """Index of the last log entry that it holds."""
    taken_at: str
    content_bytes: int
    content_sha256: str


class ClusterStatus(Reply, frozen=True):
    """The cluster as seen by the node that answers."""

    leader: str = ""
    """Id of the leader; "" while none is known."""
    term: int = 0
    nodes: tuple[NodeStatus, ...] = ()
    operation_version: int = 0
    """The version of log entries in use. It rises once all members can read a later one. After that no node can return
    to a release that cannot."""
    warning: str = ""
    """Reason why the leader rejects new work; "" if it accepts work, or if the answering node does not lead."""
    answered_by: str = ""
    """Id of the node whose view this is: the leader, or the asked node if it can't reach one."""
    health: str = ""
    """`healthy`, `degraded` if there is a warning, or `down` if work is not accepted."""
    problems: tuple[ClusterProblem, ...] = ()
    """The problems, the worst first."""
    workers: int | None = None
    """Workers that made a request lately."""
    last_backup: BackupStatus | None = None
    """The latest backup that was recorded; null if there is none."""


class MembersReply(Reply, frozen=True):
    """The nodes of the cluster after a change."""

    nodes: tuple[NodeStatus, ...]


class TransferRequest(Request, frozen=True):
    """The node that shall lead."""

    to: Annotated[str, Meta(pattern=MEMBER_ID_PATTERN, description=MEMBER_ID_RULE)] | None = None
    """Id of a voter; null: the follower with the most complete log."""


class TransferReply(Reply, frozen=True):
    """Leadership was transferred; the next replies name the new leader."""

    transferred: Literal[True]


class KeyStatus(Reply, frozen=True):
    """A key of the keys file, or one that files of the node need."""

    id: str
    rows: int
    """Rows of the node's state that are encrypted under it."""
    needed: bool
    """Whether files of the node may need it: it must not be removed from the keys file."""


class EncryptionStatus(Reply, frozen=True):
    """The encryption of the files of the node that answers; each node encrypts on its own."""

    node: str
    state: str
    """`off` if the node has no keys, `complete` if all its data is under the first key, `moving` while it is moved there,
    `incomplete` if some is plain or under another key.
    """
    key: str | None
    """Id of the first key, which encrypts."""
    keys: tuple[KeyStatus, ...] = ()
    plain_rows: int = 0
    """Rows that are not encrypted, and would be if they were written now."""


class HealthReply(Reply, frozen=True):
    """The node's process answers."""

    status: str
    node: str
    time: str = ""
    """The clock of its machine."""
    warning: str | UnsetType = UNSET
    """A condition that an operator should look at, although the node serves; absent if there is none."""
