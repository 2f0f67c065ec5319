"""CPU that one node spends on a job besides the network: decode, apply and checkpoint of submit, lease and outcome.

    .venv/bin/python -P tests/bench/applying.py [JOBS [BATCH [ROUNDS [WAIT [RATE]]]]]

No sockets, no journal. Each batch waits WAIT batches for its lease, and as many for its outcome: with 0 most jobs end
within the checkpoint that they came in; 10 at a RATE of 5,000 jobs a second is `raftsched bench` at full load; with 60
hardly any job ends within a checkpoint, as under a backlog. Prints the best of the rounds in µs a job, which is what two
versions are compared by: run both in turns on the same machine (`PYTHONPATH=OTHER_CHECKOUT` runs another one's code).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from raftsched import limits
from raftsched.consensus.machine import ReplicatedState
from raftsched.consensus.raft.replication.state_comparison import EVERY_ENTRIES
from raftsched.core.operations.codec import LeaseJobs, RecordOutcome, SubmitJob, encode_batch
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import AttemptEnd
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import JobSpec
from raftsched.core.state.results import OutcomeRecorded, Result

_PAYLOAD = b'{"kind":"bench","data":"' + b"x" * 165 + b'"}'
_START_MS = 1_800_000_000_000
_OPERATIONS_PER_JOB = 3


def entries(batch: int, size: int) -> list[tuple[str, bytes]]:
    """The three log entries of one batch of jobs."""
    now = _START_MS + batch
    ids = [JobId(now.to_bytes(6, "big") + (batch * size + number).to_bytes(10, "big")) for number in range(size)]
    submits = [SubmitJob(i, "default", JobSpec("noop", "bench", 5, 3, 0, RetryPolicy()), 0, _PAYLOAD) for i in ids]  # type: ignore[arg-type]
    lease = LeaseJobs("w1-abcdef", 15_000, tuple(ids), f"req-{batch}")
    first_token = batch * size + 1
    outcomes = [
        RecordOutcome(job_id, 1, first_token + number, AttemptEnd.COMPLETED, f"c{number:016x}")  # type: ignore[arg-type]
        for number, job_id in enumerate(ids)
    ]
    return [
        ("submit", encode_batch(now, tuple(submits))),  # type: ignore[arg-type]
        ("lease", encode_batch(now, (lease,))),  # type: ignore[arg-type]
        ("outcome", encode_batch(now + 1, tuple(outcomes))),  # type: ignore[arg-type]
    ]


def in_order(batches: int, size: int, wait: int) -> Iterator[tuple[str, bytes]]:
    """The entries of all batches as a log holds them, each part of a batch `wait` batches behind the one before."""
    log = [entries(batch, size) for batch in range(batches)]
    for step in range(batches + 2 * wait):
        for part in range(3):
            batch = step - part * wait
            if 0 <= batch < batches:
                yield log[batch][part]


def run(jobs: int, size: int, wait: int, rate: int) -> Counter[str]:
    """CPU seconds of each part."""
    directory = Path(tempfile.mkdtemp())
    machine = ReplicatedState(directory / "state", map_bytes=1 << 30)
    machine.on_changes = lambda _: None
    machine.on_records = lambda _: None
    spent: Counter[str] = Counter()
    pending = 0
    results: list[Result] = []
    for index, (part, command) in enumerate(in_order(jobs // size, size, wait), 1):
        begun = time.process_time()
        results = machine.apply(index, 1, command)
        spent[part] += time.process_time() - begun  # type: ignore[assignment]
        pending += size
        if index % EVERY_ENTRIES == 0:
            begun = time.process_time()
            assert machine.digest
            spent["digest"] += time.process_time() - begun  # type: ignore[assignment]
        if pending >= rate * _OPERATIONS_PER_JOB * limits.CHECKPOINT_SECONDS:
            begun = time.process_time()
            machine.checkpoint()
            spent["checkpoint"] += time.process_time() - begun  # type: ignore[assignment]
            pending = 0
    assert isinstance(results[0], OutcomeRecorded), results[0]
    machine.close()
    shutil.rmtree(directory)
    return spent


def main(jobs: int = 30_000, size: int = 100, rounds: int = 5, wait: int = 0, rate: int = 1_667) -> None:
    runs = [run(jobs, size, wait, rate) for _ in range(rounds)]
    best = {part: min(spent[part] for spent in runs) for part in runs[0]}
    parts = "  ".join(f"{part} {1e6 * seconds / jobs:.1f}" for part, seconds in best.items())
    total = 1e6 * sum(best.values()) / jobs
    sys.stdout.write(f"batches of {size}: {parts}  total {total:.1f} µs CPU a job\n")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
