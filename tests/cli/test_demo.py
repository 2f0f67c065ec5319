"""The demo's own judgement: it must see what it claims to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.cli.demo.ledger import Ledger, Superseded
from raftsched.cli.demo.plan import HASH_COUNT_MIN, HASH_KIND, Planned, library_files, plan
from raftsched.cli.demo.report import compare
from raftsched.client import JobInfo, JobSpec


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


PLAN = Planned(JobSpec(name="note"), "a note", "completed", {"text": "x"})
GOOD = JobInfo(id="a", status="completed", result={"text": "x"}, attempt_number=1)


def test_report_is_right_when_all_is_as_planned() -> None:
    assert compare({"a": PLAN}, {"a": GOOD}, {"a.1": ["x"]}).is_right


@pytest.mark.parametrize(
    ("found", "recorded", "fault"),
    [
        ({}, {}, "lost"),
        ({"a": JobInfo(id="a", status="queued")}, {"a.1": ["x"]}, "ended as queued"),
        ({"a": JobInfo(id="a", status="completed", result={"text": "y"}, attempt_number=1)}, {"a.1": ["x"]}, "result"),
        ({"a": GOOD}, {}, "recorded []"),
        ({"a": GOOD}, {"a.1": ["x", "x"]}, "twice"),
        ({"a": GOOD, "b": GOOD}, {"a.1": ["x"]}, "nobody submitted"),
        ({"a": JobInfo(id="a", status="completed", result={"text": "x"})}, {"a.1": ["x"]}, "attempts"),
    ],
)
def test_report_sees_every_kind_of_fault(found: dict[str, JobInfo], recorded: dict[str, list[str]], fault: str) -> None:
    report = compare({"a": PLAN}, found, recorded)
    assert not report.is_right
    words = [*report.faults, "lost" if report.lost else "", "twice" if report.recorded_twice else ""]
    assert any(fault in word for word in words)


def test_plan_has_every_kind_of_job_and_each_library_file() -> None:
    jobs = plan()
    assert {job.ends_as for job in jobs} == {"completed", "dead_letter", "cancelled"}
    hashed = {job.spec.payload["path"] for job in jobs if job.kind == HASH_KIND}
    assert hashed == set(map(str, library_files()))
    assert sum(job.kind == HASH_KIND for job in jobs) >= HASH_COUNT_MIN
