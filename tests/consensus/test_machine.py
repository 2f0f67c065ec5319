"""One entry of the log, applied by the real machine over the real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raftsched import limits
from raftsched.consensus.machine import ReplicatedState
from raftsched.core.checks.invariants import check
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CancelJob, encode_batch
from raftsched.core.operations.control import DoBackgroundStep
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import Status
from raftsched.core.state.results import Cancelled, Context, Result
from tests.core.relations_scene import needs
from tests.core.scene import START_MS, job_id, submit_operation

CHILDREN = 12


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[ReplicatedState]:
    machine = ReplicatedState(tmp_path, map_bytes=1 << 24)
    yield machine
    assert check(machine.state) == []
    machine.close()


def apply(machine: ReplicatedState, *operations: Operation) -> list[Result]:
    entry = encode_batch(TimeMs(START_MS), operations)
    return machine.apply(machine.applied_index + 1, 1, entry)


def submit_families(machine: ReplicatedState, count: int) -> list[list[JobId]]:
    """Parents, each in front of the `CHILDREN` that depend on it."""
    families = [[job_id(1_000 * parent + number) for number in range(CHILDREN + 1)] for parent in range(1, count + 1)]
    for parent, *children in families:
        number = int.from_bytes(parent, "big")
        apply(machine, submit_operation(number))
        orders = (submit_operation(number + 1 + place, depends_on=needs(parent)) for place in range(len(children)))
        apply(machine, *orders)
    return families


def told_counts(machine: ReplicatedState, families: list[list[JobId]]) -> list[int]:
    """How many children of each family know that their parent ended."""
    jobs = [[machine.state.job(child) for child in children] for _, *children in families]
    return [sum(job is not None and job.status is Status.SKIPPED for job in children) for children in jobs]


def test_dependants_of_a_single_operation_are_told_in_its_entry(machine: ReplicatedState) -> None:
    families = submit_families(machine, 3)
    apply(machine, *(CancelJob(parent, "default") for parent, *_ in families))
    assert told_counts(machine, families) == [CHILDREN] * 3
    assert machine.state.background_work(limit=1) == []


def test_entry_of_many_ends_is_bounded_and_background_work_do_the_rest(
    machine: ReplicatedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ENTRY_WRITES_MAX", 70)
    families = submit_families(machine, 20)
    written: list[int] = []
    machine.on_changes = lambda changes: written.append(len(changes))
    results = apply(machine, *(CancelJob(parent, "default") for parent, *_ in families))
    assert all(isinstance(result, Cancelled) for result in results), "what was asked for is done by the entry"
    counts = told_counts(machine, families)
    assert counts[0] == CHILDREN, "the first ones find the entry empty"
    assert counts[-1] == limits.INLINE_DEPENDANTS_MIN
    assert counts == sorted(counts, reverse=True)
    assert written == [len(families) + sum(counts)]
    bound = limits.ENTRY_WRITES_MAX + (1 + limits.INLINE_DEPENDANTS_MIN) * len(families) + CHILDREN
    assert written[0] <= bound < len(families) * CHILDREN
    while background_work := machine.state.background_work(limit=4):
        apply(machine, *(DoBackgroundStep(kind, subject) for kind, subject in background_work))
    assert told_counts(machine, families) == [CHILDREN] * len(families)


def test_entry_of_the_most_operations_comes_to_few_writes_beyond_its_bound() -> None:
    full = Context(TimeMs(START_MS), 1).after(limits.ENTRY_WRITES_MAX + 1)
    assert full.inline_max == limits.INLINE_DEPENDANTS_MIN
    assert limits.ENTRY_OPERATIONS_MAX * limits.INLINE_DEPENDANTS_MIN <= limits.ENTRY_WRITES_MAX
    alone = Context(TimeMs(START_MS), 1)
    assert alone.inline_max == limits.INLINE_DEPENDANTS_MAX
    assert alone.after(limits.ENTRY_OPERATIONS_MAX) is alone, "an ordinary entry costs nothing"
