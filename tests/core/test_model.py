"""Random operations on `apply` and on the dumb model side by side.

After each step the answers and every job agree, all invariants hold, and the promises that only a history can show are
watched: tokens only rise, a run has at most one valid lease, a token at most one accepted outcome, nothing is granted
before it is due, a cancel that was acknowledged is final, and what finished never changes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raftsched.core.checks.invariants import check
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import (
    CancelJob,
    ExpiredLease,
    ExpireLeases,
    LeaseJobs,
    PurgeJobs,
    RecordOutcome,
    RejectCode,
    SubmitJob,
)
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import FINISHED, LEASED, WAITING, AttemptEnd, Job, JobError, Status
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import JobSpec
from raftsched.core.state.results import (
    Cancelled,
    Expired,
    Leased,
    OutcomeRecorded,
    Purged,
    Refused,
    Result,
    Submitted,
)
from raftsched.core.state.writes import PutJob
from tests.core.model import Answer, Model, Record
from tests.core.plain_state import PlainState
from tests.core.scene import START_MS, job_id

UNKNOWN_ID = job_id(9_999)
TTL_MS = 1_000
POLICY = RetryPolicy(base_ms=1_000, factor_thousandths=1_500, cap_ms=2_000, jitter_thousandths=200)
MODEL_POLICY = (1_000, Fraction(3, 2), 2_000, Fraction(1, 5))

picks = st.integers(0, 11)
"""Which job to name: 0 = none that there is, 1 and 2 = any, the others = one that the operation is meant for."""
pick_lists = st.lists(picks, min_size=1, max_size=4)
jitters = st.sampled_from([-1_000, -333, 0, 1_000])
tenants = st.sampled_from(["a", "a", "a", "b"])
completions = st.sampled_from(["c", "d", ""])
waits = st.sampled_from([0, 1, 500, 1_000, 2_500])
ages = st.sampled_from([0, 0, 0, 0, 1, 2])
"""Which token of a job to name: 0 = the present or latest one, 1 = the one before, 2 = one of nobody."""


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = PlainState()
        self.model = Model()
        self.now_ms = START_MS
        self.submitted_count = 0
        self.granted_tokens: list[int] = []
        self.valid_leases: dict[tuple[JobId, int], int] = {}
        self.accepted_tokens: set[int] = set()
        self.cancelled_ids: set[JobId] = set()
        self.finished_jobs: dict[JobId, Job] = {}

    # -- steps

    @initialize(timeout_ms=st.sampled_from([0, 500]), attempts_max=st.integers(1, 3), loss_count=st.integers(0, 2))
    def three_jobs_run(self, timeout_ms: int, attempts_max: int, loss_count: int) -> None:
        """A start in the thick of it: most of what can go wrong needs a lease, and some of it a history."""
        for _ in range(3):
            self._submit(due_at_ms=0, timeout_ms=timeout_ms, attempts_max=attempts_max)
        self.lease([3, 4, 5], "w1", 0)
        for _ in range(loss_count):
            self.expire([(pick, 0, AttemptEnd.WORKER_LOST, 0) for pick in (3, 4, 5)], 2_500)
            self.lease([3, 4, 5], "w1", 2_500)

    @rule(
        is_repeat=st.sampled_from([False, False, False, True]),
        tenant=tenants,
        key=st.sampled_from(["", "", "k1", "k2"]),
        body=st.sampled_from([b"f", b"g"]),
        delay_ms=st.sampled_from([None, -1_000, 0, 1, 1_000]),
        attempts_max=st.integers(1, 3),
        timeout_ms=st.sampled_from([0, 500]),
    )
    def submit(self, *, is_repeat: bool, delay_ms: int | None, **fields: Any) -> None:
        due_at_ms = 0 if delay_ms is None else self.now_ms + delay_ms
        self._submit(due_at_ms=due_at_ms, is_repeat=is_repeat, **fields)

    @precondition(lambda self: self.state.jobs)
    @rule(picks=pick_lists, worker=st.sampled_from(["w1", "w2"]), wait_ms=waits)
    def lease(self, picks: list[int], worker: str, wait_ms: int) -> None:
        self.now_ms += wait_ms
        job_ids = [self._pick(pick, WAITING) for pick in picks]
        self._now()
        expected = self.model.lease([*job_ids], worker, TTL_MS)
        assert self._apply(LeaseJobs(worker, TTL_MS, tuple(job_ids))) == expected

    @precondition(lambda self: self.state.jobs)
    @rule(pick=picks, age=ages, completion=completions, result=st.sampled_from([b"", b"1"]))
    def complete(self, pick: int, age: int, completion: str, result: bytes) -> None:
        self._report(pick, age, AttemptEnd.COMPLETED, completion, result=result)

    @precondition(lambda self: self.state.jobs)
    @rule(pick=picks, age=ages, completion=completions, delay_ms=st.sampled_from([0, 700]))
    def snooze(self, pick: int, age: int, completion: str, delay_ms: int) -> None:
        self._report(pick, age, AttemptEnd.SNOOZED, completion, delay_ms=delay_ms)

    @precondition(lambda self: self.state.jobs)
    @rule(
        pick=picks,
        age=ages,
        completion=completions,
        retryable=st.sampled_from([True, True, False]),
        delay_ms=st.sampled_from([-1, -1, 0, 300]),
        jitter=jitters,
        error=st.none() | st.just(JobError("Boom", "text")),
    )
    def fail(self, pick: int, age: int, completion: str, **fields: Any) -> None:
        self._report(pick, age, AttemptEnd.FAILED, completion, **fields)

    @precondition(lambda self: self.valid_leases)
    @rule(
        suspects=st.lists(
            st.tuples(
                picks,
                ages,
                st.sampled_from([AttemptEnd.TIMEOUT, AttemptEnd.WORKER_LOST, AttemptEnd.CANCELLED]),
                jitters,
            ),
            min_size=1,
            max_size=4,
        ),
        wait_ms=waits,
    )
    def expire(self, suspects: list[tuple[int, int, AttemptEnd, int]], wait_ms: int) -> None:
        self.now_ms += wait_ms
        leases = []
        for pick, age, cause, jitter in suspects:
            about = self._pick(pick, LEASED)
            leases.append(ExpiredLease(about, self._token(about, age), cause, jitter))
        self._now()
        expected = self.model.expire([(one.job_id, one.token, one.cause.label, one.jitter) for one in leases])
        assert self._apply(ExpireLeases(tuple(leases))) == expected

    @precondition(lambda self: self.state.jobs)
    @rule(pick=picks, tenant=tenants)
    def cancel(self, pick: int, tenant: str) -> None:
        about = self._pick(pick, WAITING | LEASED)
        self._now()
        assert self._apply(CancelJob(about, tenant)) == self.model.cancel(about, tenant)

    @precondition(lambda self: self.finished_jobs)
    @rule(picks=pick_lists, age_ms=st.sampled_from([-1, 0, 1_000]))
    def purge(self, picks: list[int], age_ms: int) -> None:
        job_ids = [self._pick(pick, FINISHED) for pick in picks]
        before_ms = self.now_ms - age_ms
        self._now()
        expected = self.model.purge([*job_ids], before_ms)
        assert self._apply(PurgeJobs(tuple(job_ids), TimeMs(before_ms))) == expected

    # -- after each step

    @invariant()
    def every_invariant_holds(self) -> None:
        assert check(self.state) == []

    @invariant()
    def every_job_is_as_the_model_says(self) -> None:
        assert {about: seen(job, self.state) for about, job in self.state.jobs.items()} == {
            about: self.model.seen(about) for about in self.model.jobs
        }

    @invariant()
    def nothing_that_finished_ever_changes(self) -> None:
        for about, job in self.finished_jobs.items():
            assert self.state.job(about) == job
        self.finished_jobs = {job.id: job for job in self.state.all_jobs() if job.status in FINISHED}

    # -- how

    def _now(self) -> None:
        self.model.now = self.now_ms

    def _submit(
        self,
        *,
        due_at_ms: int,
        attempts_max: int,
        timeout_ms: int,
        tenant: str = "a",
        key: str = "",
        body: bytes = b"f",
        is_repeat: bool = False,
    ) -> None:
        self.submitted_count += not is_repeat
        about = job_id(self.submitted_count)
        operation = SubmitJob(
            about, tenant, JobSpec("n", "q", 5, attempts_max, timeout_ms, POLICY), TimeMs(due_at_ms), b"1", key, body
        )
        limits = {"attempts_max": attempts_max, "timeout": timeout_ms, "retry": MODEL_POLICY}
        self._now()
        expected = self.model.submit(about, tenant=tenant, key=key, body=body, due=due_at_ms, rest=limits)
        assert self._apply(operation) == expected

    def _pick(self, pick: int, meant: frozenset[Status]) -> JobId:
        jobs = list(self.state.all_jobs())
        if pick > 2:
            jobs = [job for job in jobs if job.status in meant] or jobs
        return jobs[pick % len(jobs)].id if jobs and pick else UNKNOWN_ID

    def _token(self, about: JobId, age: int) -> FencingToken:
        job = self.state.job(about)
        if job is None or age == 2:
            return FencingToken(self.state.fence + 1)
        tokens = [kept.token for kept in job.attempts] + ([job.lease.token] if job.lease else [])
        return tokens[-1 - age] if len(tokens) > age else FencingToken(0)

    def _report(self, pick: int, age: int, end: AttemptEnd, completion: str, **fields: Any) -> None:
        about = self._pick(pick, LEASED)
        operation = RecordOutcome(about, 1, self._token(about, age), end, completion, **fields)
        error = operation.error.type if operation.error else ""
        extra = {
            "delay": operation.delay_ms,
            "jitter": operation.jitter,
            "retryable": operation.retryable,
            "error": error,
        }
        self._now()
        expected = self.model.report(
            about, operation.token, end.label, completion=completion, result=operation.result, extra=extra
        )
        answer = self._apply(operation)
        assert answer == expected
        if answer == ("recorded", about, False):
            assert operation.token not in self.accepted_tokens, "one outcome per token"
            assert about not in self.cancelled_ids, "a cancel is final"
            self.accepted_tokens.add(operation.token)

    def _apply(self, operation: Operation) -> Answer:
        applied = self.state.step(operation, self.now_ms)
        if isinstance(applied.result, Refused) and applied.result.code is not RejectCode.CANCELLED:
            assert applied.writes == (), "a refusal writes nothing"
        for write in applied.writes:
            if isinstance(write, PutJob):
                self._watch(write)
        assert self.state.fence == max(self.granted_tokens, default=0)
        if isinstance(applied.result, Cancelled):
            self.cancelled_ids.add(applied.result.job.id)
        if isinstance(applied.result, Purged):
            self.finished_jobs = {about: job for about, job in self.finished_jobs.items() if self.state.job(about)}
            self.cancelled_ids &= self.state.jobs.keys()
        return answer_of(applied.result)

    def _watch(self, write: PutJob) -> None:
        """Follow the leases of each run, from the writes alone."""
        old, new = write.old, write.new
        run = (new.id, new.run_number)
        blocked = self.valid_leases.pop(run, None)
        assert blocked == (old.lease.token if old and old.lease else None)
        if new.lease is None:
            return
        self.valid_leases[run] = new.lease.token
        if blocked is None:
            assert new.due_at_ms <= self.now_ms, "never granted before it is due"
            assert new.id not in self.cancelled_ids, "a cancel is final"
            assert new.lease.token > max(self.granted_tokens, default=0), "tokens only rise"
            self.granted_tokens.append(new.lease.token)
        else:
            assert blocked == new.lease.token, "a lease is never passed on"


def answer_of(result: Result) -> Answer:
    """The result as the model would put it."""
    match result:
        case Submitted():
            return ("submitted", result.job.id, result.duplicate)
        case Leased():
            given = [(grant.job.id, grant.job.lease.token) for grant in result.grants if grant.job.lease]
            return ("leased", given, [*result.missed])
        case OutcomeRecorded():
            return ("recorded", result.job.id, result.repeated)
        case Expired():
            return ("expired", [job.id for job in result.jobs], [*result.kept])
        case Cancelled():
            return ("cancelled", result.job.id)
        case Purged():
            return ("purged", result.count)
        case Refused():
            return ("refused", result.code.label)
        case _:
            raise AssertionError(result)


def seen(job: Job, state: PlainState) -> Record:
    """The job as the model would describe it."""
    lease = job.lease
    holder = lease and {"token": lease.token, "worker": lease.worker, "since": lease.granted_at_ms, "ttl": lease.ttl_ms}
    ended = [{"token": one.token, "end": one.end.label, "completion": one.completion_id} for one in job.attempts]
    return {
        "status": job.status.label, "due": job.due_at_ms, "failures": job.failure_count, "losses": job.lost_count,
        "leases": job.attempt_number, "holder": holder, "ended": ended, "reason": job.failure_reason,
        "finished": job.finished_at_ms, "result": state.results.get(job.id, b""),
    }  # fmt: skip


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(stateful_step_count=50)
