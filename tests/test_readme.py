"""What the README shows is what the code does."""

from __future__ import annotations

from pathlib import Path

from raftsched import limits
from raftsched.api.jobs.convert import submit_operation
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import DeadLetterReason
from raftsched.core.records.transitions import meanings, mermaid_diagram
from raftsched.wire.jobs import JobRequest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_readme_shows_the_table_of_transitions() -> None:
    assert f"```mermaid\n{mermaid_diagram().strip()}\n```" in README
    assert meanings().strip() in README


def test_readme_names_the_defaults_and_reasons_that_hold() -> None:
    operation = submit_operation(JobRequest(name="x"), job_id=JobId(bytes(16)), now_ms=0)
    assert operation.max_attempts == 3
    assert limits.LOST_WORKERS_DEFAULT == 3
    reasons = {value for name, value in vars(DeadLetterReason).items() if name.isupper()}
    assert all(f"`{reason}`" in README for reason in reasons)
