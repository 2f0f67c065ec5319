"""Recently written records: the latest one, or none, and never too many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftsched.storage.recent import RecentJobs
from tests.storage.jobs import finished, job_id, make_job, running


def test_recent_jobs_answer_with_the_record_written_last() -> None:
    recent = RecentJobs(10)
    recent.put(make_job(1))
    recent.put(running(make_job(1)))
    assert recent.get(job_id(1)) == running(make_job(1))
    assert recent.get(job_id(2)) is None


def test_recent_jobs_forget_finished_and_removed_ones() -> None:
    recent = RecentJobs(10)
    recent.put(make_job(1))
    recent.put(make_job(2))
    recent.put(finished(make_job(1)))
    recent.drop(job_id(2))
    assert recent.get(job_id(1)) is None
    assert recent.get(job_id(2)) is None


def test_recent_jobs_keep_the_newest_half_and_at_most_their_bound() -> None:
    recent = RecentJobs(10)
    for number in range(1_000):
        recent.put(make_job(number))
        assert len(recent) <= 10
        assert recent.get(job_id(max(0, number - 4))) is not None


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(["put", "finish", "drop"]), st.integers(0, 9))))
def test_recent_jobs_never_answer_with_an_older_record(steps: list[tuple[int, str, int]]) -> None:
    recent = RecentJobs(4)
    written: dict[int, int | None] = {}
    for number, what, revision in steps:
        if what == "drop":
            recent.drop(job_id(number))
        else:
            job = make_job(number, revision=revision)
            recent.put(job if what == "put" else finished(job))
        written[number] = revision if what == "put" else None
        for known, expected in written.items():
            found = recent.get(job_id(known))
            assert found is None or found.revision == expected
