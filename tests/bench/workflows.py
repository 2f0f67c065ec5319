"""CPU that one node spends on a job of a workflow besides the network: decode, apply and checkpoint until it has ended.

    .venv/bin/python -P tests/bench/workflows.py [JOBS [ROUNDS]]

`chains N`: workflows of N jobs in chains of at most 10, all of which complete. `fan N`: the first of N jobs fails, and all
others depend on it. `keys`: single jobs with concurrency keys. Prints the best of the rounds in µs a job, which is what two
versions are compared by: run both in turns on the same machine (`PYTHONPATH=OTHER_CHECKOUT` runs another one's code).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from raftsched import limits
from raftsched.consensus.machine import ReplicatedState
from raftsched.core.operations.codec import LeaseJobs, RecordOutcome, SubmitJob, SubmitWorkflow, encode_batch
from raftsched.core.operations.control import DoBackgroundStep
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import AttemptEnd, Dependency
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import JobSpec, Options
from raftsched.core.state.results import Leased, Refused, Result

_PAYLOAD = b'{"kind":"bench","data":"' + b"x" * 165 + b'"}'
_START_MS = 1_800_000_000_000
_CHAIN_JOBS = 10
_BATCH = 100
_WRITES_PER_CHECKPOINT = 1_250


class Node:
    """A node's state, the CPU seconds it has taken, and verbs."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp())
        self._machine = ReplicatedState(self._directory / "state", map_bytes=1 << 30)
        self._machine.on_changes = lambda _: None
        self._machine.on_records = lambda _: None
        self._index = self._pending = 0
        self.seconds = 0.0

    def close(self) -> None:
        self._machine.close()
        shutil.rmtree(self._directory)

    def apply(self, *operations: object, jobs: int) -> list[Result]:
        """Apply an entry that concerns about so many jobs."""
        self._index += 1
        command = encode_batch(_START_MS + self._index, operations)  # type: ignore[arg-type]
        begun = time.process_time()
        results = self._machine.apply(self._index, 1, command)
        self._pending += jobs
        if self._pending >= _WRITES_PER_CHECKPOINT:
            self._machine.checkpoint()
            self._pending = 0
        self.seconds += time.process_time() - begun
        assert not any(isinstance(result, Refused) for result in results), results
        return results

    def end(self, jobs: list[JobId], how: AttemptEnd = AttemptEnd.COMPLETED) -> None:
        """Lease the jobs, and report their end, in batches."""
        for first in range(0, len(jobs), _BATCH):
            ids = tuple(jobs[first : first + _BATCH])
            (leased,) = self.apply(LeaseJobs("w1", 15_000, ids), jobs=len(ids))
            assert isinstance(leased, Leased)
            assert not leased.missed
            tokens = [grant.job.lease.token for grant in leased.grants if grant.job.lease]
            reports = (RecordOutcome(*each, how, retryable=False) for each in zip(ids, (1,) * len(ids), tokens))  # type: ignore[arg-type, call-overload]  # noqa: B905
            self.apply(*reports, jobs=len(ids))
        while steps := self._machine.state.background_work(limit=10):
            self.apply(*(DoBackgroundStep(*step) for step in steps), jobs=_BATCH)


def _submit(job_id: JobId, options: Options, *parents: JobId) -> SubmitJob:
    depends_on = tuple(map(Dependency, parents))
    spec = JobSpec("noop", "bench", 5, 3, 0, RetryPolicy(), options=options)
    return SubmitJob(job_id, "default", spec, 0, _PAYLOAD, depends_on=depends_on)  # type: ignore[arg-type]


def _job_ids(number: int, size: int) -> list[JobId]:
    head = (_START_MS + number).to_bytes(6, "big") + number.to_bytes(6, "big")
    return [JobId(head + each.to_bytes(4, "big")) for each in range(size)]


def _store(node: Node, number: int, ids: list[JobId], parent_of: Callable[[int], int | None]) -> None:
    """Submit a workflow of `ids` in parts; `parent_of` says on which of them each depends."""
    workflow = number.to_bytes(16, "big")
    jobs = []
    for each, job_id in enumerate(ids):
        parent = parent_of(each)
        parents = () if parent is None else (ids[parent],)
        jobs.append(_submit(job_id, Options(workflow_id=workflow, task=f"t{each}"), *parents))
    for first in range(0, len(jobs), limits.WORKFLOW_PART_JOBS_MAX):
        part = tuple(jobs[first : first + limits.WORKFLOW_PART_JOBS_MAX])
        node.apply(SubmitWorkflow(workflow, "default", "bench", len(jobs), first, part), jobs=len(part))  # type: ignore[arg-type]
    node.end([])


def run_chains(node: Node, number: int, size: int) -> None:
    ids = _job_ids(number, size)
    length = min(size, _CHAIN_JOBS)
    _store(node, number, ids, lambda each: each - 1 if each % length else None)
    for step in range(length):
        node.end(ids[step::length])


def run_fan(node: Node, number: int, size: int) -> None:
    ids = _job_ids(number, size)
    _store(node, number, ids, lambda each: 0 if each else None)
    node.end(ids[:1], AttemptEnd.FAILED)


def run_keys(node: Node, number: int, size: int) -> None:
    ids = _job_ids(number, size)
    for first in range(0, size, _BATCH):
        batch = ids[first : first + _BATCH]
        node.apply(*(_submit(each, Options(concurrency_key=f"k{each[-1]}")) for each in batch), jobs=len(batch))
    node.end(ids)


def _seconds(jobs: int, size: int, run: Callable[[Node, int, int], None]) -> float:
    node = Node()
    for number in range(1, jobs // size + 1):
        run(node, number, size)
    node.close()
    return node.seconds


def _cases() -> Iterator[tuple[str, int, Callable[[Node, int, int], None]]]:
    for size in (1, 10, 100, 1_000):
        yield f"chains {size}", size, run_chains
    yield "fan 100", 100, run_fan
    yield "fan 1000", 1_000, run_fan
    yield "keys", 1_000, run_keys


def main(jobs: int = 2_000, rounds: int = 5) -> None:
    for name, size, run in _cases():
        best = min(_seconds(jobs, size, run) for _ in range(rounds))
        sys.stdout.write(f"{name}: {1e6 * best / jobs:.1f} µs CPU a job\n")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
