"""The state as a handful of dicts, indexes by full scans: what `apply` and `check` see in the tests of the core.

Executing a write checks that it fits: `old` must be what is stored, a new record must be new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy

from raftsched.core.apply import apply
from raftsched.core.operations.base import Operation
from raftsched.core.operations.control import BackgroundKind, DeadlineKind
from raftsched.core.records.api_token import ApiToken
from raftsched.core.records.backup import LastBackup
from raftsched.core.records.encryption import ClusterKey
from raftsched.core.records.ids import TENANT_DEFAULT, FencingToken, JobId, TimeMs, name_tag
from raftsched.core.records.job import (
    FINISHED,
    LEASED,
    PARKED,
    WAITING,
    Dependency,
    Job,
    Status,
    Verdict,
    Worker,
)
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, FiringKind, Schedule, ScheduleId
from raftsched.core.records.tenant import Tenant
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.entries import (
    AuditEntry,
    BlockedEntry,
    CounterKey,
    DeadlineEntry,
    Dependant,
    FacetEntry,
    FacetKind,
    LogSize,
    TimerEntry,
    WaitingEntry,
)
from raftsched.core.state.results import Applied, Context
from raftsched.core.state.writes import (
    PutAudit,
    PutBackgroundWork,
    PutBackup,
    PutClusterKey,
    PutDependant,
    PutDependencies,
    PutFence,
    PutFiring,
    PutJob,
    PutLog,
    PutOutage,
    PutQueue,
    PutSchedule,
    PutTenant,
    PutToken,
    PutWorker,
    PutWorkflow,
    PutZoneRules,
    RemoveAudit,
    RemoveBackgroundWork,
    RemoveFirings,
    RemoveJob,
    RemoveSchedule,
    RemoveTenantRecord,
    RemoveToken,
    RemoveWorker,
    RemoveWorkflow,
    Write,
)

LogName = tuple[JobId, int, int]


class PlainReads:
    """What `apply` reads."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, Job] = {}
        self.payloads: dict[bytes, bytes] = {}
        self.results: dict[bytes, bytes] = {}
        self.workers: dict[str, Worker] = {}
        self.edges: dict[JobId, tuple[Dependency, ...]] = {}
        self.verdicts: dict[tuple[JobId, JobId], Verdict] = {}
        """By (parent, child); those that are not pending."""
        self.queues: dict[str, Queue] = {}
        self.api_tokens: dict[str, ApiToken] = {}
        self.tenants: dict[str, Tenant] = {}
        self.workflows: dict[WorkflowId, Workflow] = {}
        self.schedules: dict[ScheduleId, Schedule] = {}
        self.ledger: dict[tuple[ScheduleId, TimeMs, FiringKind], Firing] = {}
        self.background_work: dict[tuple[BackgroundKind, bytes], bytes] = {}
        self.logs: dict[LogName, list[tuple[int, bytes]]] = {}
        """(sequence, lines) of each piece."""
        self.audit: list[tuple[int, AuditEntry]] = []
        """(log index, line)."""
        self.index = 0
        self._fence = FencingToken(0)
        self._outage_ended_at_ms = TimeMs(0)
        self.zone_rules = ""
        self.cluster_key: ClusterKey | None = None
        self.last_backup: LastBackup | None = None
        self._now_ms = TimeMs(0)

    @property
    def fence(self) -> FencingToken:
        return self._fence

    @property
    def outage_ended_at_ms(self) -> TimeMs:
        return self._outage_ended_at_ms

    def job(self, job_id: JobId) -> Job | None:
        return self.jobs.get(job_id)

    def payload(self, job_id: JobId | ScheduleId) -> bytes:
        return self.payloads.get(job_id, b"")

    def job_id_for_key(self, tenant: str, idempotency_key: str) -> JobId | None:
        found = [job.id for job in self.jobs.values() if (job.tenant, job.idempotency_key) == (tenant, idempotency_key)]
        return found[0] if found else None

    def job_id_for_unique(self, tenant: str, unique_key: bytes) -> JobId | None:
        unique_keys = (job for job in self.jobs.values() if (job.tenant, unique_key_of(job)) == (tenant, unique_key))
        return next((job.id for job in unique_keys), None)

    def worker(self, name: str) -> Worker | None:
        return self.workers.get(name)

    def queue(self, name: str) -> Queue | None:
        return self.queues.get(name)

    def queue_count(self) -> int:
        return len(self.queues)

    def api_token(self, token_id: str) -> ApiToken | None:
        return self.api_tokens.get(token_id)

    def api_token_count(self) -> int:
        return len(self.api_tokens)

    def schedule_count(self, tenant: str | None = None) -> int:
        return sum(tenant in (None, one.tenant) for one in self.schedules.values())

    def tenant(self, name: str) -> Tenant | None:
        return self.tenants.get(name)

    def tenant_count(self) -> int:
        return len(self.tenants)

    def unfinished_count(self, tenant: str) -> int:
        return self.unfinished_counts().get(tenant, 0)

    def unfinished_counts(self) -> dict[str, int]:
        return dict(Counter(job.tenant for job in self.jobs.values() if job.status not in FINISHED))

    def running_count(self, queue: str) -> int:
        return sum(job.status in LEASED and job.spec.queue == queue for job in self.jobs.values())

    def key_running_count(self, queue: str, concurrency_key: str) -> int:
        return sum(job.status in LEASED and place_of(job) == (queue, concurrency_key) for job in self.jobs.values())

    def first_blocked(
        self, queue: str, concurrency_key: str, region: str = "", *, after: JobId | None = None
    ) -> JobId | None:
        place = (queue, concurrency_key, region)
        blocked = [entry for entry in self._held() if (entry.queue, entry.concurrency_key, entry.region) == place]
        behind = 0 if after is None else [entry.job_id for entry in blocked].index(after) + 1
        return blocked[behind].job_id if len(blocked) > behind else None

    def blocked_regions(self, queue: str, concurrency_key: str, *, limit: int) -> list[str]:
        regions = {entry.region for entry in self._held() if entry[:2] == (queue, concurrency_key)}
        return sorted(regions)[:limit]

    def blocked_jobs(self, queue: str, *, after: BlockedEntry | None = None, limit: int) -> list[JobId]:
        blocked = [entry for entry in self._held() if entry.queue == queue]
        return [entry.job_id for entry in blocked if after is None or _blocked_order(entry) > _blocked_order(after)][
            :limit
        ]

    def _held(self) -> list[BlockedEntry]:
        blocked = (job for job in self.jobs.values() if job.blocked)
        entries = (
            BlockedEntry(*place_of(job), job.spec.priority, job.due_at_ms, job.id, job.spec.region) for job in blocked
        )
        return sorted(entries, key=_blocked_order)

    def dependencies(self, child: JobId) -> tuple[Dependency, ...]:
        return self.edges.get(child, ())

    def dependants(self, parent: JobId, *, after: JobId | None, limit: int) -> list[Dependant]:
        found = [entry for one, entry in self._dependants() if one == parent and (after is None or entry.child > after)]
        return found[:limit]

    def _dependants(self) -> list[tuple[JobId, Dependant]]:
        pairs = [(each, child) for child, dependencies in self.edges.items() for each in dependencies]
        return sorted(
            (each.parent, Dependant(child, each.condition, self.verdicts.get((each.parent, child), Verdict.PENDING)))
            for each, child in pairs
        )

    def workflow(self, workflow_id: WorkflowId) -> Workflow | None:
        return self.workflows.get(workflow_id)

    def workflow_id_for_key(self, tenant: str, idempotency_key: str) -> WorkflowId | None:
        found = (
            one.id for one in self.workflows.values() if (one.tenant, one.idempotency_key) == (tenant, idempotency_key)
        )
        return next(found, None)

    def workflow_jobs(self, workflow_id: WorkflowId, *, after: JobId | None, limit: int) -> list[JobId]:
        jobs = (
            job
            for job in self.jobs.values()
            if job.spec.options is not None and job.spec.options.workflow_id == workflow_id
        )
        return sorted(job.id for job in jobs if after is None or job.id > after)[:limit]

    def schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        return self.schedules.get(schedule_id)

    def schedule_id_for_name(self, tenant: str, name: str) -> ScheduleId | None:
        found = (one.id for one in self.schedules.values() if (one.tenant, one.name) == (tenant, name))
        return next(found, None)

    def firings(
        self, schedule_id: ScheduleId, *, after: Firing | None, until_ms: int | None, limit: int
    ) -> list[Firing]:
        lines = [line for (owner, _, _), line in sorted(self.ledger.items()) if owner == schedule_id]
        start = (-1, 0) if after is None else (after.fire_time_ms, after.kind)
        lines = [line for line in lines if (line.fire_time_ms, line.kind) > start]
        return [line for line in lines if until_ms is None or line.fire_time_ms < until_ms][:limit]

    def firing(self, schedule_id: ScheduleId, fire_time_ms: TimeMs, kind: FiringKind) -> Firing | None:
        return self.ledger.get((schedule_id, fire_time_ms, kind))

    def background_cursor(self, kind: BackgroundKind, subject: bytes) -> bytes | None:
        return self.background_work.get((kind, subject))

    def log_size(self, job_id: JobId, run_number: int, attempt_number: int) -> LogSize:
        pieces = self.logs.get((job_id, run_number, attempt_number), [])
        byte_count = sum(len(lines) for _, lines in pieces)
        return LogSize(byte_count, max((sequence for sequence, _ in pieces), default=0), len(pieces))


class PlainState(PlainReads):
    """An `AuditableView` over plain dicts."""

    # -- what check walks

    @property
    def cluster_time_ms(self) -> TimeMs:
        return self._now_ms

    def all_jobs(self) -> Iterator[Job]:
        return iter(self.jobs.values())

    def all_waiting(self) -> Iterator[WaitingEntry]:
        waiting = [job for job in self.jobs.values() if job.status in WAITING and not job.blocked]
        tag = name_tag
        waiting.sort(
            key=lambda j: (
                j.spec.queue,
                j.spec.region,
                j.tenant,
                -j.spec.priority,
                tag(j.spec.handler),
                j.due_at_ms,
                j.id,
            )
        )
        return (
            WaitingEntry(j.spec.queue, j.tenant, j.spec.priority, tag(j.spec.handler), j.due_at_ms, j.id, j.spec.region)
            for j in waiting
        )

    def all_blocked(self) -> Iterator[BlockedEntry]:
        return iter(self._held())

    def all_timers(self) -> Iterator[TimerEntry]:
        timed = [job for job in self.jobs.values() if job.timed]
        entries = (
            TimerEntry(
                job.due_at_ms,
                job.id,
                job.spec.queue,
                job.tenant,
                job.spec.priority,
                name_tag(job.spec.handler),
                job.spec.region,
            )
            for job in timed
        )
        return iter(sorted(entries))

    def all_leased(self) -> Iterator[JobId]:
        return (job.id for job in self.jobs.values() if job.status in LEASED)

    def all_parked(self) -> Iterator[tuple[Status, JobId]]:
        return iter(sorted((job.status, job.id) for job in self.jobs.values() if job.status in PARKED))

    def all_finished(self) -> Iterator[tuple[TimeMs, JobId]]:
        return ((job.finished_at_ms, job.id) for job in self.jobs.values() if job.status in FINISHED)

    def all_dead_letters(self) -> Iterator[tuple[str, TimeMs, JobId]]:
        dead = (job for job in self.jobs.values() if job.status is Status.DEAD_LETTER)
        return iter(sorted((job.reason, job.finished_at_ms, job.id) for job in dead))

    def all_keys(self) -> Iterator[tuple[str, str, JobId]]:
        return ((job.tenant, job.idempotency_key, job.id) for job in self.jobs.values() if job.idempotency_key)

    def all_unique_keys(self) -> Iterator[tuple[str, bytes, JobId]]:
        return ((job.tenant, unique_key_of(job), job.id) for job in self.jobs.values() if unique_key_of(job))

    def all_payload_ids(self) -> Iterator[JobId]:
        return (JobId(record_id) for record_id in self.payloads)

    def all_result_ids(self) -> Iterator[JobId]:
        return (JobId(record_id) for record_id in self.results)

    def all_dependencies(self) -> Iterator[tuple[JobId, tuple[Dependency, ...]]]:
        return iter(self.edges.items())

    def all_dependants(self) -> Iterator[tuple[JobId, Dependant]]:
        return iter(self._dependants())

    def all_logs(self) -> Iterator[tuple[JobId, int, int, LogSize]]:
        return ((*name, self.log_size(*name)) for name in self.logs)

    def all_deadlines(self) -> Iterator[DeadlineEntry]:
        deadlines = [(DeadlineKind.JOB, job.next_deadline_ms, bytes(job.id)) for job in self.jobs.values()]
        deadlines += [(DeadlineKind.SCHEDULE, one.next_deadline_ms, bytes(one.id)) for one in self.schedules.values()]
        deadlines += [
            (DeadlineKind.QUEUE, queue.next_deadline_ms, queue.name.encode()) for queue in self.queues.values()
        ]
        deadlines += [(DeadlineKind.WORKFLOW, one.next_deadline_ms, bytes(one.id)) for one in self.workflows.values()]
        return (DeadlineEntry(kind, TimeMs(at_ms), subject) for kind, at_ms, subject in sorted(deadlines) if at_ms)

    def all_workflows(self) -> Iterator[Workflow]:
        return iter(self.workflows.values())

    def all_workflow_keys(self) -> Iterator[tuple[str, str, WorkflowId]]:
        return ((one.tenant, one.idempotency_key, one.id) for one in self.workflows.values() if one.idempotency_key)

    def all_workflow_jobs(self) -> Iterator[tuple[WorkflowId, JobId]]:
        options = ((job.id, job.spec.options) for job in self.jobs.values() if job.spec.options is not None)
        return ((WorkflowId(one.workflow_id), job_id) for job_id, one in options if one.workflow_id)

    def all_schedule_jobs(self) -> Iterator[tuple[ScheduleId, JobId]]:
        options = ((job.id, job.spec.options) for job in self.jobs.values() if job.spec.options is not None)
        return iter(sorted((ScheduleId(one.schedule_id), job_id) for job_id, one in options if one.schedule_id))

    def all_facets(self) -> Iterator[FacetEntry]:
        return iter(sorted(entry for job in self.jobs.values() for entry in _facets(job)))

    def all_schedules(self) -> Iterator[Schedule]:
        return iter(self.schedules.values())

    def all_schedule_names(self) -> Iterator[tuple[str, str, ScheduleId]]:
        return ((one.tenant, one.name, one.id) for one in self.schedules.values())

    def all_firings(self) -> Iterator[tuple[ScheduleId, Firing]]:
        return ((owner, line) for (owner, _, _), line in self.ledger.items())

    def all_queues(self) -> Iterator[Queue]:
        return iter(self.queues.values())

    def all_tenants(self) -> Iterator[Tenant]:
        return iter(self.tenants.values())

    def all_api_tokens(self) -> Iterator[ApiToken]:
        return iter(self.api_tokens.values())

    def all_background_work(self) -> Iterator[tuple[BackgroundKind, bytes, bytes]]:
        return ((*work, cursor) for work, cursor in self.background_work.items())

    def counters(self) -> dict[CounterKey, int]:
        return dict(Counter(CounterKey(job.tenant, job.spec.queue, job.status) for job in self.jobs.values()))

    def dead_letter_counts(self) -> dict[tuple[str, str], int]:
        dead = (job for job in self.jobs.values() if job.status is Status.DEAD_LETTER)
        return dict(Counter((job.tenant, job.failure_reason.partition(":")[0]) for job in dead))

    def running_counts(self) -> dict[tuple[str, str], int]:
        leased = [job for job in self.jobs.values() if job.status in LEASED]
        return dict(Counter(place for job in leased for place in {(job.spec.queue, ""), place_of(job)}))

    # -- what the machine above the core does

    def step(self, operation: Operation, now_ms: int) -> Applied:
        """Apply one operation as a log entry of its own, stamped `now_ms`, and execute its writes."""
        self.pass_time(now_ms)
        applied = apply(self, operation, Context(self._now_ms, self.index))
        self.execute(applied.writes)
        return applied

    def pass_time(self, now_ms: int) -> None:
        """Begin the next log entry, stamped `now_ms`."""
        self.index += 1
        self._now_ms = TimeMs(max(self._now_ms, now_ms))

    def fork(self) -> PlainFork:
        return PlainFork(self)

    def execute(self, writes: Iterable[Write]) -> None:
        for write in writes:
            match write:
                case PutJob() | RemoveJob() | PutDependencies() | PutDependant():
                    self._execute_of_job(write)
                case PutFence():
                    assert write.token > self._fence, "the fence only rises"
                    self._fence = write.token
                case PutZoneRules() | PutClusterKey() | PutBackup() | PutOutage():
                    self._execute_of_cluster(write)
                case PutWorker() | RemoveWorker() | PutToken() | RemoveToken() | PutTenant() | RemoveTenantRecord():
                    self._execute_of_access(write)
                case PutQueue() | PutWorkflow() | RemoveWorkflow() | PutBackgroundWork() | RemoveBackgroundWork():
                    self._execute_of_definition(write)
                case PutSchedule() | RemoveSchedule() | PutFiring() | RemoveFirings():
                    self._execute_of_schedule(write)
                case _:
                    self._execute_of_history(write)

    def _execute_of_cluster(self, write: PutZoneRules | PutClusterKey | PutBackup | PutOutage) -> None:
        match write:
            case PutZoneRules():
                self.zone_rules = write.version
            case PutClusterKey():
                self.cluster_key = write.key
            case PutBackup():
                self.last_backup = write.backup
            case PutOutage():
                assert write.ended_at_ms == self._now_ms, "an outage ends with the entry that notes it"
                self._outage_ended_at_ms = write.ended_at_ms

    def _execute_of_job(self, write: PutJob | RemoveJob | PutDependencies | PutDependant) -> None:
        match write:
            case PutJob():
                assert self.jobs.get(write.new.id) == write.old, "a write replaces what is stored"
                if claim := unique_key_of(write.new):
                    assert self.job_id_for_unique(write.new.tenant, claim) in (None, write.new.id), "one claim a key"
                self.jobs[write.new.id] = write.new
                _set_text(self.payloads, write.new.id, write.payload)
                _set_text(self.results, write.new.id, write.result)
            case RemoveJob():
                job_id = write.old.id
                assert self.jobs.pop(job_id) == write.old
                self.payloads.pop(job_id, None)
                self.results.pop(job_id, None)
                self.edges.pop(job_id, None)
                self.verdicts = {pair: verdict for pair, verdict in self.verdicts.items() if pair[1] != job_id}
                self.logs = {name: pieces for name, pieces in self.logs.items() if name[0] != job_id}
            case PutDependencies():
                assert write.child not in self.edges, "edges are stored once"
                if write.dependencies:
                    self.edges[write.child] = write.dependencies
            case PutDependant():
                child, condition, verdict = write.dependant
                assert Dependency(write.parent, condition) in self.edges[child], "an edge that was stored before"
                self.verdicts[write.parent, child] = verdict

    def _execute_of_access(
        self, write: PutWorker | RemoveWorker | PutToken | RemoveToken | PutTenant | RemoveTenantRecord
    ) -> None:
        match write:
            case PutTenant():
                self.tenants[write.tenant.name] = write.tenant
            case RemoveTenantRecord():
                del self.tenants[write.name]
            case PutWorker():
                self.workers[write.worker.name] = write.worker
            case RemoveWorker():
                del self.workers[write.name]
            case PutToken():
                self.api_tokens[write.token.id] = write.token
            case RemoveToken():
                del self.api_tokens[write.id]

    def _execute_of_definition(
        self, write: PutQueue | PutWorkflow | RemoveWorkflow | PutBackgroundWork | RemoveBackgroundWork
    ) -> None:
        match write:
            case PutQueue():
                assert self.queues.get(write.new.name) == write.old, "a write replaces what is stored"
                self.queues[write.new.name] = write.new
            case PutWorkflow():
                assert self.workflows.get(write.new.id) == write.old, "a write replaces what is stored"
                self.workflows[write.new.id] = write.new
            case RemoveWorkflow():
                assert self.workflows.pop(write.old.id) == write.old
            case PutBackgroundWork():
                self.background_work[write.kind, write.subject] = write.cursor
            case RemoveBackgroundWork():
                del self.background_work[write.kind, write.subject]

    def _execute_of_schedule(self, write: PutSchedule | RemoveSchedule | PutFiring | RemoveFirings) -> None:
        match write:
            case PutSchedule():
                assert self.schedules.get(write.new.id) == write.old, "a write replaces what is stored"
                self.schedules[write.new.id] = write.new
                _set_text(self.payloads, write.new.id, write.payload)
            case RemoveSchedule():
                assert self.schedules.pop(write.old.id) == write.old
                self.payloads.pop(write.old.id, None)
            case PutFiring():
                self.ledger[write.schedule_id, write.firing.fire_time_ms, write.firing.kind] = write.firing
            case RemoveFirings():
                for line in write.firings:
                    del self.ledger[write.schedule_id, line.fire_time_ms, line.kind]

    def _execute_of_history(self, write: PutLog | PutAudit | RemoveAudit) -> None:
        match write:
            case PutLog():
                name = (write.job_id, write.run_number, write.attempt_number)
                self.logs.setdefault(name, []).append((write.sequence, write.lines))
            case PutAudit():
                self.audit.append((self.index, write.entry))
            case RemoveAudit():
                old = [line for line in self.audit if line[0] < write.before_index][: write.limit]
                self.audit = self.audit[len(old) :]


class PlainFork(PlainState):
    """A copy of a state, and what was executed on it."""

    def __init__(self, original: PlainState) -> None:
        self.__dict__.update({name: copy(value) for name, value in vars(original).items()})
        self.writes: tuple[Write, ...] = ()

    def execute(self, writes: Iterable[Write]) -> None:
        executed = tuple(writes)
        super().execute(executed)
        self.writes += executed


def _set_text(texts: dict[bytes, bytes], record_id: bytes, text: bytes | None) -> None:
    """None leaves what is there, b"" takes it away."""
    if text:
        texts[record_id] = text
    elif text is not None:
        texts.pop(record_id, None)


def unique_key_of(job: Job) -> bytes:
    """The unique key that the job has a claim on; b"" = none."""
    options = job.spec.options
    if options is None or (job.status in FINISHED and not options.unique_until_ms):
        return b""
    return options.unique_key


def place_of(job: Job) -> tuple[str, str]:
    """Queue and group of the concurrency key."""
    return job.spec.queue, job.key_group


def _blocked_order(entry: BlockedEntry) -> tuple[str, str, str, int, int, JobId]:
    return entry.queue, entry.concurrency_key, entry.region, -entry.priority, entry.due_at_ms, entry.job_id


def _facets(job: Job) -> Iterator[FacetEntry]:
    ended = int(job.status) if job.status in FINISHED else 0
    if job.spec.name == job.spec.queue:
        yield FacetEntry(FacetKind.QUEUE_AND_NAME, job.spec.name, ended, job.id)
    else:
        yield FacetEntry(FacetKind.NAME, job.spec.name, ended, job.id)
        yield FacetEntry(FacetKind.QUEUE, job.spec.queue, ended, job.id)
    if job.tenant != TENANT_DEFAULT:
        yield FacetEntry(FacetKind.TENANT, job.tenant, ended, job.id)
    for tag in set(job.spec.tags):
        yield FacetEntry(FacetKind.TAG, tag, ended, job.id)
