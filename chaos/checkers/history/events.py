"""Events of a run, one JSON object a line, written by the harness and never by the system under test.

Theory of operation. A history is a list of events in the order in which the harness saw them; `t` is the harness's own
clock in microseconds and never falls. Five kinds of witnesses write it:

- *Clients*: each operation is an `Invoke` and at most one `Reply`, paired by `op`, a number that is unique in the
  history. `ok` means that it took effect, `fail` that it surely did not, `info` that nobody can tell; an `info` retires
  its process (Jepsen's rule), and a missing reply counts as `info`. A request for several runs is one operation for
  each run. Which refusals are definite is for the harness to say: when in doubt, `info`.
- *Workers*, outside the fault domain: `Effect` for what a job's body did, `Downstream` for what a receiver that checks
  fencing tokens answered. A worker that is killed ends its effects at that moment.
- *Nodes*: `Started`, `Leader`, `HandedBack`, `Configured`, `Applied`, `StateDigest`, `Installed`, `Durable`, `Truncated`. A
  drill with real processes leaves out what it can't see; the properties that need it then count as not exercised.
- *The log*, read back by the harness: a `Change` for every effect of a committed operation on a job. It settles what
  became of unknown operations, as etcd's robustness tests do with the write-ahead log. All of it, or none.
- *The end*: `Healed` once the last fault is over, then a `FinalState` for each node after all is quiet.

Names of operations (`f`): those of `OPERATIONS`; of changes in the log: those of `CHANGES`. Statuses, outcomes and
refusal codes are the API's words. What the log does to other things than jobs has events of its own: `Decided`,
`ScheduleChanged`, `AlarmsChanged`, `QueueChanged`, `WorkflowChanged`, `BackgroundWorkChanged`; (index, position) is their
place, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Literal

import msgspec

OPERATIONS = frozenset(
    {"submit", "get", "lease", "heartbeat", "outcome", "cancel", "start", "pause", "resume", "amend", "requeue"}
    | {"save_schedule", "control_schedule", "run_schedule", "configure_queue", "pause_queue", "resume_queue"}
    | {"save_tenant"}
    | {"submit_workflow", "cancel_workflow", "report", "log", "await"}
)
"""Kinds of requests. `report` is progress, `log` lines of an attempt's log, `await` a worker's report that the target of
its request has accepted it. The outcome that the target reports is an `outcome`, too."""
CHANGES = frozenset(
    {"submit", "lease", "outcome", "cancel", "expire", "purge", "start", "pause", "resume", "amend", "requeue"}
    | {"release", "skip", "revive", "lapse", "abort", "touch", "await"}
)
"""Changes of jobs in the log. By parents: release, skip, revive; by time: lapse (expiry, deadline); abort ends a lease at
once; touch and await change no status. `requeue` and `revive` begin a new run."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that happened at `t`, in microseconds of the harness's clock; 0 is the start of the run."""

    t: int = 0


class Setup(Event, frozen=True, tag_field="event", tag="setup"):
    """The first event: what kind of run this is, and the bounds that hold in it."""

    nodes: tuple[str, ...]
    """The voters; `Configured` and `Members` change them."""
    seed: int = 0
    lease_ttl_ms: int = 10_000
    cancel_grace_ms: int = 30_000
    lost_attempts_max: int = 3
    """A run that lost this many workers is given up, if neither its job nor its queue says another number."""
    rate_error_thousandths: int = 10
    """The rho of G3b: how much monotonic clocks may run fast or slow."""
    epoch_ms: int = 0
    """Unix time of t = 0 if wall clocks are kept within `clock_error_ms`; 0 = they are not, so not checked."""
    clock_error_ms: int = 500
    workers_keep_time: bool = False
    """Workers stop at their deadline and are never paused, so that no two attempts of a run overlap (G3b)."""
    first_index: int = 1
    """Entries below this one are in every log from its birth."""
    operation_bound_ms: int = 10_000
    """After `Healed`, each node serves within this time (L1)."""
    convergence_bound_ms: int = 60_000
    """After `Healed`, all nodes are equal within this time (L1)."""
    lease_bound_ms: int = 10_000
    """A lease ends at most this long after its term (L1)."""
    background_bound_ms: int = 3_000
    """After `Healed`, what time or the cluster's own long work must do is done this long after it is due (L1)."""


# -- clients ----------------------------------------------------------------------------------------------------------


class Invoke(Event, frozen=True, tag_field="event", tag="invoke"):
    """A client asks for something. Fields that say nothing for this `f` keep their defaults."""

    process: str
    op: int
    f: str
    node: str = ""
    """The node whose endpoint is asked."""
    tenant: str = ""
    job: str = ""
    run: int = 0
    token: int = 0
    worker: str = ""
    """The worker that leases, beats or reports: its name, the same in all three."""
    queues: tuple[str, ...] = ()
    """Of a lease: what it is asked of; () = the harness does not say."""
    region: str = ""
    """Of a submit: the job's; of a lease: the worker's."""
    names: tuple[str, ...] = ()
    """Of a lease: the jobs that the worker has handlers for; () = it takes any."""
    key: str = ""
    """Idempotency key."""
    body: str = ""
    """Digest of what is submitted."""
    due_ms: int = 0
    """Cluster time asked for; 0 = now, -1 = a delay, counted by the server."""
    max_attempts: int = 0
    timeout_ms: int = 0
    outcome: str = ""
    """completed, failed or snoozed."""
    completion_id: str = ""
    retryable: bool = True
    stale: bool = False
    """A read that may be old (`?consistency=stale`)."""
    subject: str = ""
    """Of operations on schedules, queues and workflows: which."""
    action: str = ""
    """Of `control_schedule`: pause, resume, delete."""
    until_ms: int = 0
    """The time at which a pause ends by itself; 0 = only by a user."""
    unique: str = ""
    """Of a submit: what makes the job unique within its tenant."""
    once: bool = False
    """Of a submit: it begins at most once."""
    max_lost_workers: int = 0
    """Of a submit: lost workers that end it; 0 = as its queue says."""
    force: bool = False
    """Of a cancel: the lease ends with it."""
    callback_token: str = ""
    """Of a start: what the worker made for this attempt; of an outcome: what its target proves itself by. Then `token` and
    `completion_id` are those of the attempt for which it was made."""


class Granted(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One lease in a reply."""

    job: str
    run: int
    attempt: int
    token: int


class Reply(Event, frozen=True, tag_field="event", tag="reply"):
    """The end of an operation, as its client saw it."""

    process: str
    op: int
    type: Literal["ok", "fail", "info"]
    job: str = ""
    """Of a submit."""
    status: str = ""
    """Of the job, if the reply shows it."""
    attempt: int = -1
    """Of the job, if the reply shows it."""
    revision: int = 0
    """The job's: log index of the latest change that the reply shows; 0 = the reply doesn't say."""
    applied: int = 0
    """Log index of the state that answered (`Raftsched-Revision`); 0 = the reply doesn't say."""
    duplicate: bool = False
    """Of a submit: the job was there already."""
    grants: tuple[Granted, ...] = ()
    valid: bool = False
    """Of a heartbeat."""
    cancel_requested: bool = False
    """Of a heartbeat."""
    error: str = ""
    """Of a `fail`: the API's code."""


# -- workers ----------------------------------------------------------------------------------------------------------


class Effect(Event, frozen=True, tag_field="event", tag="effect"):
    """A job's body begins or ends."""

    phase: Literal["begin", "end"]
    job: str
    run: int
    attempt: int
    token: int
    worker: str = ""


class Downstream(Event, frozen=True, tag_field="event", tag="downstream"):
    """A receiver that keeps the highest token of each resource took an effect, or refused it."""

    resource: str
    token: int
    accepted: bool


# -- nodes ------------------------------------------------------------------------------------------------------------


class Started(Event, frozen=True, tag_field="event", tag="started"):
    """A node begins a life with the state it had at `index`."""

    node: str
    index: int


class Leader(Event, frozen=True, tag_field="event", tag="leader"):
    """A node leads from now on."""

    node: str
    term: int


class HandedBack(Event, frozen=True, tag_field="event", tag="handed_back"):
    """A leader asks for the end of a lease whose worker hung up before it heard of it: no client asked for that."""

    node: str
    job: str
    token: int


class Members(Event, frozen=True, tag_field="event", tag="members"):
    """The voters from now on."""

    nodes: tuple[str, ...]


class Configured(Event, frozen=True, tag_field="event", tag="configured"):
    """A node goes by a configuration from now on: the latest in its log, committed or not."""

    node: str
    index: int
    """Of its log entry; 0 = the node's config file."""
    term: int
    """Of its log entry; 0 = not known any more."""
    voters: tuple[str, ...]


class Applied(Event, frozen=True, tag_field="event", tag="applied"):
    """A node applied a log entry."""

    node: str
    index: int
    term: int
    digest: str
    """Of the command; the same for the same bytes."""
    now_ms: int = 0
    """Cluster time after it; 0 = the harness does not say."""


class StateDigest(Event, frozen=True, tag_field="event", tag="state"):
    """The digest of a node's whole state, right after `index` was applied."""

    node: str
    index: int
    state: str


class Installed(Event, frozen=True, tag_field="event", tag="installed"):
    """A node replaced its state by a snapshot, durably."""

    node: str
    index: int
    term: int
    state: str


class Durable(Event, frozen=True, tag_field="event", tag="durable"):
    """An entry is on a node's disk for good: written in order, each one cuts off what it contradicts."""

    node: str
    index: int
    term: int
    digest: str = ""


class Truncated(Event, frozen=True, tag_field="event", tag="truncated"):
    """Entries from `index` on are no longer on a node's disk."""

    node: str
    index: int
    wiped: bool = False
    """The harness took the disk away; otherwise it was the system."""


# -- the log, faults, the end -----------------------------------------------------------------------------------------


class Change(Event, frozen=True, tag_field="event", tag="change"):
    """The effect of a committed operation on one job; (index, position) is its place in the log.

    Operations that change nothing (refused, repeated) have none. `t` is when the first node applied it, -1 = unknown.
    """

    index: int
    position: int
    f: str
    """One of `CHANGES`."""
    job: str
    status: str
    """After it; "purged" where the job is gone."""
    now_ms: int
    """Cluster time of the entry."""
    attempt: int = 0
    token: int = 0
    """Granted by it (lease), ended by it (outcome, expire), or held at it (start, await)."""
    worker: str = ""
    ttl_ms: int = 0
    outcome: str = ""
    """The reported outcome, or the reason why the lease expired: timeout, worker_lost, outage, cancelled."""
    completion_id: str = ""
    retryable: bool = True
    due_ms: int = 0
    """The time from which the job may run, if it waits after this."""
    tenant: str = ""
    key: str = ""
    body: str = ""
    max_attempts: int = 0
    timeout_ms: int = 0
    op: int = 0
    """The client's operation, if the command carries its number; 0 = it does not."""
    cause: str = ""
    """The actor if the operation was not about this job: schedule, workflow, parent, time, leader, hook; "" = it was."""
    run: int = 0
    """After it; 0 = the harness does not say."""
    queue: str = ""
    """After it."""
    concurrency_key: str = ""
    blocked: bool = False
    """After it, it waits for a place of its concurrency key, out of sight of workers."""
    unique: str = ""
    """The claim that it has after it, until it ends; "" = none, or one that has a time of its own."""
    once: bool = False
    """Of a submit: it begins at most once."""
    max_lost_workers: int = 0
    """Of a submit or an amendment: the job's own number after it; 0 = as its queue says."""
    schedule: str = ""
    """Of a submit: the schedule that made it."""
    fire_time_ms: int = 0
    workflow: str = ""
    """Of a submit."""
    depends_on: tuple[tuple[str, str], ...] = ()
    """Of a submit: (parent, condition)."""
    on_failure: str = ""
    """Of a submit that depends on others: skip or fail."""
    region: str = ""
    """The job's after it."""
    worker_region: str = ""
    """Of a lease: the worker's, as the log has it."""
    worker_tenant: str = ""
    """Of a lease: the tenant whose jobs the worker is given, as the log has it; "" = all."""
    name: str = ""
    """Of the handler that the job needs."""
    priority: int = 0
    """After it."""
    hooks: tuple[str, ...] = ()
    """Of a submit: the ends at which another job is to be stored, on_failure or on_success."""
    hook_of: str = ""
    """Of a submit: the job whose end made it."""
    callback_digest: str = ""
    """Of a start: the digest of the token by which the target may report the outcome, in hexadecimal digits."""
    notice_of: str = ""
    """Of a submit: the schedule about which it tells the owner."""
    notice_number: int = 0
    """Of a notice: its place among those of the schedule."""
    notice_event: str = ""
    """Of a notice: the event, as its content names it."""
    notice_job: str = ""
    """Of a notice: the run that caused the event; "" = none did."""


class Decided(Event, frozen=True, tag_field="event", tag="decided"):
    """A line of a schedule's ledger, written by the log."""

    index: int
    position: int
    now_ms: int
    schedule: str
    generation: int
    kind: str
    """planned, manual or backfill."""
    fire_time_ms: int
    last_ms: int
    """The last fire time that it covers; `fire_time_ms` if it covers one."""
    count: int
    """0 = too many to be counted."""
    job: str = ""
    """ "" = skipped."""
    reason: str = ""
    overlap: str = ""
    """The policy that was in force for it."""


class ScheduleChanged(Event, frozen=True, tag_field="event", tag="schedule"):
    """A schedule as the log left it."""

    index: int
    position: int
    now_ms: int
    schedule: str
    f: str
    """save, pause, resume or delete."""
    generation: int
    next_ms: int
    """The first instant without a decision; 0 = none any more."""
    anchor_ms: int = 0
    """The start of its grid."""
    period_ms: int = 0
    """0 = no grid."""
    paused: bool = False
    overlap: str = ""
    max_firings: int = 0
    end_ms: int = 0
    jitter_ms: int = 0
    region: str = ""
    """Of its jobs."""
    is_watched: bool = False
    """Its owner expects something of it."""
    success_within_ms: int = 0
    """A run must succeed within this time; 0 = at any time."""
    late_after_ms: int = 0
    """A run that starts later than this is late; 0 = none is."""
    notices: tuple[tuple[str, ...], ...] = ()
    """The events of each notice."""


class AlarmsChanged(Event, frozen=True, tag_field="event", tag="alarms"):
    """The problems of a schedule as the log left them."""

    index: int
    position: int
    now_ms: int
    schedule: str
    alarms: tuple[str, ...] = ()
    """The events that opened them."""


class QueueChanged(Event, frozen=True, tag_field="event", tag="queue"):
    """A queue's settings as the log left them."""

    index: int
    position: int
    now_ms: int
    queue: str
    paused: bool = False
    rate_count: int = 0
    rate_period_ms: int = 0
    rate_burst: int = 0
    """The number of leases that the rate allows at once."""
    concurrency_max: int = 0
    key_concurrency_max: int = 0
    """As it counts: 1 where nobody said anything."""
    max_lost_workers: int = 0
    """0 = as the setup says."""


class WorkflowChanged(Event, frozen=True, tag_field="event", tag="workflow"):
    """A workflow as the log left it."""

    index: int
    position: int
    now_ms: int
    workflow: str
    f: str
    """submit, cancel, move (its counts did) or remove."""
    job_count: int
    stored_count: int
    unfinished_count: int = 0


class BackgroundWorkChanged(Event, frozen=True, tag_field="event", tag="chore"):
    """Long work of the cluster begins, continues, or is done."""

    index: int
    position: int
    kind: str
    subject: str
    is_open: bool


class Nemesis(Event, frozen=True, tag_field="event", tag="nemesis"):
    """A fault begins, ends, or strikes once."""

    fault: str
    phase: Literal["start", "stop", "once"] = "once"
    target: str = ""


class Healed(Event, frozen=True, tag_field="event", tag="healed"):
    """The last fault is over; from here on, liveness is demanded."""


class FinalJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job as a node holds it at the end."""

    status: str
    attempt: int = 0
    token: int = 0
    """Of the running lease; 0 = none."""
    revision: int = 0
    tenant: str = ""
    key: str = ""
    body: str = ""
    op: int = 0
    """The submit that made it, if the job carries its number; 0 = it does not."""
    run: int = 0
    """0 = the harness does not say."""


class FinalState(Event, frozen=True, tag_field="event", tag="final"):
    """The whole state of a node, after all is quiet."""

    node: str
    index: int
    state: str
    jobs: dict[str, FinalJob]
    overdue: dict[str, int] = {}
    """Alarms of the state whose time has passed -> by how many milliseconds of the cluster's time."""


AnyEvent = (
    Setup
    | Invoke
    | Reply
    | Effect
    | Downstream
    | Started
    | Leader
    | HandedBack
    | Members
    | Configured
    | Applied
    | StateDigest
    | Installed
    | Durable
    | Truncated
    | Change
    | Decided
    | ScheduleChanged
    | AlarmsChanged
    | QueueChanged
    | WorkflowChanged
    | BackgroundWorkChanged
    | Nemesis
    | Healed
    | FinalState
)

# -- files ------------------------------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class BadHistory(ValueError):
    """A line is no event."""


def append_event(file: IO[bytes], event: AnyEvent) -> None:
    """Write one event; open the file with "ab", so that a harness that dies leaves whole lines."""
    file.write(_encode(event) + b"\n")


def write_history(path: Path, events: Iterable[AnyEvent]) -> None:
    with path.open("wb") as file:
        for event in events:
            append_event(file, event)


def read_history(path: Path) -> list[AnyEvent]:
    """Read all events of a file; raises `BadHistory` naming the line that is none."""
    events: list[AnyEvent] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                events.append(_decoder.decode(line))
            except msgspec.DecodeError as error:
                raise BadHistory(f"{path}, line {number}: {error}") from error
    return events
