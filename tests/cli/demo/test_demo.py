"""The demo's own judgement of its jobs: it must see what it claims to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.cli.demo.command import broke_off, conclude, first_of
from raftsched.cli.demo.evidence import Evidence
from raftsched.cli.demo.graph import Graph
from raftsched.cli.demo.jobs_table import finished_count
from raftsched.cli.demo.ledger import Ledger, Span, Superseded
from raftsched.cli.demo.plan import HASH_COUNT_MIN, KINDS, Planned, library_files, plan
from raftsched.cli.demo.report import Report, compare, judge
from raftsched.client import JobInfo, JobSpec
from raftsched.errors import Unavailable


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.sqlite")


def test_ledger_records_a_run_once_and_answers_with_what_is_recorded(ledger: Ledger) -> None:
    assert ledger.record("r.1", 1, "first") == "first"
    assert ledger.record("r.1", 2, "second") == "first"
    assert ledger.values() == {"r.1": ["first"]}


def test_ledger_refuses_a_token_older_than_one_it_has_seen(ledger: Ledger) -> None:
    ledger.record("r.1", 5, "new")
    with pytest.raises(Superseded, match="older than 5"):
        ledger.record("r.1", 4, "old")
    assert ledger.values() == {"r.1": ["new"]}


def test_ledger_witnesses_every_attempt_also_a_second_one_of_a_run(ledger: Ledger) -> None:
    spans = [Span("once", "r.1", 5, 0, 10), Span("once", "r.1", 4, 3, 12)]
    for span in spans:
        ledger.witness(span)
    assert ledger.spans() == spans


PLAN = Planned(JobSpec(name="note"), result={"text": "x"}, recorded="x")
GOOD = JobInfo(id="a", status="completed", result={"text": "x"}, attempt_number=1)


def _compared(found: dict[str, JobInfo], recorded: dict[str, list[str]], plan: Planned = PLAN) -> Report:
    return Report(checks=compare(Evidence(planned={"a": plan}, found=found, recorded=recorded)))


def test_report_is_right_when_all_is_as_planned() -> None:
    assert _compared({"a": GOOD}, {"a.1": ["x"]}).is_right


@pytest.mark.parametrize(
    ("found", "recorded", "fault"),
    [
        ({}, {}, "is lost"),
        ({"a": JobInfo(id="a", status="queued")}, {"a.1": ["x"]}, "ended as queued"),
        ({"a": JobInfo(id="a", status="completed", result={"text": "y"}, attempt_number=1)}, {"a.1": ["x"]}, "result"),
        ({"a": GOOD}, {}, "recorded []"),
        ({"a": GOOD}, {"a.1": ["x", "x"]}, "recorded 2 times"),
        ({"a": GOOD}, {"a.1": ["x"], "a.2": ["x"]}, "run a.2 belongs to no planned job"),
        ({"a": GOOD, "b": GOOD}, {"a.1": ["x"]}, "was never submitted"),
        ({"a": JobInfo(id="a", status="completed", result={"text": "x"})}, {"a.1": ["x"]}, "attempts"),
    ],
)
def test_report_sees_every_kind_of_fault(found: dict[str, JobInfo], recorded: dict[str, list[str]], fault: str) -> None:
    report = _compared(found, recorded)
    assert not report.is_right
    assert any(fault in word for check in report.checks for word in check.faults)


def test_a_requeued_job_must_have_taken_effect_in_its_second_run_alone() -> None:
    requeued = Planned(JobSpec(name="note"), result={"text": "x"}, recorded="x", runs=2)
    assert _compared({"a": GOOD}, {"a.2": ["x"]}, requeued).is_right
    assert not _compared({"a": GOOD}, {"a.1": ["x"]}, requeued).is_right
    assert not _compared({"a": GOOD}, {"a.1": ["x"], "a.2": ["x"]}, requeued).is_right


def test_a_demo_that_gathered_nothing_has_proved_nothing() -> None:
    report = _nothing()
    assert not report.is_right
    assert not any(check.holds for check in report.checks)
    assert not Report().is_right


def test_verdict_fails_the_command_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    conclude(_compared({"a": GOOD}, {"a.1": ["x"]}))
    assert "all is right" in capsys.readouterr().out
    late = _compared({"a": GOOD}, {"a.1": ["x"]})
    late.faults.append("not everything had ended")
    for report, why in ((_compared({}, {}), "is lost"), (late, "had ended"), (_nothing(), "nothing to check")):
        with pytest.raises(SystemExit, match="1"):
            conclude(report)
        assert why in capsys.readouterr().out


def test_what_broke_a_demo_off_is_told_in_one_line_with_its_logs_and_a_way_out(tmp_path: Path) -> None:
    failed = Unavailable("nobody leads:\n waited 30 s")
    inner = ExceptionGroup("unhandled errors in a TaskGroup", [failed, ValueError()])
    assert first_of(ExceptionGroup("unhandled errors in a TaskGroup", [inner, ValueError()])) is failed
    assert first_of(failed) is failed
    line = broke_off(failed, tmp_path)
    assert line.startswith("raftsched: the demo broke off: nobody leads: waited 30 s [unavailable] ")
    assert f"in {tmp_path}, " in line
    assert line.endswith("run the demo again.")


def _nothing() -> Report:
    return judge(Evidence(planned={}, found={}, recorded={}))


def test_plan_has_every_kind_of_job_and_each_library_file() -> None:
    jobs = plan(receiver="http://127.0.0.1:1/record", ledger=Path("ledger.sqlite"))
    assert {job.ends_as for job in jobs} == {"completed", "dead_letter", "cancelled"}
    hashed = {job.spec.payload["path"] for job in jobs if job.kind == "hash"}
    assert hashed == set(map(str, library_files()))
    assert sum(job.kind == "hash" for job in jobs) >= HASH_COUNT_MIN
    submitted_later = {"unique", "every", "cron", "workflow", "probe", "http-2s", "shell-2s", "hook"}
    assert {job.kind for job in jobs} == KINDS.keys() - submitted_later


def test_graph_fans_out_and_in_and_has_a_failed_branch() -> None:
    graph = Graph()
    parents = {name: len(task.depends_on) for name, task in graph.workflow.tasks.items()}
    assert len(parents) == 42
    assert max(parents.values()) == 6
    assert sum(each["task"] == "split" for task in graph.workflow.tasks.values() for each in task.depends_on) == 30
    assert graph.planned["total"].result == {"value": sum(range(31))}
    assert [name for name, job in graph.planned.items() if job.ends_as == "skipped"] == ["announce", "archive"]


def test_board_counts_every_status_in_which_a_job_has_ended() -> None:
    queue = {
        "name": "give-up",
        "completed": 1,
        "dead_letter": 2,
        "cancelled": 3,
        "skipped": 4,
        "queued": 5,
        "running": 6,
    }
    assert finished_count(queue) == 10
