"""The cache of jobs' records: the latest record, or none, and never too many beside those that are not stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched.core.records.job import Job
from raftsched.errors import InvariantBroken
from raftsched.storage.job_cache import JobCache
from tests.storage.jobs import finished, job_id, make_job, running


def test_unstored_records_are_taken_once_with_what_the_store_has() -> None:
    cache = JobCache(10)
    cache.put(None, make_job(1))
    cache.put(make_job(1), running(make_job(1)))
    assert cache.take_unstored() == [(None, running(make_job(1)))]
    assert cache.take_unstored() == []
    cache.put(running(make_job(1)), finished(make_job(1)))
    assert cache.get(job_id(1)) == finished(make_job(1))
    assert cache.take_unstored() == [(running(make_job(1)), finished(make_job(1)))]
    assert cache.get(job_id(1)) is None  # nothing is about to change it


def test_removal_tells_what_the_store_has() -> None:
    cache = JobCache(10)
    cache.put(None, make_job(1))
    assert cache.remove(make_job(1)) is None
    assert cache.take_unstored() == []
    cache.put(make_job(2), running(make_job(2)))
    assert cache.remove(running(make_job(2))) == make_job(2)
    assert cache.remove(make_job(3)) == make_job(3)
    assert cache.get(job_id(2)) is None


def test_new_job_that_is_known_is_refused() -> None:
    cache = JobCache(10)
    cache.put(None, make_job(1))
    with pytest.raises(InvariantBroken, match="already"):
        cache.put(None, make_job(1))


def test_cache_keeps_the_newest_half_and_at_most_its_bound() -> None:
    cache = JobCache(10)
    for number in range(1_000):
        cache.put(None, make_job(number))
        cache.take_unstored()
        assert len(cache) <= 10
        assert cache.get(job_id(max(0, number - 4))) is not None


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(["put", "finish", "remove", "store"]), st.integers(0, 9))))
def test_cache_never_answers_with_an_older_record(steps: list[tuple[int, str, int]]) -> None:
    cache = JobCache(4)
    written: dict[int, Job] = {}
    stored: dict[int, Job] = {}
    for number, what, revision in steps:
        old = written.get(number)
        if what == "store":
            for _, job in cache.take_unstored():
                stored[int.from_bytes(job.id[:8], "big")] = job
            assert stored == written
        elif what == "remove" and old is not None:
            assert cache.remove(old) == stored.pop(number, None)
            del written[number]
        elif what != "remove":
            job = make_job(number, revision=revision)
            written[number] = job if what == "put" else finished(job)
            cache.put(old, written[number])
        for known in range(9):
            found = cache.get(job_id(known)) or stored.get(known)
            assert found == written.get(known)
