"""Errors that differ only in numbers and ids are one group."""

from __future__ import annotations

from raftsched.client.records import JobInfo
from raftsched.dashboard.error_groups import groups_of, pattern_of
from raftsched.wire.common import ErrorReply


def test_numbers_and_ids_are_left_out_of_a_message_and_words_are_kept() -> None:
    same = {
        "order 8127 is 12.50 EUR short": "order … is … EUR short",
        "no user 01a2272c-3727-7000-a9c5-2c1b2124b364": "no user …",
        "object at 0x7f2baa958f50": "object at …",
        "commit deadbeef1 of 10:31:07": "commit … of …",
        "decade facade": "decade facade",
        "first line 1\nsecond line": "first line …",
        "": "",
    }
    assert {message: pattern_of(message) for message in same} == same


def test_groups_hold_jobs_of_the_same_error_and_reason_the_largest_first() -> None:
    def job(number: int, kind: str, message: str, reason: str = "attempts_exhausted") -> JobInfo:
        return JobInfo(id=str(number), name="x", failure_reason=reason, error=ErrorReply(type=kind, message=message))

    jobs = [
        job(1, "ValueError", "order 1"),
        job(2, "ValueError", "order 22"),
        job(3, "KeyError", "order 3"),
        job(4, "ValueError", "order 4", "rejected"),
        JobInfo(id="5", name="y", failure_reason="expired"),
        job(6, "ValueError", "order 333"),
    ]
    groups = groups_of(jobs)
    assert [[each.id for each in group.jobs] for group in groups] == [["1", "2", "6"], ["3"], ["4"], ["5"]]
    assert (groups[0].type, groups[0].text, groups[0].names) == ("ValueError", "order …", [("x", 3)])
    assert len({group.key for group in groups}) == 4
