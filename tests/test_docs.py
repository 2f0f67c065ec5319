"""The README and the documentation: what they link to, name and generate is there."""

from __future__ import annotations

import re

from docs.generate import GENERATED, GENERATED_MARK, on_page_markdown
from raftsched import limits
from raftsched.api.http.advice import ADVICE
from raftsched.api.jobs.convert import submit_operation
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import DeadLetterReason
from raftsched.wire.jobs import JobRequest
from tests.acceptance.blocks import PAGES, ROOT, blocks_of

TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
RUN_BY = {"bash", "console", "mermaid", "python", "text", "toml", "yaml"}


def test_readme_is_short_and_what_it_links_to_is_there() -> None:
    readme = TEXTS["README.md"]
    assert len(readme.splitlines()) <= 180
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", readme) if "://" not in link]
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_prose_fits_the_line_length_of_the_code() -> None:
    long = []
    for page, text in TEXTS.items():
        code = False
        for number, line in enumerate(text.splitlines(), start=1):
            code ^= line.startswith("```")
            if len(line) > 125 and not code and not line.startswith("|"):
                long.append(f"{page}:{number}")
    assert long == []


def test_every_block_has_a_language_that_is_run_or_shown() -> None:
    assert {block.language for page in PAGES for block in blocks_of(page)} <= RUN_BY


def test_every_generated_part_stands_on_one_page_and_is_replaced() -> None:
    marks = [name for text in TEXTS.values() for name in GENERATED_MARK.findall(text)]
    assert sorted(marks) == sorted(GENERATED)
    for page, text in TEXTS.items():
        assert "<!-- generated" not in on_page_markdown(text), page


def test_generated_tables_hold_what_the_code_has() -> None:
    parts = {name: make() for name, make in GENERATED.items()}
    assert "scheduled --> running: lease" in parts["job-life-cycle"]
    assert "| retry |  |  |  |  | retrying |" in parts["job-life-cycle"]
    assert "| `stale_revision` | 412 | no |" in parts["error-codes"]
    assert "| `cycle` | 422 | no |" in parts["error-codes"]
    assert "| `storage_full` | 507 | yes |" in parts["error-codes"]
    assert "| `lease_seconds` | `15.0` | A worker" in parts["node-settings"]
    assert "### raftsched queue pause" in parts["commands"]
    assert "`POST /api/v1/jobs`" in parts["http-routes"]
    assert "### JobRequest" in parts["http-schemas"]
    assert "async Client.submit(name: str" in parts["python-api"]
    assert "\nhttp_job(url: str" in parts["python-api"]


def test_every_setting_option_and_field_has_a_meaning() -> None:
    empty = []
    options = ("job-options", "http-options", "shell-options", "client-settings", "worker-settings")
    for name in ("node-settings", "variables", "commands", *options):
        empty += [f"{name}: {row}" for row in re.findall(r"^\| .* \|  \|$", GENERATED[name](), flags=re.MULTILINE)]
    assert empty == []


def test_every_error_code_has_advice() -> None:
    rows = re.findall(r"^\| `(\w+)` \| \d+ \| \w+ \| (.*) \|$", GENERATED["error-codes"](), flags=re.MULTILINE)
    assert len(rows) >= len(ADVICE)
    assert [code for code, advice in rows if not advice] == []


def test_page_of_the_life_cycle_names_the_defaults_and_reasons_that_hold() -> None:
    operation = submit_operation(JobRequest(name="x"), job_id=JobId(bytes(16)), now_ms=0)
    assert operation.spec.max_attempts == 3
    assert limits.LOST_WORKERS_DEFAULT == 3
    reasons = {value for name, value in vars(DeadLetterReason).items() if name.isupper()}
    assert all(f"| `{reason}` |" in TEXTS["docs/job-life-cycle.md"] for reason in reasons)
