from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from raftsched import limits
from raftsched.core.explain import ServingWorker
from raftsched.core.operations.codec import MarkWorkers
from raftsched.core.records.job import SilentLease
from raftsched.leader.duties import PAUSE_MS
from raftsched.leader.leases import worker_marks
from raftsched.leader.leases.worker_marks import WorkerMarks
from raftsched.leader.now import Now
from raftsched.leader.settings import LeaderSettings
from tests.leader.scene import START_MS, TTL_MS, Leader, World


class NoLeases:
    """No lease runs."""

    def __len__(self) -> int:
        return 0

    def silent_leases(self, now: Now) -> Mapping[str, tuple[SilentLease, ...]]:
        return {}


SETTINGS = LeaderSettings(lease_ttl_ms=TTL_MS, worker_forget_ms=60_000)
PERIOD_MS = SETTINGS.worker_mark_ms


@pytest.fixture
def leader(world: World) -> Leader:
    return Leader(world, SETTINGS)


def marks_of(world: World) -> list[MarkWorkers]:
    return [operation for operation in world.log if isinstance(operation, MarkWorkers)]


def test_new_worker_is_written_down_at_once(world: World, leader: Leader) -> None:
    leader.take("mail", "pay", worker="w1", capacity=7)
    leader.run(1)
    (worker,) = world.state.workers()
    assert (worker.name, worker.queues, worker.capacity) == ("w1", ("mail", "pay"), 7)
    assert worker.seen_at_ms == START_MS


def test_busy_workers_are_marked_once_a_third_of_a_term_all_in_one_operation(world: World, leader: Leader) -> None:
    for _ in range(100):
        for name in ("w1", "w2", "w3"):
            leader.take(worker=name)
        leader.run(100)
    marks = marks_of(world)
    assert len(marks) == 10_000 // PERIOD_MS + 1
    assert all(len(operation.marks) == 3 for operation in marks)


def test_worker_that_only_waits_stays_marked(world: World, leader: Leader) -> None:
    leader.wait(worker="patient", wait_ms=55_000)
    leader.run(50_000)
    (worker,) = world.state.workers()
    assert world.now.cluster_ms - worker.seen_at_ms <= PERIOD_MS


def test_worker_that_only_sends_heartbeats_keeps_what_its_mark_says(world: World) -> None:
    first = Leader(world, SETTINGS)
    first.take("mail", worker="w1", capacity=7)
    first.run(1)
    second = Leader(world, SETTINGS)
    second.run(10_000)
    second.heartbeat(worker="w1")
    second.run(PERIOD_MS)
    (worker,) = world.state.workers()
    assert (worker.queues, worker.capacity) == (("mail",), 7)
    assert worker.seen_at_ms == START_MS + 10_001


def test_worker_unseen_for_long_is_forgotten_also_by_a_leader_that_never_met_it(world: World) -> None:
    first = Leader(world, SETTINGS)
    first.take(worker="gone")
    first.run(1)
    second = Leader(world, SETTINGS)
    second.run(SETTINGS.worker_forget_ms - 1_000)
    assert [worker.name for worker in world.state.workers()] == ["gone"]
    second.run(SETTINGS.worker_forget_ms)
    assert world.state.workers() == []


def test_leader_forgets_a_worker_it_met(world: World, leader: Leader) -> None:
    leader.take(worker="gone")
    leader.run(3 * SETTINGS.worker_forget_ms)
    assert world.state.workers() == []
    assert len(leader.duties._marks) == 0


def test_setting_the_wall_clock_forgets_no_living_worker(world: World, leader: Leader) -> None:
    leader.take(worker="w1")
    leader.run(1)
    world.clock.wall_offset_ms += 10 * SETTINGS.worker_forget_ms
    leader.run(SETTINGS.worker_forget_ms // 2)
    assert [worker.name for worker in world.state.workers()] == ["w1"]


def test_nothing_is_written_while_no_worker_is_heard_of(world: World, leader: Leader) -> None:
    leader.run(3_600_000)
    assert world.log == []


def test_failed_marks_are_made_again(world: World, leader: Leader) -> None:
    leader.take(worker="w1")
    world.clock.advance(1)
    (order,) = leader.duties.step(world.now)
    leader.duties.on_result(order, None, world.now)
    leader.run(PAUSE_MS + PERIOD_MS)
    assert [worker.name for worker in world.state.workers()] == ["w1"]


def test_marks_are_split_into_bounded_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_marks, "MARKS_MAX", 10)
    world = World()
    leader = Leader(world, SETTINGS)
    for number in range(25):
        leader.take(worker=f"w{number}")
    leader.run(PERIOD_MS - 1)
    assert [len(operation.marks) for operation in marks_of(world)] == [10, 10, 5]


@pytest.mark.parametrize("count", [9, 10, 11, 25, 50])
def test_waiting_workers_are_marked_once_in_a_period_however_many(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full operations are followed at once by what they left over, and by nothing else."""
    monkeypatch.setattr(worker_marks, "MARKS_MAX", 10)
    world = World()
    leader = Leader(world, SETTINGS)
    for number in range(count):
        leader.wait(worker=f"w{number}", wait_ms=60_000)
    leader.run(10 * PERIOD_MS + PERIOD_MS // 2)
    rounds = 11
    assert sum(len(operation.marks) for operation in marks_of(world)) == count * rounds
    assert len(marks_of(world)) == -(-count // 10) * rounds


def test_marks_of_workers_with_many_queues_are_bounded_in_bytes(world: World, leader: Leader) -> None:
    queues = [f"{number:03}-{'q' * 100}" for number in range(100)]
    for number in range(40):
        leader.take(*queues, worker=f"w{number}")
    leader.run(1)
    marks = marks_of(world)
    assert sum(len(operation.marks) for operation in marks) == 40
    assert max(len(msgspec.msgpack.encode(operation)) for operation in marks) <= 2 * limits.MARK_BYTES_MAX


def test_names_of_workers_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITING_WORKERS_MAX", 5)
    world = World()
    marks = WorkerMarks(world.state, SETTINGS, lambda: (), NoLeases())
    for number in range(50):
        marks.asked(f"w{number}", ("mail",), 1, "", world.now)
    assert len(marks) == 5
    (operation,) = marks.step(world.now)
    assert isinstance(operation, MarkWorkers)
    assert len(operation.marks) == 5


def test_workers_of_a_queue_are_those_that_ask_for_it_and_live(world: World, leader: Leader) -> None:
    """Case W15."""
    leader.take("mail", worker="gone")
    leader.run(2 * TTL_MS)
    leader.take("mail", "pay", worker="both")
    leader.take("pay", worker="payer")
    leader.wait("mail", worker="patient", wait_ms=60_000)
    assert [found.name for found in leader.duties.workers_for("mail", world.now)] == ["both", "patient"]
    leader.run(2 * TTL_MS)
    [patient] = leader.duties.workers_for("mail", world.now)
    assert (patient.name, patient.queues) == ("patient", ("mail",))
    assert world.now.cluster_ms - PERIOD_MS <= patient.heartbeat_at_ms <= world.now.cluster_ms
    assert leader.duties.workers_for("none", world.now) == []


def test_new_leader_knows_the_workers_of_a_queue_by_their_marks(world: World) -> None:
    first = Leader(world, SETTINGS)
    first.take("mail", worker="w1", region="eu")
    first.run(PERIOD_MS)
    second = Leader(world, SETTINGS)
    [mark] = world.state.workers()
    heartbeat_at_ms = mark.seen_at_ms
    assert second.duties.workers_for("mail", world.now) == [ServingWorker("w1", ("mail",), "eu", heartbeat_at_ms)]
    second.run(2 * TTL_MS)
    assert second.duties.workers_for("mail", world.now) == []
