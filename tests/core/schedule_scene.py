"""A stage for the tests of schedules: the scene of jobs, and verbs for saving, firing and finishing."""

from __future__ import annotations

from raftsched.core.operations.codec import LeaseJobs, RecordOutcome
from raftsched.core.operations.schedules import (
    ControlSchedule,
    Decision,
    FireSchedule,
    RunSchedule,
    SaveSchedule,
    ScheduleAction,
)
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import AttemptEnd, Job
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import (
    Firing,
    FiringKind,
    Misfire,
    Overlap,
    Schedule,
    ScheduleId,
    Template,
    Timing,
)
from raftsched.core.records.spec import JobSpec
from raftsched.core.state.results import Fired, Leased, Result, ScheduleSaved
from tests.core.scene import PLAIN_RETRY, START_MS, TTL_MS, Scene, job_id, with_fields

MINUTE = 60_000
TEMPLATE = Template(JobSpec("report", "reports", 5, 3, 0, PLAIN_RETRY))
TIMING = Timing(cron="* * * * *")
TENANT = "default"
OWN_ID = ScheduleId(b"\x09" * 16)


class ScheduleScene(Scene):
    def __init__(self) -> None:
        super().__init__()
        self._job_number = 1_000

    def save(self, name: str = "report", **fields: object) -> ScheduleSaved:
        result = self.try_save(name, **fields)
        assert isinstance(result, ScheduleSaved), result
        return result

    def try_save(self, name: str = "report", **fields: object) -> Result:
        values: dict[str, object] = {
            "id": OWN_ID,
            "tenant": TENANT,
            "name": name,
            "timing": TIMING,
            "template": TEMPLATE,
            "overlap": Overlap.SKIP,
            "misfire": Misfire.RUN_ONCE,
            "catchup_window_ms": 0,
            "next_at_ms": TimeMs(START_MS + MINUTE),
            "fingerprint": b"first",
            "payload": b'{"n":1}',
        }
        return self.apply(SaveSchedule(**(values | fields)))  # type: ignore[arg-type]  # a test's own words

    def control(self, action: ScheduleAction, **fields: object) -> Result:
        return self.apply(ControlSchedule(OWN_ID, TENANT, action, **fields))  # type: ignore[arg-type]

    def new_job_id(self) -> JobId:
        self._job_number += 1
        return job_id(self._job_number)

    def fire(self, *fire_times_ms: int, next_at_ms: int | None = None) -> Fired:
        result = self.try_fire(*fire_times_ms, next_at_ms=next_at_ms)
        assert isinstance(result, Fired), result
        return result

    def try_fire(self, *fire_times_ms: int, next_at_ms: int | None = None, generation: int = 0) -> Result:
        """Fire at each instant, after the clock has reached the last."""
        self.now_ms = max(self.now_ms, fire_times_ms[-1])
        decisions = tuple(
            Decision(TimeMs(fire_time_ms), self.new_job_id(), TimeMs(fire_time_ms)) for fire_time_ms in fire_times_ms
        )
        behind_ms = TimeMs(fire_times_ms[-1] + MINUTE if next_at_ms is None else next_at_ms)
        return self.apply(FireSchedule(OWN_ID, generation or self.schedule.generation, decisions, behind_ms))

    def run_by_hand(self, *fire_times_ms: int, kind: FiringKind, overlap: Overlap, **fields: object) -> Fired:
        result = self.try_by_hand(*fire_times_ms, kind=kind, overlap=overlap, **fields)
        assert isinstance(result, Fired), result
        return result

    def try_by_hand(self, *fire_times_ms: int, kind: FiringKind, overlap: Overlap, **fields: object) -> Result:
        decisions = tuple(Decision(TimeMs(at_ms), self.new_job_id(), TimeMs(at_ms)) for at_ms in fire_times_ms)
        return self.apply(RunSchedule(OWN_ID, TENANT, kind, decisions, overlap, **fields))  # type: ignore[arg-type]

    @property
    def schedule(self) -> Schedule:
        schedule = self.state.schedule(OWN_ID)
        assert schedule is not None
        return schedule

    @property
    def ledger(self) -> list[Firing]:
        return self.state.firings(OWN_ID, after=None, until_ms=None, limit=1_000)

    def job_of(self, firing: Firing) -> Job:
        job = self.state.job(firing.job_id)
        assert job is not None
        return job

    def start(self, job: Job) -> Job:
        result = self.apply(LeaseJobs("w1", TTL_MS, (job.id,)))
        assert isinstance(result, Leased)
        (grant,) = result.grants
        return grant.job

    def finish(self, job: Job) -> None:
        """Run the job to its completion."""
        running = self.start(job)
        assert running.lease is not None
        self.apply(RecordOutcome(job.id, job.run_number, running.lease.token, AttemptEnd.COMPLETED))


def retrying(attempts: int) -> Template:
    return with_fields(TEMPLATE, max_attempts=attempts, retry=RetryPolicy(jitter_thousandths=0))
