"""Tenants take turns in log entries, and nobody waits behind the submissions of another."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from raftsched import limits
from raftsched.consensus.waiting_operations import WaitingOperations
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CancelJob, SubmitJob, SubmitWorkflow
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import JobSpec
from raftsched.core.records.workflow import WorkflowId

_SPEC = JobSpec("job", "queue", 5, 3, 0, RetryPolicy())


def _submit(tenant: str, *, payload_bytes: int = 0) -> SubmitJob:
    return SubmitJob(JobId(b"i" * 16), tenant, _SPEC, TimeMs(0), b"x" * payload_bytes)


def _workflow(tenant: str, job_count: int) -> SubmitWorkflow:
    return SubmitWorkflow(WorkflowId(b"w" * 16), tenant, "w", job_count, 0, (_submit(tenant),) * job_count)


def _cancel() -> CancelJob:
    return CancelJob(JobId(b"i" * 16), "a")


def _waiting(*operations: Operation) -> WaitingOperations:
    waiting = WaitingOperations()
    for operation in operations:
        assert waiting.add((operation, asyncio.Future(), None))
    return waiting


def _taken(waiting: WaitingOperations, count: int = 10_000, size: int = 1 << 30) -> list[str]:
    taken = [operation for operation, _, _ in waiting.take(count, size)]
    return [each.tenant if isinstance(each, SubmitJob | SubmitWorkflow) else "-" for each in taken]


@pytest.fixture(autouse=True)
async def _loop() -> None:
    """Futures need one."""


async def test_a_lone_tenant_fills_an_entry_in_order() -> None:
    operations = [_submit("a", payload_bytes=number) for number in range(600)]
    waiting = _waiting(*operations)
    assert [operation for operation, _, _ in waiting.take(500, 1 << 20)] == operations[:500]
    assert [operation for operation, _, _ in waiting.take(500, 1 << 20)] == operations[500:]
    assert (len(waiting), waiting.take(500, 1 << 20)) == (0, [])


async def test_an_entry_closes_with_the_operation_that_passes_its_size() -> None:
    waiting = _waiting(*[_submit("a", payload_bytes=1_000)] * 10)
    assert len(_taken(waiting, size=3_000)) == 3
    assert len(_taken(_waiting(*[_workflow("a", 100)] * 10), size=60_000)) == 3, "each of its jobs counts"


async def test_a_quiet_tenant_is_in_the_next_entry_whatever_waits_of_others() -> None:
    waiting = _waiting(*[_submit("loud")] * 3_000, _submit("quiet"), *[_cancel()] * 3)
    entry = Counter(_taken(waiting, 100))
    assert entry == {"loud": 96, "quiet": 1, "-": 3}


async def test_tenants_share_entries_and_all_others_have_as_much_as_they_together() -> None:
    waiting = _waiting(*[_submit("a")] * 1_000, *[_submit("b")] * 1_000, *[_cancel()] * 1_000)
    entry = Counter(_taken(waiting, 640))
    assert entry == {"a": 160, "b": 160, "-": 320}


async def test_large_operations_are_paid_with_later_turns() -> None:
    waiting = _waiting(*[_workflow("loud", 200)] * 20, *[_submit("quiet")] * 500)
    entry = _taken(waiting, 300)
    assert entry.count("loud") == 2, "400 jobs, and nearly 300 of the other"


async def test_only_tenants_with_less_than_their_share_are_taken_when_too_many_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PROPOSALS_WAITING_MAX", 10)
    waiting = _waiting(*[_submit("loud")] * 10)
    assert not waiting.add((_submit("loud"), asyncio.Future(), None))
    assert [waiting.add((_submit("quiet"), asyncio.Future(), None)) for _ in range(6)] == [True] * 5 + [False]
    assert [waiting.add((_cancel(), asyncio.Future(), None)) for _ in range(4)] == [True] * 3 + [False]
    assert [waiting.add((_submit(f"t{number}"), asyncio.Future(), None)) for number in range(3)] == [True, True, False]
    assert (len(waiting), len(waiting.clear()), len(waiting)) == (20, 20, 0)
