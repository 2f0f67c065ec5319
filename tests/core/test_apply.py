from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from raftsched.core.apply import apply
from raftsched.core.checks.invariants import check
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.job import Job, Status
from raftsched.core.state.results import Context, Refused
from raftsched.core.state.writes import PutJob
from tests.core.plain_state import PlainState
from tests.core.scene import START_MS, Scene
from tests.core.wild import operations


def populated() -> PlainState:
    """A state with jobs 1 to 4 in different statuses, tokens 1 and 2 given out."""
    scene = Scene()
    waiting, running, completed = (scene.submit(tenant="a", idempotency_key=key) for key in ("a", "b", ""))
    scene.submit(tenant="a", due_at_ms=START_MS + 10)
    scene.run(running, worker="a")
    scene.complete(scene.run(completed, worker="b"), result=b"1")
    assert scene.status(waiting) is Status.QUEUED
    return scene.state


@given(st.lists(operations, min_size=1, max_size=6), st.integers(0, 20_000))
def test_apply_is_total_and_keeps_every_invariant(sequence: list[Operation], later_ms: int) -> None:
    state = populated()
    for operation in sequence:
        applied = state.step(operation, START_MS + later_ms)
        assert check(state) == []
        if isinstance(applied.result, Refused) and applied.result.code is not RejectCode.CANCELLED:
            assert applied.writes == ()


@given(operations)
def test_apply_only_reads(operation: Operation) -> None:
    state = populated()
    before = deepcopy(vars(state))
    apply(state, operation, Context(state.cluster_time_ms, state.index + 1))
    assert vars(state) == before


@given(operations)
def test_apply_decides_alike_on_every_node(operation: Operation) -> None:
    context = Context(populated().cluster_time_ms, 99)
    assert apply(populated(), operation, context) == apply(populated(), operation, context)


@given(operations)
def test_every_written_job_carries_the_entrys_time_and_index(operation: Operation) -> None:
    state = populated()
    applied = state.step(operation, START_MS + 20_000)
    written: list[Job] = [write.new for write in applied.writes if isinstance(write, PutJob)]
    assert all(job.revision == state.index and job.updated_at_ms == state.cluster_time_ms for job in written)
