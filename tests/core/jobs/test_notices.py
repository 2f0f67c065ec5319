"""Notices: the owner of a schedule is told of each event once, in the entry of its cause, until a run succeeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.facts import FACTS
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import DeadlineKind, HandleDeadlines
from raftsched.core.operations.queues import ConfigureQueue
from raftsched.core.operations.schedules import Decision, FireSchedule, ScheduleAction
from raftsched.core.records.ids import TimeMs, job_id_text
from raftsched.core.records.job import Job, JobError
from raftsched.core.records.notices import Alarm, Notice, NoticeEvent, NoticeForm, Watch
from raftsched.core.records.schedule import FiringKind, Overlap
from raftsched.core.records.spec import Hook, JobSpec
from raftsched.core.records.texts import time_text
from raftsched.core.state.writes import PutAudit, PutJob
from tests.core.scene import PLAIN_RETRY, START_MS, code_of
from tests.core.schedule_scene import MINUTE, OWN_ID, TIMING, ScheduleScene, retrying

FIRST = START_MS + MINUTE
HOUR = 60 * MINUTE
EVENTS = tuple(NoticeEvent)


def notice(*events: NoticeEvent, name: str = "tell", form: NoticeForm = NoticeForm.JOB, payload: bytes = b"") -> Notice:
    return Notice(events or EVENTS, form, Hook(JobSpec(name, name, 5, 1, 0, PLAIN_RETRY), payload))


class WatchedScene(ScheduleScene):
    """An every-minute schedule whose owner is told of everything; its runs are tried twice."""

    def __init__(self, *notices: Notice, overlap: Overlap = Overlap.SKIP) -> None:
        super().__init__()
        self.watch = Watch(HOUR, MINUTE, notices or (notice(),))
        self.save(watch=self.watch, template=retrying(2), overlap=overlap)
        self._at_ms = FIRST

    def next_run(self, *, late_ms: int = 0) -> Job:
        """Fire the next time, and start its run."""
        job = self.job_of(self.fire(self._at_ms).firings[-1])
        self.now_ms = max(self.now_ms, self._at_ms + late_ms)
        self._at_ms += MINUTE
        return self.start(job)

    def die(self, job: Job) -> None:
        self.fail(job, retryable=False, error=JobError("Boom", "<no>\ndisk"))

    def skip(self, reason: str, count: int = 2) -> None:
        """Decide to skip the next fire times."""
        last_ms = self._at_ms + (count - 1) * MINUTE
        behind_ms = last_ms + MINUTE
        decision = Decision(TimeMs(self._at_ms), reason=reason, count=count, last_fire_time_ms=TimeMs(last_ms))
        self.now_ms = max(self.now_ms, last_ms)
        self.apply(FireSchedule(OWN_ID, self.schedule.generation, (decision,), TimeMs(behind_ms)))
        self._at_ms = behind_ms

    def ring(self) -> None:
        self.apply(HandleDeadlines(((DeadlineKind.SCHEDULE, OWN_ID),)))

    @property
    def payloads(self) -> list[Any]:
        """The payloads of the jobs that the last operation stored because of an event."""
        new = [write.new for write in self.last.writes if isinstance(write, PutJob) and write.old is None]
        return [
            json.loads(self.state.payload(job.id)) for job in new if job.spec.options and job.spec.options.notice_of
        ]

    @property
    def told(self) -> list[str]:
        return [payload["event"] for payload in self.payloads]

    @property
    def alarms(self) -> list[str]:
        return [alarm.event.label for alarm in self.schedule.health.alarms]


Steps = Callable[[WatchedScene], Iterator[str]]
"""What happens, one operation at a time; after each, the events that it is to tell."""


def fails_each_minute(scene: WatchedScene) -> Iterator[str]:
    for told in ("dead_letter", "", ""):
        scene.die(scene.next_run())
        yield told
    scene.complete(scene.next_run())
    yield "recovered"
    scene.complete(scene.next_run())
    yield "success"
    scene.die(scene.next_run())
    yield "dead_letter"


def fails_once_and_is_tried_again(scene: WatchedScene) -> Iterator[str]:
    for told in ("failed", "failed"):
        job = scene.next_run()
        scene.fail(job)
        yield told
        assert scene.alarms == ["failed"]
        scene.wait(scene.now(job).due_at_ms - scene.now_ms)
        scene.complete(scene.start(job))
        yield "success"
        assert scene.alarms == []


def fails_for_good_after_its_retry(scene: WatchedScene) -> Iterator[str]:
    job = scene.next_run()
    scene.fail(job)
    yield "failed"
    scene.wait(scene.now(job).due_at_ms - scene.now_ms)
    scene.fail(scene.start(job))
    yield "dead_letter"
    assert scene.alarms == ["failed", "dead_letter"]


def starts_late(scene: WatchedScene) -> Iterator[str]:
    for told in ("late", ""):
        job = scene.next_run(late_ms=MINUTE + 1)
        yield told
        scene.complete(job)
        yield "success"
        assert scene.alarms == ["late"], "a run that was late itself does not end the alarm"
    scene.complete(scene.next_run(late_ms=MINUTE))
    yield "success"
    scene.next_run(late_ms=2 * MINUTE)
    yield "late"


def has_no_success_for_an_hour(scene: WatchedScene) -> Iterator[str]:
    scene.wait(HOUR - 1)
    scene.ring()
    yield ""
    scene.wait(1)
    scene.ring()
    yield "missed"
    assert scene.schedule.health.alarms == (Alarm(NoticeEvent.MISSED, TimeMs(START_MS)),)
    scene.wait(HOUR)
    scene.ring()
    yield ""
    scene.complete(scene.next_run())
    yield "recovered"
    scene.wait(HOUR)
    scene.ring()
    yield "missed"


def is_paused_for_a_day(scene: WatchedScene) -> Iterator[str]:
    scene.control(ScheduleAction.PAUSE)
    scene.wait(24 * HOUR)
    scene.ring()
    yield ""
    scene.control(ScheduleAction.RESUME)
    scene.skip("paused", 24 * 60)
    yield ""
    scene.wait(HOUR - MINUTE)
    scene.ring()
    yield ""
    scene.wait(2 * MINUTE)
    scene.ring()
    yield "missed"


def misses_fire_times(scene: WatchedScene) -> Iterator[str]:
    for reason, told in (("holiday", ""), ("misfire", "missed"), ("catchup_expired", "")):
        scene.skip(reason, 3)
        yield told
    scene.complete(scene.next_run())
    yield "recovered"


def skips_by_its_overlap_policy(scene: WatchedScene) -> Iterator[str]:
    job = scene.next_run()
    scene.fire(FIRST + MINUTE)
    yield ""
    scene.complete(job)
    yield "success"


def is_saved_again(scene: WatchedScene) -> Iterator[str]:
    scene.wait(HOUR - 1)
    scene.save(watch=scene.watch, overlap=Overlap.ALLOW, fingerprint=b"job")
    scene.wait(1)
    scene.ring()
    yield "missed"
    scene.save(watch=Watch(2 * HOUR, 0, (notice(),)), fingerprint=b"rule")
    scene.complete(scene.next_run())
    yield "recovered"
    scene.save(watch=scene.watch, fingerprint=b"rule again")
    scene.wait(HOUR - 1)
    scene.ring()
    yield ""


def is_run_by_hand_for_the_past(scene: WatchedScene) -> Iterator[str]:
    scene.wait(HOUR - MINUTE)
    fired = scene.run_by_hand(START_MS - HOUR, kind=FiringKind.MANUAL, overlap=Overlap.ALLOW)
    job = scene.start(scene.job_of(fired.firings[0]))
    yield ""
    scene.complete(job)
    yield "success"


def is_backfilled(scene: WatchedScene) -> Iterator[str]:
    scene.wait(HOUR)
    fired = scene.run_by_hand(START_MS, START_MS + 1, kind=FiringKind.BACKFILL, overlap=Overlap.ALLOW)
    good, bad = (scene.start(scene.job_of(line)) for line in fired.firings)
    yield ""
    scene.complete(good)
    yield ""
    scene.fail(bad)
    yield ""
    scene.ring()
    yield "missed"


def is_cancelled(scene: WatchedScene) -> Iterator[str]:
    scene.cancel(scene.next_run())
    yield ""


def has_ended(scene: WatchedScene) -> Iterator[str]:
    scene.fire(FIRST, next_at_ms=0)
    scene.cancel(scene.state.job(scene.schedule.active[0]))  # type: ignore[arg-type]  # it is there
    scene.wait(2 * HOUR)
    scene.ring()
    yield ""


STORIES: tuple[Steps, ...] = (
    *(fails_each_minute, fails_once_and_is_tried_again, fails_for_good_after_its_retry, starts_late),
    *(has_no_success_for_an_hour, is_paused_for_a_day, misses_fire_times, skips_by_its_overlap_policy, is_saved_again),
    *(is_run_by_hand_for_the_past, is_backfilled, is_cancelled, has_ended),
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_schedule_tells_each_event_once_in_the_operation_that_causes_it(story: Steps) -> None:
    scene = WatchedScene()
    for step, expected in enumerate(story(scene)):
        assert scene.told == ([expected] if expected else []), f"step {step}"


def test_overlap_limit_is_a_missed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_ACTIVE_MAX", 2)
    scene = WatchedScene(overlap=Overlap.ALLOW)
    for number, told in enumerate(([], [], ["missed"], [])):
        scene.fire(FIRST + number * MINUTE)
        assert scene.told == told


def test_each_notice_is_about_its_events_and_a_recovery_is_told_in_place_of_the_success() -> None:
    scene = WatchedScene(
        notice(NoticeEvent.DEAD_LETTER, NoticeEvent.RECOVERED), notice(NoticeEvent.SUCCESS), notice(NoticeEvent.LATE)
    )
    scene.die(scene.next_run())
    assert scene.told == ["dead_letter"]
    scene.complete(scene.next_run())
    assert scene.told == ["recovered", "success"]
    scene.complete(scene.next_run())
    assert scene.told == ["success"]


def test_schedule_without_a_watch_has_no_alarms_and_knows_its_last_success() -> None:
    scene = ScheduleScene()
    scene.save()
    scene.finish(scene.job_of(scene.fire(FIRST).firings[0]))
    assert scene.schedule.health.success_at_ms == scene.now_ms
    scene.fail(scene.start(scene.job_of(scene.fire(FIRST + MINUTE).firings[0])), retryable=False)
    assert scene.schedule.health.alarms == ()


def test_notices_have_no_hooks_and_are_no_runs_of_the_schedule() -> None:
    scene = WatchedScene()
    scene.apply(ConfigureQueue("tell", on_failure=(notice().hook,)))
    scene.die(scene.next_run())
    (told,) = (job for job in scene.state.all_jobs() if job.spec.name == "tell")
    scene.fail(scene.start(told), retryable=False)
    assert [write for write in scene.last.writes if isinstance(write, PutJob) and write.old is None] == []


def test_forms_differ_in_the_payload() -> None:
    text = b'{"text":"{{cause.summary}}"}'
    scene = WatchedScene(
        notice(form=NoticeForm.WEBHOOK),
        notice(form=NoticeForm.SLACK, payload=text),
        notice(form=NoticeForm.EMAIL, payload=b'{"to":["a@b.c"],"subject":"{{cause.event}}"}'),
        notice(form=NoticeForm.JOB, payload=text),
    )
    job = scene.next_run()
    scene.die(job)
    facts, slack, email, own = scene.payloads
    sentence = (
        f"Schedule report: the run for {time_text(FIRST)} is in the dead-letter queue (rejected): Boom: <no> disk"
    )
    assert tuple(facts) == FACTS
    assert facts | {"error": ""} == {
        "job_id": job_id_text(job.id),
        "run_id": f"{job_id_text(job.id)}.1",
        "name": "report",
        "queue": "reports",
        "status": "dead_letter",
        "reason": "rejected",
        "error": "",
        "attempts": 1,
        "schedule": "report",
        "fire_time": time_text(FIRST),
        "event": "dead_letter",
        "since": time_text(scene.now_ms),
        "summary": sentence,
    }
    assert slack == {"text": sentence.replace("<no>", "&lt;no&gt;")}
    assert email == {"to": ["a@b.c"], "subject": "dead_letter"} | facts
    assert own == {"text": sentence}


def test_summaries_say_what_happened_and_serious_events_are_in_the_audit_trail() -> None:
    scene = WatchedScene()
    scene.fail(scene.next_run(late_ms=MINUTE + 1))
    assert scene.payloads[0]["summary"].endswith("failed in attempt 1 and is tried again")
    scene = WatchedScene()
    summaries: list[str] = []
    details: list[str] = []

    def note() -> None:
        summaries.extend(payload["summary"] for payload in scene.payloads)
        details.extend(write.entry.detail for write in scene.last.writes if isinstance(write, PutAudit))

    job = scene.next_run(late_ms=2 * MINUTE)
    note()
    scene.skip("misfire")
    note()
    scene.complete(job)
    note()
    scene.wait(HOUR)
    scene.ring()
    note()
    assert details == summaries[1:]
    ended = time_text(scene.now_ms - HOUR)
    assert summaries == [
        f"Schedule report: the run for {time_text(FIRST)} started 120 s after its fire time",
        f"Schedule report: the run for {time_text(FIRST + MINUTE)} was skipped: misfire",
        f"Schedule report: the run for {time_text(FIRST)} succeeded; there were problems since {time_text(FIRST + MINUTE)}",
        f"Schedule report: no run has succeeded since {ended}",
    ]


def test_rule_counts_from_the_start_of_a_schedule_and_wakes_the_leader() -> None:
    scene = ScheduleScene()
    start_ms = TimeMs(START_MS + 24 * HOUR)
    scene.save(watch=Watch(HOUR), timing=replace(TIMING, start_at_ms=start_ms), next_at_ms=start_ms)
    assert (scene.schedule.success_by_ms, scene.schedule.next_deadline_ms) == (start_ms + HOUR, start_ms)
    scene.save(watch=Watch(MINUTE), fingerprint=b"other", next_at_ms=TimeMs(START_MS + HOUR))
    assert scene.schedule.next_deadline_ms == START_MS + MINUTE


def test_watches_beyond_their_bounds_are_refused() -> None:
    scene = ScheduleScene()
    for watch in (
        Watch(-1),
        Watch(late_after_ms=limits.DELAY_MS_MAX + 1),
        Watch(notices=(notice(),) * (limits.NOTICES_MAX + 1)),
        Watch(notices=(Notice((), NoticeForm.JOB, notice().hook),)),
        Watch(notices=(notice(name=""),)),
        Watch(notices=(notice(payload=b'"%b"' % (b"x" * limits.NOTICES_BYTES_MAX)),)),
    ):
        assert code_of(scene.try_save(watch=watch)) is RejectCode.INVALID, watch
