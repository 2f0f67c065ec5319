"""Each of the demo's checks holds for a right history, and falls for every way in which it can be broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from raftsched.cli.demo import checks
from raftsched.cli.demo.checks import Check
from raftsched.cli.demo.evidence import Evidence, Timetable
from raftsched.cli.demo.ledger import Span
from raftsched.cli.demo.plan import Planned, report_lines
from raftsched.client import JobInfo, JobSpec
from raftsched.client.records import Edge, Firing, Graph, TaskInfo

START = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def _jobs(kind: str, *jobs: JobInfo) -> dict[str, Any]:
    planned = {job.id: Planned(JobSpec(name="note", queue=kind)) for job in jobs}
    return {"planned": planned, "found": {job.id: job for job in jobs}}


def _evidence(**fields: Any) -> Evidence:
    return Evidence(**{"planned": {}, "found": {}, "recorded": {}} | fields)


# -- schedules ---------------------------------------------------------------------------------------------------------

TICKS = [Firing(instant=at(n), fired=True, job_id=f"t{n}") for n in range(4)]
TABLE = Timetable(
    name="every", period=timedelta(seconds=1), first=at(0), through=at(3.5), previewed=[at(0), at(1)], ledger=TICKS
)
TICKED = _evidence(
    **_jobs("every", *(JobInfo(id=f"t{n}", instant=at(n)) for n in range(4)))
    | {"recorded": {f"t{n}.1": [at(n).isoformat()] for n in range(4)}},
    timetables=[TABLE],
)


def _with_ledger(*ledger: Firing) -> Evidence:
    return replace(TICKED, timetables=[replace(TABLE, ledger=ledger)])


SKIPPED = msgspec.structs.replace(TICKS[2], fired=False, job_id=None, reason="misfire")
SECOND_JOB = JobInfo(id="t9", instant=at(2))

# -- workflow ----------------------------------------------------------------------------------------------------------

PARENT = TaskInfo(id="p", task="split", status="completed", started_at=at(0), completed_at=at(1))
CHILD = TaskInfo(id="c", task="total", status="completed", started_at=at(1), completed_at=at(2))
LEFT_OUT = TaskInfo(id="s", task="archive", status="skipped", completed_at=at(2))
UNENDED = msgspec.structs.replace(PARENT, status="running", completed_at=None)
GRAPH = Graph(nodes=[PARENT, CHILD, LEFT_OUT], edges=[Edge("p", "c"), Edge("c", "s", "failure")])
FLOWED = _evidence(graph=GRAPH, recorded={"p.1": ["0"], "c.1": ["0"]})


def _with_child(**changes: Any) -> Evidence:
    return replace(
        FLOWED,
        graph=msgspec.structs.replace(GRAPH, nodes=[PARENT, msgspec.structs.replace(CHILD, **changes), LEFT_OUT]),
    )


# -- limits, order, single jobs ----------------------------------------------------------------------------------------


def _narrow(*bounds: tuple[int, int]) -> Evidence:
    return _evidence(spans=[Span("narrow", f"n{n}.1", n, *each) for n, each in enumerate(bounds)])


def _rated(*seconds: float) -> Evidence:
    return _evidence(**_jobs("rate", *(JobInfo(id=f"r{n}", started_at=at(each)) for n, each in enumerate(seconds))))


def _ordered(*priorities: int) -> Evidence:
    jobs = [JobInfo(id=f"o{n}", run_id=f"o{n}.1", priority=each) for n, each in enumerate(priorities)]
    spans = [Span("priority", job.run_id, token, 0, 1) for token, job in enumerate(jobs)]
    return _evidence(**_jobs("priority", *jobs), spans=spans[::-1])


def _delayed(started_at: datetime | None) -> Evidence:
    return _evidence(**_jobs("delayed", JobInfo(id="d", run_at=at(5), started_at=started_at)))


def _begun(*run_ids: str) -> Evidence:
    return _evidence(spans=[Span("once", run_id, token, 0, 1) for token, run_id in enumerate(run_ids)])


def _paused(*events: str) -> Evidence:
    return _evidence(histories={"a": events})


def _told(lines: list[str], progress: Any) -> Evidence:
    return _evidence(**_jobs("report", JobInfo(id="r", progress=progress)), logs={"r": lines})


def _hooked(*causes: str) -> Evidence:
    asking = Planned(JobSpec(name="hopeless", on_failure={"name": "note"}), "dead_letter")
    hooks = _jobs("hook", *(JobInfo(id=f"h{n}", hook_of=cause) for n, cause in enumerate(causes)))
    return _evidence(planned={"a": asking, "b": asking} | hooks["planned"], found=hooks["found"])


FULL_BUCKET = [0.0]
LINES = report_lines()

HOLDS: list[tuple[Callable[[Evidence], Check], Evidence]] = [
    (checks.undecided, TICKED),
    (checks.decided_twice, TICKED),
    (checks.off_grid, TICKED),
    (checks.nodes_run_twice, FLOWED),
    (checks.run_before_parents, FLOWED),
    (checks.too_many_at_once, _narrow((0, 10), (0, 10), (0, 10), (10, 20))),
    (checks.too_fast, _rated(*FULL_BUCKET, 0.2, 0.4, 0.6)),
    (checks.out_of_order, _ordered(9, 9, 5, 0)),
    (checks.too_early, _delayed(at(5))),
    (checks.begun_twice, _begun("a.1", "b.1")),
    (checks.not_unique, _evidence(unique_ids=["a", "a", "a"])),
    (checks.run_while_paused, _paused("created", "resumed", "attempt_started", "finished")),
    (checks.untold, _told(LINES, {"step": 3})),
    (checks.hooks_not_once, _hooked("a", "b")),
]

FALLS: list[tuple[Callable[[Evidence], Check], Evidence]] = [
    (checks.undecided, _with_ledger(*TICKS[:2], TICKS[3])),
    (checks.undecided, _with_ledger(*TICKS[:3])),
    (checks.undecided, _with_ledger(*TICKS[:2], SKIPPED, TICKS[3])),
    (checks.undecided, _with_ledger()),
    (checks.decided_twice, _with_ledger(*TICKS, TICKS[2])),
    (checks.decided_twice, replace(TICKED, **_jobs("every", *TICKED.found.values(), SECOND_JOB))),
    (checks.decided_twice, replace(TICKED, recorded={**TICKED.recorded, "t3.1": [at(2).isoformat()]})),
    (checks.off_grid, _with_ledger(*TICKS, Firing(instant=at(3.2), fired=True))),
    (checks.off_grid, _with_ledger(Firing(instant=at(-1), fired=True), *TICKS)),
    (checks.off_grid, _with_ledger(TICKS[0], *TICKS[2:])),
    (checks.nodes_run_twice, replace(FLOWED, recorded={"p.1": ["0"], "c.1": ["0", "0"]})),
    (checks.nodes_run_twice, replace(FLOWED, recorded={"p.1": ["0"], "c.1": ["0"], "c.2": ["0"]})),
    (checks.nodes_run_twice, replace(FLOWED, recorded={"p.1": ["0"]})),
    (checks.nodes_run_twice, replace(FLOWED, recorded={**FLOWED.recorded, "s.1": ["0"]})),
    (checks.run_before_parents, _with_child(started_at=at(0.999))),
    (
        checks.run_before_parents,
        replace(FLOWED, graph=msgspec.structs.replace(GRAPH, nodes=[UNENDED, CHILD, LEFT_OUT])),
    ),
    (checks.too_many_at_once, _narrow((0, 10), (0, 10), (0, 10), (9, 20))),
    (checks.too_fast, _rated(*FULL_BUCKET, 0.1)),
    (checks.too_fast, _rated(*FULL_BUCKET, 0.2, 0.3)),
    (checks.out_of_order, _ordered(9, 5, 9, 0)),
    (checks.too_early, _delayed(at(4.999))),
    (checks.too_early, _delayed(None)),
    (checks.begun_twice, _begun("a.1", "b.1", "a.1")),
    (checks.not_unique, _evidence(unique_ids=["a", "a", "b"])),
    (checks.run_while_paused, _paused("created", "attempt_started", "resumed", "finished")),
    (checks.run_while_paused, _paused("created", "attempt_started", "finished")),
    (checks.untold, _told(LINES[1:], {"step": 3})),
    (checks.untold, _told([*LINES, LINES[-1]], {"step": 3})),
    (checks.untold, _told(LINES, None)),
    (checks.hooks_not_once, _hooked("a")),
    (checks.hooks_not_once, _hooked("a", "b", "b")),
    (checks.hooks_not_once, _hooked("a", "b", "c")),
]


def _name(value: object) -> str:
    return getattr(value, "__name__", "history")


@pytest.mark.parametrize(("check", "evidence"), HOLDS, ids=_name)
def test_a_check_holds_for_a_right_history(check: Callable[[Evidence], Check], evidence: Evidence) -> None:
    checked = check(evidence)
    assert checked.holds, checked


@pytest.mark.parametrize(("check", "evidence"), FALLS, ids=_name)
def test_a_check_falls_for_a_broken_history(check: Callable[[Evidence], Check], evidence: Evidence) -> None:
    checked = check(evidence)
    assert checked.faults


def test_every_check_is_shown_a_right_and_a_broken_history() -> None:
    assert {check for check, _ in HOLDS} == {check for check, _ in FALLS} == set(checks.ALL)
