"""Keys sort as the tuples they stand for, and are read back as them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched import limits
from raftsched.core.ids import JobId, TimeMs
from raftsched.core.job import Status
from raftsched.core.view import CounterKey, TimerEntry, WaitingEntry
from raftsched.errors import InvariantBroken
from raftsched.storage import keys
from tests.storage.jobs import job_id

_edges = st.sampled_from(["", "\0", "\0\0", "a", "a\0", "a\0b", "ab", "\x01", "\x7f", "é", "\uffff", "\U0010ffff"])
_texts = _edges | st.text(st.sampled_from("\0\x01ab\xff\ud7ff\U0001f600"), max_size=4) | st.text(max_size=8)
_priorities = st.integers(0, 9)
_times = (st.sampled_from([0, 1, 255, 256, 1_700_000_000_000]) | st.integers(0, 2**48)).map(TimeMs)
_ids = st.binary(min_size=16, max_size=16).map(JobId)
_statuses = st.sampled_from(Status)
_waiting = st.builds(WaitingEntry, _texts, _priorities, _times, _ids)


def waiting_order(entry: WaitingEntry) -> tuple[str, int, int, bytes]:
    return (entry.queue, -entry.priority, entry.due_at_ms, entry.job_id)


def sorts_alike(tuples: list[Any], encoded: list[bytes]) -> bool:
    by_tuple = sorted(range(len(tuples)), key=lambda n: tuples[n])
    by_key = sorted(range(len(tuples)), key=lambda n: encoded[n])
    return [tuples[n] for n in by_tuple] == [tuples[n] for n in by_key]


@given(st.lists(_waiting, min_size=2, max_size=8))
def test_waiting_keys_sort_by_queue_falling_priority_due_and_id(entries: list[WaitingEntry]) -> None:
    encoded = [keys.waiting_key(*entry) for entry in entries]
    assert sorts_alike([waiting_order(entry) for entry in entries], encoded)


@given(_waiting)
def test_waiting_key_is_read_back(entry: WaitingEntry) -> None:
    key = keys.waiting_key(*entry)
    assert keys.read_waiting_key(key) == entry
    assert keys.waiting_due(key) == entry.due_at_ms
    assert keys.waiting_group_of(key) == keys.waiting_group(entry.queue, entry.priority)


@given(_waiting, _waiting)
def test_ends_of_groups_and_queues_lie_between_them_and_all_behind(entry: WaitingEntry, other: WaitingEntry) -> None:
    key, other_key = keys.waiting_key(*entry), keys.waiting_key(*other)
    group_end = keys.after_waiting_group(keys.waiting_group(entry.queue, entry.priority))
    queue_end = keys.after_waiting_queue(entry.queue)
    assert key < group_end <= queue_end
    is_behind_group = (other.queue, -other.priority) > (entry.queue, -entry.priority)
    assert (other_key >= group_end) == is_behind_group
    assert (other_key >= queue_end) == (other.queue > entry.queue)


@given(st.lists(st.tuples(_times, _ids), min_size=2, max_size=8))
def test_timer_keys_sort_by_due_and_id(entries: list[tuple[int, JobId]]) -> None:
    assert sorts_alike(entries, [keys.timer_key(*entry) for entry in entries])


@given(_times, _ids, _statuses, _priorities, _texts)
def test_timer_is_read_back(due: TimeMs, identity: JobId, status: Status, priority: int, queue: str) -> None:
    value = keys.timer_value(status, priority, queue)
    assert keys.read_timer(keys.timer_key(due, identity), value) == TimerEntry(due, identity, queue, priority)
    assert value[0] == status


@given(st.lists(st.tuples(_statuses, _times, _ids), min_size=2, max_size=8))
def test_finished_keys_sort_by_status_time_and_id(entries: list[tuple[Status, int, JobId]]) -> None:
    encoded = [keys.finished_key(*entry) for entry in entries]
    assert sorts_alike(entries, encoded)
    assert [keys.read_finished_key(key) for key in encoded] == [(ms, identity) for _, ms, identity in entries]


@given(st.lists(st.tuples(_texts, _texts), min_size=2, max_size=8))
def test_dedup_keys_sort_by_tenant_and_key_and_are_read_back(entries: list[tuple[str, str]]) -> None:
    encoded = [keys.dedup_key(*entry) for entry in entries]
    assert sorts_alike(entries, encoded)
    assert [keys.read_dedup_key(key) for key in encoded] == entries


@given(st.lists(st.builds(CounterKey, _texts, _texts, _statuses), min_size=2, max_size=8))
def test_counter_keys_sort_as_their_parts_and_are_read_back(entries: list[CounterKey]) -> None:
    encoded = [keys.counter_key(*entry) for entry in entries]
    assert sorts_alike(entries, encoded)
    assert [keys.read_counter_key(key) for key in encoded] == entries


@given(st.lists(_texts, min_size=2, max_size=8))
def test_worker_keys_sort_by_name_and_are_never_empty(names: list[str]) -> None:
    encoded = [keys.worker_key(name) for name in names]
    assert sorts_alike(names, encoded)
    assert all(encoded)


def test_names_of_240_bytes_of_utf8_fit_in_every_key() -> None:
    longest = "\U0001f600" * 60
    built = [
        keys.waiting_key(longest, 0, 2**48, job_id(1)),
        keys.dedup_key(longest, longest),
        keys.counter_key(longest, longest, Status.SKIPPED),
        keys.worker_key(longest),
    ]
    assert max(len(key) for key in built) <= limits.KEY_BYTES_MAX


@pytest.mark.parametrize(
    "build",
    [
        lambda: keys.waiting_key("\U0001f600" * 128, 5, 0, job_id(1)),
        lambda: keys.dedup_key("t" * 128, "\U0001f600" * 200),
        lambda: keys.counter_key("\U0001f600" * 128, "q", Status.QUEUED),
        lambda: keys.worker_key("\U0001f600" * 128),
    ],
    ids=["waiting", "dedup", "counter", "worker"],
)
def test_a_key_over_the_limit_of_the_store_is_refused_by_name(build: Any) -> None:
    with pytest.raises(InvariantBroken, match="bytes"):
        build()


@pytest.mark.parametrize("priority", [-1, 10])
def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    with pytest.raises(InvariantBroken, match="priority"):
        keys.waiting_key("mail", priority, 0, job_id(1))


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(InvariantBroken, match="1970"):
        keys.timer_key(-1, job_id(1))
