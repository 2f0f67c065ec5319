from __future__ import annotations

from typing import Any

import pytest

from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import RequeueJob
from raftsched.core.operations.tenants import RemoveTenant, SaveTenant
from raftsched.core.records.job import Status
from raftsched.core.records.schedule import FiringKind, Overlap, ScheduleId
from raftsched.core.records.spec import Hook, JobSpec, Options
from raftsched.core.state.results import Refused, Submitted, WorkflowSaved
from tests.core.control_scene import ControlScene
from tests.core.relations_scene import RelationsScene, workflow_job, workflow_part
from tests.core.scene import PLAIN_RETRY, START_MS, code_of, submit_operation
from tests.core.schedule_scene import MINUTE, ScheduleScene

ONE = SaveTenant("default", unfinished_jobs_max=1)


def test_jobs_beyond_the_quota_are_refused_and_those_of_others_are_not(scene: ControlScene) -> None:
    scene.apply(SaveTenant("default", unfinished_jobs_max=2))
    first, _ = scene.submit(queue="mail"), scene.submit(queue="pay", idempotency_key="k", fingerprint=b"f")
    refused = scene.apply(submit_operation(50))
    assert isinstance(refused, Refused)
    assert refused.code is RejectCode.QUOTA_EXCEEDED
    assert refused.message == "the quota unfinished_jobs of tenant default is 2, and it has 2"
    repeated = scene.apply(submit_operation(51, queue="pay", idempotency_key="k", fingerprint=b"f"))
    assert isinstance(repeated, Submitted), "a repetition adds none"
    assert isinstance(scene.apply(submit_operation(52, tenant="acme")), Submitted)
    scene.cancel(first)
    assert isinstance(scene.apply(submit_operation(53)), Submitted)
    scene.apply(RemoveTenant("default"))
    assert isinstance(scene.apply(submit_operation(54)), Submitted)


def test_what_follows_from_a_job_is_never_refused(scene: ControlScene) -> None:
    hook = Hook(JobSpec("told", "told", 5, 3, 0, PLAIN_RETRY))
    job = scene.submit(max_attempts=1, options=Options(on_failure=hook))
    scene.apply(ONE)
    running = scene.run(job)
    scene.fail(running)
    assert scene.status(job) is Status.DEAD_LETTER
    assert scene.state.unfinished_counts() == {"default": 1}, "its hook"
    scene.apply(RequeueJob(job.id, "default"))
    assert (scene.status(job), scene.state.unfinished_counts()) == (Status.QUEUED, {"default": 2})
    assert code_of(scene.apply(submit_operation(50))) is RejectCode.QUOTA_EXCEEDED


def test_workflow_is_refused_unless_all_that_is_left_of_it_is_allowed(relations: RelationsScene) -> None:
    jobs = [workflow_job(number, 1) for number in (901, 902, 903)]
    relations.apply(SaveTenant("default", unfinished_jobs_max=2))
    assert code_of(relations.apply(workflow_part(1, jobs))) is RejectCode.QUOTA_EXCEEDED
    assert code_of(relations.apply(workflow_part(1, jobs[:1], job_count=3))) is RejectCode.QUOTA_EXCEEDED
    relations.apply(SaveTenant("default", unfinished_jobs_max=3))
    first = workflow_part(1, jobs[:1], job_count=3)
    assert isinstance(relations.apply(first), WorkflowSaved)
    relations.submit()
    rest = workflow_part(1, jobs[1:], job_count=3, first=1)
    assert code_of(relations.apply(rest)) is RejectCode.QUOTA_EXCEEDED
    assert isinstance(relations.apply(first), WorkflowSaved), "a repetition adds none"
    relations.apply(SaveTenant("default", unfinished_jobs_max=4))
    assert isinstance(relations.apply(rest), WorkflowSaved)


@pytest.fixture
def schedules() -> ScheduleScene:
    return ScheduleScene()


def test_fire_times_beyond_the_quota_are_skipped_for_that_reason(schedules: ScheduleScene) -> None:
    schedules.save(overlap=Overlap.ALLOW)
    schedules.apply(ONE)
    schedules.fire(START_MS + MINUTE, START_MS + 2 * MINUTE)
    first, second = schedules.ledger
    assert (first.reason, second.reason, second.job_id) == ("", "quota", b"")
    schedules.finish(schedules.job_of(first))
    schedules.fire(START_MS + 3 * MINUTE)
    assert schedules.ledger[-1].job_id, "nothing is held against it"


def test_runs_by_hand_beyond_the_quota_are_left_undecided_and_refused_if_it_allows_none(
    schedules: ScheduleScene,
) -> None:
    schedules.save(overlap=Overlap.ALLOW)
    schedules.apply(ONE)
    backfill: dict[str, Any] = {"kind": FiringKind.BACKFILL, "overlap": Overlap.ALLOW}
    first, second = schedules.run_by_hand(START_MS, START_MS + 1, **backfill).firings
    assert (bool(first.job_id), second.reason) == (True, "quota")
    for kind in (FiringKind.MANUAL, FiringKind.BACKFILL):
        result = schedules.try_by_hand(START_MS + 1, START_MS + 2, kind=kind, overlap=Overlap.ALLOW)
        assert code_of(result) is RejectCode.QUOTA_EXCEEDED, kind
    assert schedules.ledger == [first, second]
    assert schedules.run_by_hand(START_MS, **backfill).firings == (first,), "a repetition adds none"
    schedules.finish(schedules.job_of(first))
    again = schedules.run_by_hand(START_MS, START_MS + 1, **backfill).firings
    assert again[0] == first
    assert again[1].job_id, "it was left undecided"


def test_schedules_beyond_the_quota_are_refused_and_saved_ones_can_be_changed(schedules: ScheduleScene) -> None:
    schedules.apply(SaveTenant("default", schedules_max=1))
    schedules.save()
    other = {"id": ScheduleId(b"\x08" * 16)}
    refused = schedules.try_save("other", **other)
    assert isinstance(refused, Refused)
    assert refused.message == "the quota schedules of tenant default is 1, and it has 1"
    schedules.save(fingerprint=b"second", overlap=Overlap.ALLOW)
    schedules.save("other", tenant="acme", **other)
