from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.bounds import ANONYMOUS, TIME_MS_MAX
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import CREATED, Job, Status, encode_job
from raftsched.core.records.retry import Backoff, RetryPolicy
from raftsched.core.state.results import Refused, Submitted
from raftsched.core.state.writes import PutJob
from raftsched.errors import InvariantBroken
from tests.core.scene import Scene, code_of, job_id, submit_operation


def test_submit_without_a_time_queues_the_job_at_once(scene: Scene) -> None:
    job = scene.submit()
    assert (job.status, job.due_at_ms, job.timed) == (Status.QUEUED, scene.now_ms, False)
    assert (job.created_at_ms, job.updated_at_ms, job.revision) == (scene.now_ms, scene.now_ms, scene.state.index)


def test_submit_by_somebody_notes_who_and_by_nobody_costs_nothing(scene: Scene) -> None:
    plain = scene.submit()
    jobs: list[Job] = []
    for number, actor in enumerate(("ann", "", ANONYMOUS), start=2):
        result = scene.apply(submit_operation(number, actor=actor))
        assert isinstance(result, Submitted)
        jobs.append(result.job)
    assert [[(note.action, note.actor) for note in job.notes] for job in jobs] == [[(CREATED, "ann")], [], []]
    assert [len(encode_job(job)) for job in jobs[1:]] == [len(encode_job(plain))] * 2


def test_submit_keeps_every_field_of_the_request(scene: Scene) -> None:
    policy = RetryPolicy(backoff=Backoff.LIST, delays_ms=(1, 2))
    job = scene.submit(
        tenant="acme", name="export", queue="slow", priority=9, max_attempts=7, timeout_ms=5_000, retry=policy,
        idempotency_key="key-1", fingerprint=b"f", tags=("a", "b"), region="eu",
    )  # fmt: skip
    assert (job.tenant, job.spec.name, job.spec.queue, job.spec.priority) == ("acme", "export", "slow", 9)
    assert (job.spec.max_attempts, job.spec.timeout_ms, job.spec.retry) == (7, 5_000, policy)
    assert (job.idempotency_key, job.fingerprint, job.spec.tags, job.spec.region) == ("key-1", b"f", ("a", "b"), "eu")
    assert (job.run_number, job.attempt_number, job.attempts, job.lease) == (1, 0, (), None)


def test_submit_stores_the_payload_apart_and_none_for_none(scene: Scene) -> None:
    full, empty = scene.submit(payload=b"[1]"), scene.submit(payload=b"")
    assert scene.state.payload(full.id) == b"[1]"
    assert list(scene.state.all_payload_ids()) == [full.id]
    assert scene.last.writes == (PutJob(None, empty, payload=None),)


def test_submit_with_another_body_under_the_same_key_is_refused(scene: Scene) -> None:
    """Case A12."""
    scene.submit(idempotency_key="k", fingerprint=b"f")
    result = scene.apply(submit_operation(99, idempotency_key="k", fingerprint=b"other"))
    assert code_of(result) is RejectCode.IDEMPOTENCY_MISMATCH
    assert scene.state.job(job_id(99)) is None


def test_submit_meets_a_key_without_its_job_by_stopping(scene: Scene) -> None:
    scene.submit(idempotency_key="k")
    ghost = job_id(77)
    scene.state.job_id_for_key = lambda tenant, idempotency_key: ghost  # type: ignore[method-assign]  # a state that can't be
    with pytest.raises(InvariantBroken, match=ghost.hex()):
        scene.apply(submit_operation(99, idempotency_key="k"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", JobId(b"")),
        ("id", JobId(b"x" * 17)),
        ("tenant", ""),
        ("tenant", "t" * (limits.NAME_CHARS_MAX + 1)),
        ("name", ""),
        ("name", "a\0b"),
        ("queue", ""),
        ("queue", "é" * (limits.NAME_CHARS_MAX // 2 + 1)),
        ("queue", "a\0b"),
        ("idempotency_key", "k" * (limits.IDEMPOTENCY_KEY_CHARS_MAX + 1)),
        ("idempotency_key", "a\0b"),
        ("priority", -1),
        ("priority", 10),
        ("due_at_ms", -1),
        ("due_at_ms", TIME_MS_MAX + 1),
        ("max_attempts", 0),
        ("max_attempts", limits.ATTEMPTS_MAX + 1),
        ("timeout_ms", -1),
        ("timeout_ms", limits.TIMEOUT_MS_MAX + 1),
        ("payload", b"x" * (limits.PAYLOAD_BYTES_MAX + 1)),
        ("tags", ("t",) * (limits.TAGS_MAX + 1)),
        ("tags", ("",)),
        ("tags", ("t" * (limits.TAG_CHARS_MAX + 1),)),
        ("region", "r" * (limits.NAME_CHARS_MAX + 1)),
        ("actor", "x" * (limits.ACTOR_CHARS_MAX + 1)),
    ],
)
def test_submit_refuses_what_the_state_cannot_hold_and_names_it(scene: Scene, field: str, value: object) -> None:
    """Case R22: a key that LMDB can't take must never reach it."""
    result = scene.apply(submit_operation(1, **{field: value}))
    assert isinstance(result, Refused)
    assert result.code is RejectCode.INVALID
    assert result.message.startswith(field.rstrip("s"))


def test_submit_refuses_a_retry_policy_that_is_out_of_range(scene: Scene) -> None:
    result = scene.apply(submit_operation(1, retry=RetryPolicy(factor_thousandths=0)))
    assert code_of(result) is RejectCode.INVALID


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant", "t" * limits.NAME_CHARS_MAX),
        ("queue", "é" * (limits.NAME_CHARS_MAX // 2)),
        ("idempotency_key", "k" * limits.IDEMPOTENCY_KEY_CHARS_MAX),
        ("priority", 0),
        ("priority", 9),
        ("due_at_ms", TIME_MS_MAX),
        ("max_attempts", limits.ATTEMPTS_MAX),
        ("timeout_ms", limits.TIMEOUT_MS_MAX),
        ("payload", b"x" * limits.PAYLOAD_BYTES_MAX),
        ("tags", ("t" * limits.TAG_CHARS_MAX,) * limits.TAGS_MAX),
        ("region", ""),
    ],
)
def test_submit_takes_each_limit_itself(scene: Scene, field: str, value: object) -> None:
    job = scene.submit(**{field: value})
    stored = scene.state.payload(job.id) if field == "payload" else getattr(job.spec, field, None)
    stored = getattr(job, field) if stored is None else stored
    assert stored == value
