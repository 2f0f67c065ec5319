from __future__ import annotations

import inspect

import pytest

from tests.for_each import for_each


def test_all_cases_run_and_those_that_fail_are_reported_with_their_values() -> None:
    ran = []

    @for_each(("number", "text"), [(1, "a"), (2, "b"), (3, "c")])
    def test(number: int, fixture: str, text: str) -> None:
        ran.append((number, text, fixture))
        assert number == 1
        if text == "c":
            pytest.fail("no c")

    assert [*inspect.signature(test).parameters] == ["fixture"]
    with pytest.raises(BaseExceptionGroup, match="2 of 3 cases fail") as failed:
        test(fixture="x")
    assert ran == [(1, "a", "x"), (2, "b", "x"), (3, "c", "x")]
    assert [fault.__notes__ for fault in failed.value.exceptions] == [
        ["case: number=2, text='b'"],
        ["case: number=3, text='c'"],
    ]


@for_each("small", [1, 2])
@for_each("large", [10, 20])
async def test_tables_multiply_and_tests_may_be_coroutines(small: int, large: int, record_property: object) -> None:
    assert large > small
