"""Index entries follow from the record alone, and only what differs is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched.core.job import FINISHED, LEASED, WAITING, Job, Status
from raftsched.errors import InvariantBroken
from raftsched.storage.indexes import difference, index_entries
from raftsched.storage.store import Table
from tests.storage.jobs import NOW_MS, finished, job_id, make_job, running, scheduled

_indexed = sorted(WAITING | LEASED | FINISHED)
_jobs = st.builds(
    lambda status, queue, priority, due, timed, at: make_job(
        7, status=status, queue=queue, priority=priority, due_at_ms=due, timed=timed, finished_at_ms=at
    ),
    st.sampled_from(_indexed),
    st.sampled_from(["mail", "export"]),
    st.integers(0, 9),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 3),
)


def tables(job: Job) -> list[Table]:
    return [table for table, _, _ in index_entries(job)]


def test_each_status_has_the_entries_by_which_it_is_found() -> None:
    assert tables(make_job(1)) == [Table.WAITING]
    assert tables(scheduled(1, NOW_MS + 1)) == [Table.WAITING, Table.TIMERS]
    assert tables(make_job(1, status=Status.RETRYING, timed=True)) == [Table.WAITING, Table.TIMERS]
    assert tables(running(make_job(1))) == [Table.LEASED]
    assert tables(make_job(1, status=Status.CANCELLING)) == [Table.LEASED]
    for status in FINISHED:
        assert tables(finished(make_job(1), status)) == [Table.FINISHED]


@pytest.mark.parametrize("status", sorted(set(Status) - WAITING - LEASED - FINISHED))
def test_a_status_that_this_format_can_not_index_is_refused(status: Status) -> None:
    with pytest.raises(InvariantBroken, match=status.label):
        index_entries(make_job(1, status=status))


@given(_jobs | st.none(), _jobs | st.none())
def test_difference_leads_from_the_old_entries_to_the_new_ones(old: Job | None, new: Job | None) -> None:
    entries = {(table, key): value for table, key, value in index_entries(old)}
    removed, put = difference(old, new)
    for place in removed:
        del entries[place]
    for table, key, value in put:
        assert entries.get((table, key)) != value, "put what was there already"
        entries[table, key] = value
    assert entries == {(table, key): value for table, key, value in index_entries(new)}


def test_a_lease_takes_one_entry_and_adds_one() -> None:
    removed, put = difference(make_job(1), running(make_job(1)))
    assert [table for table, _ in removed] == [Table.WAITING]
    assert put == [(Table.LEASED, job_id(1), b"")]


def test_a_cancel_of_a_running_job_touches_no_entry() -> None:
    assert difference(running(make_job(1)), make_job(1, status=Status.CANCELLING)) == ([], [])
