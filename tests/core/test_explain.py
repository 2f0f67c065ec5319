from __future__ import annotations

import pytest
from msgspec.structs import replace

from raftsched.core.explain import PARENTS_NAMED_MAX, Reason, ServingWorker, explain
from raftsched.core.ids import TimeMs, job_id_text
from raftsched.core.job import Dependency, Job, JobError, Status
from raftsched.core.view import PutWorkflow
from raftsched.core.workflow import Workflow, WorkflowId
from tests.core.control_scene import QUEUE, ControlScene, options
from tests.core.scene import START_MS

SERVED = (ServingWorker("w1", (QUEUE,)),)


@pytest.fixture
def scene() -> ControlScene:
    return ControlScene()


def reasons_of(scene: ControlScene, job: Job, workers: tuple[ServingWorker, ...] = SERVED) -> dict[str, Reason]:
    found = explain(scene.state, scene.now(job), TimeMs(scene.now_ms), workers=workers)
    assert all(reason.text for reason in found)
    return {reason.code: reason for reason in found}


def only(scene: ControlScene, job: Job, workers: tuple[ServingWorker, ...] = SERVED) -> Reason:
    (reason,) = reasons_of(scene, job, workers).values()
    return reason


def test_job_that_nothing_stands_in_the_way_of_is_ready(scene: ControlScene) -> None:
    assert only(scene, scene.submit()).code == "ready"


def test_job_whose_time_has_not_come_says_when(scene: ControlScene) -> None:
    reason = only(scene, scene.submit(due_at_ms=scene.now_ms + 7))
    assert (reason.code, reason.details) == ("not_due", {"due_at_ms": scene.now_ms + 7, "in_ms": 7})


def test_job_that_will_be_tried_again_says_when_and_why(scene: ControlScene) -> None:
    job = scene.running()
    scene.fail(job, error=JobError("ValueError", "boom"))
    reason = only(scene, job)
    assert (reason.code, reason.details["reason"], reason.details["failure_count"]) == ("will_retry", "ValueError", 1)
    assert reason.details["due_at_ms"] == scene.now(job).due_at_ms


def test_paused_job_says_who_paused_it_until_when_and_why(scene: ControlScene) -> None:
    job = scene.submit()
    scene.pause(job, actor="ann", reason="audit", until_ms=TimeMs(START_MS + 5))
    reason = only(scene, job)
    assert (reason.code, reason.details) == (
        "paused", {"since_ms": START_MS, "until_ms": START_MS + 5, "reason": "audit", "by": "ann"},
    )  # fmt: skip
    assert "ann" in reason.text


def test_paused_queue_says_until_when_and_why(scene: ControlScene) -> None:
    scene.pause_queue(until_ms=TimeMs(START_MS + 5), reason="deploy")
    reason = only(scene, scene.submit())
    assert (reason.code, reason.details) == (
        "queue_paused", {"queue": QUEUE, "since_ms": START_MS, "until_ms": START_MS + 5, "reason": "deploy"},
    )  # fmt: skip


def test_queue_at_its_limit_says_the_numbers(scene: ControlScene) -> None:
    scene.configure(concurrency_max=1)
    scene.running()
    reason = only(scene, scene.submit())
    assert (reason.code, reason.details) == (
        "concurrency_limit", {"queue": QUEUE, "running_count": 1, "concurrency_max": 1},
    )  # fmt: skip


def test_rate_limit_says_until_when(scene: ControlScene) -> None:
    scene.configure(rate_count=1, rate_period_ms=1_000)
    scene.running()
    job = scene.submit()
    scene.wait(400)
    reason = only(scene, job)
    assert (reason.code, reason.details["until_ms"]) == ("rate_limited", START_MS + 1_000)
    scene.wait(600)
    assert only(scene, job).code == "ready"
    assert scene.run(job).attempt_number == 1


@pytest.mark.parametrize("is_held", [False, True])
def test_key_at_its_limit_says_which_and_whether_the_job_is_held(scene: ControlScene, is_held: bool) -> None:
    keyed = options(concurrency_key="k")
    scene.running(options=keyed)
    job = scene.submit(options=keyed)
    if is_held:
        scene.hold(job)
    reason = only(scene, job)
    assert (reason.code, reason.details) == (
        "key_limit", {"concurrency_key": "k", "running_count": 1, "key_concurrency_max": 1, "held": is_held},
    )  # fmt: skip


def test_job_that_waits_for_parents_names_those_that_have_not_ended(scene: ControlScene) -> None:
    ended, open_one = scene.running(), scene.submit()
    child = scene.submit(depends_on=(Dependency(ended.id), Dependency(open_one.id)))
    scene.complete(ended)
    reason = only(scene, child)
    assert (reason.code, reason.details) == (
        "waits_for_parents",
        {
            "pending_count": 1,
            "dependency_count": 2,
            "parents": [{"id": job_id_text(open_one.id), "status": "queued", "condition": "success"}],
        },
    )


def test_job_with_many_parents_names_some_and_counts_all(scene: ControlScene) -> None:
    parents = [scene.submit() for _ in range(PARENTS_NAMED_MAX + 5)]
    child = scene.submit(depends_on=tuple(Dependency(parent.id) for parent in parents))
    reason = only(scene, child)
    named = reason.details["parents"]
    assert isinstance(named, list)
    assert (len(named), reason.details["pending_count"]) == (PARENTS_NAMED_MAX, len(parents))


def test_job_of_a_workflow_that_is_not_whole_says_so(scene: ControlScene) -> None:
    workflow = Workflow(WorkflowId(b"w" * 16), "default", "etl", 2, stored_count=1, updated_at_ms=TimeMs(START_MS))
    scene.state.execute([PutWorkflow(None, workflow)])
    staged = replace(scene.submit(), options=options(workflow_id=bytes(workflow.id)), pending_count=1)
    reasons = explain(scene.state, staged, TimeMs(scene.now_ms), workers=SERVED)
    assert [(reason.code, reason.details) for reason in reasons] == [
        ("workflow_incomplete", {"stored_count": 1, "job_count": 2})
    ]


def test_queue_without_a_worker_says_so(scene: ControlScene) -> None:
    """Case W15."""
    job = scene.submit()
    for workers in ((), (ServingWorker("w1", ("other",)),)):
        assert only(scene, job, workers).code == "no_worker"


def test_region_without_a_worker_says_so(scene: ControlScene) -> None:
    job = scene.submit(region="eu")
    reason = only(scene, job, (ServingWorker("w1", (QUEUE,), "us"),))
    assert (reason.code, reason.details) == ("no_worker", {"queue": QUEUE, "region": "eu", "worker_count": 1})
    for region in ("eu", ""):
        assert only(scene, job, (ServingWorker("w1", (QUEUE,), region),)).code == "ready"


def test_everything_that_stands_in_the_way_is_named(scene: ControlScene) -> None:
    scene.configure(concurrency_max=1)
    scene.running()
    scene.pause_queue()
    job = scene.submit(due_at_ms=scene.now_ms + 5)
    scene.pause(job)
    assert list(reasons_of(scene, job, ())) == ["paused", "not_due", "queue_paused", "concurrency_limit", "no_worker"]


def test_running_and_cancelling_jobs_say_where(scene: ControlScene) -> None:
    job = scene.running()
    assert (only(scene, job).code, only(scene, job).details["worker"]) == ("running", "w1")
    scene.cancel(job)
    assert (only(scene, job).code, only(scene, job).details["worker"]) == ("cancelling", "w1")


def test_finished_job_says_how(scene: ControlScene) -> None:
    job = scene.running(max_attempts=1)
    scene.fail(job)
    reason = only(scene, job, ())
    assert (reason.code, reason.details["status"], reason.details["reason"]) == (
        "finished", Status.DEAD_LETTER.label, "attempts_exhausted",
    )  # fmt: skip


def test_job_that_is_about_to_expire_says_so(scene: ControlScene) -> None:
    job = scene.submit(options=options(expires_at_ms=START_MS + 5))
    scene.wait(5)
    assert only(scene, job).code == "expiring"
