"""Strategies for operations with types that are right and values that need not be: what a log could hold at worst."""

from __future__ import annotations

from hypothesis import strategies as st

from raftsched.core.ids import FencingToken, JobId, TimeMs
from raftsched.core.job import AttemptEnd, Backoff, JobError, RetryPolicy
from raftsched.core.operations import (
    CancelJob,
    ExpiredLease,
    ExpireLeases,
    LeaseJobs,
    MarkWorkers,
    Operation,
    PurgeJobs,
    RecordOutcome,
    SubmitJob,
    WorkerMark,
)

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
submits = st.builds(
    SubmitJob,
    id=job_ids, tenant=texts, name=texts, queue=texts, priority=numbers, due_at_ms=times, payload=small_bytes,
    max_attempts=numbers, timeout_ms=numbers, retry=st.one_of(st.just(RetryPolicy()), policies),
    idempotency_key=texts, fingerprint=small_bytes, tags=texts_many, region=texts,
)  # fmt: skip
leases = st.builds(LeaseJobs, worker=texts, ttl_ms=numbers, job_ids=st.lists(job_ids, max_size=4).map(tuple))
outcomes = st.builds(
    RecordOutcome,
    job_id=job_ids, run_number=numbers, token=tokens, end=st.sampled_from(AttemptEnd), completion_id=texts,
    result=small_bytes, error=errors, retryable=st.booleans(), delay_ms=numbers, jitter=numbers,
)  # fmt: skip
suspects = st.builds(ExpiredLease, job_id=job_ids, token=tokens, cause=st.sampled_from(AttemptEnd), jitter=numbers)
expiries = st.builds(ExpireLeases, leases=st.lists(suspects, max_size=4).map(tuple))
cancels = st.builds(CancelJob, job_id=job_ids, tenant=texts)
purges = st.builds(PurgeJobs, job_ids=st.lists(job_ids, max_size=4).map(tuple), finished_before_ms=times)
marks = st.builds(WorkerMark, name=texts, queues=texts_many, capacity=numbers, seen_at_ms=times)
markings = st.builds(MarkWorkers, marks=st.lists(marks, max_size=3).map(tuple), forget=texts_many)

operations: st.SearchStrategy[Operation] = st.one_of(submits, leases, outcomes, expiries, cancels, purges, markings)
