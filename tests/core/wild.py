"""Strategies for operations with types that are right and values that need not be: what a log could hold at worst."""

from __future__ import annotations

from hypothesis import strategies as st

from raftsched.core.operations.access import CreateToken, NoteTokenUses, RevokeToken, RotateToken
from raftsched.core.operations.backup import RecordBackup
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import (
    CancelJob,
    ExpiredLease,
    ExpireLeases,
    LeaseJobs,
    MarkWorkers,
    PurgeJobs,
    RecordOutage,
    RecordOutcome,
    SubmitJob,
    SubmitWorkflow,
    WorkerMark,
)
from raftsched.core.operations.control import (
    AmendJob,
    AppendLog,
    BackgroundKind,
    BlockJobs,
    DeadlineKind,
    DoBackgroundStep,
    HandleDeadlines,
    PauseJob,
    Progress,
    ReportProgress,
    RequeueJob,
    ResumeJob,
    StartRun,
)
from raftsched.core.operations.encryption import AdoptKey
from raftsched.core.operations.queues import CancelWorkflow, ConfigureQueue, PauseQueue, TrimAudit
from raftsched.core.operations.schedules import AdoptZoneRules, NextFireTime
from raftsched.core.operations.tenants import RemoveTenant, SaveTenant
from raftsched.core.operations.workers import DrainWorker
from raftsched.core.records.api_token import Role
from raftsched.core.records.backup import LastBackup
from raftsched.core.records.encryption import SECRET_BYTES
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import AttemptEnd, Condition, Dependency, JobError, SilentLease
from raftsched.core.records.queue import TenantWeight
from raftsched.core.records.retry import Backoff, RetryPolicy
from raftsched.core.records.schedule import ScheduleId
from raftsched.core.records.spec import JobSpec, Options, SpecChanges
from raftsched.core.records.workflow import WorkflowId
from tests.core.scene import with_fields

numbers = st.one_of(st.integers(-2, 12), st.sampled_from([1_000, -(2**63), 2**63, 2**64 - 1]))
times = numbers.map(TimeMs)
tokens = numbers.map(FencingToken)
texts = st.sampled_from(["a", "b", "", "a\0b", "é" * 100, "x" * 1_000])
small_bytes = st.sampled_from([b"", b"1"])
job_ids = st.one_of(st.integers(1, 4).map(lambda number: JobId(number.to_bytes(16, "big"))), st.binary().map(JobId))
texts_many = st.lists(texts, max_size=3).map(tuple)

policies = st.builds(
    RetryPolicy,
    backoff=st.sampled_from(Backoff),
    base_ms=numbers,
    factor_thousandths=numbers,
    cap_ms=numbers,
    jitter_thousandths=numbers,
    delays_ms=st.lists(numbers, max_size=3).map(tuple),
)
errors = st.none() | st.builds(JobError, type=texts, message=texts, trace=texts)
asked = st.builds(
    Options,
    expires_at_ms=st.none() | times, deadline_ms=st.none() | times, heartbeat_timeout_ms=numbers, at_most_once=st.booleans(),
    concurrency_key=texts, unique_key=small_bytes, unique_until_ms=times, idempotency_until_ms=times,
    retry_on=texts_many, no_retry=texts_many, schedule_id=small_bytes, fire_time_ms=times,
    is_backfill=st.booleans(), task=texts, replay_of=small_bytes, retention_ms=numbers, lost_workers_max=numbers,
)  # fmt: skip
sound = st.builds(
    Options,
    expires_at_ms=st.sampled_from([None, 0, 2**47]), at_most_once=st.booleans(), concurrency_key=st.sampled_from(["", "k"]),
    unique_key=small_bytes,
)  # fmt: skip
parents = st.lists(st.builds(Dependency, parent=job_ids, condition=st.sampled_from(Condition)), max_size=3).map(tuple)
specs = st.builds(
    JobSpec,
    name=texts, queue=texts, priority=numbers, max_attempts=numbers, timeout_ms=numbers,
    retry=st.one_of(st.just(RetryPolicy()), policies), tags=texts_many, region=texts,
    options=st.one_of(st.none(), sound, asked),
)  # fmt: skip
submits = st.builds(
    SubmitJob,
    id=job_ids, tenant=texts, spec=specs, due_at_ms=times, payload=small_bytes, idempotency_key=texts,
    fingerprint=small_bytes, depends_on=parents, paused=st.booleans(), actor=texts,
)  # fmt: skip
leases = st.builds(
    LeaseJobs, worker=texts, ttl_ms=numbers, job_ids=st.lists(job_ids, max_size=4).map(tuple), region=texts
)
outcomes = st.builds(
    RecordOutcome,
    job_id=job_ids, run_number=numbers, token=tokens, end=st.sampled_from(AttemptEnd), completion_id=texts,
    result=small_bytes, error=errors, retryable=st.booleans(), delay_ms=numbers, jitter=numbers,
)  # fmt: skip
suspects = st.builds(ExpiredLease, job_id=job_ids, token=tokens, cause=st.sampled_from(AttemptEnd), jitter=numbers)
expiries = st.builds(ExpireLeases, leases=st.lists(suspects, max_size=4).map(tuple))
cancels = st.builds(CancelJob, job_id=job_ids, tenant=texts, force=st.booleans(), actor=texts)
purges = st.builds(PurgeJobs, job_ids=st.lists(job_ids, max_size=4).map(tuple), finished_before_ms=times)
silent = st.builds(SilentLease, token=tokens, heartbeat_at_ms=times, handler_heartbeat_at_ms=times)
marks = st.builds(
    WorkerMark,
    name=texts, queues=texts_many, capacity=numbers, seen_at_ms=times, region=texts,
    silent=st.lists(silent, max_size=3).map(tuple),
)  # fmt: skip
outages = st.builds(RecordOutage, since_ms=times, longest_ms=numbers)
markings = st.builds(MarkWorkers, marks=st.lists(marks, max_size=3).map(tuple), forget=texts_many)

ids_many = st.lists(job_ids, max_size=4).map(tuple)
pauses = st.builds(PauseJob, job_id=job_ids, tenant=texts, until_ms=times, reason=texts, actor=texts)
resumes = st.builds(ResumeJob, job_id=job_ids, tenant=texts, actor=texts)
some_numbers = st.none() | numbers
changes = st.builds(
    SpecChanges,
    queue=st.none() | texts, priority=some_numbers, max_attempts=some_numbers, timeout_ms=some_numbers,
    tags=st.none() | texts_many, expires_at_ms=some_numbers, deadline_ms=some_numbers, lost_workers_max=some_numbers,
)  # fmt: skip
amendments = st.builds(
    AmendJob,
    job_id=job_ids, tenant=texts, changes=changes, due_at_ms=st.none() | numbers, payload=st.none() | small_bytes,
    if_revision=numbers, actor=texts,
)  # fmt: skip
requeues = st.builds(RequeueJob, job_id=job_ids, tenant=texts, due_at_ms=times, reason=texts, actor=texts)
starts = st.builds(StartRun, job_id=job_ids, run_number=numbers, token=tokens)
reports = st.builds(Progress, job_id=job_ids, run_number=numbers, token=tokens, progress=small_bytes)
progress = st.builds(ReportProgress, reports=st.lists(reports, max_size=4).map(tuple))
lines = st.sampled_from([b"", b"a", b"a\n", b"\xff\n"])
logs = st.builds(AppendLog, job_id=job_ids, run_number=numbers, token=tokens, lines=lines, sequence=numbers)
holds = st.builds(BlockJobs, job_ids=ids_many)
subjects = st.one_of(job_ids, texts.map(lambda text: text.encode()))
deadlines = st.lists(st.tuples(st.sampled_from(DeadlineKind), subjects), max_size=4).map(tuple)
rings = st.builds(HandleDeadlines, deadlines=deadlines)
weights = st.lists(st.builds(TenantWeight, tenant=texts, weight=numbers), max_size=3).map(tuple)
settings = st.builds(
    ConfigureQueue,
    name=texts, rate_count=numbers, rate_period_ms=numbers, concurrency_max=numbers, key_concurrency_max=numbers,
    ageing_ms=numbers, retention_ms=numbers, lost_workers_max=numbers, weights=st.none() | weights, actor=texts,
)  # fmt: skip
queue_pauses = st.builds(PauseQueue, name=texts, paused=st.booleans(), until_ms=times, reason=texts, actor=texts)

workflow_ids = st.one_of(job_ids.map(WorkflowId), st.just(WorkflowId(b"w" * 16)))
background_work = st.builds(
    DoBackgroundStep, kind=st.sampled_from(BackgroundKind), subject=st.one_of(subjects, workflow_ids)
)
workflows = st.builds(
    SubmitWorkflow,
    id=workflow_ids, tenant=texts, name=texts, job_count=numbers, first=numbers,
    jobs=st.lists(submits, max_size=3).map(tuple), idempotency_key=texts, fingerprint=small_bytes, actor=texts,
)  # fmt: skip
workflow_cancels = st.builds(CancelWorkflow, id=workflow_ids, tenant=st.one_of(texts, st.just("a")), actor=texts)
trims = st.builds(TrimAudit, before_index=numbers)
moves = st.builds(NextFireTime, schedule_id=job_ids.map(ScheduleId), generation=numbers, was_ms=times, next_at_ms=times)
rezonings = st.builds(
    AdoptZoneRules, version=texts, changes=st.lists(moves, max_size=3).map(tuple), is_last=st.booleans()
)

digests = st.sampled_from([b"", b"d" * 32, b"e" * 32])
token_creations = st.builds(
    CreateToken,
    id=texts, digest=digests, name=texts, role=st.sampled_from(Role), tenant=texts, queues=texts_many, expires_at_ms=times,
    actor=texts,
)  # fmt: skip
token_rotations = st.builds(RotateToken, id=texts, digest=digests, former_until_ms=times, actor=texts)
token_revocations = st.builds(RevokeToken, id=texts, actor=texts)
token_uses = st.builds(NoteTokenUses, uses=st.lists(st.tuples(texts, times), max_size=3).map(tuple))
quotas = st.integers(-2, 5)
tenant_settings = st.builds(
    SaveTenant,
    name=texts, unfinished_jobs_max=quotas, schedules_max=quotas, submits_per_second=quotas, submit_burst=quotas,
    weight=quotas, actor=texts,
)  # fmt: skip
tenant_removals = st.builds(RemoveTenant, name=texts, actor=texts)

drains = st.builds(DrainWorker, name=texts, drained=st.booleans(), reason=texts, actor=texts)
key_adoptions = st.builds(
    AdoptKey, key_id=texts, check=texts, secret=st.sampled_from([b"", b"s" * SECRET_BYTES, b"t" * SECRET_BYTES])
)

backups = st.builds(
    RecordBackup,
    backup=st.builds(
        LastBackup, taken_at_ms=times, applied_index=st.integers(-1, 9), node=texts, byte_count=st.integers(-1, 9),
        sha256=st.sampled_from(["", "0" * 64]),
    ),
    actor=texts,
)  # fmt: skip

# -- such as the state can hold, so that there is something for the others to meet

known_ids = st.integers(1, 9).map(lambda number: JobId(number.to_bytes(16, "big")))
known_parents = st.lists(
    st.builds(Dependency, parent=known_ids, condition=st.sampled_from(Condition)),
    max_size=3,
    unique_by=lambda dependency: dependency.parent,
).map(tuple)
children = st.builds(
    SubmitJob,
    id=known_ids, tenant=st.just("a"), spec=st.just(JobSpec("n", "q", 5, 1, 0, RetryPolicy())),
    due_at_ms=st.just(TimeMs(0)), payload=small_bytes, depends_on=known_parents, paused=st.booleans(),
)  # fmt: skip
tasks = st.builds(
    lambda job, task: with_fields(job, options=Options(workflow_id=b"w" * 16, task=task)),
    children,
    st.sampled_from(["a", "b"]),
)
sound_workflows = st.builds(
    SubmitWorkflow,
    id=st.just(WorkflowId(b"w" * 16)), tenant=st.just("a"), name=st.just("n"), job_count=st.integers(1, 4),
    first=st.integers(0, 2), jobs=st.lists(tasks, min_size=1, max_size=3).map(tuple),
)  # fmt: skip
sound_requeues = st.builds(RequeueJob, job_id=known_ids, tenant=st.just("a"))
sound_cancels = st.builds(CancelJob, job_id=known_ids, tenant=st.just("a"), force=st.booleans())

operations: st.SearchStrategy[Operation] = st.one_of(
    submits, leases, outcomes, expiries, cancels, purges, markings, outages,
    pauses, resumes, amendments, requeues, starts, progress, logs, holds, rings, settings, queue_pauses,
    background_work, workflows, workflow_cancels, trims, rezonings, token_creations, token_rotations, token_revocations, token_uses,
    tenant_settings, tenant_removals, key_adoptions, backups, drains,
     children, sound_workflows, sound_requeues, sound_cancels,
)  # fmt: skip
