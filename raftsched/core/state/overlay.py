"""A view with pending writes: what several changes of one operation need to see each other.

`Overlay` reads like the state would once the writes put into it are executed, and keeps them in order for `Applied`.
It costs memory and time for what is put, nothing for what lies beneath, which it only reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from raftsched.core.operations.control import ChoreKind
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import FINISHED, LEASED, Dependency, Job, Worker
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, FiringKind, Schedule, ScheduleId
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.entries import Dependant, HeldEntry, LogSize
from raftsched.core.state.view import View
from raftsched.core.state.writes import (
    PutAudit,
    PutChore,
    PutDependant,
    PutDependencies,
    PutFence,
    PutFiring,
    PutJob,
    PutLog,
    PutOutage,
    PutQueue,
    PutSchedule,
    PutWorker,
    PutWorkflow,
    PutZoneRules,
    RemoveAudit,
    RemoveChore,
    RemoveFirings,
    RemoveJob,
    RemoveSchedule,
    RemoveWorker,
    RemoveWorkflow,
    Write,
)

_T = TypeVar("_T")


class _HeldKey(NamedTuple):
    queue: str
    concurrency_key: str
    region: str


class Overlay:
    """A `View` of the state as it will be once `writes` are executed.

    Put are writes that fit what the overlay shows: the `old` of each is what it has shown last.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._writes: list[Write] = []
        self._fence = view.fence
        self._outage_ended_at_ms = view.outage_ended_at_ms
        self._jobs: dict[JobId, Job | None] = {}
        self._removed: set[JobId] = set()
        self._payloads: dict[bytes, bytes] = {}
        self._keys: dict[tuple[str, str], JobId | None] = {}
        self._unique_keys: dict[tuple[str, bytes], JobId | None] = {}
        self._workers: dict[str, Worker | None] = {}
        self._queues: dict[str, Queue] = {}
        self._running: Counter[str] = Counter()
        self._key_running: Counter[tuple[str, str]] = Counter()
        self._held: dict[JobId, Job] = {}
        """Jobs that are held since one of the writes."""
        self._held_passed: dict[_HeldKey, JobId] = {}
        """The last of the jobs that were held beneath and no longer are, from the first on without a gap."""
        self._dependencies: dict[JobId, tuple[Dependency, ...]] = {}
        self._dependants: dict[JobId, dict[JobId, Dependant]] = {}
        self._workflows: dict[WorkflowId, Workflow | None] = {}
        self._workflow_keys: dict[tuple[str, str], WorkflowId | None] = {}
        self._workflow_jobs: dict[bytes, dict[JobId, JobId]] = {}
        self._schedules: dict[ScheduleId, Schedule | None] = {}
        self._schedule_names: dict[tuple[str, str], ScheduleId | None] = {}
        self._firings: dict[ScheduleId, dict[tuple[TimeMs, FiringKind], Firing | None]] = {}
        self._chores: dict[tuple[ChoreKind, bytes], bytes | None] = {}
        self._log_sizes: dict[tuple[JobId, int, int], LogSize] = {}

    @property
    def writes(self) -> tuple[Write, ...]:
        """What was put, in order."""
        return tuple(self._writes)

    def put(self, *writes: Write) -> None:
        """Show the state after `writes`, too."""
        for write in writes:
            self._writes.append(write)
            self._show(write)

    # -- what a view shows

    @property
    def fence(self) -> FencingToken:
        return self._fence

    @property
    def outage_ended_at_ms(self) -> TimeMs:
        return self._outage_ended_at_ms

    def job(self, job_id: JobId) -> Job | None:
        return self._jobs[job_id] if job_id in self._jobs else self._view.job(job_id)

    def payload(self, job_id: JobId | ScheduleId) -> bytes:
        return self._payloads[job_id] if job_id in self._payloads else self._view.payload(job_id)

    def job_id_for_key(self, tenant: str, idempotency_key: str) -> JobId | None:
        key = (tenant, idempotency_key)
        return self._keys[key] if key in self._keys else self._view.job_id_for_key(tenant, idempotency_key)

    def job_id_for_unique(self, tenant: str, unique_key: bytes) -> JobId | None:
        key = (tenant, unique_key)
        return self._unique_keys[key] if key in self._unique_keys else self._view.job_id_for_unique(tenant, unique_key)

    def worker(self, name: str) -> Worker | None:
        return self._workers[name] if name in self._workers else self._view.worker(name)

    def queue(self, name: str) -> Queue | None:
        return self._queues.get(name) or self._view.queue(name)

    def queue_count(self) -> int:
        return self._view.queue_count() + sum(self._view.queue(name) is None for name in self._queues)

    def running_count(self, queue: str) -> int:
        return self._view.running_count(queue) + self._running[queue]

    def key_running_count(self, queue: str, concurrency_key: str) -> int:
        return self._view.key_running_count(queue, concurrency_key) + self._key_running[queue, concurrency_key]

    def first_held(
        self, queue: str, concurrency_key: str, region: str = "", *, after: JobId | None = None
    ) -> JobId | None:
        key = _HeldKey(queue, concurrency_key, region)
        beneath = self._first_held_beneath(key, after)
        last = None if after is None else self.job(after)
        held = (job for job in self._held.values() if _held_key(job) == key)
        candidates = [job for job in held if last is None or _held_order(job) > _held_order(last)]
        if beneath is not None:
            candidates.append(beneath)
        return min(candidates, key=_held_order).id if candidates else None

    def held_regions(self, queue: str, concurrency_key: str, *, limit: int) -> list[str]:
        """As the view says, and regions may be among them that no longer have any."""
        regions = set(self._view.held_regions(queue, concurrency_key, limit=limit))
        keys = (_held_key(job) for job in self._held.values())
        regions.update(key.region for key in keys if key[:2] == (queue, concurrency_key))
        return sorted(regions)[:limit]

    def held_jobs(self, queue: str, *, after: HeldEntry | None = None, limit: int) -> list[JobId]:
        beneath = self._view.held_jobs(queue, after=after, limit=limit + len(self._jobs))
        still = (self._view.job(job_id) for job_id in beneath if job_id not in self._jobs)
        added = (job for job in self._held.values() if job.spec.queue == queue)
        entries = [_held_entry(job) for job in (*still, *added) if job is not None]
        entries.sort(key=_held_place)
        start = None if after is None else _held_place(after)
        return [entry.job_id for entry in entries if start is None or _held_place(entry) > start][:limit]

    def dependencies(self, child: JobId) -> tuple[Dependency, ...]:
        return self._dependencies[child] if child in self._dependencies else self._view.dependencies(child)

    def dependants(self, parent: JobId, *, after: JobId | None, limit: int) -> list[Dependant]:
        def read(after: JobId | None) -> list[Dependant]:
            return self._view.dependants(parent, after=after, limit=limit)

        return self._page(read, self._dependants.get(parent, {}), lambda row: row.child, after, limit)

    def workflow(self, workflow_id: WorkflowId) -> Workflow | None:
        return self._workflows[workflow_id] if workflow_id in self._workflows else self._view.workflow(workflow_id)

    def workflow_id_for_key(self, tenant: str, idempotency_key: str) -> WorkflowId | None:
        key = (tenant, idempotency_key)
        if key in self._workflow_keys:
            return self._workflow_keys[key]
        return self._view.workflow_id_for_key(tenant, idempotency_key)

    def workflow_jobs(self, workflow_id: WorkflowId, *, after: JobId | None, limit: int) -> list[JobId]:
        def read(after: JobId | None) -> list[JobId]:
            return self._view.workflow_jobs(workflow_id, after=after, limit=limit)

        return self._page(read, self._workflow_jobs.get(workflow_id, {}), lambda row: row, after, limit)

    def schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        return self._schedules[schedule_id] if schedule_id in self._schedules else self._view.schedule(schedule_id)

    def schedule_count(self) -> int:
        changes = (
            (schedule is not None) - (self._view.schedule(schedule_id) is not None)
            for schedule_id, schedule in self._schedules.items()
        )
        return self._view.schedule_count() + sum(changes)

    def schedule_id_for_name(self, tenant: str, name: str) -> ScheduleId | None:
        key = (tenant, name)
        return self._schedule_names[key] if key in self._schedule_names else self._view.schedule_id_for_name(*key)

    def firings(
        self, schedule_id: ScheduleId, *, after: Firing | None, until_ms: int | None, limit: int
    ) -> list[Firing]:
        changed = self._firings.get(schedule_id, {})
        beneath = self._view.firings(schedule_id, after=after, until_ms=until_ms, limit=limit + len(changed))
        lines: dict[tuple[TimeMs, FiringKind], Firing | None] = {_firing_key(line): line for line in beneath}
        start = None if after is None else _firing_key(after)
        lines |= {
            key: line
            for key, line in changed.items()
            if (start is None or key > start) and (until_ms is None or key[0] < until_ms)
        }
        return [line for _, line in sorted(lines.items()) if line is not None][:limit]

    def firing(self, schedule_id: ScheduleId, instant_ms: TimeMs, kind: FiringKind) -> Firing | None:
        changed = self._firings.get(schedule_id, {})
        key = (instant_ms, kind)
        return changed[key] if key in changed else self._view.firing(schedule_id, instant_ms, kind)

    def chore(self, kind: ChoreKind, subject: bytes) -> bytes | None:
        key = (kind, subject)
        return self._chores[key] if key in self._chores else self._view.chore(kind, subject)

    def log_size(self, job_id: JobId, run_number: int, attempt_number: int) -> LogSize:
        key = (job_id, run_number, attempt_number)
        return self._log_sizes.get(key) or self._view.log_size(job_id, run_number, attempt_number)

    # -- how

    def _page(
        self,
        read: Callable[[JobId | None], list[_T]],
        added: Mapping[JobId, _T],
        id_of: Callable[[_T], JobId],
        after: JobId | None,
        limit: int,
    ) -> list[_T]:
        """Rows by job id, at most `limit`: those beneath, replaced and joined by `added`, less those of removed jobs."""
        found: list[_T] = []
        while len(found) < limit:
            beneath = read(after)
            end = id_of(beneath[-1]) if len(beneath) == limit else None
            rows = {id_of(row): row for row in beneath}
            rows |= {
                job_id: row
                for job_id, row in added.items()
                if (after is None or job_id > after) and (end is None or job_id <= end)
            }
            found.extend(rows[job_id] for job_id in sorted(rows) if job_id not in self._removed)
            if end is None:
                break
            after = end
        return found[:limit]

    def _first_held_beneath(self, key: _HeldKey, after: JobId | None) -> Job | None:
        """The first job that was held under `key` before the writes, and still is."""
        start = after
        passed = self._held_passed.get(key) if after is None else None
        candidate = passed or after
        while (found := self._view.first_held(*key, after=candidate)) is not None:
            if found not in self._jobs:
                return self._view.job(found)
            candidate = found
            if start is None:
                self._held_passed[key] = found
        return None

    def _show(self, write: Write) -> None:
        """Take over what the write changes."""
        match write:
            case PutJob():
                self._show_job(write.old, write.new, write.payload)
            case RemoveJob():
                self._show_job(write.old, None, b"")
            case PutDependencies():
                self._show_dependencies(write)
            case PutDependant():
                self._dependants.setdefault(write.parent, {})[write.dependant.child] = write.dependant
            case PutWorkflow():
                self._show_workflow(write.old, write.new)
            case RemoveWorkflow():
                self._show_workflow(write.old, None)
            case PutSchedule() | RemoveSchedule() | PutFiring() | RemoveFirings():
                self._show_schedule(write)
            case _:
                self._show_other(write)

    def _show_other(
        self,
        write: PutFence
        | PutOutage
        | PutZoneRules
        | PutWorker
        | RemoveWorker
        | PutQueue
        | PutChore
        | RemoveChore
        | PutLog
        | PutAudit
        | RemoveAudit,
    ) -> None:
        match write:
            case PutFence():
                self._fence = write.token
            case PutOutage():
                self._outage_ended_at_ms = write.ended_at_ms
            case PutWorker():
                self._workers[write.worker.name] = write.worker
            case RemoveWorker():
                self._workers[write.name] = None
            case PutQueue():
                self._queues[write.new.name] = write.new
            case PutChore():
                self._chores[write.kind, write.subject] = write.cursor
            case RemoveChore():
                self._chores[write.kind, write.subject] = None
            case PutLog():
                self._show_log(write)
            case PutAudit() | RemoveAudit():
                pass  # nothing that decides reads the audit trail

    def _show_dependencies(self, write: PutDependencies) -> None:
        self._dependencies[write.child] = write.dependencies
        for dependency in write.dependencies:
            rows = self._dependants.setdefault(dependency.parent, {})
            rows[write.child] = Dependant(write.child, dependency.condition)

    def _show_job(self, old: Job | None, new: Job | None, payload: bytes | None) -> None:
        either = new or old
        assert either is not None
        self._jobs[either.id] = new
        self._held.pop(either.id, None)
        if payload is not None:
            self._payloads[either.id] = payload
        if old is not None:
            self._count_running(old, -1)
            self._forget_keys(old)
        if new is None:
            self._removed.add(either.id)
            self._dependencies[either.id] = ()
            return
        self._count_running(new, 1)
        self._show_keys(new)
        if new.held:
            self._held[new.id] = new
        if new.spec.workflow_id:
            self._workflow_jobs.setdefault(new.spec.workflow_id, {})[new.id] = new.id

    def _count_running(self, job: Job, count: int) -> None:
        if job.status not in LEASED:
            return
        self._running[job.spec.queue] += count
        if job.spec.concurrency_key:
            self._key_running[job.spec.queue, job.spec.concurrency_key] += count

    def _forget_keys(self, old: Job) -> None:
        if old.idempotency_key:
            self._keys[old.tenant, old.idempotency_key] = None
        if unique_key := _unique_key(old):
            self._unique_keys[old.tenant, unique_key] = None

    def _show_keys(self, new: Job) -> None:
        if new.idempotency_key:
            self._keys[new.tenant, new.idempotency_key] = new.id
        if unique_key := _unique_key(new):
            self._unique_keys[new.tenant, unique_key] = new.id

    def _show_log(self, write: PutLog) -> None:
        size = self.log_size(write.job_id, write.run_number, write.attempt_number)
        self._log_sizes[write.job_id, write.run_number, write.attempt_number] = LogSize(
            byte_count=size.byte_count + len(write.lines),
            last_sequence=write.sequence or size.last_sequence,
            piece_count=size.piece_count + 1,
        )

    def _show_workflow(self, old: Workflow | None, new: Workflow | None) -> None:
        if old is not None:
            self._workflows[old.id] = None
            self._workflow_keys[old.tenant, old.idempotency_key] = None
        if new is not None:
            self._workflows[new.id] = new
            self._workflow_keys[new.tenant, new.idempotency_key] = new.id

    def _show_schedule(self, write: PutSchedule | RemoveSchedule | PutFiring | RemoveFirings) -> None:
        match write:
            case PutSchedule():
                if write.old is not None:
                    self._schedule_names[write.old.tenant, write.old.name] = None
                self._schedule_names[write.new.tenant, write.new.name] = write.new.id
                self._schedules[write.new.id] = write.new
                if write.payload is not None:
                    self._payloads[write.new.id] = write.payload
            case RemoveSchedule():
                self._schedule_names[write.old.tenant, write.old.name] = None
                self._schedules[write.old.id] = None
                self._payloads[write.old.id] = b""
            case PutFiring():
                self._firings.setdefault(write.schedule_id, {})[_firing_key(write.firing)] = write.firing
            case RemoveFirings():
                gone = dict.fromkeys(map(_firing_key, write.firings))
                self._firings.setdefault(write.schedule_id, {}).update(gone)


def _unique_key(job: Job) -> bytes:
    """The unique key that the job has a claim on; b"" = none."""
    options = job.spec.options
    if options is None or (job.status in FINISHED and not options.unique_until_ms):
        return b""
    return options.unique_key


def _held_key(job: Job) -> _HeldKey:
    return _HeldKey(job.spec.queue, job.spec.concurrency_key, job.spec.region)


def _held_entry(job: Job) -> HeldEntry:
    queue, concurrency_key, region = _held_key(job)
    return HeldEntry(queue, concurrency_key, job.spec.priority, job.due_at_ms, job.id, region)


def _held_place(entry: HeldEntry) -> tuple[str, str, int, TimeMs, JobId]:
    return (entry.concurrency_key, entry.region, -entry.priority, entry.due_at_ms, entry.job_id)


def _held_order(job: Job) -> tuple[int, TimeMs, JobId]:
    return (-job.spec.priority, job.due_at_ms, job.id)


def _firing_key(line: Firing) -> tuple[TimeMs, FiringKind]:
    return (line.instant_ms, line.kind)
