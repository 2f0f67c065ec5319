"""Make the operations of users of schedules, workflows and queues from what they want.

Each intent makes its operation at the node that is asked, at the moment it is asked, as the API's handlers do: ids and
times are the leader's. Sent again, it means the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from random import Random

from msgspec.structs import replace

from chaos.sim.features import AMBER, CHORE, FEATURE_QUEUES, FLOW, TENANT, TICK, Features
from chaos.sim.hosts.node import SimulatedNode
from raftsched.core.operations.codec import SubmitJob, SubmitWorkflow
from raftsched.core.operations.queues import ConfigureQueue
from raftsched.core.operations.schedules import Decision, RunSchedule, SaveSchedule
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import Condition, Dependency
from raftsched.core.records.notices import Notice, NoticeEvent, NoticeForm, Watch
from raftsched.core.records.retry import Backoff, RetryPolicy
from raftsched.core.records.schedule import (
    FiringKind,
    Misfire,
    Overlap,
    Schedule,
    ScheduleId,
    Template,
    Timing,
)
from raftsched.core.records.spec import Hook, JobSpec, OnDependencyFailure, Options
from raftsched.core.records.workflow import WorkflowId
from raftsched.leader.schedules.fire_times import fire_times_of

RETRY = RetryPolicy(backoff=Backoff.FIXED, base_ms=200)
_EVENTS = tuple(NoticeEvent)
_WATCHED = 0.75
"""Part of the schedules whose owner expects something."""
_BACKFILLED_MS = 6_000
_BACKFILLED_MAX = 5
_CONDITIONS = (Condition.SUCCESS, Condition.COMPLETION, Condition.FAILURE)


def options_of(options: Options) -> Options | None:
    """None in place of options that say nothing."""
    return None if options == Options() else options


# -- schedules --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScheduleIntent:
    """A schedule as its user wants it."""

    name: str
    every: str
    overlap: Overlap
    misfire: Misfire
    catchup_ms: int
    jitter_ms: int
    max_firings: int
    lasts_ms: int
    """It ends this long after it was saved; 0 = never."""
    template: Template

    @classmethod
    def draw(cls, random: Random, name: str, features: Features) -> ScheduleIntent:
        key = random.choice(("", "k1"))
        return cls(
            name,
            every=random.choice(("1s", "1s", "1s500ms", "2s", "3s")),
            overlap=random.choice(tuple(Overlap)),
            misfire=random.choice(tuple(Misfire)),
            catchup_ms=features.catchup_ms,
            jitter_ms=random.choice((0, 0, 400)),
            max_firings=random.choice((0, 0, 0, 5)),
            lasts_ms=random.choice((0, 0, 0, 8_000)),
            template=Template(
                JobSpec(
                    name=TICK,
                    queue=random.choice(FEATURE_QUEUES),
                    priority=random.choice((0, 5, 9)),
                    max_attempts=random.choice((1, 2)),
                    timeout_ms=0,
                    retry=RETRY,
                    region=features.job_region(random),
                    options=options_of(Options(concurrency_key=key)),
                ),
                expires_after_ms=random.choice((0, 0, 3_000)),
                deadline_after_ms=random.choice((0, 0, 6_000)),
            ),
        )

    def operation(self, node: SimulatedNode) -> SaveSchedule:
        now_ms = TimeMs(node.backend.now_ms())
        known = named_schedule(node, self.name)
        timing = Timing(
            every=self.every,
            end_at_ms=TimeMs(now_ms + self.lasts_ms) if self.lasts_ms else None,
            jitter_ms=self.jitter_ms,
            max_firings=self.max_firings,
            anchor_ms=now_ms,
        )
        if known is not None and self._is_same(known.timing):
            timing = known.timing
        next_ms = fire_times_of(timing, from_ms=now_ms).next_after(now_ms)
        return SaveSchedule(
            id=ScheduleId(node.backend.new_job_id()),
            tenant=TENANT,
            name=self.name,
            timing=timing,
            template=self.template,
            overlap=self.overlap,
            misfire=self.misfire,
            catchup_window_ms=self.catchup_ms,
            next_at_ms=TimeMs(next_ms or 0),
            fingerprint=blake2b(repr(self).encode(), digest_size=16).digest(),
            passed_count=_passed_count(known, now_ms),
            actor="simulator",
            watch=self.watch,
        )

    @property
    def watch(self) -> Watch | None:
        """Return the expectations of its owner: decided by all else, and by no draw of the world."""
        random = Random(repr(self))
        if random.random() >= _WATCHED:
            return None
        return Watch(
            success_within_ms=random.choice((0, 1_500, 3_000, 5_000)),
            late_after_ms=random.choice((0, 1_000, 2_000)),
            notices=tuple(_notice(random, number) for number in range(random.choice((1, 1, 2)))),
        )

    def _is_same(self, timing: Timing) -> bool:
        wanted = (self.every, self.jitter_ms, self.max_firings, self.lasts_ms)
        lasts_ms = 0 if timing.end_at_ms is None else timing.end_at_ms - timing.begins_ms(0)
        return wanted == (timing.every, timing.jitter_ms, timing.max_firings, lasts_ms)


def _notice(random: Random, number: int) -> Notice:
    """A job that tells of some events: which one, of which run, and by which notice of its schedule."""
    events = tuple(random.sample(_EVENTS, random.choice((1, 2, 4))))
    content = b'{"number":%d,"event":"{{cause.event}}","job":"{{cause.job_id}}"}' % number
    spec = JobSpec(CHORE, random.choice(FEATURE_QUEUES), 5, random.choice((1, 2)), 0, RETRY)
    return Notice(events, NoticeForm.JOB, Hook(spec, content))


def named_schedule(node: SimulatedNode, name: str) -> Schedule | None:
    state = node.backend.fresh_state()
    schedule_id = state.schedule_id_for_name(TENANT, name)
    return None if schedule_id is None else state.schedule(schedule_id)


def _passed_count(known: Schedule | None, now_ms: int) -> int:
    if known is None or not 0 < known.next_at_ms <= now_ms:
        return 1
    fire_times = fire_times_of(known.timing, from_ms=known.created_at_ms)
    count, at_ms = 0, known.next_at_ms
    following: int | None = at_ms
    while following is not None and following <= now_ms:
        count += 1
        following = fire_times.next_after(following)
    return count


def by_hand(node: SimulatedNode, schedule: Schedule, kind: FiringKind, overlap: Overlap, call: bytes) -> RunSchedule:
    """One run now, or runs for the latest instants that have passed; `call` is the same where it is sent again."""
    now_ms = node.backend.now_ms()
    moments = [now_ms]
    if kind is FiringKind.BACKFILL:
        fire_times = fire_times_of(schedule.timing, from_ms=schedule.created_at_ms)
        moments = []
        following = fire_times.next_after(now_ms - _BACKFILLED_MS)
        while following is not None and following <= now_ms and len(moments) < _BACKFILLED_MAX:
            moments.append(following)
            following = fire_times.next_after(following)
    decisions = tuple(Decision(TimeMs(at_ms), node.backend.new_job_id(), TimeMs(now_ms)) for at_ms in moments)
    is_trigger = kind is FiringKind.MANUAL
    return RunSchedule(
        schedule.id,
        schedule.tenant,
        kind,
        decisions,
        overlap,
        actor="simulator",
        call=call,
        key=f"trigger:{schedule.id.hex()}:{call.hex()}" if is_trigger else "",
        any_fire_time=is_trigger,
    )


# -- workflows --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """A job of a workflow; parents are the numbers of earlier ones."""

    parents: tuple[tuple[int, Condition], ...]
    policy: OnDependencyFailure
    queue: str
    priority: int
    max_attempts: int
    delay_ms: int
    concurrency_key: str
    region: str


@dataclass(frozen=True, slots=True)
class WorkflowIntent:
    """Jobs that belong together."""

    key: str
    tasks: tuple[Task, ...]
    part_size: int

    @classmethod
    def draw(cls, random: Random, key: str, features: Features) -> WorkflowIntent:
        count = random.choice((3, 4, 6, 10, 30))
        tasks = []
        for number in range(count):
            parents = random.sample(range(number), min(number, random.choice((0, 1, 1, 2, 3))))
            tasks.append(
                Task(
                    tuple((parent, random.choices(_CONDITIONS, (6, 3, 1))[0]) for parent in parents),
                    random.choice(tuple(OnDependencyFailure)),
                    queue=random.choice((AMBER, *FEATURE_QUEUES)),
                    priority=random.choice((0, 5, 9)),
                    max_attempts=random.choice((1, 1, 2)),
                    delay_ms=random.choice((0, 0, 0, 0, 600)),
                    concurrency_key=random.choice(("", "", "k1", "k2")),
                    region=features.job_region(random),
                )
            )
        return cls(key, tuple(tasks), part_size=random.choice((count, count, -(-count // 2))))

    def operations(self, node: SimulatedNode) -> list[SubmitWorkflow]:
        """Its parts."""
        now_ms = node.backend.now_ms()
        workflow_id = WorkflowId(node.backend.new_job_id())
        ids = [node.backend.new_job_id() for _ in self.tasks]
        jobs = [self._job(number, workflow_id, ids, now_ms) for number in range(len(self.tasks))]
        return [
            SubmitWorkflow(
                id=workflow_id,
                tenant=TENANT,
                name="flow",
                job_count=len(jobs),
                first=first,
                jobs=tuple(jobs[first : first + self.part_size]),
                idempotency_key=self.key,
                fingerprint=blake2b(self.key.encode(), digest_size=8).digest(),
                actor="simulator",
            )
            for first in range(0, len(jobs), self.part_size)
        ]

    def _job(self, number: int, workflow_id: WorkflowId, ids: list[JobId], now_ms: int) -> SubmitJob:
        task = self.tasks[number]
        return SubmitJob(
            id=ids[number],
            tenant=TENANT,
            spec=JobSpec(
                name=FLOW,
                queue=task.queue,
                priority=task.priority,
                max_attempts=task.max_attempts,
                timeout_ms=0,
                retry=RETRY,
                region=task.region,
                options=Options(
                    workflow_id=workflow_id,
                    task=f"t{number}",
                    concurrency_key=task.concurrency_key,
                    on_dependency_failure=task.policy,
                ),
            ),
            due_at_ms=TimeMs(now_ms + task.delay_ms if task.delay_ms else 0),
            payload=b"",
            depends_on=tuple(Dependency(ids[parent], condition) for parent, condition in task.parents),
        )


# -- queues -----------------------------------------------------------------------------------------------------------


_BURSTS = {0: 0, 5: 1, 20: 20}
"""By rate: one evenly spread, and one that may be used up at once."""


def draw_limits(random: Random, queue: str) -> ConfigureQueue:
    """Other limits for a queue."""
    rate = random.choice((0, 0, 5, 20))
    key_concurrency_max, lost_workers_max = random.choice(((0, -1), (1, 0), (2, 2)))
    return ConfigureQueue(
        queue,
        rate_count=rate,
        rate_period_ms=random.choice((500, 1_000)) if rate else -1,
        rate_burst=_BURSTS[rate],
        concurrency_max=random.choice((0, 0, 1, 2, 3)),
        key_concurrency_max=key_concurrency_max,
        lost_workers_max=lost_workers_max,
        ageing_ms=random.choice((-1, 500)),
        actor="simulator",
    )


def generous(queue: str) -> ConfigureQueue:
    """Limits with which a queue makes headway."""
    return replace(ConfigureQueue(queue, actor="simulator"), rate_count=0, concurrency_max=4, key_concurrency_max=0)
