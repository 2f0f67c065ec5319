from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from raftsched.executors.placeholders import UnknownPlaceholder, facts_of, filled
from raftsched.worker import Context
from tests.for_each import for_each

CONTEXT = Context(
    job_id="j", run_id="j.2", fencing_token=7, attempt_number=3, name="report", queue="http", schedule_id="s",
    instant=datetime(2027, 3, 14, 7, tzinfo=UTC),
    parameters={"region": "eu", "rows": 10, "share": 1.5, "full": True, "none": None, "token": {"secret": "shop"}},
)  # fmt: skip
SECRETS = {"shop": "{{run_id}}"}


@for_each(
    ("body", "expected"),
    [
        ("{{job_id}} {{run_id}} {{attempt}} {{fencing_token}} {{name}}", "j j.2 3 7 report"),
        ("{{ schedule_id }}: {{fire_time}} {{scheduled_at}}", "s: 2027-03-14T07:00:00.000Z 2027-03-14T07:00:00.000Z"),
        ({"a": ["{{run_id}}", 1, None, {"{{run_id}}": "x{{name}}y"}]}, {"a": ["j.2", 1, None, {"{{run_id}}": "xreporty"}]}),
        ("{{{{run_id}} }} { {name} }", "{{run_id}} }} { {name} }"),
        ("{{{{{{run_id}}", "{{j.2"),
        ("{{ {{} {{}} {{run_id {{1}} {{a b}} {{{name}}}", "{{ {{} {{}} {{run_id {{1}} {{a b}} {report}"),
        ("{{parameters.region}} {{ parameters.rows }} {{parameters.share}} {{parameters.full}}", "eu 10 1.5 true"),
        ("<{{parameters.none}}> {{parameters.token}}", "<> {{run_id}}"),
        (7, 7),
    ],
)  # fmt: skip
def test_facts_replace_their_names_in_texts(body: Any, expected: Any) -> None:
    assert filled(body, facts_of(CONTEXT, SECRETS)) == expected


@for_each(
    "body",
    [
        "{{nope}}",
        "a {{ nope }}",
        "{{run-id}}",
        "{{run_id.x}}",
        "{{ctx.__class__}}",
        "{{parameters}}",
        "{{parameters.x}}",
        "{{parameters.rows.real}}",
        ["{{RUN_ID}}"],
    ],
)
def test_unknown_name_is_refused_with_those_that_there_are(body: Any) -> None:
    with pytest.raises(UnknownPlaceholder, match="run_id, name"):
        filled(body, facts_of(CONTEXT, SECRETS))


def test_fact_that_the_run_lacks_is_empty_and_what_it_brings_is_not_read_again() -> None:
    ctx = Context(job_id="j", run_id="j.1", fencing_token=1, attempt_number=1, name="{{run_id}}", queue="q")
    assert filled("{{name}}|{{schedule_id}}|{{fire_time}}", facts_of(ctx, {})) == "{{run_id}}||"
