"""Counts move with the jobs, are kept at the checkpoint, and never fall below zero."""

from __future__ import annotations

import pytest

from raftsched.core.records.job import Status
from raftsched.core.state.entries import CounterKey
from raftsched.errors import InvariantBroken
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import Table
from raftsched.storage.tables.counters import Counters
from tests.storage.jobs import make_job, running

_QUEUED = CounterKey("default", "mail", Status.QUEUED)
_RUNNING = CounterKey("default", "mail", Status.RUNNING)


def test_counters_follow_a_job_from_status_to_status() -> None:
    counters = Counters(MemoryStore())
    counters.move(None, make_job(1))
    counters.move(None, make_job(2))
    assert counters.all() == {_QUEUED: 2}
    counters.move(make_job(1), running(make_job(1)))
    assert counters.all() == {_QUEUED: 1, _RUNNING: 1}
    counters.move(running(make_job(1)), None)
    assert counters.all() == {_QUEUED: 1}


def test_counters_are_read_back_as_they_were_saved() -> None:
    store = MemoryStore()
    counters = Counters(store)
    counters.move(None, make_job(1))
    counters.move(None, make_job(2, tenant="other", queue="export"))
    counters.save(store)
    assert Counters(store).all() == counters.all() == {_QUEUED: 1, CounterKey("other", "export", Status.QUEUED): 1}


def test_counters_write_only_what_changed_and_drop_zeros() -> None:
    store = MemoryStore()
    counters = Counters(store)
    counters.move(None, make_job(1))
    counters.save(store)
    store.commit()
    counters.move(make_job(1), running(make_job(1)))
    counters.move(running(make_job(1)), make_job(1))
    counters.save(store)
    assert len(store.scan(Table.COUNTERS, b"", None, limit=9)) == 1, "a count that came back to zero has no row"
    counters.move(make_job(1), None)
    counters.save(store)
    assert store.scan(Table.COUNTERS, b"", None, limit=9) == []
    assert counters.all() == counters._counts == {}, "queues that are gone take no memory"


def test_a_counter_never_falls_below_zero() -> None:
    counters = Counters(MemoryStore())
    with pytest.raises(InvariantBroken, match="below zero"):
        counters.move(make_job(1), running(make_job(1)))
    assert counters.all() == {}


def test_counters_know_which_tenants_have_waiting_jobs_in_a_queue() -> None:
    store = MemoryStore()
    counters = Counters(store)
    waiting = [make_job(1, tenant="b"), make_job(2, tenant="a", status=Status.RETRYING), make_job(3, tenant="c")]
    for job in waiting:
        counters.move(None, job)
    counters.move(None, running(make_job(4, tenant="d")))
    counters.move(waiting[0], running(waiting[0]))
    assert counters.waiting_tenants("mail") == ["a", "c"]
    counters.save(store)
    assert Counters(store).waiting_tenants("mail") == ["a", "c"]
    counters.move(running(waiting[0]), waiting[0])
    assert counters.waiting_tenants("mail") == ["a", "b", "c"]
    assert counters.waiting_tenants("export") == []
    for job in (*waiting, running(make_job(4, tenant="d"))):
        counters.move(job, None)
    counters.save(store)
    assert counters.waiting_tenants("mail") == []
    assert counters._tenants == {}, "queues that are gone take no memory"


def test_counters_are_written_in_the_same_order_by_every_process() -> None:
    """Else the pages of the file, and of a snapshot, would depend on the hash seed (seed 430049 of chaos.sim)."""

    class Watched(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.puts: list[bytes] = []

        def put(self, table: Table, key: bytes, value: bytes) -> None:
            self.puts.append(key)
            super().put(table, key, value)

    store = Watched()
    counters = Counters(store)
    for number in range(50):
        counters.move(None, make_job(number, tenant=f"t{number * 7 % 50}"))
    counters.save(store)
    assert len(store.puts) == 50
    assert store.puts == sorted(store.puts)


def test_queues_are_listed_by_name_as_they_come_and_go() -> None:
    store = MemoryStore()
    counters = Counters(store)
    for number, (tenant, queue) in enumerate((("a", "z"), ("a", "m"), ("b", "k"), ("b", "m"))):
        counters.move(None, make_job(number, tenant=tenant, queue=queue))
    counters.save(store)
    for each in (counters, Counters(store)):
        assert list(each.queues()) == ["k", "m", "z"]
        assert list(each.queues("a")) == ["m", "z"]
        assert list(each.queues("b", after="k")) == ["m"]
    assert counters.of_queue("m") == {Status.QUEUED: 2}
    assert counters.of_queue("m", "a") == {Status.QUEUED: 1}
    assert counters.of_queue("k", "a") == counters.of_queue("nobody's") == {}
    counters.move(make_job(2, tenant="b", queue="k"), None)
    assert list(counters.queues()) == ["m", "z"], "a count of zero is no job"
    counters.save(store)
    assert list(counters._queues) == ["m", "z"], "queues that are gone take no memory"
    counters.move(None, make_job(2, tenant="b", queue="k"))
    assert list(counters.queues()) == ["k", "m", "z"]
