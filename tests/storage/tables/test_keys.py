"""Keys sort as the tuples they stand for, and are read back as them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched import limits
from raftsched.core.operations.control import BackgroundKind, DeadlineKind
from raftsched.core.records.ids import JobId, NameTag, TimeMs, name_tag
from raftsched.core.records.job import Status
from raftsched.core.records.schedule import FiringKind, ScheduleId
from raftsched.core.state.entries import BlockedEntry, CounterKey, DeadlineEntry, TimerEntry, WaitingEntry
from raftsched.errors import InvariantBroken
from raftsched.storage.tables import keys
from tests.storage.jobs import job_id

_edges = st.sampled_from(["", "\0", "\0\0", "a", "a\0", "a\0b", "ab", "\x01", "\x7f", "é", "\uffff", "\U0010ffff"])
_texts = _edges | st.text(st.sampled_from("\0\x01ab\xff\ud7ff\U0001f600"), max_size=4) | st.text(max_size=8)
_priorities = st.integers(0, 9)
_times = (st.sampled_from([0, 1, 255, 256, 1_700_000_000_000]) | st.integers(0, 2**48)).map(TimeMs)
TAG = name_tag("any")
_ids = st.binary(min_size=16, max_size=16).map(JobId)
_statuses = st.sampled_from(Status)
_tags = (st.binary(min_size=8, max_size=8) | st.sampled_from([b"\xff" * 8, b"\0" * 8])).map(NameTag)
_waiting = st.builds(WaitingEntry, _texts, _texts, _priorities, _tags, _times, _ids, _texts)
_held = st.builds(BlockedEntry, _texts, _texts, _priorities, _times, _ids, _texts)
_bytes = st.binary(max_size=32) | st.sampled_from([b"", b"\0", b"\xff", b"\0\xff", b"\xff\xff"])
_counts = st.integers(0, 2**32 - 1)


def waiting_order(entry: WaitingEntry) -> tuple[str, str, str, int, bytes, int, bytes]:
    return (entry.queue, entry.region, entry.tenant, -entry.priority, entry.tag, entry.due_at_ms, entry.job_id)


def blocked_order(entry: BlockedEntry) -> tuple[str, str, str, int, int, bytes]:
    return (entry.queue, entry.concurrency_key, entry.region, -entry.priority, entry.due_at_ms, entry.job_id)


def group(entry: WaitingEntry) -> bytes:
    return keys.waiting_group(entry.queue, entry.tenant, entry.priority, entry.tag, entry.region)


def waiting_key(entry: WaitingEntry) -> bytes:
    return keys.waiting_key(group(entry), entry.due_at_ms, entry.job_id)


def blocked_key(entry: BlockedEntry) -> bytes:
    region = keys.blocked_region(entry.queue, entry.concurrency_key, entry.region)
    return keys.blocked_key(region, entry.priority, entry.due_at_ms, entry.job_id)


def sorts_alike(tuples: list[Any], encoded: list[bytes]) -> bool:
    by_tuple = sorted(range(len(tuples)), key=lambda n: tuples[n])
    by_key = sorted(range(len(tuples)), key=lambda n: encoded[n])
    return [tuples[n] for n in by_tuple] == [tuples[n] for n in by_key]


@given(st.lists(_waiting, min_size=2, max_size=8))
def test_waiting_keys_sort_by_queue_region_tenant_falling_priority_tag_due_and_id(entries: list[WaitingEntry]) -> None:
    encoded = [waiting_key(entry) for entry in entries]
    assert sorts_alike([waiting_order(entry) for entry in entries], encoded)


@given(_waiting)
def test_waiting_key_is_read_back(entry: WaitingEntry) -> None:
    key = waiting_key(entry)
    assert keys.read_waiting_key(key) == entry
    assert keys.waiting_due(key) == entry.due_at_ms
    assert keys.waiting_group_of(key) == group(entry)


@given(_waiting, _waiting)
def test_ends_of_groups_and_queues_lie_between_them_and_all_behind(entry: WaitingEntry, other: WaitingEntry) -> None:
    key, other_key = waiting_key(entry), waiting_key(other)
    group_end = keys.after_waiting_group(group(entry))
    queue_end = keys.after_waiting_queue(entry.queue)
    assert key < group_end <= queue_end
    assert (other_key >= group_end) == (waiting_order(other)[:5] > waiting_order(entry)[:5])
    assert (other_key >= queue_end) == (other.queue > entry.queue)


@given(_waiting, _waiting)
def test_what_waits_of_a_region_is_in_one_piece(entry: WaitingEntry, other: WaitingEntry) -> None:
    other_key, region = waiting_key(other), keys.waiting_region(entry.queue, entry.region)
    is_of_it = (other.queue, other.region) == (entry.queue, entry.region)
    assert (region <= other_key < keys.after_texts(region)) == is_of_it


@given(st.lists(_held, min_size=2, max_size=8))
def test_held_keys_sort_by_queue_key_region_falling_priority_due_and_id_and_are_read_back(
    entries: list[BlockedEntry],
) -> None:
    encoded = [blocked_key(entry) for entry in entries]
    assert sorts_alike([blocked_order(entry) for entry in entries], encoded)
    assert [keys.read_blocked_key(key) for key in encoded] == entries


@given(_held, _held)
def test_what_is_held_of_a_queue_a_key_or_a_region_of_it_is_in_one_piece(
    entry: BlockedEntry, other: BlockedEntry
) -> None:
    other_key = blocked_key(other)
    queue, group = keys.blocked_queue(entry.queue), keys.blocked_group(entry.queue, entry.concurrency_key)
    assert (queue <= other_key < keys.after_texts(queue)) == (other.queue == entry.queue)
    assert (group <= other_key < keys.after_texts(group)) == (other[:2] == entry[:2])
    region = keys.blocked_region(entry.queue, entry.concurrency_key, entry.region)
    is_of_it = blocked_order(other)[:3] == blocked_order(entry)[:3]
    assert (region <= other_key < keys.after_texts(region)) == is_of_it


_timers = st.builds(TimerEntry, _times, _ids, _texts, _texts, _priorities, _tags, _texts)


@given(_timers, _timers, _statuses)
def test_timer_of_a_status_is_read_back_and_sorts_by_due_and_id(
    entry: TimerEntry, other: TimerEntry, status: Status
) -> None:
    assert sorts_alike([entry[:2], other[:2]], [keys.timer_key(status, *each[:2]) for each in (entry, other)])
    value = keys.timer_value(entry.priority, entry.tag, entry.tenant, entry.queue, region=entry.region)
    assert keys.read_timer(keys.timer_key(status, entry.due_at_ms, entry.job_id), value) == entry
    assert keys.timers_until(status, entry.due_at_ms) < keys.timer_key(status, entry.due_at_ms, entry.job_id)


@given(
    st.lists(st.builds(DeadlineEntry, st.sampled_from(DeadlineKind), _times, _ids | _texts.map(str.encode)), min_size=2)
)
def test_deadline_keys_sort_by_kind_time_and_subject_and_are_read_back(entries: list[DeadlineEntry]) -> None:
    encoded = [keys.deadline_key(*entry) for entry in entries]
    assert sorts_alike(entries, encoded)
    assert [keys.read_deadline_key(key) for key in encoded] == entries
    for entry in entries:
        end = keys.deadlines_until(entry.kind, entry.at_ms)
        assert [key < end for key in encoded] == [other[:2] < entry[:2] for other in entries]


@given(st.lists(st.tuples(_ids, _ids), min_size=2, max_size=8))
def test_pairs_of_ids_sort_as_such_are_read_back_and_lie_below_the_next_id(entries: list[tuple[JobId, JobId]]) -> None:
    encoded = [keys.pair_key(*entry) for entry in entries]
    assert sorts_alike(entries, encoded)
    assert [keys.read_pair_key(key) for key in encoded] == entries
    for first, _ in entries:
        end = keys.after_id(first)
        inside = [first <= key and (end is None or key < end) for key in encoded]
        assert inside == [other == first for other, _ in entries]


def test_nothing_lies_behind_the_last_id() -> None:
    assert keys.after_id(b"\xff" * 16) is None
    assert keys.after_id(b"\0" * 15 + b"\xff") == b"\0" * 14 + b"\1\0"


@given(st.lists(st.tuples(_ids.map(ScheduleId), _times, st.sampled_from(FiringKind)), min_size=2, max_size=8))
def test_firing_keys_sort_by_schedule_fire_time_and_kind(entries: list[tuple[ScheduleId, TimeMs, FiringKind]]) -> None:
    encoded = [keys.firing_key(*entry) for entry in entries]
    assert sorts_alike(entries, encoded)
    assert [keys.schedule_of_firing(key) for key in encoded] == [schedule_id for schedule_id, _, _ in entries]
    for schedule_id, fire_time_ms, _ in entries:
        end = keys.firings_until(schedule_id, fire_time_ms)
        assert [key < end for key in encoded] == [other[:2] < (schedule_id, fire_time_ms) for other in entries]


@given(st.lists(st.tuples(_ids, _counts, _counts, st.integers(0, 2**48)), min_size=2, max_size=8))
def test_pieces_of_logs_sort_by_job_run_attempt_and_offset(entries: list[tuple[JobId, int, int, int]]) -> None:
    logs = [keys.log_key(*entry[:3]) for entry in entries]
    pieces = [keys.log_piece_key(log, entry[3]) for log, entry in zip(logs, entries, strict=True)]
    assert sorts_alike(entries, pieces)
    assert [keys.read_log_key(log) for log in logs] == [entry[:3] for entry in entries]
    assert [keys.log_offset(piece) for piece in pieces] == [entry[3] for entry in entries]
    for log, entry in zip(logs, entries, strict=True):
        inside = [log <= piece < log + keys.LOG_END for piece in pieces]
        assert inside == [other[:3] == entry[:3] for other in entries]


@given(st.lists(st.tuples(st.integers(0, 2**63), _counts), min_size=2, max_size=8))
def test_audit_keys_sort_by_log_index_and_number(entries: list[tuple[int, int]]) -> None:
    encoded = [keys.audit_key(*entry) for entry in entries]
    assert sorts_alike(entries, encoded)
    for index, _ in entries:
        assert [key < keys.audit_key(index) for key in encoded] == [other < index for other, _ in entries]


SHAPES: dict[str, tuple[st.SearchStrategy[Any], Callable[..., bytes], Callable[[bytes], Any]]] = {
    "finished": (st.tuples(_statuses, _times, _ids), keys.finished_key, keys.read_finished_key),
    "dedup": (st.tuples(_texts, _texts), keys.dedup_key, keys.read_dedup_key),
    "unique": (st.tuples(_texts, _bytes), keys.unique_key, keys.read_unique_key),
    "parked": (st.tuples(_statuses, _ids), keys.parked_key, keys.read_parked_key),
    "background step": (
        st.tuples(st.sampled_from(BackgroundKind), _ids | _texts.map(str.encode)),
        keys.background_key,
        keys.read_background_key,
    ),
    "counter": (st.builds(CounterKey, _texts, _texts, _statuses), keys.counter_key, keys.read_counter_key),
}
"""By kind: the parts of a key, what makes the key of them, and what reads them back."""


@pytest.mark.parametrize("kind", SHAPES)
@given(data=st.data())
def test_keys_sort_as_their_parts_and_are_read_back(kind: str, data: st.DataObject) -> None:
    parts, key_of, read = SHAPES[kind]
    entries = data.draw(st.lists(parts, min_size=2, max_size=8))
    encoded = [key_of(*entry) for entry in entries]
    assert sorts_alike(entries, encoded)
    known = [entry[1:] for entry in entries] if kind == "finished" else entries  # the status is known to the reader
    assert [read(key) for key in encoded] == known


@given(st.lists(_texts, min_size=2, max_size=8))
def test_name_keys_sort_by_name_and_are_never_empty(names: list[str]) -> None:
    encoded = [keys.name_key(name) for name in names]
    assert sorts_alike(names, encoded)
    assert all(encoded)


def test_names_of_156_bytes_of_utf8_fit_in_every_key() -> None:
    longest = "\U0001f600" * 39
    built = [
        waiting_key(WaitingEntry(longest, longest, 0, TAG, TimeMs(2**48), job_id(1), longest)),
        blocked_key(BlockedEntry(longest, longest, 0, TimeMs(2**48), job_id(1), longest)),
        keys.unique_key(longest, b"u" * 64),
        keys.deadline_key(DeadlineKind.QUEUE, 2**48, longest.encode()),
        keys.background_key(BackgroundKind.RELEASE_BLOCKED, longest.encode()),
        keys.dedup_key(longest, longest),
        keys.counter_key(longest, longest, Status.SKIPPED),
        keys.name_key(longest),
    ]
    assert max(len(key) for key in built) <= limits.KEY_BYTES_MAX


@pytest.mark.parametrize(
    "build",
    [
        lambda: keys.waiting_group("\U0001f600" * 128, "t", 5, TAG, ""),
        lambda: keys.blocked_key(keys.blocked_group("q", "\U0001f600" * 128), 5, 0, job_id(1)),
        lambda: keys.unique_key("t" * 128, b"u" * 400),
        lambda: keys.background_key(BackgroundKind.RELEASE_BLOCKED, b"q" * 511),
        lambda: keys.dedup_key("t" * 128, "\U0001f600" * 200),
        lambda: keys.counter_key("\U0001f600" * 128, "q", Status.QUEUED),
        lambda: keys.name_key("\U0001f600" * 128),
    ],
    ids=["waiting", "held", "unique", "chore", "dedup", "counter", "name"],
)
def test_a_key_over_the_limit_of_the_store_is_refused_by_name(build: Any) -> None:
    with pytest.raises(InvariantBroken, match="bytes"):
        build()


@pytest.mark.parametrize("priority", [-1, 10])
def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    with pytest.raises(InvariantBroken, match="priority"):
        keys.waiting_group("mail", "t", priority, TAG, "")


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(InvariantBroken, match="1970"):
        keys.timer_key(Status.SCHEDULED, -1, job_id(1))
