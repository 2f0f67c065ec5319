"""Idempotency keys and unique keys: who holds them, until when, and who takes them over."""

from __future__ import annotations

import pytest

from raftsched.core.operations.codec import PurgeJobs, RejectCode
from raftsched.core.records.bounds import TIME_MS_MAX
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import AttemptEnd, Job, Status
from raftsched.core.records.spec import Options
from raftsched.core.state.results import Purged, Refused, Submitted
from raftsched.core.state.writes import PutJob
from tests.core.control_scene import ControlScene, changed, options
from tests.core.scene import START_MS, code_of, submit_operation

UNIQUE = options(unique_key=b"u")
UNTIL = TimeMs(START_MS + 1_000)


def conflict(scene: ControlScene, number: int = 99, **fields: object) -> Refused:
    result = scene.apply(submit_operation(number, **{"options": UNIQUE} | fields))
    assert isinstance(result, Refused), result
    assert result.code is RejectCode.UNIQUE_CONFLICT
    return result


# -- unique


def test_unique_job_keeps_a_second_one_out_and_the_refusal_names_it(scene: ControlScene) -> None:
    job = scene.submit(options=UNIQUE)
    assert conflict(scene).job_id == job.id
    assert scene.state.job(conflict(scene).job_id) == job


def test_unique_is_within_a_tenant(scene: ControlScene) -> None:
    scene.submit(options=UNIQUE)
    assert scene.submit(options=UNIQUE, tenant="other").id


def test_unique_job_keeps_others_out_in_every_status_until_it_is_finished(scene: ControlScene) -> None:
    job = scene.submit(options=UNIQUE, due_at_ms=scene.now_ms + 5)
    conflict(scene)
    scene.pause(job)
    conflict(scene)
    scene.resume(job)
    scene.wait(5)
    running = scene.run(job)
    conflict(scene)
    scene.fail(running)
    conflict(scene)
    scene.cancel(job)
    assert scene.submit(options=UNIQUE).id


@pytest.mark.parametrize("end", ["completed", "dead", "lost", "cancelled", "forced", "expired", "purged"])
def test_unique_key_is_free_again_however_its_job_ended(scene: ControlScene, end: str) -> None:
    """Case D21."""
    fields = options(unique_key=b"u", deadline_ms=START_MS + 10**6, at_most_once=end == "lost")
    job = scene.running(options=fields, max_attempts=1)
    if end == "completed":
        scene.complete(job)
    elif end == "dead":
        scene.fail(job)
    elif end == "lost":
        scene.start(job)
        scene.lose_worker(job)
    elif end == "cancelled":
        scene.cancel(job)
        conflict(scene)
        scene.expire(job, AttemptEnd.CANCELLED)
    elif end == "forced":
        scene.force_cancel(job)
    elif end == "expired":
        scene.wait(10**6)
        scene.ring(job)
    else:
        scene.complete(job)
        scene.apply(PurgeJobs((job.id,), TimeMs(scene.now_ms + 1)))
    assert scene.submit(options=UNIQUE).id != job.id


def test_repeat_under_the_same_idempotency_key_is_no_conflict(scene: ControlScene) -> None:
    job = scene.submit(options=UNIQUE, idempotency_key="k")
    repeat = scene.apply(submit_operation(99, options=UNIQUE, idempotency_key="k"))
    assert repeat == Submitted(job, duplicate=True)
    assert conflict(scene, idempotency_key="other").job_id == job.id
    assert scene.apply(submit_operation(1, options=UNIQUE, idempotency_key="k")) == Submitted(job, duplicate=True)
    assert scene.submit(options=Options()).spec.options is None, "options that ask for nothing are not stored"


def test_unique_until_a_time_outlives_its_job_and_ends_with_that_millisecond(scene: ControlScene) -> None:
    job = scene.running(options=options(unique_key=b"u", unique_until_ms=UNTIL))
    scene.complete(job)
    conflict(scene)
    scene.wait(999)
    conflict(scene)
    scene.wait(1)
    second = scene.submit(options=UNIQUE)
    assert [type(write) for write in scene.last.writes] == [PutJob, PutJob]
    first = scene.now(job)
    assert (first.spec.options, first.status, first.revision) == (None, Status.COMPLETED, scene.state.index)
    assert conflict(scene).job_id == second.id


def test_unique_until_a_time_may_end_before_its_job(scene: ControlScene) -> None:
    job = scene.submit(options=options(unique_key=b"u", unique_until_ms=UNTIL))
    scene.wait(1_000)
    second = scene.submit(options=UNIQUE)
    assert scene.now(job).status is Status.QUEUED
    scene.complete(scene.run(job))
    assert conflict(scene).job_id == second.id


# -- idempotency


def test_idempotency_key_with_a_time_is_a_new_submit_after_it(scene: ControlScene) -> None:
    """RELIABILITY G7."""
    job = scene.submit(idempotency_key="k", fingerprint=b"f", options=options(idempotency_until_ms=UNTIL))
    scene.wait(999)
    repeat = submit_operation(98, idempotency_key="k", fingerprint=b"f")
    assert scene.apply(repeat) == Submitted(job, duplicate=True)
    scene.wait(1)
    second = scene.apply(submit_operation(99, idempotency_key="k", fingerprint=b"other"))
    assert isinstance(second, Submitted)
    assert (second.duplicate, second.job.idempotency_key, scene.now(job).idempotency_key) == (False, "k", "")
    assert scene.state.job_id_for_key("default", "k") == second.job.id


def test_one_job_can_lose_both_claims_to_one_submit(scene: ControlScene) -> None:
    both = options(unique_key=b"u", unique_until_ms=UNTIL, idempotency_until_ms=UNTIL)
    job = scene.submit(idempotency_key="k", options=both)
    scene.wait(1_000)
    second = scene.submit(idempotency_key="k", options=UNIQUE)
    first = scene.now(job)
    assert first.spec.options is not None
    assert (first.idempotency_key, first.spec.options.unique_key) == ("", b"")
    assert scene.state.job_id_for_key("default", "k") == second.id
    assert scene.state.job_id_for_unique("default", b"u") == second.id


def test_two_jobs_can_lose_a_claim_each_to_one_submit(scene: ControlScene) -> None:
    keyed = scene.submit(idempotency_key="k", options=options(idempotency_until_ms=UNTIL))
    unique = scene.submit(options=options(unique_key=b"u", unique_until_ms=UNTIL))
    scene.wait(1_000)
    scene.submit(idempotency_key="k", options=UNIQUE)
    assert scene.now(keyed).idempotency_key == ""
    assert scene.now(unique).spec.options is None


def test_submit_that_is_refused_takes_nothing_over(scene: ControlScene) -> None:
    keyed = scene.submit(idempotency_key="k", options=options(idempotency_until_ms=UNTIL))
    scene.submit(options=UNIQUE)
    scene.wait(1_000)
    conflict(scene, idempotency_key="k")
    assert scene.now(keyed) == keyed


# -- requeue


def dead(scene: ControlScene, asked: Options) -> Job:
    job = scene.running(options=asked, max_attempts=1)
    scene.fail(job)
    return scene.now(job)


def test_requeue_claims_the_unique_key_again(scene: ControlScene) -> None:
    job = dead(scene, UNIQUE)
    scene.requeue(job)
    assert conflict(scene).job_id == job.id


def test_requeue_is_refused_while_another_job_holds_the_unique_key(scene: ControlScene) -> None:
    job = dead(scene, UNIQUE)
    other = scene.submit(options=UNIQUE)
    result = scene.requeue(job)
    assert isinstance(result, Refused)
    assert (result.code, result.job_id) == (RejectCode.UNIQUE_CONFLICT, other.id)
    scene.cancel(other)
    assert changed(scene.requeue(job)).run_number == 2


def test_requeue_takes_a_lapsed_claim_over(scene: ControlScene) -> None:
    job = dead(scene, UNIQUE)
    other = scene.submit(options=options(unique_key=b"u", unique_until_ms=UNTIL))
    scene.wait(1_000)
    scene.requeue(job)
    assert conflict(scene).job_id == job.id
    assert scene.now(other).spec.options is None


def test_requeue_does_not_make_a_claim_again_whose_time_has_passed(scene: ControlScene) -> None:
    job = dead(scene, options(unique_key=b"u", unique_until_ms=UNTIL))
    scene.wait(1_000)
    assert changed(scene.requeue(job)).spec.options is None
    assert scene.submit(options=UNIQUE).id


# -- bounds of options


@pytest.mark.parametrize(
    "fields",
    [
        {"expires_at_ms": -1},
        {"deadline_ms": TIME_MS_MAX + 1},
        {"heartbeat_timeout_ms": -1},
        {"concurrency_key": "k" * 129},
        {"concurrency_key": "a\0b"},
        {"unique_key": b"u" * 65},
        {"unique_until_ms": -1},
        {"idempotency_until_ms": -1},
        {"retry_on": ("E",) * 51},
        {"retry_on": ("",)},
        {"no_retry": ("E" * 129,)},
        {"schedule_id": b"short"},
        {"workflow_id": b"short"},
        {"replay_of": b"x" * 17},
        {"task": "t" * 129},
        {"fire_time_ms": -1},
        {"retention_ms": -1},
    ],
)
def test_submit_refuses_options_that_the_state_cannot_hold_and_names_the_field(
    scene: ControlScene, fields: dict[str, object]
) -> None:
    result = scene.apply(submit_operation(1, options=options(**fields)))
    assert code_of(result) is RejectCode.INVALID
    assert isinstance(result, Refused)
    assert result.message.startswith(next(iter(fields)))


# -- the job stays for its key


@pytest.mark.parametrize("actor", ["", "ann"])
def test_job_is_kept_until_its_key_no_longer_counts(scene: ControlScene, actor: str) -> None:
    job = scene.submit(idempotency_key="k", options=options(idempotency_until_ms=UNTIL, retention_ms=1))
    scene.complete(scene.run(job))
    scene.wait(2)
    purge = PurgeJobs((job.id,), TimeMs(TIME_MS_MAX), actor)
    assert scene.apply(purge) == Purged(0)
    assert scene.now(job).next_deadline_ms == (scene.now(job).finished_at_ms + 1 if actor else UNTIL)
    again = scene.apply(submit_operation(99, idempotency_key="k", options=job.spec.options))
    assert isinstance(again, Submitted)
    assert (again.job.id, again.duplicate) == (job.id, True)
    scene.wait(1_000)
    assert scene.apply(purge) == Purged(1)


@pytest.mark.parametrize("actor", ["", "ann"])
def test_job_is_kept_until_it_is_no_longer_unique(scene: ControlScene, actor: str) -> None:
    """A key that counts for longer than jobs are kept: the same payment is not made again in between."""
    wanted = options(unique_key=b"u", unique_until_ms=UNTIL, idempotency_until_ms=TimeMs(UNTIL - 100), retention_ms=1)
    job = scene.submit(idempotency_key="k", options=wanted)
    scene.complete(scene.run(job))
    scene.wait(2)
    purge = PurgeJobs((job.id,), TimeMs(TIME_MS_MAX), actor)
    assert scene.apply(purge) == Purged(0)
    assert actor or scene.now(job).next_deadline_ms == UNTIL, "looked at again when the last of its keys counts no more"
    scene.wait(UNTIL - scene.now_ms - 1)
    assert scene.apply(purge) == Purged(0)
    again = scene.apply(submit_operation(99, options=options(unique_key=b"u")))
    assert code_of(again) is RejectCode.UNIQUE_CONFLICT
    scene.wait(1)
    assert scene.apply(purge) == Purged(1)


def test_new_run_of_a_job_that_was_kept_for_its_key_is_kept_for_its_own_retention(scene: ControlScene) -> None:
    job = scene.submit(idempotency_key="k", options=options(idempotency_until_ms=UNTIL))
    scene.cancel(job)
    scene.apply(PurgeJobs((job.id,), TimeMs(TIME_MS_MAX)))
    assert scene.now(job).kept_until_ms == UNTIL
    scene.requeue(job)
    scene.cancel(job)
    assert scene.now(job).next_deadline_ms == 0
