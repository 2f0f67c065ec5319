from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from raftsched import limits
from raftsched.core.ids import JobId
from raftsched.core.job import WAITING
from raftsched.leader.duties import Change
from raftsched.leader.ready import ReadyJobs
from tests.leader.scene import World


def ready_jobs(world: World) -> ReadyJobs:
    """`ReadyJobs` that hears of the world's changes, as `Duties` would tell it; nothing is due later here."""
    ready = ReadyJobs(world.state)

    def hear(changes: Sequence[Change]) -> None:
        for old, new in changes:
            if old is not None and old.status in WAITING:
                ready.leave(old.id)
            if new is not None and new.status in WAITING:
                ready.add(new.queue, new.priority, new.due_at_ms, new.id)

    world.on_changes = hear
    return ready


def take(ready: ReadyJobs, world: World, *queues: str, count: int = 1_000_000) -> list[JobId]:
    return ready.take(queues or ("mail",), count, world.now.cluster_ms)


def know(ready: ReadyJobs, world: World, *queues: str) -> None:
    """Make the queues known, as a worker does that asks and gets nothing."""
    assert take(ready, world, *queues) == []


def test_ready_finds_what_waited_before_this_leader() -> None:
    world = World()
    before = world.submit(count=3)
    ready = ready_jobs(world)
    assert take(ready, world) == before


def test_ready_gives_higher_priorities_first_and_then_the_first_in() -> None:
    world = World()
    ready = ready_jobs(world)
    know(ready, world, "mail")
    low = world.submit(priority=1, count=2)
    high = world.submit(priority=9, count=2)
    middle = world.submit(priority=5)
    assert take(ready, world) == [*high, *middle, *low]


def test_ready_gives_an_earlier_due_job_first_though_it_arrived_later() -> None:
    world = World()
    ready = ready_jobs(world)
    know(ready, world, "mail")
    now = world.submit_one()
    overdue = world.submit_one(delay_ms=-60_000)
    assert take(ready, world) == [overdue, now]


def test_ready_gives_equal_shares_of_queues_asked_for_together() -> None:
    world = World()
    ready = ready_jobs(world)
    mail, pay = world.submit("mail", count=50), world.submit("pay", count=50)
    taken = take(ready, world, "mail", "pay", count=20)
    assert len(taken) == 20
    assert set(taken) == {*mail[:10], *pay[:10]}


def test_ready_lets_the_first_turn_go_round() -> None:
    world = World()
    ready = ready_jobs(world)
    queues = {"a", "b", "c"}
    queue_of = {job_id: queue for queue in sorted(queues) for job_id in world.submit(queue, count=30)}
    firsts = [queue_of[take(ready, world, "a", "b", "c", count=1)[0]] for _ in range(30)]
    assert {queue: firsts.count(queue) for queue in queues} == dict.fromkeys(queues, 10)


def test_ready_fills_up_from_one_queue_where_the_other_has_few() -> None:
    world = World()
    ready = ready_jobs(world)
    mail, pay = world.submit("mail", count=50), world.submit("pay", count=2)
    assert set(take(ready, world, "mail", "pay", count=20)) == {*mail[:18], *pay}


def test_ready_does_not_give_a_job_twice_while_its_lease_is_on_its_way() -> None:
    world = World()
    ready = ready_jobs(world)
    job_ids = world.submit(count=2)
    assert take(ready, world) == job_ids
    ready.doubt()
    assert take(ready, world) == []


def test_ready_gives_a_released_job_again_once_it_is_added() -> None:
    world = World()
    ready = ready_jobs(world)
    job = world.job(world.submit_one())
    assert take(ready, world) == [job.id]
    ready.release([job.id])
    assert take(ready, world) == []
    ready.add(job.queue, job.priority, job.due_at_ms, job.id)
    assert take(ready, world) == [job.id]


def test_ready_takes_a_job_once_though_it_is_added_again() -> None:
    world = World()
    ready = ready_jobs(world)
    know(ready, world, "mail")
    first, second = world.submit(count=2)
    assert take(ready, world, count=1) == [first]
    for job in world.job(first), world.job(second):  # one on its way, one in memory
        ready.add(job.queue, job.priority, job.due_at_ms, job.id)
    assert take(ready, world) == [second]


def test_ready_drops_cancelled_jobs() -> None:
    world = World()
    ready = ready_jobs(world)
    know(ready, world, "mail")
    first, second, third = world.submit(count=3)
    world.cancel(second)
    assert take(ready, world) == [first, third]


def test_ready_knows_nothing_of_queues_nobody_asked_for() -> None:
    world = World()
    ready = ready_jobs(world)
    world.submit("mail", count=100)
    assert (ready.queue_count, ready.buffered_count) == (0, 0)


def test_ready_says_which_known_queues_got_jobs() -> None:
    world = World()
    ready = ready_jobs(world)
    know(ready, world, "mail", "pay")
    world.submit("mail", count=2)
    world.submit("unknown")
    assert ready.touched_queues() == ["mail"]
    assert ready.touched_queues() == []


def test_ready_holds_a_bounded_part_of_a_large_backlog_and_gives_all_of_it_in_order() -> None:
    world = World()
    ready = ready_jobs(world)
    know(ready, world, "mail")
    world.on_changes, hear = None, world.on_changes
    before = [job_id for _ in range(3) for job_id in world.submit(count=1_000)]
    ready.doubt()
    world.on_changes = hear
    taken = take(ready, world, count=100)
    after = [job_id for _ in range(3) for job_id in world.submit(count=1_000)]
    held = 0
    while some := take(ready, world, count=70):
        taken += some
        held = max(held, ready.buffered_count)
    assert taken == before + after
    assert 0 < held <= limits.READY_BUFFER_JOBS_MAX


def test_ready_lets_go_of_the_later_half_when_arrivals_fill_it() -> None:
    world = World()
    ready = ready_jobs(world)
    know(ready, world, "mail")
    job_ids = world.submit(count=limits.READY_BUFFER_JOBS_MAX + 1)
    assert ready.buffered_count == limits.READY_BUFFER_JOBS_MAX // 2
    overdue = world.submit_one(delay_ms=-1_000)
    assert take(ready, world) == [overdue, *job_ids]


def test_ready_forgets_other_queues_without_losing_their_jobs() -> None:
    world = World()
    ready = ready_jobs(world)
    mail, pay = world.submit("mail", count=3), world.submit("pay", count=3)
    assert take(ready, world, "mail", "pay", count=2)
    ready.forget_except({"pay"})
    assert ready.queue_count == 1
    rest = take(ready, world, "mail", "pay")
    assert sorted(rest) == sorted([*mail[1:], *pay[1:]])


@pytest.mark.parametrize("seed", range(15))
def test_ready_agrees_with_the_index_after_any_history(seed: int) -> None:
    _History(seed).check(steps=120)


class _History:
    """Random events, and after each take a comparison with the index itself."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(seed=seed)
        self.ready = ready_jobs(self.world)
        self.taken: set[JobId] = set()

    def check(self, steps: int) -> None:
        events = [self.submit, self.submit, self.take, self.take, self.cancel, self.lease, self.lose, self.forget]
        for _ in range(steps):
            self.rng.choice(events)()
            self.world.clock.advance(self.rng.randrange(20))
            assert self.ready.buffered_count <= 10 * limits.READY_BUFFER_JOBS_MAX

    def waiting(self) -> list[JobId]:
        return [entry.job_id for entry in self.world.state.all_waiting()]

    def submit(self) -> None:
        overdue_ms = self.rng.choice([0, 0, -5, -500])
        count = self.rng.choice([1, 3, 400])
        self.world.submit(priority=self.rng.randrange(10), delay_ms=overdue_ms, count=count)

    def take(self) -> None:
        count = self.rng.choice([1, 7, 300])
        expected = [job_id for job_id in self.waiting() if job_id not in self.taken][:count]
        assert take(self.ready, self.world, count=count) == expected
        self.taken.update(expected)

    def cancel(self) -> None:
        waiting = self.waiting()
        for job_id in self.rng.sample(waiting, min(len(waiting), 5)):
            self.world.cancel(job_id)
            self.taken.discard(job_id)

    def lease(self) -> None:
        for job_id in sorted(self.taken)[:100]:
            self.world.lease(job_id)
            self.taken.discard(job_id)

    def lose(self) -> None:
        lost = sorted(self.taken)[:50]
        self.ready.release(lost)
        for job in map(self.world.job, lost):
            self.ready.add(job.queue, job.priority, job.due_at_ms, job.id)
        self.taken.difference_update(lost)

    def forget(self) -> None:
        if self.rng.random() < 0.5:
            self.ready.doubt()
        else:
            self.ready.forget_except(())
