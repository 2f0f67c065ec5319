"""Index entries follow from the record alone, and only what differs is touched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from raftsched.core.operations.control import DeadlineKind
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import FINISHED, Job, Pause, Status
from raftsched.core.records.queue import Queue
from raftsched.core.records.spec import Options
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.storage.store.port import Table
from raftsched.storage.tables import keys
from raftsched.storage.tables.indexes import (
    difference,
    index_entries,
    queue_entries,
    schedule_entries,
    workflow_entries,
)
from tests.storage.jobs import NOW_MS, blocked, finished, job_id, make_job, make_schedule, paused, running, scheduled

_options = st.builds(
    Options,
    concurrency_key=st.sampled_from(["k1", "k2"]),
    unique_key=st.sampled_from([b"", b"u1", b"u2"]),
    unique_until_ms=st.sampled_from([0, 7]),
    workflow_id=st.sampled_from([b"", b"w" * 16]),
    deadline_ms=st.sampled_from([None, 0, 5]),
)
_jobs = st.builds(
    make_job,
    st.just(7),
    status=st.sampled_from(sorted(set(Status) - {Status.FAILED})),
    queue=st.sampled_from(["mail", "export"]),
    tenant=st.sampled_from(["t1", "t2"]),
    priority=st.integers(0, 9),
    due_at_ms=st.integers(0, 3),
    timed=st.booleans(),
    blocked=st.booleans(),
    finished_at_ms=st.integers(0, 3),
    options=st.none() | _options,
    pause=st.none() | st.builds(Pause, st.just(1), st.sampled_from([0, 4])),
)


def tables(job: Job) -> list[Table]:
    return [table for table, _, _ in index_entries(job)]


def deadlines(job: Job) -> list[int]:
    return [keys.read_deadline_key(key).at_ms for table, key, _ in index_entries(job) if table is Table.DEADLINES]


def test_each_status_has_the_entries_by_which_it_is_found() -> None:
    assert tables(make_job(1)) == [Table.WAITING]
    assert tables(scheduled(1, NOW_MS + 1)) == [Table.WAITING, Table.TIMERS]
    assert tables(make_job(1, status=Status.RETRYING, timed=True)) == [Table.WAITING, Table.TIMERS]
    assert tables(running(make_job(1))) == [Table.LEASED]
    assert tables(make_job(1, status=Status.CANCELLING)) == [Table.LEASED]
    assert tables(make_job(1, status=Status.WAITING_DEPENDENCIES)) == [Table.PARKED]
    for status in FINISHED - {Status.FAILED, Status.DEAD_LETTER}:
        assert tables(finished(make_job(1), status)) == [Table.FINISHED]
    assert tables(finished(make_job(1), Status.DEAD_LETTER)) == [Table.FINISHED, Table.DEAD_LETTERS]


def test_a_blocked_job_is_in_the_held_index_in_place_of_the_ready_one() -> None:
    assert tables(blocked(make_job(1))) == [Table.BLOCKED]
    assert tables(blocked(scheduled(1, NOW_MS))) == [Table.BLOCKED, Table.TIMERS]


def test_ties_have_entries_of_their_own() -> None:
    tied = make_job(1, options=Options(unique_key=b"u", workflow_id=b"w" * 16, deadline_ms=TimeMs(9)))
    assert tables(tied) == [Table.WAITING, Table.UNIQUE, Table.WORKFLOW_JOBS, Table.DEADLINES]
    assert tables(finished(make_job(1, options=Options(schedule_id=b"s" * 16)))) == [
        Table.FINISHED,
        Table.SCHEDULE_JOBS,
    ]
    assert tables(make_job(1, options=Options(expires_at_ms=TimeMs(9)))) == [Table.WAITING, Table.DEADLINES]
    assert tables(paused(make_job(1))) == [Table.PARKED]
    assert tables(paused(make_job(1), until_ms=9)) == [Table.PARKED, Table.DEADLINES]


def test_a_claim_lasts_until_the_end_of_the_job_or_its_time() -> None:
    plain, timed = Options(unique_key=b"u"), Options(unique_key=b"u", unique_until_ms=TimeMs(9))
    assert tables(finished(make_job(1, options=plain))) == [Table.FINISHED]
    assert tables(finished(make_job(1, options=timed))) == [Table.FINISHED, Table.UNIQUE]


def test_what_is_finished_has_no_deadline() -> None:
    times = Options(expires_at_ms=TimeMs(5), deadline_ms=TimeMs(9))
    assert deadlines(make_job(1, options=times)) == [5]
    assert deadlines(running(make_job(1, options=times))) == [9], "what has started no longer expires"
    assert deadlines(finished(make_job(1, options=times))) == []


def test_other_records_have_deadlines_names_and_keys() -> None:
    workflow = Workflow(WorkflowId(b"w" * 16), "t", "n", 2, 1, updated_at_ms=TimeMs(7))
    assert [table for table, _, _ in workflow_entries(workflow)] == [Table.DEADLINES]
    keyed = replace(workflow, stored_count=2, idempotency_key="k")
    assert workflow_entries(keyed) == ((Table.WORKFLOW_KEYS, keys.dedup_key("t", "k"), b"w" * 16),)
    assert queue_entries(Queue("q", paused=True)) == ()
    deadline = (Table.DEADLINES, keys.deadline_key(DeadlineKind.QUEUE, 8, b"q"), b"")
    assert queue_entries(Queue("q", paused=True, pause_until_ms=TimeMs(8))) == (deadline,)
    schedule = make_schedule(1, next_at_ms=TimeMs(3))
    assert [table for table, _, _ in schedule_entries(schedule)] == [Table.SCHEDULE_NAMES, Table.DEADLINES]
    assert [table for table, _, _ in schedule_entries(replace(schedule, paused=True))] == [Table.SCHEDULE_NAMES]
    assert index_entries(None) == workflow_entries(None) == queue_entries(None) == schedule_entries(None) == ()


@given(_jobs | st.none(), _jobs | st.none())
def test_difference_leads_from_the_old_entries_to_the_new_ones(old: Job | None, new: Job | None) -> None:
    entries = {(table, key): value for table, key, value in index_entries(old)}
    removed, inserted = difference(index_entries(old), index_entries(new))
    assert set(removed).isdisjoint(inserted), "an entry that stays is not touched"
    for table, key, value in removed:
        assert entries.pop((table, key)) == value
    for table, key, value in inserted:
        assert (table, key) not in entries
        entries[table, key] = value
    assert entries == {(table, key): value for table, key, value in index_entries(new)}


def test_a_lease_takes_one_entry_and_adds_one() -> None:
    removed, inserted = difference(index_entries(make_job(1)), index_entries(running(make_job(1))))
    assert [table for table, _, _ in removed] == [Table.WAITING]
    assert inserted == ((Table.LEASED, job_id(1), b""),)


def test_a_cancel_of_a_running_job_touches_no_entry() -> None:
    before, after = running(make_job(1)), make_job(1, status=Status.CANCELLING)
    assert difference(index_entries(before), index_entries(after)) == ((), ())
