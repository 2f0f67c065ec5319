from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raftsched import limits
from raftsched.core.checks.invariants import check
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import ExpireLeases, LeaseJobs, MarkWorkers, RecordOutcome
from raftsched.core.operations.control import BlockJobs
from raftsched.core.records.job import FINISHED, AttemptEnd, Status
from raftsched.core.state.results import Grant, OutcomeRecorded, Result
from raftsched.errors import InvariantBroken, NotLeader, OutcomeUnknown, Unavailable
from raftsched.leader.dispatch.latest_requests import LatestRequests
from raftsched.leader.leadership import LeaderSettings, Leadership
from tests.leader import virtual
from tests.leader.scene import TTL_MS, HandClock, World, token_of

SETTINGS = LeaderSettings(lease_ttl_ms=TTL_MS)


class LoopClock(HandClock):
    """The clock of the running virtual loop: time passes when everything waits."""

    reads = 0

    def monotonic(self) -> float:
        self.reads += 1
        return super().monotonic()

    @property
    def passed_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    @passed_ms.setter
    def passed_ms(self, _: int) -> None:
        """Only the loop moves it."""


class Cluster:
    """A log that takes `commit_ms` to apply an operation, and a node that leads."""

    def __init__(self, *, seed: int = 1) -> None:
        self.world = World(seed=seed, clock=LoopClock())
        self.commit_ms = 0
        self.failure_count = 0
        self.entry_age_ms = 0
        """How long ago entries were stamped when they are applied."""
        self.error: Exception | None = None
        """What proposals meet instead of being applied."""
        self.leadership = self.new_leadership()

    def new_leadership(self) -> Leadership:
        world = self.world
        leadership = Leadership(
            state=world.state,
            propose=self.propose,
            clock=world.clock,
            randomness=world.random,
            settings=SETTINGS,
            new_job_id=world.new_job_id,
        )
        world.on_changes = leadership.on_changes
        world.on_records = leadership.on_records
        return leadership

    def propose(self, operation: Operation) -> asyncio.Future[Result]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        loop.call_later(self.commit_ms / 1000, self._commit, operation, future)
        return future

    def _commit(self, operation: Operation, future: asyncio.Future[Result]) -> None:
        if self.error is not None:
            self.failure_count += 1
            if not future.done():
                future.set_exception(self.error)
            return
        (result,) = self.world.apply(operation, age_ms=self.entry_age_ms)
        if not future.done():
            future.set_result(result)

    def proposed(self, kind: type[Operation]) -> int:
        return sum(isinstance(operation, kind) for operation in self.world.log)


Main = Callable[[Cluster], Coroutine[Any, Any, None]]


def in_virtual_time(main: Main) -> Callable[[], None]:
    """Make a test of `main`, which gets a cluster whose leadership is started, and stopped at the end."""

    def test() -> None:
        async def whole() -> None:
            cluster = Cluster()
            cluster.leadership.start()
            await main(cluster)
            await cluster.leadership.stop()
            await cluster.leadership.wait()
            assert check(cluster.world.state) == []

        virtual.run(whole)

    return test


def now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


async def turns(count: int = 5) -> None:
    """Let other tasks run, without letting time pass."""
    for _ in range(count):
        await asyncio.sleep(0)


# -- limits -----------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_worker_that_waits_is_served_as_soon_as_its_queue_goes_on(cluster: Cluster) -> None:
    cluster.world.pause()
    cluster.world.submit()
    waiting = asyncio.create_task(cluster.leadership.lease("w1", ["mail"], 5, 30))
    await asyncio.sleep(10)
    assert not waiting.done()
    cluster.world.resume()
    assert len(await waiting) == 1
    assert now_ms() <= 10_010


@in_virtual_time
async def test_worker_that_waits_gets_each_job_when_the_rate_allows_it(cluster: Cluster) -> None:
    cluster.commit_ms = 3
    cluster.world.configure(rate_count=1, rate_period_ms=2_000)
    cluster.world.submit(count=4)
    began = []
    for _ in range(4):
        assert len(await cluster.leadership.lease("w1", ["mail"], 5, 30)) == 1
        began.append(now_ms())
    assert [at_ms - began[0] for at_ms in began] == pytest.approx([0, 2_000, 4_000, 6_000], abs=10)
    assert cluster.proposed(LeaseJobs) == 4


@in_virtual_time
async def test_jobs_of_one_key_run_one_after_the_other_without_pauses_or_vain_proposals(cluster: Cluster) -> None:
    cluster.commit_ms = 2
    cluster.world.submit(count=50, concurrency_key="k")
    finished = 0
    while finished < 50:
        (grant,) = await cluster.leadership.lease("w1", ["mail"], 10, 30)
        await cluster.propose(RecordOutcome(grant.job.id, 1, token_of(grant.job), AttemptEnd.COMPLETED))
        finished += 1
    assert now_ms() < 2_000
    assert cluster.proposed(LeaseJobs) == 50
    assert cluster.proposed(BlockJobs) < 20


@in_virtual_time
async def test_autoscalers_and_explain_hear_of_queues_and_their_workers(cluster: Cluster) -> None:
    waiting = asyncio.create_task(cluster.leadership.lease("w1", ["mail"], 5, 30))
    await turns()
    assert cluster.leadership.queue_scale("mail").waiting_workers == 1
    assert [worker.name for worker in cluster.leadership.workers_for("mail")] == ["w1"]
    cluster.world.submit()
    await waiting
    assert cluster.leadership.queue_scale("mail").running_count == 1


# -- repeated requests ------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_repeated_request_gets_the_leases_it_got(cluster: Cluster) -> None:
    cluster.world.submit(count=3)
    granted = await cluster.leadership.lease("w1", ["mail"], 2, 0, "r1")
    assert await cluster.leadership.lease("w1", ["mail"], 2, 0, "r1") == granted
    assert cluster.proposed(LeaseJobs) == 1


@in_virtual_time
async def test_new_leader_answers_a_request_of_the_old_ones_time(cluster: Cluster) -> None:
    cluster.world.submit(count=3)
    await cluster.leadership.lease("w1", ["mail"], 1, 0, "r1")
    granted = await cluster.leadership.lease("w1", ["mail"], 2, 0, "r2")
    await cluster.leadership.stop()
    cluster.leadership = cluster.new_leadership()
    cluster.leadership.start()
    repeated = await cluster.leadership.lease("w1", ["mail"], 2, 0, "r2")
    assert {token_of(grant.job) for grant in repeated} == {token_of(grant.job) for grant in granted} == {2, 3}
    assert await cluster.leadership.lease("w1", ["mail"], 2, 0, "r1") == []


@in_virtual_time
async def test_other_requests_and_other_workers_get_none_of_its_leases(cluster: Cluster) -> None:
    cluster.world.submit_one()
    await cluster.leadership.lease("w1", ["mail"], 1, 0, "r1")
    assert await cluster.leadership.lease("w2", ["mail"], 1, 0, "r1") == []
    assert await cluster.leadership.lease("w1", ["mail"], 1, 0, "r2") == []
    assert await cluster.leadership.lease("w1", ["mail"], 1, 0) == []


@in_virtual_time
async def test_repeated_request_gets_no_lease_that_has_ended(cluster: Cluster) -> None:
    cluster.world.submit(count=2)
    first, second = await cluster.leadership.lease("w1", ["mail"], 2, 0, "r1")
    cluster.world.complete(first.job)
    cluster.world.cancel(second.job.id)
    assert await cluster.leadership.lease("w1", ["mail"], 2, 0, "r1") == []


@in_virtual_time
async def test_what_was_handed_back_is_not_granted_again_to_its_request(cluster: Cluster) -> None:
    cluster.commit_ms = 10
    cluster.world.submit_one()
    call = asyncio.create_task(cluster.leadership.lease("w1", ["mail"], 1, 0, "r1"))
    await turns()
    call.cancel()
    await asyncio.sleep(0.1)
    (grant,) = await cluster.leadership.lease("w1", ["mail"], 1, 1, "r1")
    assert token_of(grant.job) == 2


def test_only_so_many_workers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WORKERS_REMEMBERED_MAX", 2)
    requests = LatestRequests()
    job_id = World().submit_one()
    for worker in ("w1", "w2", "w1", "w3"):
        requests.note(worker, "r", [job_id])
    assert [requests.find(worker, "r") for worker in ("w1", "w2", "w3")] == [(job_id,), (), (job_id,)]


# -- leasing ----------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_lease_gives_ready_jobs_with_payload_and_token(cluster: Cluster) -> None:
    job_id = cluster.world.submit_one()
    (grant,) = await cluster.leadership.lease("w1", ["mail"], 5, 0)
    assert grant.job.id == job_id
    assert grant.payload == b'{"n":1}'
    assert grant.job.lease is not None
    assert (grant.job.lease.worker, grant.job.lease.ttl_ms) == ("w1", TTL_MS)


@in_virtual_time
async def test_lease_without_a_wait_answers_at_once(cluster: Cluster) -> None:
    assert await cluster.leadership.lease("w1", ["mail"], 5, 0) == []
    assert now_ms() == 0


@in_virtual_time
async def test_lease_waits_as_long_as_asked_and_then_answers_with_nothing(cluster: Cluster) -> None:
    assert await cluster.leadership.lease("w1", ["mail"], 5, 12.5) == []
    assert now_ms() == 12_500
    assert await cluster.leadership.lease("w1", ["mail"], 5, 0.3) == []
    assert now_ms() == 12_800


@in_virtual_time
async def test_waiting_lease_is_woken_by_the_arrival_without_any_delay(cluster: Cluster) -> None:
    lease = asyncio.create_task(cluster.leadership.lease("w1", ["mail"], 5, 30))
    await asyncio.sleep(3)
    job_id = cluster.world.submit_one()
    assert [grant.job.id for grant in await lease] == [job_id]
    assert now_ms() == 3_000


@in_virtual_time
async def test_waiting_lease_is_woken_exactly_when_the_job_is_due(cluster: Cluster) -> None:
    job_id = cluster.world.submit_one(delay_ms=8_765)
    (grant,) = await cluster.leadership.lease("w1", ["mail"], 5, 30)
    assert grant.job.id == job_id
    assert now_ms() == 8_765


@in_virtual_time
async def test_job_due_sooner_than_the_leader_sleeps_wakes_it(cluster: Cluster) -> None:
    lease = asyncio.create_task(cluster.leadership.lease("w1", ["mail"], 5, 30))
    await turns()
    cluster.world.submit(delay_ms=3)
    await lease
    assert now_ms() == 3


@in_virtual_time
async def test_jobs_of_one_entry_cost_one_lease_operation_a_waiter(cluster: Cluster) -> None:
    leases = [asyncio.create_task(cluster.leadership.lease(f"w{n}", ["mail"], 50, 30)) for n in range(2)]
    await turns()
    cluster.world.submit(count=60)
    assert [len(grants) for grants in await asyncio.gather(*leases)] == [30, 30]
    assert cluster.proposed(LeaseJobs) == 2


@in_virtual_time
async def test_lease_whose_jobs_were_all_gone_goes_on_waiting(cluster: Cluster) -> None:
    cluster.commit_ms = 5
    job_id = cluster.world.submit_one()
    lease = asyncio.create_task(cluster.leadership.lease("w1", ["mail"], 5, 30))
    await turns()
    cluster.world.cancel(job_id)  # between proposal and apply
    await asyncio.sleep(1)
    other = cluster.world.submit_one()
    assert [grant.job.id for grant in await lease] == [other]


# -- callers that go away ---------------------------------------------------------------------------------------------


@in_virtual_time
async def test_call_cancelled_while_it_waits_takes_nothing(cluster: Cluster) -> None:
    gone = asyncio.create_task(cluster.leadership.lease("gone", ["mail"], 5, 30))
    await turns()
    gone.cancel()
    job_id = cluster.world.submit_one()
    await turns()
    assert cluster.world.status(job_id) is Status.QUEUED
    assert cluster.proposed(LeaseJobs) == 0


@in_virtual_time
async def test_call_cancelled_in_the_moment_of_dispatch_passes_the_job_on(cluster: Cluster) -> None:
    gone = asyncio.create_task(cluster.leadership.lease("gone", ["mail"], 5, 30))
    await turns()
    other = asyncio.create_task(cluster.leadership.lease("w2", ["mail"], 5, 30))
    await turns()
    job_id = cluster.world.submit_one()
    gone.cancel()
    assert [grant.job.id for grant in await other] == [job_id]
    assert now_ms() == 0
    assert cluster.proposed(LeaseJobs) == 1


@in_virtual_time
async def test_job_of_a_call_cancelled_after_its_proposal_is_handed_back_and_no_loss_is_counted(
    cluster: Cluster,
) -> None:
    cluster.commit_ms = 5
    job_id = cluster.world.submit_one()
    gone = asyncio.create_task(cluster.leadership.lease("gone", ["mail"], 5, 30))
    await turns()
    gone.cancel()
    (grant,) = await cluster.leadership.lease("w2", ["mail"], 5, 30)
    assert grant.job.id == job_id
    assert now_ms() < 1_000
    assert (grant.job.lost_count, grant.job.failure_count) == (0, 0)
    assert [attempt.worker for attempt in grant.job.attempts] == ["gone"]


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NotLeader("n2"), Unavailable("full"), OutcomeUnknown("timeout")])
def test_failed_proposal_reaches_the_worker_and_the_job_stays_available(error: Exception) -> None:
    @in_virtual_time
    async def test(cluster: Cluster) -> None:
        job_id = cluster.world.submit_one()
        cluster.error = error
        with pytest.raises(type(error)):
            await cluster.leadership.lease("w1", ["mail"], 5, 30)
        cluster.error = None
        (grant,) = await cluster.leadership.lease("w1", ["mail"], 5, 30)
        assert grant.job.id == job_id

    test()


@in_virtual_time
async def test_expiry_is_tried_until_the_log_takes_it(cluster: Cluster) -> None:
    job_id = cluster.world.submit_one()
    await cluster.leadership.lease("gone", ["mail"], 5, 0)
    cluster.error = OutcomeUnknown("no quorum")
    await asyncio.sleep(TTL_MS / 1000 + 30)
    assert cluster.world.status(job_id) is Status.RUNNING
    assert 20 < cluster.failure_count < 150
    cluster.error = None
    await asyncio.sleep(1)
    assert cluster.world.status(job_id) is Status.QUEUED


@in_virtual_time
async def test_many_expiries_follow_one_another_without_a_pause(cluster: Cluster) -> None:
    cluster.commit_ms = 5
    cluster.world.submit(count=2 * limits.EXPIRE_LEASES_MAX)
    for _ in range(2):
        await cluster.leadership.lease("gone", ["mail"], limits.EXPIRE_LEASES_MAX, 0)
    await asyncio.sleep(TTL_MS / 1000 + 0.02)
    assert cluster.world.state.leased_jobs() == []


@pytest.mark.parametrize("error", [InvariantBroken("two leases"), KeyError("ours")])
def test_fault_of_ours_ends_the_leadership_and_is_raised_to_the_node(error: Exception) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.leadership.start()
        waiting = asyncio.create_task(cluster.leadership.lease("w1", ["mail"], 5, 50))
        await turns()
        cluster.error = error  # of the marks that are due soon
        with pytest.raises(ExceptionGroup) as failed:
            await cluster.leadership.wait()
        assert failed.value.exceptions == (error,)
        with pytest.raises(NotLeader):
            await waiting
        with pytest.raises(NotLeader):
            await cluster.leadership.heartbeat("w1", [])
        await cluster.leadership.stop()

    virtual.run(main)


def test_state_that_cannot_be_read_ends_the_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.leadership.start()
        monkeypatch.setattr(cluster.world.state, "finished_between", _break)
        with pytest.raises(ExceptionGroup) as failed:
            await cluster.leadership.wait()
        assert isinstance(failed.value.exceptions[0], InvariantBroken)

    virtual.run(main)


def _break(*_: object, **__: object) -> None:
    raise InvariantBroken("an index without its record")


# -- start and stop ---------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_stop_ends_waiting_calls_with_not_leader(cluster: Cluster) -> None:
    leases = [asyncio.create_task(cluster.leadership.lease(f"w{n}", ["mail"], 1, 60)) for n in range(3)]
    await turns()
    await cluster.leadership.stop()
    results = await asyncio.gather(*leases, return_exceptions=True)
    assert all(isinstance(result, NotLeader) for result in results)
    assert now_ms() == 0


@in_virtual_time
async def test_lease_proposed_before_the_stop_still_hears_its_outcome(cluster: Cluster) -> None:
    cluster.commit_ms = 5
    job_id = cluster.world.submit_one()
    lease = asyncio.create_task(cluster.leadership.lease("w1", ["mail"], 1, 60))
    await turns()
    await cluster.leadership.stop()
    assert [grant.job.id for grant in await lease] == [job_id]


@in_virtual_time
async def test_what_was_decided_in_a_term_is_not_proposed_after_it(cluster: Cluster) -> None:
    lease = asyncio.create_task(cluster.leadership.lease("w1", ["mail"], 1, 60))
    await turns()
    cluster.world.submit_one()  # which is handed to the waiting call at once
    cluster.leadership.retire()
    with pytest.raises(NotLeader):
        await lease
    assert cluster.proposed(LeaseJobs) == 0


@in_virtual_time
async def test_stop_leaves_no_task_and_no_timer_behind(cluster: Cluster) -> None:
    cluster.world.submit(delay_ms=1_000)
    await cluster.leadership.lease("w1", ["mail"], 1, 0)
    await cluster.leadership.stop()
    await cluster.leadership.stop()
    await turns()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]  # its own
    assert all(timer.cancelled() for timer in scheduled)
    before = len(cluster.world.log)
    await asyncio.sleep(100)
    assert len(cluster.world.log) == before


def test_calls_before_the_start_are_refused() -> None:
    async def main() -> None:
        leadership = Cluster().leadership
        with pytest.raises(NotLeader):
            await leadership.lease("w1", ["mail"], 1, 60)
        with pytest.raises(NotLeader):
            await leadership.heartbeat("w1", [])

    virtual.run(main)


def test_leadership_that_was_stopped_before_its_start_never_serves() -> None:
    async def main() -> None:
        leadership = Cluster().leadership
        await leadership.stop()
        leadership.start()
        await leadership.wait()
        with pytest.raises(NotLeader):
            await leadership.lease("w1", ["mail"], 1, 60)

    virtual.run(main)


@in_virtual_time
async def test_next_leader_takes_over_jobs_and_leases(cluster: Cluster) -> None:
    world = cluster.world
    held, free = world.submit_one(), world.submit_one(delay_ms=20_000)
    await cluster.leadership.lease("gone", ["mail"], 1, 0)
    await cluster.leadership.stop()
    await asyncio.sleep(5)
    cluster.leadership = cluster.new_leadership()
    cluster.leadership.start()
    (first,) = await cluster.leadership.lease("w2", ["mail"], 1, 30)
    assert (first.job.id, now_ms()) == (held, 5_000 + TTL_MS)
    (second,) = await cluster.leadership.lease("w2", ["mail"], 1, 30)
    assert (second.job.id, now_ms()) == (free, 20_000)


@in_virtual_time
async def test_idle_leader_does_not_poll(cluster: Cluster) -> None:
    clock = cluster.world.clock
    assert isinstance(clock, LoopClock)
    await turns()
    before = clock.reads
    await asyncio.sleep(600)
    assert clock.reads - before <= 600 * (1 + 1 / 5) + 10  # the check of the wall clock, and retention
    assert cluster.world.log == []


@in_virtual_time
async def test_depths_are_told_while_leading(cluster: Cluster) -> None:
    cluster.world.submit(count=2)
    (depth,) = cluster.leadership.queue_depths(["mail"])
    assert (depth.queue, depth.counts) == ("mail", {Status.QUEUED: 2})


# -- all together -----------------------------------------------------------------------------------------------------


class Worker:
    """A worker that renews its leases, and now and then dies, fails, or stops answering."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.accepted: list[Grant] = []

    async def run(self) -> None:
        random = self.cluster.world.random
        while True:
            try:
                grants = await self.cluster.leadership.lease(self.name, ["mail", "pay"], random.randint(1, 5), 20)
            except Unavailable:
                await asyncio.sleep(0.5)
                continue
            for grant in grants:
                await self._work(grant)

    async def _work(self, grant: Grant) -> None:
        random = self.cluster.world.random
        fate = random.random()
        if fate < 0.05:
            return  # lost with its worker
        await asyncio.sleep(random.randint(1, 3_000) / 1000)
        end = AttemptEnd.FAILED if fate < 0.2 else AttemptEnd.COMPLETED
        job = grant.job
        result = await self.cluster.propose(RecordOutcome(job.id, job.run_number, token_of(job), end))
        if isinstance(result, OutcomeRecorded) and end is AttemptEnd.COMPLETED:
            self.accepted.append(grant)


@pytest.mark.parametrize("error", [NotLeader(), Unavailable("no majority")])
def test_a_grant_whose_workers_mark_fails_is_no_definite_refusal(error: Exception) -> None:
    """The lease is in the log (seed 1650241 on 5 nodes)."""

    @in_virtual_time
    async def main(cluster: Cluster) -> None:
        await asyncio.sleep(3 * TTL_MS / 1000)
        cluster.world.apply(cluster.world.submission(), age_ms=2 * TTL_MS)
        cluster.entry_age_ms = 2 * TTL_MS
        cluster.commit_ms = 5
        asking = asyncio.ensure_future(cluster.leadership.lease("w1", ["mail"], 1, 0.0))
        while not cluster.proposed(LeaseJobs):
            await asyncio.sleep(0.001)
        cluster.error = error
        with pytest.raises(OutcomeUnknown):
            await asking
        cluster.error = None

    main()


@pytest.mark.parametrize(("age_ms", "mark_count"), [(TTL_MS // 2, 1), (2 * TTL_MS, 2)])
def test_a_grant_that_was_long_on_its_way_waits_for_its_workers_mark(age_ms: int, mark_count: int) -> None:
    """To the next leader it is as old as its stamp."""

    @in_virtual_time
    async def main(cluster: Cluster) -> None:
        await asyncio.sleep(3 * TTL_MS / 1000)
        cluster.commit_ms = 5
        cluster.world.apply(cluster.world.submission(), age_ms=age_ms)
        cluster.entry_age_ms = age_ms
        assert await cluster.leadership.lease("w1", ["mail"], 1, 0.0)
        assert cluster.proposed(MarkWorkers) == mark_count  # one since the worker is new

    main()


@pytest.mark.parametrize("seed", range(6))
def test_every_job_ends_exactly_once_whatever_workers_and_leaders_do(seed: int) -> None:
    async def main() -> None:
        cluster = Cluster(seed=seed)
        cluster.commit_ms = 3
        world = cluster.world
        cluster.leadership.start()
        workers = [Worker(cluster, f"w{number}") for number in range(4)]
        tasks = [asyncio.create_task(worker.run()) for worker in workers]
        job_ids = []
        for _ in range(10):
            delay_ms = world.random.choice([0, 0, 50, 20_000])
            queue = world.random.choice(["mail", "pay"])
            job_ids += world.submit(queue, count=10, delay_ms=delay_ms, priority=world.random.randrange(10))
            await asyncio.sleep(world.random.randint(0, 4))
            if world.random.random() < 0.3:  # the lead is lost and won again
                await cluster.leadership.stop()
                await asyncio.sleep(world.random.randint(0, 2))
                cluster.leadership = cluster.new_leadership()
                cluster.leadership.start()
            tasks[0].cancel()  # whatever it did
            tasks[0] = asyncio.create_task(workers[0].run())
        await asyncio.sleep(600)
        for task in tasks:
            task.cancel()
        await cluster.leadership.stop()
        assert check(world.state) == []
        assert {world.status(job_id) for job_id in job_ids} <= FINISHED
        accepted = [grant.job.id for worker in workers for grant in worker.accepted]
        assert sorted(accepted) == sorted({*accepted})
        assert {*accepted} <= {job_id for job_id in job_ids if world.status(job_id) is Status.COMPLETED}
        assert cluster.proposed(ExpireLeases)
        assert cluster.proposed(MarkWorkers)

    virtual.run(main)
