"""The state's directory: opened, checked, copied, and replaced by a copy, whatever happens on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.core.records.ids import FencingToken, name_tag
from raftsched.core.state.writes import PutFence, PutJob
from raftsched.errors import InvariantBroken
from raftsched.storage.directory import inspect_copy, open_readonly, open_state, replace_state_file
from raftsched.storage.state import State
from raftsched.storage.store.lmdb_store import open_store
from raftsched.storage.store.port import DamagedCopy, Table
from raftsched.storage.tables.position import UnknownFormat
from raftsched.storage.verification import faults
from tests.storage.jobs import NOW_MS, job_id, make_job

_PAGE_BYTES = 4096

TAG = name_tag("send_email")


def write_jobs(state: State, numbers: range) -> None:
    """One log entry a job, with a token each."""
    for number in numbers:
        state.execute([PutJob(None, make_job(number), b"%d" % number), PutFence(FencingToken(number))])
        state.advance(index=state.applied_index + 1, term=3, now_ms=NOW_MS + number)


def test_open_state_begins_empty_at_position_zero(tmp_path: Path) -> None:
    state = open_state(tmp_path / "data" / "state")
    assert (state.applied_index, state.applied_term, state.durable_index, state.fence) == (0, 0, 0, 0)
    assert list(state.all_jobs()) == []
    state.close()


def test_reopened_state_is_that_of_the_last_checkpoint(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    write_jobs(state, range(1, 6))
    assert state.checkpoint() == 5
    write_jobs(state, range(6, 9))
    state.close()
    state = open_state(tmp_path / "state")
    assert (state.applied_index, state.applied_term, state.durable_index) == (5, 3, 5)
    assert (state.cluster_time_ms, state.fence) == (NOW_MS + 5, 5)
    assert [job.id for job in state.all_jobs()] == [job_id(number) for number in range(1, 6)]
    assert sum(state.counters().values()) == 5
    write_jobs(state, range(6, 9))
    assert state.checkpoint() == 8
    state.close()


def test_state_closed_before_its_first_checkpoint_is_new_again(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    write_jobs(state, range(1, 6))
    state.close()
    state = open_state(tmp_path / "state")
    assert state.applied_index == 0
    assert list(state.all_jobs()) == []
    state.close()


def test_copy_installed_in_another_directory_is_the_state_as_of_its_checkpoint(tmp_path: Path) -> None:
    leader = open_state(tmp_path / "leader")
    write_jobs(leader, range(1, 101))
    leader.checkpoint()
    write_jobs(leader, range(101, 121))
    leader.copy_to(tmp_path / "copy")
    follower = open_state(tmp_path / "follower")
    write_jobs(follower, range(1, 3))
    follower.checkpoint()
    assert inspect_copy(tmp_path / "copy") == (100, 3)

    follower.close()
    replace_state_file(tmp_path / "follower", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    follower = open_state(tmp_path / "follower")
    assert (follower.applied_index, follower.applied_term, follower.fence) == (100, 3, 100)
    write_jobs(follower, range(101, 121))
    assert list(follower.all_jobs()) == list(leader.all_jobs())
    assert list(follower.all_waiting()) == list(leader.all_waiting())
    assert list(follower.all_payload_ids()) == list(leader.all_payload_ids())
    assert follower.counters() == leader.counters()
    assert follower.checkpoint() == 120
    follower.close()
    leader.close()
    assert faults(tmp_path / "follower") == []


def test_replacing_removes_the_lock_file_of_the_old_state(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    write_jobs(state, range(1, 2))
    state.checkpoint()
    state.copy_to(tmp_path / "copy")
    state.close()
    (tmp_path / "state" / "lock.mdb").write_bytes(b"of a process that died")
    replace_state_file(tmp_path / "state", tmp_path / "copy")
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["data.mdb"]


def test_replacing_by_a_missing_copy_keeps_the_state(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    write_jobs(state, range(1, 2))
    state.checkpoint()
    state.close()
    with pytest.raises(FileNotFoundError):
        replace_state_file(tmp_path / "state", tmp_path / "missing")
    assert inspect_copy(tmp_path / "state") == (1, 3)


def test_inspecting_refuses_what_is_no_copy_of_an_applied_state(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no state")
    with pytest.raises(DamagedCopy):
        inspect_copy(tmp_path / "text")
    with pytest.raises(DamagedCopy):
        inspect_copy(tmp_path / "missing")
    store = open_store(tmp_path / "new")
    store.commit()
    store.copy_to(tmp_path / "copy")
    store.close()
    with pytest.raises(DamagedCopy, match="before anything was applied"):
        inspect_copy(tmp_path / "copy")


def test_inspecting_a_copy_with_any_page_destroyed_ends_in_a_verdict(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    write_jobs(state, range(1, 200))
    state.checkpoint()
    state.copy_to(tmp_path / "copy")
    state.close()
    whole = (tmp_path / "copy").read_bytes()
    refused_count = 0
    for page in range(2, len(whole) // _PAGE_BYTES):
        start, end = page * _PAGE_BYTES, (page + 1) * _PAGE_BYTES
        (tmp_path / "copy").write_bytes(whole[:start] + bytes(_PAGE_BYTES) + whole[end:])
        try:
            assert inspect_copy(tmp_path / "copy") == (199, 3)
        except DamagedCopy:
            refused_count += 1
    assert refused_count >= 2, "the root of the tables and the page of the position"


def test_verifying_finds_a_page_that_was_changed(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    write_jobs(state, range(1, 200))
    state.checkpoint()
    state.copy_to(tmp_path / "copy")
    state.close()
    assert faults(tmp_path / "copy") == []
    data = bytearray((tmp_path / "copy").read_bytes())
    data[5 * _PAGE_BYTES : 5 * _PAGE_BYTES + 64] = bytes(64)
    (tmp_path / "copy").write_bytes(data)
    assert faults(tmp_path / "copy") != []
    assert faults(tmp_path / "missing") != []


@pytest.mark.parametrize("open_it", [open_state, open_readonly])
def test_a_directory_of_another_format_is_refused_and_can_be_opened_by_its_own_version(
    tmp_path: Path, open_it: object
) -> None:
    assert callable(open_it)
    state = open_state(tmp_path / "state")
    write_jobs(state, range(1, 6))
    state.checkpoint()
    state.close()
    store = open_store(tmp_path / "state")
    known = store.get(Table.META, b"format")
    assert known is not None
    store.put(Table.META, b"format", (77).to_bytes(4, "big"))
    store.commit()
    store.close()
    for _ in range(2):
        with pytest.raises(UnknownFormat, match="format 77"):
            open_it(tmp_path / "state")
    store = open_store(tmp_path / "state")
    store.put(Table.META, b"format", known)
    store.commit()
    store.close()
    assert inspect_copy(tmp_path / "state") == (5, 3)


def test_open_readonly_reads_a_stopped_nodes_state_and_changes_nothing(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    write_jobs(state, range(1, 6))
    state.checkpoint()
    state.close()
    before = (tmp_path / "state" / "data.mdb").read_bytes()
    reader = open_readonly(tmp_path / "state")
    assert reader.applied_index == 5
    assert len(list(reader.all_jobs())) == 5
    assert reader.figures().used_bytes > 0
    reader.close()
    assert (tmp_path / "state" / "data.mdb").read_bytes() == before


def test_open_readonly_of_a_directory_without_a_state_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DamagedCopy, match="holds no state"):
        open_readonly(tmp_path)


def test_a_backlog_of_a_hundred_thousand_jobs_stays_on_disk(tmp_path: Path) -> None:
    import tracemalloc

    state = open_state(tmp_path / "state")
    for first in range(0, 100_000, 1_000):
        state.execute([PutJob(None, make_job(number, priority=number % 2)) for number in range(first, first + 1_000)])
        state.advance(index=state.applied_index + 1, term=1, now_ms=NOW_MS)
    state.checkpoint()
    state.close()
    tracemalloc.start()
    state = open_state(tmp_path / "state")
    head = state.waiting("mail", "default", 1, TAG, due_until_ms=NOW_MS, limit=1_000)
    following = state.waiting("mail", "default", 1, TAG, due_until_ms=NOW_MS, limit=1_000, after=head[-1])
    assert state.waiting_queues() == ["mail"]
    assert sum(state.counters().values()) == 100_000
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [entry.job_id for entry in head + following] == [job_id(number) for number in range(1, 4_000, 2)]
    assert peak_bytes < 2 << 20
    state.close()


def test_a_read_only_state_refuses_to_be_written(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    write_jobs(state, range(1, 2))
    state.checkpoint()
    state.close()
    reader = open_readonly(tmp_path / "state")
    with pytest.raises(InvariantBroken, match="reading only"):
        reader._store.put(Table.JOBS, b"a", b"1")
    reader.close()
