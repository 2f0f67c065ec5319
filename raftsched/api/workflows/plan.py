"""Convert a submitted workflow to the operations that store it.

The jobs are sorted so that parents precede their children, and split into parts that fit into a log entry. So each part
names only parents in itself, in an earlier part, or elsewhere in the state. A cycle has no such order; it is rejected
with its members.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from raftsched import limits
from raftsched.api.jobs.convert import body_operation, options_of
from raftsched.api.json.decode import StructDecoder, job_id_at
from raftsched.api.json.times import due_at_ms
from raftsched.core.operations.codec import SubmitJob, SubmitWorkflow
from raftsched.core.records.ids import TENANT_DEFAULT, JobId
from raftsched.core.records.job import Condition, Dependency
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.workflows.dag import find_cycle
from raftsched.errors import Invalid, Malformed, Rejected
from raftsched.wire.common import NAME_RULE, is_name
from raftsched.wire.workflows import TaskDependencyRequest, TaskRequest, WorkflowRequest

PART_BYTES_MAX: Final = 900 * 1024
"""Size of a part; with the largest payload it is still far below `limits.APPEND_BYTES_MAX`."""
_JOB_BYTES: Final = 512
_TURN_JOBS: Final = 500
_DEPENDENCY_BYTES: Final = 24
_decode = StructDecoder(TaskRequest).decode


class _Edge(NamedTuple):
    """A dependency: on a task of this workflow, or on a job elsewhere."""

    task: str
    job_id: JobId
    condition: Condition


class Plan(NamedTuple):
    """A workflow that can be proposed."""

    parts: tuple[SubmitWorkflow, ...]
    job_ids: Mapping[str, JobId]
    """By task name."""
    outside: Mapping[JobId, str]
    """Parents outside the workflow, each with the path of the field that names it first."""


async def plan_workflow(
    wanted: WorkflowRequest, *, new_id: Callable[[], JobId], now_ms: int, key: str, fingerprint: bytes, actor: str
) -> Plan:
    """Return the operations that store `wanted`.

    Raises `Malformed`, `TooLarge` or `Invalid` naming the field, and `Rejected` for an unknown task name
    (`unknown_dependency`) and for a cycle (`cycle`).
    """
    tasks = await _tasks(wanted)
    edges = {name: _edges(task, tasks, f"jobs.{name}.depends_on") for name, task in tasks.items()}
    order = _order({name: [edge.task for edge in found if edge.task] for name, found in edges.items()})
    job_ids = {name: new_id() for name in order}
    whole = SubmitWorkflow(
        WorkflowId(new_id()),
        wanted.tenant or TENANT_DEFAULT,
        wanted.name,
        job_count=len(order),
        first=0,
        jobs=(),
        idempotency_key=key,
        fingerprint=fingerprint,
        actor=actor,
    )
    jobs: list[SubmitJob] = []
    for name in order:
        jobs.append(_submit(name, tasks[name], whole, edges=edges[name], job_ids=job_ids, now_ms=now_ms))
        await _yield_turn(len(jobs))
    return Plan(tuple(_parts(whole, jobs)), job_ids, _outside(order, edges))


async def _tasks(wanted: WorkflowRequest) -> dict[str, TaskRequest]:
    tasks: dict[str, TaskRequest] = {}
    for name, raw in wanted.jobs.items():
        if not is_name(name):
            raise Malformed(f"jobs: a task name must be {NAME_RULE}", field=f"jobs.{name[: limits.NAME_CHARS_MAX]}")
        tasks[name] = _decode(raw, at=f"jobs.{name}")
        await _yield_turn(len(tasks))
    return tasks


def _outside(order: list[str], edges: Mapping[str, list[_Edge]]) -> dict[JobId, str]:
    """Return the parents outside the workflow, each with the path at which it is named first."""
    outside: dict[JobId, str] = {}
    for name in order:
        for position, edge in enumerate(edges[name]):
            if not edge.task:
                outside.setdefault(edge.job_id, f"jobs.{name}.depends_on[{position}]")
    return outside


async def _yield_turn(count: int) -> None:
    """Let other tasks run after every `_TURN_JOBS` jobs: the largest workflow takes some 0.4 s."""
    if count % _TURN_JOBS == 0:
        await asyncio.sleep(0)


def _edges(task: TaskRequest, tasks: Mapping[str, Any], at: str) -> list[_Edge]:
    edges: dict[str | JobId, _Edge] = {}
    for position, each in enumerate(task.depends_on or ()):
        field = f"{at}[{position}]"
        edge = _edge(each, field)
        if edge.task and edge.task not in tasks:
            detail = f"{field}: there is no task {edge.task} in this workflow"
            raise Rejected("unknown_dependency", detail, http_status=422, field=field)
        if (edge.task or edge.job_id) in edges:
            raise Invalid(f"{field}: duplicate parent", field=field)
        edges[edge.task or edge.job_id] = edge
    return list(edges.values())


def _edge(wanted: str | TaskDependencyRequest, field: str) -> _Edge:
    if isinstance(wanted, str):
        return _Edge(wanted, JobId(b""), Condition.SUCCESS)
    if (wanted.task is None) == (wanted.job is None):
        raise Invalid(f"{field}: give exactly one of task and job", field=field)
    condition = Condition[wanted.condition.upper()]
    if wanted.task is not None:
        return _Edge(wanted.task, JobId(b""), condition)
    return _Edge("", job_id_at(wanted.job or "", f"{field}.job"), condition)


def _order(parents: Mapping[str, list[str]]) -> list[str]:
    """Return the names with parents before children, else in the given order; raises `Rejected` naming a cycle."""
    children: dict[str, list[str]] = {name: [] for name in parents}
    left = {name: len(named) for name, named in parents.items()}
    for name, named in parents.items():
        for parent in named:
            children[parent].append(name)
    free = deque(name for name, count in left.items() if not count)
    order: list[str] = []
    while free:
        name = free.popleft()
        order.append(name)
        for child in children[name]:
            left[child] -= 1
            if not left[child]:
                free.append(child)
    if len(order) == len(parents):
        return order
    members = find_cycle(parents)
    shown = members[: limits.DEPENDENCIES_SHOWN_MAX]
    detail = f"jobs: a cycle of dependencies: {' -> '.join(shown)}{' -> …' if len(shown) < len(members) else ''}"
    raise Rejected("cycle", detail, http_status=422, field=f"jobs.{members[0]}.depends_on", members=members)


def _submit(
    name: str,
    task: TaskRequest,
    whole: SubmitWorkflow,
    *,
    edges: list[_Edge],
    job_ids: Mapping[str, JobId],
    now_ms: int,
) -> SubmitJob:
    prefix = f"jobs.{name}."
    due_ms = due_at_ms(task.run_at, task.delay_seconds, now_ms, prefix)
    options = options_of(task, due_at_ms=due_ms, now_ms=now_ms, prefix=prefix, workflow_id=whole.id, task=name)
    operation = body_operation(
        task, job_id=job_ids[name], tenant=whole.tenant, due_ms=due_ms, options=options, prefix=prefix
    )
    if not edges:
        return operation
    depends_on = tuple(Dependency(job_ids[edge.task] if edge.task else edge.job_id, edge.condition) for edge in edges)
    return replace(operation, depends_on=depends_on)


def _parts(whole: SubmitWorkflow, jobs: list[SubmitJob]) -> Iterator[SubmitWorkflow]:
    """Yield the parts in order, each with as many jobs as a log entry may hold."""
    first = count = byte_count = dependency_count = 0
    for position, job in enumerate(jobs):
        size = _JOB_BYTES + len(job.payload) + _DEPENDENCY_BYTES * len(job.depends_on)
        if count and (
            count == limits.WORKFLOW_PART_JOBS_MAX
            or byte_count + size > PART_BYTES_MAX
            or dependency_count + len(job.depends_on) > limits.DEPENDENCIES_MAX
        ):
            yield replace(whole, first=first, jobs=tuple(jobs[first:position]))
            first, count, byte_count, dependency_count = position, 0, 0, 0
        count += 1
        byte_count += size
        dependency_count += len(job.depends_on)
    yield replace(whole, first=first, jobs=tuple(jobs[first:]))
