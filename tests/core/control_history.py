"""One random history of everything that a job can be told to do, on the plain state and on the real one side by side.

After each step both give the same answer and hold every invariant, and what only a history can show is watched: tokens
only rise; nothing is granted that is paused, held, expired, not due or of another region; no limit is exceeded at any
position of the log, and no rate in any span; a run that begins at most once is never leased again once it has begun;
one job holds a claim; logs of attempts never mix; an end is final; and whatever is held back has somebody whose end
will set it free, even if no other region has a worker. At the end all jobs can be brought to an end, and no place,
claim, alarm or held job is left.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable

from raftsched import limits
from raftsched.core.apply import apply
from raftsched.core.checks.invariants import check
from raftsched.core.explain import ServingWorker, explain
from raftsched.core.jobs.admission import key_concurrency_max
from raftsched.core.jobs.rate_limit import burst
from raftsched.core.jobs.unique_keys import holds_idempotency_key, holds_unique_key
from raftsched.core.maintenance.retention import KEPT_AGAIN_MS
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
from raftsched.core.operations.queues import ConfigureQueue, PauseQueue
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import (
    FINISHED,
    LEASED,
    WAITING,
    AttemptEnd,
    Condition,
    Dependency,
    Job,
    JobError,
    Status,
)
from raftsched.core.records.spec import NEVER, JobSpec, Options, SpecChanges, spec_problem
from raftsched.core.state.entries import DeadlineEntry
from raftsched.core.state.results import Context, Counted, Logged, Refused, Result
from raftsched.core.state.writes import PutJob, PutQueue
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from tests.core.control_scene import assert_limits_hold, is_grant, options, told_alike
from tests.core.plain_state import PlainState
from tests.core.scene import PLAIN_RETRY, START_MS, TTL_MS, job_id, with_fields

QUEUES = ("q1", "q2")
TENANTS = ("a", "a", "a", "b")
REGIONS = ("", "", "eu", "us")
JOBS_MAX = 40
Draw = random.Random


class History:
    """Two states that are told the same, and what was seen of them so far."""

    def __init__(self, seed: int) -> None:
        self.draw = Draw(seed)
        dice = Draw(f"regions of {seed}")
        self.region: Callable[[], str] = (lambda: dice.choice(REGIONS)) if seed % 2 else lambda: ""
        """Where a job is to run, or a worker is; half of the histories have none."""
        self.plain = PlainState()
        self.real = State(MemoryStore())
        self.now_ms = START_MS
        self.submitted_count = 0
        self.refusals: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self._last_token = 0
        self._begun: set[tuple[JobId, int]] = set()
        self._ended: dict[JobId, Job] = {}
        self._lines: dict[tuple[JobId, int, int], bytes] = defaultdict(bytes)
        self._granted_at_ms: dict[str, list[int]] = defaultdict(list)
        """By queue, since its rate was last changed."""

    # -- a step

    def apply(self, operation: Operation) -> Result:
        self.plain.index += 1
        self.plain._now_ms = TimeMs(max(self.plain._now_ms, self.now_ms))
        context = Context(TimeMs(self.now_ms), self.plain.index)
        applied = apply(self.plain, operation, context)
        assert apply(self.real, operation, context) == applied, "every node decides alike, whatever its store"
        self.plain.execute(applied.writes)
        self.real.execute(applied.writes)
        self.real.advance(index=context.index, term=1, now_ms=self.now_ms)
        self.answers[f"{type(operation).__name__} {type(applied.result).__name__}"] += 1
        if isinstance(applied.result, Refused):
            self.refusals[applied.result.code.label] += 1
            assert applied.writes == () or applied.result.code is RejectCode.CANCELLED, "a refusal writes nothing"
        for write in applied.writes:
            if isinstance(write, PutJob):
                self._watch(write)
            elif isinstance(write, PutQueue) and isinstance(operation, ConfigureQueue):
                self._granted_at_ms.pop(write.new.name, None)
        assert_limits_hold(self.plain, applied.writes)
        self._assert_all_is_well()
        return applied.result

    def _watch(self, write: PutJob) -> None:
        old, new = write.old, write.new
        run = (new.id, new.run_number)
        if is_grant(write):
            assert old is not None
            assert new.lease is not None
            assert new.lease.token == self._last_token + 1, "tokens rise by one"
            self._last_token = new.lease.token
            assert old.status in WAITING
            assert old.due_at_ms <= self.now_ms
            assert not old.blocked
            assert run not in self._begun, "what begins at most once has begun"
            if old.spec.options is not None:
                expires_at_ms = None if old.attempt_number else old.spec.options.expires_at_ms
                times = (expires_at_ms, old.spec.options.deadline_ms)
                assert all(time_ms is None or time_ms > self.now_ms for time_ms in times), "never granted once expired"
            self._watch_rate(new.spec.queue)
        if (
            new.lease is not None
            and new.lease.started
            and new.spec.options is not None
            and new.spec.options.at_most_once
        ):
            self._begun.add(run)

    def _watch_rate(self, name: str) -> None:
        queue = self.plain.queue(name)
        if queue is None or not queue.rate_count:
            return
        granted = self._granted_at_ms[name]
        granted.append(self.now_ms)
        for position, first_ms in enumerate(granted):
            span = len(granted) - position
            filled = (self.now_ms - first_ms) * queue.rate_count // queue.rate_period_ms
            assert span <= burst(queue) + filled, "no span gives more than a full bucket and what it fills in"

    # -- after each step

    def _assert_all_is_well(self) -> None:
        assert check(self.plain) == []
        assert check(self.real) == []
        jobs = list(self.plain.all_jobs())
        for job in jobs:
            known = self._ended.get(job.id)
            assert known is None or job.run_number > known.run_number or told_alike(job, known), "an end is final"
            assert spec_problem(job.spec) == ""
            assert bool(explain(self.plain, job, TimeMs(self.now_ms), workers=[ServingWorker("w", QUEUES)]))
        self._ended = {job.id: job for job in jobs if job.status in FINISHED}
        assert_keys_are_single(jobs, self.now_ms)
        self._assert_blocked_jobs_will_be_released(jobs)

    def _assert_blocked_jobs_will_be_released(self, jobs: list[Job]) -> None:
        for job in jobs:
            if (
                not job.blocked
                or self.plain.background_cursor(BackgroundKind.RELEASE_BLOCKED, job.spec.queue.encode()) is not None
            ):
                continue
            place = (job.spec.queue, job.spec.concurrency_key)
            others = [
                other for other in jobs if (other.spec.queue, other.spec.concurrency_key) == place and not other.blocked
            ]
            leased = [other for other in others if other.status in LEASED]
            offered = [other for other in others if _is_offered(other, self.now_ms)]
            # One that is offered to another region may wait for ever: only its own can be relied upon.
            in_time = [other for other in offered if other.spec.region == job.spec.region]
            limit = key_concurrency_max(self.plain.queue(job.spec.queue))
            assert len(leased) >= limit or in_time, f"nobody will ever free {job!r}"

    # -- what to name

    def job(self, *statuses: Status) -> Job | None:
        """Mostly one of these statuses, now and then any."""
        jobs = list(self.plain.all_jobs())
        meant = [job for job in jobs if job.status in statuses]
        pool = meant if meant and self.draw.random() < 0.85 else jobs
        return self.draw.choice(pool) if pool else None

    def token(self, job: Job) -> FencingToken:
        tokens = [kept.token for kept in job.attempts] + ([job.lease.token] if job.lease else [])
        if not tokens:
            return FencingToken(0)
        return tokens[-1] if self.draw.random() < 0.8 else self.draw.choice(tokens)

    # -- steps to take

    def submit(self) -> None:
        draw = self.draw
        if len(self.plain.jobs) >= JOBS_MAX:
            return
        self.submitted_count += draw.random() < 0.95
        parents = draw.sample(list(self.plain.jobs), min(len(self.plain.jobs), draw.choice([0, 0, 0, 1, 2])))
        tenant, queue, priority = draw.choice(TENANTS), draw.choice(QUEUES), draw.randrange(10)
        due_at_ms = TimeMs(draw.choice([0, 0, 0, self.now_ms + draw.randrange(3_000)]))
        spec = JobSpec("n", queue, priority, draw.randint(1, 3), draw.choice([0, 0, 1_500]), PLAIN_RETRY)
        plain = SubmitJob(
            job_id(max(self.submitted_count, 1)), tenant, spec, due_at_ms, b"1",
            idempotency_key=draw.choice(["", "", "k1", "k2"]), fingerprint=draw.choice([b"f", b"f", b"g"]),
        )  # fmt: skip
        self.apply(
            with_fields(
                plain, options=self._options(),
                depends_on=tuple(Dependency(parent, draw.choice(list(Condition))) for parent in parents),
                paused=draw.random() < 0.1, region=self.region(),
            )
        )  # fmt: skip

    def _options(self) -> Options | None:
        draw = self.draw

        def soon(share: float) -> int:
            return self.now_ms + draw.randrange(-100, 8_000) if draw.random() < share else 0

        if draw.random() < 0.3:
            return None
        return options(
            expires_at_ms=soon(0.15) or None, deadline_ms=soon(0.15) or None, heartbeat_timeout_ms=draw.choice([0, 0, 800]),
            at_most_once=draw.random() < 0.25, concurrency_key=draw.choice(["", "x", "x", "y"]),
            unique_key=draw.choice([b"", b"", b"u", b"v"]), unique_until_ms=soon(0.3),
            idempotency_until_ms=soon(0.3), retry_on=draw.choice([(), (), ("E",)]), no_retry=draw.choice([(), ("F",)]),
        )  # fmt: skip

    def lease(self) -> None:
        """As the leader does: offer what is ready, and hold what its key keeps back."""
        ready = [entry.job_id for entry in self.plain.all_waiting() if entry.due_at_ms <= self.now_ms]
        wanted = self.draw.sample(ready, min(len(ready), self.draw.randint(1, 4)))
        stray = self.job(*Status)
        if stray is not None and self.draw.random() < 0.3:
            wanted.append(stray.id)
        region = self.region()
        result = self.apply(LeaseJobs(self.draw.choice(["w1", "w2"]), TTL_MS, tuple(wanted), region=region))
        grants = getattr(result, "grants", ())
        assert all(grant.job.spec.region in ("", region) for grant in grants), "a job of a region goes to its workers"
        missed = getattr(result, "missed", ())
        if missed and self.draw.random() < 0.7:
            self.apply(BlockJobs(missed))

    def report(self) -> None:
        job = self.job(*LEASED)
        if job is None:
            return
        draw = self.draw
        end = draw.choice([AttemptEnd.COMPLETED, AttemptEnd.COMPLETED, AttemptEnd.FAILED, AttemptEnd.SNOOZED])
        self.apply(
            RecordOutcome(
                job.id, job.run_number, self.token(job), end, draw.choice(["", "c"]),
                error=draw.choice([None, JobError("E", "m"), JobError("F", "m")]), retryable=draw.random() < 0.8,
                delay_ms=draw.choice([0, 500]), jitter=0,
            )
        )  # fmt: skip

    def expire(self) -> None:
        job = self.job(*LEASED)
        if job is not None:
            cause = self.draw.choice([AttemptEnd.TIMEOUT, AttemptEnd.WORKER_LOST, AttemptEnd.CANCELLED])
            self.apply(ExpireLeases((ExpiredLease(job.id, self.token(job), cause),)))

    def start(self) -> None:
        job = self.job(*LEASED)
        if job is not None:
            self.apply(StartRun(job.id, job.run_number, self.token(job)))

    def progress(self) -> None:
        job = self.job(*LEASED)
        if job is not None:
            self.apply(ReportProgress((Progress(job.id, job.run_number, self.token(job), b"1"),)))

    def log(self) -> None:
        job = self.job(*LEASED)
        if job is None:
            return
        attempt = (job.id, job.run_number, job.attempt_number)
        sequence = self.draw.choice([0, 1, 2, 3])
        lines = b"%d.%d %d\n" % (job.run_number, job.attempt_number, sequence)
        result = self.apply(AppendLog(job.id, job.run_number, self.token(job), lines, sequence))
        if isinstance(result, Logged) and not result.repeated:
            self._lines[attempt] += lines
            assert result.byte_count == len(self._lines[attempt])
        stored = b"".join(piece for _, piece in self.plain.logs.get(attempt, []))
        assert stored == self._lines[attempt], "an attempt's log has its own lines alone"

    def pause(self) -> None:
        job = self.job(*WAITING, Status.WAITING_DEPENDENCIES)
        if job is not None:
            until_ms = TimeMs(self.draw.choice([0, self.now_ms + 700]))
            self.apply(PauseJob(job.id, self.draw.choice([job.tenant, job.tenant, "b"]), until_ms, actor="ann"))

    def resume(self) -> None:
        job = self.job(Status.PAUSED)
        if job is not None:
            self.apply(ResumeJob(job.id, job.tenant))

    def amend(self) -> None:
        job = self.job(*WAITING, Status.PAUSED)
        if job is None:
            return
        draw = self.draw
        due_at_ms = draw.choice([None, None, 0, self.now_ms + 900])
        changes = SpecChanges(
            priority=draw.choice([None, 3, 9]), queue=draw.choice([None, None, *QUEUES]),
            max_attempts=draw.choice([None, None, 1, 5]),
            expires_at_ms=draw.choice([None, None, NEVER, self.now_ms + 5_000]),
        )  # fmt: skip
        if_revision = draw.choice([0, 0, job.revision, 1])
        self.apply(AmendJob(job.id, job.tenant, changes, due_at_ms, if_revision=if_revision))

    def requeue(self) -> None:
        job = self.job(Status.DEAD_LETTER, Status.CANCELLED, Status.SKIPPED, Status.RETRYING, Status.PAUSED)
        if job is not None:
            due_at_ms = TimeMs(self.draw.choice([0, 0, self.now_ms + 400]))
            self.apply(RequeueJob(job.id, job.tenant, due_at_ms, self.draw.choice(["", "", "", "timeout"])))

    def cancel(self) -> None:
        job = self.job(*set(Status) - FINISHED)
        if job is not None:
            self.apply(CancelJob(job.id, job.tenant, force=self.draw.random() < 0.4))

    def configure(self) -> None:
        draw = self.draw
        self.apply(
            ConfigureQueue(
                draw.choice(QUEUES), rate_count=draw.choice([-1, -1, 0, 2, 5]), rate_period_ms=draw.choice([700, 1_000]),
                rate_burst=draw.choice([-1, 0, 1, 4]),
                concurrency_max=draw.choice([-1, 0, 1, 3]), key_concurrency_max=draw.choice([-1, 0, 1, 2, 3]),
            )
        )  # fmt: skip

    def pause_queue(self) -> None:
        until_ms = TimeMs(self.draw.choice([0, self.now_ms + 600]))
        self.apply(PauseQueue(self.draw.choice(QUEUES), self.draw.random() < 0.4, until_ms))

    def ring(self) -> None:
        """Ring all that is due, as the leader does: none of it is due again by the same time."""
        due = self._due_deadlines()
        result = self.apply(HandleDeadlines(tuple((deadline.kind, deadline.subject) for deadline in due)))
        assert result == Counted(len(due))
        assert not self._due_deadlines()

    def _due_deadlines(self) -> list[DeadlineEntry]:
        """All but those of finished jobs, which are purged, not rung."""
        finished = {bytes(job.id) for job in self.plain.all_jobs() if job.status in FINISHED}
        deadlines = [deadline for deadline in self.plain.all_deadlines() if deadline.at_ms <= self.now_ms]
        return [
            deadline
            for deadline in deadlines
            if deadline.kind is not DeadlineKind.JOB or deadline.subject not in finished
        ]

    def ring_a_stray_one(self) -> None:
        job = self.job(*Status)
        if job is not None:
            self.apply(HandleDeadlines(((DeadlineKind.JOB, bytes(job.id)),)))

    def do_background_work(self) -> None:
        for kind, subject, _ in list(self.plain.all_background_work()):
            self.apply(DoBackgroundStep(kind, subject))

    def purge(self) -> None:
        job = self.job(*FINISHED)
        if job is not None and self.draw.random() < 0.3:
            self.apply(PurgeJobs((job.id,), TimeMs(self.now_ms)))

    # -- the end

    def bring_all_to_an_end(self) -> None:
        """No limit, no pause: then everything that is there runs out within a bounded number of rounds."""
        for name in QUEUES:
            self.apply(ConfigureQueue(name, rate_count=0, rate_period_ms=1, concurrency_max=0, key_concurrency_max=0))
            self.apply(PauseQueue(name, False))
        for _ in range(3 * JOBS_MAX):
            jobs = list(self.plain.all_jobs())
            if all(job.status in FINISHED for job in jobs) and not list(self.plain.all_background_work()):
                break
            self.now_ms += 10_000
            self.ring()
            for _ in range(limits.WORKFLOW_JOBS_MAX):
                if not list(self.plain.all_background_work()):
                    break
                self.do_background_work()
            for job in jobs:
                self._end(job.id)
        assert Counter(job.status for job in self.plain.all_jobs() if job.status not in FINISHED) == {}
        assert (self.plain.running_counts(), self.real.running_counts()) == ({}, {}), "no place is taken"
        self.now_ms += KEPT_AGAIN_MS
        for job in list(self.plain.all_jobs()):
            if job.kept_until_ms:
                self.apply(PurgeJobs((job.id,), TimeMs(self.now_ms)))
        assert (list(self.plain.all_blocked()), list(self.plain.all_deadlines())) == ([], [])

    def _end(self, about: JobId) -> None:
        job = self.plain.jobs.get(about)
        if job is not None and job.status is Status.PAUSED:
            self.apply(ResumeJob(job.id, job.tenant))
        elif job is not None and job.status in WAITING:
            self.apply(LeaseJobs("w", TTL_MS, (job.id,), region=job.spec.region))
        elif job is not None and job.lease is not None:
            self.apply(StartRun(job.id, job.run_number, job.lease.token))
            self.apply(RecordOutcome(job.id, job.run_number, job.lease.token, AttemptEnd.COMPLETED))


def _is_offered(job: Job, now_ms: int) -> bool:
    return job.status in WAITING and job.due_at_ms <= now_ms


def assert_keys_are_single(jobs: list[Job], now_ms: int) -> None:
    unique = Counter(
        (job.tenant, job.spec.options.unique_key) for job in jobs if job.spec.options and holds_unique_key(job, now_ms)
    )
    keys = Counter((job.tenant, job.idempotency_key) for job in jobs if holds_idempotency_key(job, now_ms))
    assert max([*unique.values(), *keys.values()], default=1) == 1, "a claim has one holder"
