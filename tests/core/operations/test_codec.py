from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import (
    CODEC_VERSION,
    OLDEST_READ,
    OPERATIONS,
    Batch,
    CancelJob,
    LeaseJobs,
    RecordOutcome,
    UnknownVersion,
    decode_batch,
    encode_batch,
)
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import (
    Attempt,
    AttemptEnd,
    Job,
    JobError,
    Lease,
    Status,
    Worker,
    decode_job,
    decode_worker,
    encode_job,
    encode_worker,
)
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import JobSpec
from tests.core.scene import job_id, submit_operation
from tests.core.wild import operations

STAMP = TimeMs(1_700_000_000_000)


@given(st.lists(operations, max_size=5), st.integers(0, 2**62))
def test_batch_reads_back_as_it_was_written(batch: list[Operation], stamp_ms: int) -> None:
    written = tuple(batch)
    assert decode_batch(encode_batch(TimeMs(stamp_ms), written)) == Batch(CODEC_VERSION, TimeMs(stamp_ms), written)


def test_entry_in_the_log_keeps_its_bytes() -> None:
    """An entry written by today's version must be read by the next: these bytes may never change."""
    entry = encode_batch(TimeMs(7), (CancelJob(JobId(b"i" * 16), "t"), LeaseJobs("w", 10, (JobId(b"j" * 16),))))
    assert entry.hex() == (
        "93" "01" "07" "92"
        "95" "05" "c410" + "69" * 16 + "a174" "c2" "a0"
        "97" "02" "a177" "0a" "91" "c410" + "6a" * 16 + "a0" "a0" "a0"
    )  # fmt: skip


def test_tags_of_operations_never_change() -> None:
    """Each tag is in logs on disk; a new operation takes the next one."""
    tags = {
        "SubmitJob": 1, "LeaseJobs": 2, "RecordOutcome": 3, "ExpireLeases": 4, "CancelJob": 5, "PurgeJobs": 6,
        "MarkWorkers": 7, "PauseJob": 8, "ResumeJob": 9, "AmendJob": 10, "RequeueJob": 11, "StartRun": 12,
        "ReportProgress": 13, "AppendLog": 14, "BlockJobs": 15, "HandleDeadlines": 16, "DoBackgroundStep": 17, "SaveSchedule": 18,
        "ControlSchedule": 19, "FireSchedule": 20, "RunSchedule": 21, "TrimLedger": 22, "ConfigureQueue": 23,
        "PauseQueue": 24, "CancelWorkflow": 25, "TrimAudit": 26, "SubmitWorkflow": 27, "RecordOutage": 28,
        "AdoptZoneRules": 29, "AwaitCallback": 30, "CreateToken": 31, "RotateToken": 32, "RevokeToken": 33,
        "SaveTenant": 34, "RemoveTenant": 35, "AdoptKey": 36, "RecordBackup": 37, "DrainWorker": 38, "NoteTokenUses": 39,
    }  # fmt: skip
    assert {kind.__name__: kind.__struct_config__.tag for kind in OPERATIONS} == tags


def test_batch_without_later_fields_reads_with_their_defaults() -> None:
    """Fields are added at the end with a default, so an entry of an earlier version stays readable."""
    short = msgspec.msgpack.encode([CODEC_VERSION, 7, [[3, job_id(1), 1, 5, AttemptEnd.COMPLETED]]])
    (operation,) = decode_batch(short).operations
    assert operation == RecordOutcome(job_id(1), 1, FencingToken(5), AttemptEnd.COMPLETED)


@pytest.mark.parametrize(
    "entry",
    [
        [CODEC_VERSION + 1, 7, [submit_operation(1)]],
        [CODEC_VERSION + 1, 7, [[99, "an operation of the future"]]],
        [CODEC_VERSION + 1, 7, [], "a field of the future"],
        [CODEC_VERSION + 1, {"all": "changed"}],
        [0, 7, []],
    ],
)
def test_entry_of_another_version_is_refused_by_number(entry: list[object]) -> None:
    with pytest.raises(UnknownVersion, match=f"of version {entry[0]}, and this node reads {CODEC_VERSION}"):
        decode_batch(msgspec.msgpack.encode(entry))


@pytest.mark.parametrize("version", [OLDEST_READ, CODEC_VERSION + 1, CODEC_VERSION + 2])
def test_entry_of_each_version_up_to_the_latest_that_a_node_reads_is_read(version: int) -> None:
    entry = encode_batch(STAMP, (submit_operation(1),), version=version)
    batch = decode_batch(entry, reads=CODEC_VERSION + 2)
    assert (batch.version, batch.operations) == (version, (submit_operation(1),))


@pytest.mark.parametrize(("version", "advice"), [(CODEC_VERSION + 3, "upgrade this node"), (0, "a release that reads")])
def test_entry_that_cannot_be_read_says_what_to_do(version: int, advice: str) -> None:
    entry = encode_batch(STAMP, (submit_operation(1),), version=version)
    with pytest.raises(UnknownVersion, match=f"reads {OLDEST_READ} to {CODEC_VERSION + 2}: .*{advice}"):
        decode_batch(entry, reads=CODEC_VERSION + 2)


@given(operations)
def test_every_operation_says_since_which_version_it_exists(operation: Operation) -> None:
    assert OLDEST_READ <= operation.since <= CODEC_VERSION


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93",
        msgspec.msgpack.encode("text"),
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode([CODEC_VERSION, 7, [[99]]]),
        msgspec.msgpack.encode([CODEC_VERSION, "7", []]),
        encode_batch(STAMP, (submit_operation(1),))[:-1],
    ],
)
def test_bytes_that_are_no_entry_are_an_error_of_their_own(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_batch(data)


def test_job_record_reads_back_as_it_was_written() -> None:
    token = FencingToken(9)
    attempt = Attempt(1, 1, token, "w", TimeMs(3), TimeMs(4), AttemptEnd.FAILED, "c", JobError("E", "m", "t"))
    job = Job(id=job_id(1), tenant="t", spec=JobSpec(name="n", queue="q", priority=5, max_attempts=3, timeout_ms=4, retry=RetryPolicy(delays_ms=(1, 2)), tags=("a",), region="eu"), status=Status.RUNNING, due_at_ms=TimeMs(1), created_at_ms=TimeMs(1), updated_at_ms=TimeMs(2), run_number=2, attempt_number=3, failure_count=1, lost_count=1, lease=Lease("w", FencingToken(10), TimeMs(5), 6), started_at_ms=TimeMs(5), finished_at_ms=TimeMs(7), cancel_requested_at_ms=TimeMs(8), failure_reason="E", attempts=(attempt,), idempotency_key="k", fingerprint=b"f", revision=11, timed=True)  # fmt: skip
    assert decode_job(encode_job(job)) == job
    assert decode_job(memoryview(encode_job(job))) == job


def test_worker_record_reads_back_as_it_was_written() -> None:
    worker = Worker("w", ("q", "r"), 8, TimeMs(2), TimeMs(1))
    assert decode_worker(encode_worker(worker)) == worker
