"""Cases C01 to C47, each as it stands in its file, asked of the parser itself."""

from __future__ import annotations

import time

import pytest

from raftsched.core.cron.interval import Every
from raftsched.core.cron.parser import parse
from raftsched.errors import Invalid
from tests.cases.cron import Question, questions
from tests.for_each import for_each

QUESTIONS = questions()


def preview(question: Question) -> list[int] | None:
    """Answer as `POST /schedules/preview` does."""
    try:
        recurrence = parse(question.expression, zone=question.timezone)
    except Invalid as error:
        refusal = error
    else:
        return recurrence.between(question.after_ms, 10**15, question.count)
    assert str(refusal).startswith("cron: ")
    assert str(refusal).isprintable()
    return None


def test_all_cases_ask_something() -> None:
    asked = {question.case_id for question in QUESTIONS}
    assert len(asked) == 30
    read = sum(bool(question.expected_ms) for question in QUESTIONS)
    assert (read, len(QUESTIONS) - read) == (31, 33)


@for_each(
    "question",
    QUESTIONS,
)
def test_case(question: Question) -> None:
    question.judge(preview(question))


def test_case_c02_both_passes_where_the_user_chose_so() -> None:
    [daily] = [question for question in QUESTIONS if question.case_id == "C02"]
    recurrence = parse(daily.expression, zone=daily.timezone, dst_overlap="both")
    assert recurrence.between(daily.after_ms, daily.expected_ms[-1], 10) == [
        daily.expected_ms[0],
        *daily.forbidden_ms,
        daily.expected_ms[1],
    ]


def test_case_c01_no_run_on_the_day_of_the_gap_where_the_user_chose_so() -> None:
    [daily] = [question for question in QUESTIONS if question.case_id == "C01"]
    recurrence = parse(daily.expression, zone=daily.timezone, dst_gap="skip")
    assert recurrence.between(daily.after_ms, daily.expected_ms[-1], 10) == list(daily.expected_ms[1:])


def test_case_c45_the_zone_of_the_machine_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        monkeypatch.setenv("TZ", "Australia/Sydney")
        time.tzset()
        for question in QUESTIONS:
            question.judge(preview(question))
    finally:
        monkeypatch.undo()
        time.tzset()


def test_case_c47_the_grid_stays_where_it_was_anchored() -> None:
    anchor = 1_798_761_600_123
    grid = parse("@every 10s", zone="UTC", start_ms=anchor)
    assert grid == Every(10_000, anchor)
    assert grid.between(anchor - 1, anchor + 1_000_000, 1_000) == [anchor + 10_000 * k for k in range(101)]
    assert grid.next_after(anchor + 10_000 * 10**6 + 7) == anchor + 10_000 * (10**6 + 1)
