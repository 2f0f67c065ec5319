from __future__ import annotations

from typing import Any

import msgspec
import pytest

import raftsched
from raftsched.api.jobs.convert import fingerprint_of, submit_operation
from raftsched.api.json.decode import StructDecoder
from raftsched.api.json.scan import scan
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.ids import JobId
from raftsched.core.records.retry import Backoff, RetryPolicy, policy_problem
from raftsched.wire.jobs import BatchRequest, JobRequest
from tests.steps import steps_of

_ID = JobId(bytes(16))
_decode = StructDecoder(JobRequest).decode
_batches = StructDecoder(BatchRequest)


def operation_of(fields: dict[str, Any], now_ms: int = 1_000_000) -> SubmitJob:
    return submit_operation(_decode(msgspec.json.encode(fields)), job_id=_ID, now_ms=now_ms)


def _operation(now_ms: int = 1_000_000, **fields: Any) -> SubmitJob:
    return operation_of({"name": "x"} | fields, now_ms)


def test_submission_without_a_time_is_due_when_applied() -> None:
    assert _operation().due_at_ms == 0
    assert _operation(delay_seconds=0).due_at_ms == 0


def test_submission_counts_delays_in_whole_milliseconds() -> None:
    assert _operation(delay_seconds=0.07).due_at_ms == 1_000_070
    assert _operation(timeout_seconds=0.0001).spec.timeout_ms == 1


def test_submission_rounds_times_up() -> None:
    assert _operation(run_at="1970-01-01T00:00:00.0000001Z").due_at_ms in (0, 1)
    assert _operation(run_at="1970-01-01T00:00:01.000001Z").due_at_ms == 1_001
    assert _operation(run_at="1970-01-01T02:00:01.5+02:00").due_at_ms == 1_500


def test_submission_turns_policies_into_integers() -> None:
    policy = {"backoff": "linear", "base_seconds": 0.5, "factor": 1.5, "cap_seconds": 0.001, "jitter": 0.25}
    assert _operation(retry_policy=policy).spec.retry == RetryPolicy(Backoff.LINEAR, 500, 1_500, 1, 250)


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"base_seconds": 0, "factor": 1, "cap_seconds": 0.001, "jitter": 0},
        {"base_seconds": 604800, "factor": 1000, "cap_seconds": 604800, "jitter": 1},
        {"backoff": "list", "delays_seconds": [0, 604800] * 50},
    ],
)
def test_submission_makes_no_policy_that_the_core_refuses(policy: dict[str, Any]) -> None:
    assert policy_problem(_operation(retry_policy=policy).spec.retry) == ""


def test_submission_keeps_each_tag_once_in_order() -> None:
    assert _operation(tags=["b", "a", "b"]).spec.tags == ("b", "a")


def test_submission_stores_no_payload_for_null() -> None:
    assert _operation(payload=None).payload == b""
    assert _operation(payload=0).payload == b"0"


def test_fingerprint_does_not_depend_on_order_or_key() -> None:
    first = fingerprint_of({"name": "x", "payload": {"a": 1, "b": [1, 2]}, "idempotency_key": "k"})
    assert first == fingerprint_of({"payload": {"b": [1, 2], "a": 1}, "name": "x"})
    assert first != fingerprint_of({"name": "x", "payload": {"a": 1, "b": [2, 1]}})


def test_fingerprint_takes_integers_of_any_size() -> None:
    assert fingerprint_of({"payload": 10**400}) != fingerprint_of({"payload": 10**400 + 1})


def test_submission_of_a_batch_takes_few_steps_a_job() -> None:
    """The contract is 15 µs a job on an idle machine, which `tests.bench.refusals` measures; that leaves no more steps."""

    def steps_for(count: int) -> int:
        body = _batch(count)
        return steps_of(lambda: _submitted(body), raftsched)

    assert (steps_for(500) - steps_for(50)) / 450 < 120


def test_submission_of_a_batch_keeps_its_jobs_in_order() -> None:
    body = _batch(500)
    assert len(_submitted(body)) == 500
    assert scan(body)["jobs"][499]["idempotency_key"] == f"key-{499:020}"


def _batch(count: int) -> bytes:
    job = {"name": "send_email", "queue": "mail", "payload": {"to": "someone@example.org", "text": "x" * 160}}
    return msgspec.json.encode({"jobs": [job | {"idempotency_key": f"key-{n:020}"} for n in range(count)]})


def _submitted(body: bytes) -> list[SubmitJob]:
    """The operations of a batch, made as the API makes them."""
    batch, document = _batches.read(body)
    return [
        submit_operation(_decode(raw), job_id=_ID, now_ms=1, key="k", fingerprint=fingerprint_of(part))
        for raw, part in zip(batch.jobs, document["jobs"], strict=True)
    ]
