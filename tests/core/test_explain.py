from __future__ import annotations

import pytest

from raftsched.core.explain import PARENTS_NAMED_MAX, LeaseLiveness, Reason, ServingWorker, explain
from raftsched.core.operations.codec import MarkWorkers, WorkerMark
from raftsched.core.records.ids import TimeMs, job_id_text
from raftsched.core.records.job import Dependency, Job, JobError, Status
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.writes import PutWorkflow
from tests.core.control_scene import QUEUE, ControlScene, options
from tests.core.scene import START_MS, with_fields

SERVED = (ServingWorker("w1", (QUEUE,)),)


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
    assert reason.text == "ann paused it; it resumes in 0.005 s"


def test_job_that_was_submitted_paused_says_so(scene: ControlScene) -> None:
    job = scene.submit(paused=True)
    assert only(scene, job).text == "it was submitted paused, until somebody resumes it"
    scene.resume(job)
    scene.wait(1)
    scene.pause(job)
    assert only(scene, job).text.startswith("it was paused")


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
    assert reason.text == (
        "its queue's rate is 1 per 1 s, evenly spread, and up to 1 at once after a rest; the next may start in 0.6 s"
    )
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
            "parents": [
                {"id": job_id_text(open_one.id), "name": open_one.spec.name, "status": "queued", "condition": "success"}
            ],
        },
    )
    assert reason.text.endswith(f": {open_one.spec.name} (queued)")


def test_parents_of_a_workflow_are_named_by_their_task(scene: ControlScene) -> None:
    parent = scene.submit(options=options(task="extract"))
    reason = only(scene, scene.submit(depends_on=(Dependency(parent.id),)))
    assert reason.details["parents"] == [
        {
            "id": job_id_text(parent.id),
            "name": parent.spec.name,
            "task": "extract",
            "status": "queued",
            "condition": "success",
        }
    ]
    assert reason.text.endswith(": extract (queued)")


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
    staged = with_fields(scene.submit(), options=options(workflow_id=bytes(workflow.id)), pending_count=1)
    reasons = explain(scene.state, staged, TimeMs(scene.now_ms), workers=SERVED)
    assert [(reason.code, reason.details) for reason in reasons] == [
        ("workflow_incomplete", {"stored_count": 1, "job_count": 2})
    ]


def test_queue_without_a_worker_says_so(scene: ControlScene) -> None:
    """Case W15."""
    job = scene.submit()
    for workers in ((), (ServingWorker("w1", ("other",)),)):
        assert only(scene, job, workers).code == "no_worker"


def test_tenant_without_a_worker_says_so(scene: ControlScene) -> None:
    job = scene.submit(tenant="a")
    (reason,) = explain(scene.state, job, TimeMs(scene.now_ms), workers=[ServingWorker("w", (QUEUE,), tenant="b")])
    assert (reason.code, reason.details) == ("no_worker", {"queue": QUEUE, "tenant": "a", "worker_count": 1})
    assert "takes jobs of its tenant, a" in reason.text
    (ready,) = explain(scene.state, job, TimeMs(scene.now_ms), workers=[ServingWorker("w", (QUEUE,), tenant="a")])
    assert ready.code == "ready"


def test_region_without_a_worker_says_so(scene: ControlScene) -> None:
    job = scene.submit(region="eu")
    reason = only(scene, job, (ServingWorker("w1", (QUEUE,), "us"),))
    assert (reason.code, reason.details) == ("no_worker", {"queue": QUEUE, "region": "eu", "worker_count": 1})
    assert only(scene, job, (ServingWorker("w1", (QUEUE,)),)).code == "no_worker", (
        "one of no region takes none of a region"
    )
    assert only(scene, job, (ServingWorker("w1", (QUEUE,), "eu"),)).code == "ready"


def test_everything_that_stands_in_the_way_is_named(scene: ControlScene) -> None:
    scene.configure(concurrency_max=1)
    scene.running()
    scene.pause_queue()
    job = scene.submit(due_at_ms=scene.now_ms + 5)
    scene.pause(job)
    assert list(reasons_of(scene, job, ())) == ["paused", "not_due", "queue_paused", "concurrency_limit", "no_worker"]


def leased_reason(scene: ControlScene, job: Job, liveness: LeaseLiveness | None) -> Reason:
    (reason,) = explain(scene.state, scene.now(job), TimeMs(scene.now_ms), workers=SERVED, liveness=liveness)
    return reason


def test_running_job_says_when_its_worker_was_heard_and_when_its_lease_ends(scene: ControlScene) -> None:
    job = scene.running()
    scene.wait(4_000)
    heard = LeaseLiveness(heartbeat_at_ms=scene.now_ms - 3_000, ends_at_ms=scene.now_ms + 7_000)
    reason = leased_reason(scene, job, heard)
    assert (reason.code, reason.details["worker"]) == ("running", "w1")
    assert reason.details["worker_heard_at_ms"] == heard.heartbeat_at_ms
    assert reason.details["lease_ends_at_ms"] == heard.ends_at_ms
    assert reason.text == (
        "it is running; its worker, w1, was last heard 3 s ago; its lease ends in 7 s unless it is heard again"
    )
    timed = heard._replace(over_at_ms=scene.now_ms + 500)
    assert leased_reason(scene, job, timed).text.endswith(", and in 0.5 s in any case")
    over = heard._replace(ends_at_ms=scene.now_ms)
    assert leased_reason(scene, job, over).text.endswith("its lease is over, and is being ended")


def test_running_job_says_what_marks_tell_where_the_leader_is_not_asked(scene: ControlScene) -> None:
    job = scene.running()
    scene.wait(4_000)
    assert leased_reason(scene, job, None).text == "it is running; its worker, w1, was last heard 4 s ago"
    scene.apply(MarkWorkers((WorkerMark("w1", (QUEUE,), 1, TimeMs(scene.now_ms - 1_000)),), ()))
    assert leased_reason(scene, job, None).text == "it is running; its worker, w1, was last heard 1 s ago"


def test_cancelling_job_is_told_to_stop_only_by_a_heartbeat_after_the_cancel(scene: ControlScene) -> None:
    job = scene.running()
    scene.wait(5)
    scene.cancel(job)
    asked_ms = scene.now_ms
    scene.wait(5)
    ends_at_ms = scene.now_ms + 7_000
    for heartbeat_at_ms, is_told in ((0, False), (asked_ms, False), (asked_ms + 1, True)):
        reason = leased_reason(scene, job, LeaseLiveness(heartbeat_at_ms, ends_at_ms))
        assert (reason.code, reason.details["worker"]) == ("cancelling", "w1")
        assert ("its worker was asked to stop" in reason.text) == is_told
        assert ("is asked to stop at its next heartbeat" in reason.text) != is_told


def test_ready_job_says_when_those_that_would_take_it_were_heard(scene: ControlScene) -> None:
    job = scene.submit()
    scene.wait(9_000)
    one = ServingWorker("w1", (QUEUE,), heartbeat_at_ms=scene.now_ms - 8_000)
    two = ServingWorker("w2", (QUEUE,), heartbeat_at_ms=scene.now_ms - 1_000)
    assert only(scene, job, (one,)).text.endswith("; the only one, w1, was last heard 8 s ago")
    reason = only(scene, job, (one, two))
    assert reason.text.endswith("; the latest of 2, w2, was last heard 1 s ago")
    assert reason.details == {"worker_count": 2, "worker_heard_at_ms": two.heartbeat_at_ms}


def test_finished_job_says_how_with_its_error_and_what_to_do(scene: ControlScene) -> None:
    job = scene.running(max_attempts=1)
    scene.fail(job, error=JobError("ValueError", "boom"))
    reason = only(scene, job, ())
    assert (reason.code, reason.details["status"], reason.details["reason"], reason.details["error"]) == (
        "finished", Status.DEAD_LETTER.label, "attempts_exhausted", "ValueError: boom",
    )  # fmt: skip
    assert reason.text == (
        "it has ended: dead_letter (attempts_exhausted: its attempts are used up); the latest error was"
        " ValueError: boom. Requeue it from the dead letters (retry) to run it again, or replay it as a new job"
    )


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("expires_at_ms", "expired: it had not started by the time at which it expires"),
        ("deadline_ms", "expired: it had not ended by its deadline"),
    ],
)
def test_expired_job_says_which_of_its_times_had_passed(scene: ControlScene, limit: str, told: str) -> None:
    job = scene.submit(options=options(**{limit: START_MS + 5}))
    scene.wait(5)
    scene.ring(job)
    assert f"({told})" in only(scene, job, ()).text


def test_each_end_names_its_own_next_step(scene: ControlScene) -> None:
    completed, cancelled = scene.running(), scene.submit()
    scene.complete(completed)
    scene.cancel(cancelled)
    assert only(scene, completed, ()).text == ("it has ended: completed. Replay it to have it done again, as a new job")
    assert "Retry it to run it after all" in only(scene, cancelled, ()).text


def test_job_that_is_about_to_expire_says_so(scene: ControlScene) -> None:
    job = scene.submit(options=options(expires_at_ms=START_MS + 5))
    scene.wait(5)
    assert only(scene, job).code == "expiring"
