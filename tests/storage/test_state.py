"""The state: records, index reads, positions, and the refusal of what can't be right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftsched.core.records.ids import FencingToken, JobId, TimeMs, name_tag
from raftsched.core.records.job import Dependency, Status, Worker
from raftsched.core.records.spec import Options
from raftsched.core.state.entries import CounterKey, TimerEntry, WaitingEntry
from raftsched.core.state.writes import (
    PutDependencies,
    PutFence,
    PutJob,
    PutLog,
    PutWorker,
    RemoveJob,
    RemoveWorker,
)
from raftsched.errors import InvariantBroken
from raftsched.storage.state import State
from raftsched.storage.store.port import StorageFailed, Store, Table
from raftsched.storage.tables.position import Configuration
from tests.storage.conftest import Home
from tests.storage.jobs import NOW_MS, finished, job_id, make_job, running, scheduled, submit

TAG = name_tag("send_email")


def close_entry(state: State) -> None:
    state.advance(index=state.applied_index + 1, term=max(state.applied_term, 1), now_ms=NOW_MS)


# -- the configuration ------------------------------------------------------------------------------------------------


def test_state_keeps_the_last_configuration_and_its_index(store: Store) -> None:
    state = State(store)
    assert state.configuration is None
    close_entry(state)
    state.configure(b"three nodes")
    close_entry(state)
    close_entry(state)
    state.checkpoint()
    again = State(store)
    assert again.configuration == Configuration(2, b"three nodes")
    again.configure(b"four nodes")
    with pytest.raises(InvariantBroken, match="inside the entry"):
        again.checkpoint()
    close_entry(again)
    assert again.configuration == Configuration(4, b"four nodes")


# -- records ----------------------------------------------------------------------------------------------------------


def test_state_keeps_job_payload_result_and_key_of_a_job(state: State) -> None:
    job = make_job(1, idempotency_key="order-7")
    state.execute([PutJob(None, job, b'{"to":"a"}')])
    assert state.job(job.id) == job
    assert state.payload(job.id) == b'{"to":"a"}'
    assert state.result(job.id) == b""
    assert state.job_id_for_key("default", "order-7") == job.id
    assert state.job_id_for_key("other", "order-7") is None
    state.execute([PutJob(job, finished(job), None, b"7")])
    assert state.job(job.id) == finished(job)
    assert state.payload(job.id) == b'{"to":"a"}'
    assert state.result(job.id) == b"7"


def test_state_keeps_no_row_for_an_empty_payload_or_result(state: State) -> None:
    job = make_job(1)
    state.execute([PutJob(None, job, b"", b"")])
    assert list(state.all_payload_ids()) == list(state.all_result_ids()) == []
    state.execute([PutJob(job, job, b"1", b"2")])
    assert list(state.all_payload_ids()) == list(state.all_result_ids()) == [job.id]
    state.execute([PutJob(job, job, b"", b"")])
    assert list(state.all_payload_ids()) == list(state.all_result_ids()) == []


def test_removed_job_leaves_nothing_behind(state: State, store: Store) -> None:
    options = Options(unique_key=b"u", unique_until_ms=TimeMs(9), workflow_id=b"w" * 16)
    job = finished(make_job(1, idempotency_key="order-7", dependency_count=1, options=options))
    state.execute(
        [
            PutJob(None, job, b"1", b"2"),
            PutDependencies(job.id, (Dependency(job_id(0)),)),
            PutLog(job.id, 1, 1, b"a\n", 1),
            PutLog(job.id, 2, 1, b"b\n", 1),
            RemoveJob(job),
        ]
    )
    assert state.job(job.id) is None
    assert state.counters() == {}
    for table in Table:
        assert store.scan(table, b"", None, limit=1) == [], table.name


def test_state_keeps_workers_by_name(state: State) -> None:
    old = Worker("w-1", ("mail",), 4, TimeMs(1))
    new = Worker("w-1", ("mail", "export"), 8, TimeMs(2), TimeMs(1))
    other = Worker("w-0", (), 1, TimeMs(1))
    state.execute([PutWorker(old), PutWorker(other), PutWorker(new)])
    assert state.worker("w-1") == new
    assert state.workers() == [other, new]
    state.execute([RemoveWorker("w-1"), RemoveWorker("never seen")])
    assert state.worker("w-1") is None
    assert state.workers() == [other]


# -- index reads ------------------------------------------------------------------------------------------------------


def test_waiting_lists_one_queue_and_priority_by_due_up_to_a_time(state: State) -> None:
    submit(
        state,
        make_job(1, due_at_ms=NOW_MS + 1),
        make_job(2, due_at_ms=NOW_MS - 5),
        make_job(3, due_at_ms=NOW_MS),
        make_job(4, due_at_ms=NOW_MS),
        make_job(5, priority=6),
        make_job(6, queue="mail2"),
        running(make_job(7)),
        make_job(8, region="eu"),
    )
    assert state.waiting("mail", "default", 5, TAG, region="eu", due_until_ms=NOW_MS, limit=10) == [
        WaitingEntry("mail", "default", 5, TAG, NOW_MS, job_id(8), "eu")
    ]
    found = state.waiting("mail", "default", 5, TAG, due_until_ms=NOW_MS, limit=10)
    assert found == [
        WaitingEntry("mail", "default", 5, TAG, TimeMs(NOW_MS - 5), job_id(2)),
        WaitingEntry("mail", "default", 5, TAG, NOW_MS, job_id(3)),
        WaitingEntry("mail", "default", 5, TAG, NOW_MS, job_id(4)),
    ]
    assert state.waiting("mail", "default", 5, TAG, due_until_ms=NOW_MS, limit=2) == found[:2]
    assert state.waiting("mail", "default", 5, TAG, due_until_ms=NOW_MS, limit=10, after=found[1]) == found[2:]
    assert state.waiting("mail", "default", 4, TAG, due_until_ms=NOW_MS, limit=10) == []


def test_waiting_queues_names_each_queue_that_has_a_waiting_job_once(state: State) -> None:
    names = ["a", "a\0", "a\0b", "ab", "é", "z"]
    for number, name in enumerate(names):
        submit(state, *(make_job(10 * number + n, queue=name, priority=n, due_at_ms=n) for n in range(10)))
    submit(state, running(make_job(900, queue="busy")), finished(make_job(901, queue="done")))
    assert state.waiting_queues() == sorted(names)


def test_timers_list_jobs_to_come_by_due_within_a_range(state: State) -> None:
    submit(state, scheduled(1, 300, priority=9), scheduled(2, 100), scheduled(3, 200, queue="export"), make_job(4))
    submit(state, make_job(5, status=Status.RETRYING, timed=True, due_at_ms=200))
    entries = [
        TimerEntry(TimeMs(100), job_id(2), "mail", "default", 5, TAG),
        TimerEntry(TimeMs(200), job_id(3), "export", "default", 5, TAG),
        TimerEntry(TimeMs(200), job_id(5), "mail", "default", 5, TAG),
        TimerEntry(TimeMs(300), job_id(1), "mail", "default", 9, TAG),
    ]
    assert state.timers(until_ms=300, limit=10) == entries
    assert state.timers(until_ms=299, limit=10) == entries[:3]
    assert state.timers(until_ms=300, limit=10, from_ms=101) == entries[1:]
    assert state.timers(until_ms=300, limit=1, after=entries[1]) == entries[2:3]
    assert state.timers(until_ms=300, limit=9, after=entries[0], from_ms=300) == entries[3:]


def test_leased_jobs_are_those_that_a_worker_holds(state: State) -> None:
    held = [running(make_job(1)), make_job(2, status=Status.CANCELLING)]
    submit(state, *held, make_job(3), finished(make_job(4)))
    assert state.leased_jobs() == held


def test_finished_between_lists_the_oldest_of_all_ends_first(state: State) -> None:
    submit(
        state,
        finished(make_job(1), Status.COMPLETED, 30),
        finished(make_job(2), Status.CANCELLED, 10),
        finished(make_job(3), Status.DEAD_LETTER, 20),
        finished(make_job(4), Status.COMPLETED, 40),
        make_job(5),
    )
    places = [(10, job_id(2)), (20, job_id(3)), (30, job_id(1)), (40, job_id(4))]
    assert state.finished_between(None, 41, limit=10) == places
    assert state.finished_between(None, 40, limit=10) == places[:3]
    assert state.finished_between(None, 40, limit=2) == places[:2]
    assert state.finished_between(None, 10, limit=10) == []
    assert state.finished_between((TimeMs(10), job_id(2)), 41, limit=2) == places[1:3]
    assert state.finished_between((TimeMs(20), job_id(2)), 41, limit=9) == places[1:]
    assert state.finished_between((TimeMs(20), job_id(9)), 41, limit=9) == places[2:]
    assert state.finished_between((TimeMs(40), job_id(4)), 41, limit=9) == []


def test_first_of_lanes_is_the_job_due_first_of_each_region_tenant_and_priority(state: State) -> None:
    submit(
        state,
        scheduled(1, 300, tenant="b", priority=5),
        scheduled(2, 200, tenant="b", priority=5),
        scheduled(3, 400, tenant="b", priority=9),
        scheduled(4, 100, tenant="a", priority=0),
        scheduled(5, 50, tenant="a", priority=0, queue="export"),
        scheduled(6, 500, tenant="a", priority=0, region="eu"),
        scheduled(7, 600, tenant="a", priority=0, region="eu"),
    )
    assert state.first_of_lanes("mail") == [
        WaitingEntry("mail", "a", 0, TAG, TimeMs(100), job_id(4)),
        WaitingEntry("mail", "b", 9, TAG, TimeMs(400), job_id(3)),
        WaitingEntry("mail", "b", 5, TAG, TimeMs(200), job_id(2)),
        WaitingEntry("mail", "a", 0, TAG, TimeMs(500), job_id(6), "eu"),
    ]
    assert state.first_of_lanes("none") == []


# -- positions --------------------------------------------------------------------------------------------------------


def test_advance_takes_over_position_and_later_times_only(state: State) -> None:
    state.advance(index=1, term=1, now_ms=500)
    state.advance(index=2, term=3, now_ms=400)
    assert (state.applied_index, state.applied_term, state.cluster_time_ms) == (2, 3, 500)


@pytest.mark.parametrize(("index", "term"), [(1, 2), (3, 1), (0, 2), (2, 0)])
def test_advance_out_of_turn_is_refused_and_changes_nothing(state: State, index: int, term: int) -> None:
    state.advance(index=1, term=1, now_ms=500)
    with pytest.raises(InvariantBroken, match="does not follow"):
        state.advance(index=index, term=term, now_ms=900)
    assert (state.applied_index, state.applied_term, state.cluster_time_ms) == (1, 1, 500)


def test_checkpoint_makes_the_applied_index_and_its_effects_durable_together(home: Home) -> None:
    state = State(home.open())
    submit(state, make_job(1))
    state.execute([PutFence(FencingToken(41))])
    close_entry(state)
    assert state.durable_index == 0
    assert state.checkpoint() == state.durable_index == 1
    submit(state, make_job(2))
    state.execute([PutFence(FencingToken(42))])
    close_entry(state)
    state = State(home.crash())
    assert (state.applied_index, state.durable_index, state.cluster_time_ms, state.fence) == (1, 1, NOW_MS, 41)
    assert [job.id for job in state.all_jobs()] == [job_id(1)]
    assert state.counters() == {CounterKey("default", "mail", Status.QUEUED): 1}


def test_checkpoint_without_news_writes_nothing(home: Home) -> None:
    state = State(home.open())
    submit(state, make_job(1))
    close_entry(state)
    state.checkpoint()
    with home.failing_disk():
        assert state.checkpoint() == 1


def test_checkpoint_inside_an_entry_is_refused(state: State) -> None:
    submit(state, make_job(1))
    with pytest.raises(InvariantBroken, match="inside the entry"):
        state.checkpoint()
    close_entry(state)
    assert state.checkpoint() == 1


def test_checkpoint_that_failed_is_final(home: Home) -> None:
    state = State(home.open())
    submit(state, make_job(1))
    close_entry(state)
    state.checkpoint()
    state.execute([PutJob(None, make_job(2), bytes(1 << 20))])
    close_entry(state)
    with home.failing_disk(), pytest.raises(StorageFailed):
        state.checkpoint()
    assert state.durable_index == 1
    with pytest.raises(StorageFailed):
        state.checkpoint()
    assert State(home.crash()).applied_index == 1


# -- broken invariants ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "break_it",
    [
        lambda state: state.execute([PutJob(make_job(1, due_at_ms=1), running(make_job(1)))]),
        lambda state: state.execute([PutJob(running(make_job(1)), finished(make_job(1)))]),
        lambda state: state.execute([PutJob(make_job(9), running(make_job(9)))]),
        lambda state: state.execute([RemoveJob(finished(make_job(1)))]),
        lambda state: state.execute([RemoveJob(make_job(9))]),
        lambda state: state.execute([RemoveJob(make_job(1, idempotency_key="never stored"))]),
        lambda state: state.execute([PutJob(finished(make_job(9)), running(make_job(9))), RemoveJob(make_job(9))]),
    ],
    ids=["other due", "not leased", "no such job", "not finished", "remove none", "no such key", "not there"],
)
def test_a_write_that_contradicts_the_state_is_a_broken_invariant(
    state: State, break_it: Callable[[State], None]
) -> None:
    submit(state, make_job(1))
    with pytest.raises(InvariantBroken):
        break_it(state)


def test_an_index_entry_without_its_job_is_a_broken_invariant(state: State, store: Store) -> None:
    store.put(Table.LEASED, job_id(404), b"")
    with pytest.raises(InvariantBroken, match=job_id(404).hex()):
        state.leased_jobs()


def test_a_new_state_over_the_same_store_reads_what_the_old_one_wrote(store: Store) -> None:
    state = State(store)
    submit(state, *(make_job(number) for number in range(10)))
    close_entry(state)
    state.checkpoint()
    again = State(store)
    assert [again.job(JobId(job_id(number))) for number in range(10)] == [make_job(number) for number in range(10)]
