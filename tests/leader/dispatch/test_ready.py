from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from raftsched import limits
from raftsched.core.operations.tenants import SaveTenant
from raftsched.core.records.ids import JobId, name_tag
from raftsched.core.records.job import WAITING, Job
from raftsched.core.records.queue import TenantWeight
from raftsched.core.records.queue_patterns import tags_of
from raftsched.core.state.writes import PutQueue, Write
from raftsched.leader.dispatch.buffer import PARTS_MAX
from raftsched.leader.dispatch.lanes import Line
from raftsched.leader.dispatch.ready import ReadyJobs
from raftsched.leader.duties import Change
from tests.for_each import for_each
from tests.leader.scene import World

AGEING_MS = 300_000


@pytest.fixture
def ready(world: World) -> ReadyJobs:
    return ready_jobs(world)


def ready_jobs(world: World) -> ReadyJobs:
    """`ReadyJobs` that hears of the world's changes, as `Duties` would tell it; nothing is due later here."""
    ready = ReadyJobs(world.state, ageing_ms=AGEING_MS)

    def hear(changes: Sequence[Change]) -> None:
        for old, new in changes:
            if old is not None and old.status in WAITING:
                ready.leave(old.id)
            if new is not None and new.status in WAITING:
                add(ready, new)

    def hear_records(writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write, PutQueue):
                ready.configured(write.new)

    world.on_changes = hear
    world.on_records = hear_records
    return ready


def add(ready: ReadyJobs, job: Job) -> None:
    ready.add(
        job.spec.queue,
        job.tenant,
        job.spec.priority,
        job.due_at_ms,
        job.id,
        tag=name_tag(job.spec.name),
        region=job.spec.region,
    )


def take(
    ready: ReadyJobs,
    world: World,
    *queues: str,
    count: int = 1_000_000,
    region: str = "",
    names: Sequence[str] | None = None,
    tenant: str | None = None,
) -> list[JobId]:
    tags = None if names is None else tags_of(names)
    return ready.take(queues or ("mail",), Line(region, tags, tenant), count, world.now.cluster_ms)


def know(ready: ReadyJobs, world: World, *queues: str, region: str = "") -> None:
    """Make the queues known, as a worker does that asks and gets nothing."""
    assert take(ready, world, *queues, region=region) == []


def test_ready_finds_what_waited_before_this_leader(world: World) -> None:
    before = world.submit(count=3)
    ready = ready_jobs(world)
    assert take(ready, world) == before


def test_ready_gives_higher_priorities_first_and_then_the_first_in(world: World, ready: ReadyJobs) -> None:
    know(ready, world, "mail")
    low = world.submit(priority=1, count=2)
    high = world.submit(priority=9, count=2)
    middle = world.submit(priority=5)
    assert take(ready, world) == [*high, *middle, *low]


def test_ready_gives_an_earlier_due_job_first_though_it_arrived_later(world: World, ready: ReadyJobs) -> None:
    know(ready, world, "mail")
    now = world.submit_one()
    overdue = world.submit_one(delay_ms=-60_000)
    assert take(ready, world) == [overdue, now]


def test_ready_gives_equal_shares_of_queues_asked_for_together(world: World, ready: ReadyJobs) -> None:
    mail, pay = world.submit("mail", count=50), world.submit("pay", count=50)
    taken = take(ready, world, "mail", "pay", count=20)
    assert len(taken) == 20
    assert set(taken) == {*mail[:10], *pay[:10]}


def test_ready_lets_the_first_turn_go_round(world: World, ready: ReadyJobs) -> None:
    queues = {"a", "b", "c"}
    queue_of = {job_id: queue for queue in sorted(queues) for job_id in world.submit(queue, count=30)}
    firsts = [queue_of[take(ready, world, "a", "b", "c", count=1)[0]] for _ in range(30)]
    assert {queue: firsts.count(queue) for queue in queues} == dict.fromkeys(queues, 10)


def test_ready_fills_up_from_one_queue_where_the_other_has_few(world: World, ready: ReadyJobs) -> None:
    mail, pay = world.submit("mail", count=50), world.submit("pay", count=2)
    assert set(take(ready, world, "mail", "pay", count=20)) == {*mail[:18], *pay}


def test_ready_does_not_give_a_job_twice_while_its_lease_is_on_its_way(world: World, ready: ReadyJobs) -> None:
    job_ids = world.submit(count=2)
    assert take(ready, world) == job_ids
    ready.doubt()
    assert take(ready, world) == []


def test_ready_gives_a_released_job_again_once_it_is_added(world: World, ready: ReadyJobs) -> None:
    job = world.job(world.submit_one())
    assert take(ready, world) == [job.id]
    ready.release([job.id])
    assert take(ready, world) == []
    add(ready, job)
    assert take(ready, world) == [job.id]


def test_ready_takes_a_job_once_though_it_is_added_again(world: World, ready: ReadyJobs) -> None:
    know(ready, world, "mail")
    first, second = world.submit(count=2)
    assert take(ready, world, count=1) == [first]
    for job in world.job(first), world.job(second):  # one on its way, one in memory
        add(ready, job)
    assert take(ready, world) == [second]


def test_ready_drops_cancelled_jobs(world: World, ready: ReadyJobs) -> None:
    know(ready, world, "mail")
    first, second, third = world.submit(count=3)
    world.cancel(second)
    assert take(ready, world) == [first, third]


def test_ready_knows_nothing_of_queues_nobody_asked_for(world: World, ready: ReadyJobs) -> None:
    world.submit("mail", count=100)
    assert (ready.queue_count, ready.buffered_count) == (0, 0)


def test_ready_says_which_known_queues_got_jobs(world: World, ready: ReadyJobs) -> None:
    know(ready, world, "mail", "pay")
    world.submit("mail", count=2)
    world.submit("unknown")
    assert ready.touched_queues(world.now.cluster_ms) == ["mail"]
    assert ready.touched_queues(world.now.cluster_ms) == []


def test_ready_holds_a_bounded_part_of_a_large_backlog_and_gives_all_of_it_in_order(
    world: World, ready: ReadyJobs
) -> None:
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


def test_ready_lets_go_of_the_later_half_when_arrivals_fill_it(world: World, ready: ReadyJobs) -> None:
    know(ready, world, "mail")
    job_ids = world.submit(count=limits.READY_BUFFER_JOBS_MAX + 1)
    assert ready.buffered_count == limits.READY_BUFFER_JOBS_MAX // 2
    overdue = world.submit_one(delay_ms=-1_000)
    assert take(ready, world) == [overdue, *job_ids]


def test_ready_forgets_other_queues_without_losing_their_jobs(world: World, ready: ReadyJobs) -> None:
    mail, pay = world.submit("mail", count=3), world.submit("pay", count=3)
    assert take(ready, world, "mail", "pay", count=2)
    ready.forget_except({"pay"})
    assert ready.queue_count == 1
    rest = take(ready, world, "mail", "pay")
    assert sorted(rest) == sorted([*mail[1:], *pay[1:]])


# -- ageing -----------------------------------------------------------------------------------------------------------


def test_ready_lets_a_low_priority_that_has_waited_long_enough_pass_a_stream_of_high_ones(
    world: World, ready: ReadyJobs
) -> None:
    """Case D33."""
    know(ready, world, "mail")
    low = world.submit_one(priority=5)
    before = world.submit(priority=9, count=3)
    taken: list[JobId] = []
    while low not in taken:  # as many come as go, so some of high priority always wait
        world.submit(priority=9)
        taken += take(ready, world, count=1)
        world.clock.advance(60_000)
    assert len(taken) == len(before) + 4 * AGEING_MS // 60_000 + 1


def test_ready_gives_the_first_due_first_where_ageing_makes_priorities_equal(world: World, ready: ReadyJobs) -> None:
    know(ready, world, "mail")
    low = world.submit(priority=3, count=2)
    world.clock.advance(AGEING_MS)
    high = world.submit(priority=4, count=2)
    assert take(ready, world) == [*low, *high]


def test_ready_keeps_priorities_apart_within_a_level_of_ageing(world: World, ready: ReadyJobs) -> None:
    know(ready, world, "mail")
    low = world.submit_one(priority=3)
    world.clock.advance(AGEING_MS - 1)
    high = world.submit_one(priority=4)
    assert take(ready, world) == [high, low]


def test_ready_goes_by_the_ageing_of_the_queue_as_soon_as_it_is_set(world: World, ready: ReadyJobs) -> None:
    know(ready, world, "mail")
    low = world.submit_one(priority=0)
    world.clock.advance(90)
    high = world.submit_one(priority=9)
    world.configure(ageing_ms=10)
    assert take(ready, world) == [low, high]


def test_ready_gives_one_priority_in_the_order_of_submission_after_a_restart(world: World) -> None:
    """Case D33."""
    job_ids = [world.submit_one() for _ in range(50)]
    assert take(ready_jobs(world), world) == job_ids


# -- shares of tenants ------------------------------------------------------------------------------------------------


def tenants_of(world: World, job_ids: list[JobId]) -> str:
    return "".join(world.job(job_id).tenant for job_id in job_ids)


def test_ready_lets_tenants_of_a_queue_take_turns_however_many_jobs_one_has(world: World, ready: ReadyJobs) -> None:
    know(ready, world, "mail")
    world.submit(tenant="a", count=200)
    world.submit(tenant="b", count=3)
    world.submit(tenant="c", count=2)
    assert tenants_of(world, take(ready, world, count=10)) == "abcabcabaa"


def test_ready_gives_tenants_shares_by_their_weight(world: World) -> None:
    world.configure(weights=(TenantWeight("a", 3), TenantWeight("b", 2)))
    ready = ready_jobs(world)
    for tenant in "abc":
        world.submit(tenant=tenant, count=100)
    assert tenants_of(world, take(ready, world, count=12)) == "aaabbcaaabbc"
    assert "".join(tenants_of(world, take(ready, world, count=1)) for _ in range(12)) == "aaabbcaaabbc"


def test_ready_goes_by_new_weights_as_soon_as_they_are_set(world: World, ready: ReadyJobs) -> None:
    for tenant in "ab":
        world.submit(tenant=tenant, count=100)
    assert tenants_of(world, take(ready, world, count=4)) == "abab"
    world.configure(weights=(TenantWeight("b", 4),))
    assert tenants_of(world, take(ready, world, count=10)) == "abbbbabbbb"


def test_ready_gives_the_turn_of_a_tenant_that_has_no_more_to_the_others(world: World) -> None:
    world.configure(weights=(TenantWeight("a", 100),))
    ready = ready_jobs(world)
    world.submit(tenant="a", count=3)
    world.submit(tenant="b", count=3)
    assert tenants_of(world, take(ready, world)) == "aaabbb"


def test_ready_does_not_weigh_priorities_of_one_tenant_against_anothers(world: World, ready: ReadyJobs) -> None:
    """A tenant can't buy itself the queue by calling all its jobs urgent."""
    know(ready, world, "mail")
    world.submit(tenant="a", priority=9, count=4)
    world.submit(tenant="b", priority=0, count=4)
    assert tenants_of(world, take(ready, world)) == "abababab"


def test_ready_holds_a_bounded_part_of_the_backlogs_of_many_tenants_and_gives_all_of_it(
    world: World, ready: ReadyJobs
) -> None:
    know(ready, world, "mail")
    job_ids = {job_id for number in range(40) for job_id in world.submit(tenant=f"t{number}", count=130)}
    assert ready.buffered_count <= limits.READY_BUFFER_JOBS_MAX
    taken: list[JobId] = []
    while some := take(ready, world, count=77):
        taken += some
        assert ready.buffered_count <= limits.READY_BUFFER_JOBS_MAX
    assert len(taken) == len(job_ids)
    assert set(taken) == job_ids


def test_ready_keeps_hardly_a_trace_of_tenants_that_have_no_job(world: World, ready: ReadyJobs) -> None:
    for number in range(300):
        world.submit(tenant=f"t{number}")
        assert len(take(ready, world)) == 1
    assert take(ready, world) == []
    assert ready._queues["mail"].line_count <= 1
    assert ready._queues["mail"].budget >= limits.READY_BUFFER_JOBS_MAX // 2


# -- regions ----------------------------------------------------------------------------------------------------------


def test_ready_gives_a_job_of_a_region_to_workers_of_it_alone(world: World, ready: ReadyJobs) -> None:
    eu, plain = world.submit(region="eu"), world.submit()
    assert take(ready, world) == plain
    assert take(ready, world, region="us") == []
    assert take(ready, world, region="eu") == eu


def test_ready_gives_jobs_that_arrive_by_their_region(world: World, ready: ReadyJobs) -> None:
    know(ready, world, region="eu")
    know(ready, world, region="us")
    eu, plain, us = world.submit(region="eu"), world.submit(), world.submit(region="us")
    assert take(ready, world, region="us") == [*plain, *us]
    assert take(ready, world) == []
    assert take(ready, world, region="eu") == eu


def test_ready_gives_a_worker_of_a_region_both_kinds_of_jobs_in_one_order(world: World, ready: ReadyJobs) -> None:
    know(ready, world, region="eu")
    low, high = world.submit_one(region="eu", priority=1), world.submit_one(region="eu", priority=9)
    middle, urgent = world.submit_one(priority=5), world.submit_one(priority=9)
    assert take(ready, world, region="eu") == [high, urgent, middle, low]


def test_ready_neither_reads_nor_passes_over_jobs_of_regions_without_workers(world: World, ready: ReadyJobs) -> None:
    know(ready, world)
    for number in range(20):
        world.submit(region=f"r{number}", priority=9, tenant=f"t{number}", count=10)
    plain = world.submit(priority=0)
    assert (ready.buffered_count, ready._queues["mail"].line_count) == (1, 1)
    assert ready.fill("mail", Line("", None), world.now.cluster_ms) == 1
    assert take(ready, world) == plain


def test_ready_gives_tenants_equal_shares_whatever_the_region_of_their_jobs(world: World, ready: ReadyJobs) -> None:
    for region in ("eu", ""):
        world.submit(tenant="a", region=region, count=50)
    world.submit(tenant="b", count=50)
    world.submit(tenant="c", region="eu", count=50)
    shares = [tenants_of(world, take(ready, world, count=30, region="eu")) for _ in range(2)]
    assert [{tenant: share.count(tenant) for tenant in "abc"} for share in shares] == [dict.fromkeys("abc", 10)] * 2


def test_ready_counts_the_shares_of_a_tenant_over_all_regions(world: World) -> None:
    """A tenant's weight is used up once, not once for each region."""
    world.configure(weights=(TenantWeight("a", 3),))
    ready = ready_jobs(world)
    for region in ("eu", ""):
        world.submit(tenant="a", region=region, count=50)
    world.submit(tenant="b", count=50)
    taken = "".join(tenants_of(world, take(ready, world, count=1, region=region)) for region in ("eu", "") * 20)
    assert taken == "aaab" * 10


def test_ready_counts_jobs_of_all_regions_against_the_limit_of_the_queue(world: World) -> None:
    world.configure(concurrency_max=3)
    ready = ready_jobs(world)
    for region in ("eu", "us", ""):
        world.submit(region=region, count=2)
    assert len(take(ready, world, region="eu", count=2)) == 2
    assert len(take(ready, world, region="us")) == 1
    assert take(ready, world) == []


def test_ready_keeps_hardly_a_trace_of_regions_that_workers_make_up(world: World, ready: ReadyJobs) -> None:
    eu, plain = world.submit(region="eu", count=3), world.submit(count=3)
    assert take(ready, world, region="eu", count=2) == eu[:2]
    for number in range(5 * PARTS_MAX):
        assert take(ready, world, region=f"r{number}", count=1) == plain[number : number + 1]
        assert len(ready._queues["mail"].parts) <= PARTS_MAX
    late = world.submit(region="eu")
    assert take(ready, world, region="eu") == [*eu[2:], *late]
    assert ready.buffered_count == 0


# -- names ------------------------------------------------------------------------------------------------------------


def test_ready_gives_a_worker_jobs_of_its_handlers_alone_in_the_order_of_all(world: World, ready: ReadyJobs) -> None:
    ids = [
        world.submit_one(name=name, priority=priority) for name, priority in zip("abcab", (5, 5, 9, 9, 1), strict=True)
    ]
    assert take(ready, world, names=["nothing"]) == []
    assert take(ready, world, names=["a", "c"], count=2) == [ids[2], ids[3]]
    assert take(ready, world, names=["a", "b"]) == [ids[0], ids[1], ids[4]]
    assert take(ready, world) == []


def test_ready_gives_jobs_that_arrive_by_their_name(world: World, ready: ReadyJobs) -> None:
    know(ready, world)
    a, b = world.submit(name="a", count=2), world.submit(name="b", count=2)
    assert take(ready, world, names=["b"]) == b
    assert take(ready, world, names=["b"]) == []
    assert take(ready, world) == a


@pytest.mark.parametrize("is_known", [False, True], ids=["before", "arrives"])
def test_ready_neither_reads_nor_passes_over_jobs_without_a_handler(
    is_known: bool, monkeypatch: pytest.MonkeyPatch, world: World, ready: ReadyJobs
) -> None:
    """A queue of many: whatever waits in front under other names costs a worker nothing."""
    if is_known:
        know(ready, world)
    for name in ("x", "y", "z"):
        world.submit(name=name, count=3_000, priority=9)
    wanted = world.submit(name="wanted", count=5)
    taken = [take(ready, world, names=["wanted"], count=1)]
    read: list[int] = []
    original = world.state.waiting

    def waiting(*place: Any, **bounds: Any) -> Any:
        found = original(*place, **bounds)
        read.append(len(found))
        return found

    monkeypatch.setattr(world.state, "waiting", waiting)
    for _ in range(50):
        assert take(ready, world, names=["another"]) == []
        taken.append(take(ready, world, names=["wanted", "another"], count=1))
    assert [job_id for part in taken for job_id in part] == wanted
    assert sum(read) <= 10
    assert ready.buffered_count <= 3 * limits.READY_BUFFER_JOBS_MAX


def test_ready_holds_bounded_memory_however_many_names_a_queue_has(world: World, ready: ReadyJobs) -> None:
    know(ready, world)
    job_ids = {job_id for number in range(100) for job_id in world.submit(name=f"n{number}", count=40)}
    assert ready.buffered_count <= 4 * limits.READY_BUFFER_JOBS_MAX
    assert set(take(ready, world)) == job_ids
    assert ready._queues["mail"].line_count <= 1


def test_ready_does_not_starve_tenants_behind_one_whose_jobs_have_no_handler(world: World, ready: ReadyJobs) -> None:
    world.submit(name="a", tenant="first", count=10)
    b = world.submit(name="b", tenant="second", count=2)
    assert take(ready, world, names=["b"]) == b
    assert len(take(ready, world)) == 10


# -- patterns ---------------------------------------------------------------------------------------------------------


def test_ready_gives_by_pattern_what_fits(world: World, ready: ReadyJobs) -> None:
    ids = {queue: world.submit_one(queue) for queue in ("mail", "mail-eu", "mailing", "pay", "ma")}
    assert take(ready, world, "nothing*") == []
    assert sorted(take(ready, world, "mail*")) == sorted([ids["mail"], ids["mail-eu"], ids["mailing"]])
    assert sorted(take(ready, world, "*")) == sorted([ids["pay"], ids["ma"]])
    late = [world.submit_one(queue) for queue in ("new", "mail")]
    assert sorted(take(ready, world, "*", "mail")) == sorted(late)
    assert take(ready, world, "*") == []


def test_ready_looks_by_pattern_only_at_queues_that_may_have_jobs(
    monkeypatch: pytest.MonkeyPatch, world: World, ready: ReadyJobs
) -> None:
    """Of a thousand queues with jobs for later, and a paused one, only what is due costs a look."""
    for number in range(1_000):
        world.submit(f"q{number}", delay_ms=3_600_000)
    world.submit("paused")
    world.pause("paused")
    assert take(ready, world, "*") == []
    looked_at: list[str] = []
    original = ReadyJobs._take_from

    def take_from(self: ReadyJobs, queue: Any, *rest: Any) -> bool:
        looked_at.append(queue.name)
        return original(self, queue, *rest)

    monkeypatch.setattr(ReadyJobs, "_take_from", take_from)
    job_id = world.submit_one("q7")
    assert take(ready, world, "*") == [job_id]
    assert take(ready, world, "*") == []
    assert set(looked_at) <= {"q7", "paused"}
    world.resume("paused")
    assert len(take(ready, world, "*")) == 1


def test_ready_knows_queues_by_pattern_for_each_region(world: World, ready: ReadyJobs) -> None:
    eu, plain = world.submit("a", region="eu"), world.submit("b")
    assert take(ready, world, "*") == plain
    assert take(ready, world, "*", region="us") == []
    assert take(ready, world, "*", region="eu") == eu
    late = world.submit("c", region="eu")
    assert take(ready, world, "*") == []
    assert take(ready, world, "*", region="eu") == late


# -- tenants ----------------------------------------------------------------------------------------------------------


def test_ready_gives_a_worker_of_a_tenant_its_jobs_alone_though_they_are_only_on_disk(
    world: World, ready: ReadyJobs
) -> None:
    world.submit(tenant="a", count=3_000)
    b, late = world.submit(tenant="b", count=2), world.submit(tenant="b", region="eu")
    assert take(ready, world, tenant="b", count=1) == b[:1]
    assert ready.buffered_count == 1, "the backlog of others was read"
    assert take(ready, world, tenant="b", region="eu") == [*b[1:], *late]
    assert take(ready, world, tenant="c") == []
    arrived = world.submit(tenant="b")
    assert ready.fill("mail", Line("", None, "b"), world.now.cluster_ms) == 1
    assert take(ready, world, tenant="b") == arrived


def test_ready_shares_jobs_of_all_tenants_as_if_there_were_no_workers_of_one(world: World, ready: ReadyJobs) -> None:
    for tenant in "ab":
        world.submit(tenant=tenant, count=50)
    shares = []
    for _ in range(10):
        take(ready, world, tenant="a", count=3)
        shares.append(tenants_of(world, take(ready, world, count=2)))
    assert "".join(shares).count("a") == 10


def test_ready_shares_by_the_weights_of_tenants_unless_the_queue_names_them(world: World, ready: ReadyJobs) -> None:
    world.apply(SaveTenant("a", weight=3), SaveTenant("b", weight=2))
    for queue in ("mail", "pay"):
        for tenant in "abc":
            world.submit(queue, tenant=tenant, count=50)
    world.configure("pay", weights=(TenantWeight("a", 1),))
    shares = [Counter(tenants_of(world, take(ready, world, queue, count=24))) for queue in ("mail", "pay")]
    assert shares == [{"a": 12, "b": 8, "c": 4}, {"a": 6, "b": 12, "c": 6}]


def test_ready_knows_queues_by_pattern_for_each_tenant(world: World, ready: ReadyJobs) -> None:
    a, b = world.submit("a/mail", tenant="a"), world.submit("shared", tenant="b")
    assert take(ready, world, "*", tenant="b") == b
    assert ready.queue_count == 1, "a queue without jobs of the tenant was read"
    assert take(ready, world, "*", tenant="c") == []
    assert take(ready, world, "*", tenant="a") == a
    late = world.submit("a/new", tenant="a")
    assert take(ready, world, "*", tenant="b") == []
    assert take(ready, world, "*", tenant="a") == late


# -- any history ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["m", "mno"], ids=["one name", "names"])
@pytest.mark.parametrize("regions", [("",), ("", "eu", "us")], ids=["nowhere", "regions"])
@pytest.mark.parametrize("tenants", ["a", "abc"])
@for_each("seed", range(4))
def test_ready_agrees_with_the_index_after_any_history(
    seed: int, tenants: str, regions: tuple[str, ...], names: str
) -> None:
    _History(seed, tenants, regions, names).check(steps=100)


class _History:
    """Random events; each take is compared with a plain sort of all that waits."""

    def __init__(self, seed: int, tenants: str, regions: tuple[str, ...], names: str) -> None:
        self.rng = random.Random(seed)
        self.names = names
        self.tenants = tenants
        self.regions = regions
        self.world = World(seed=seed)
        self.world.configure(ageing_ms=self.rng.choice([1, 100, 2_000, 1_000_000]))
        self.ready = ready_jobs(self.world)
        self.taken: set[JobId] = set()

    def check(self, *, steps: int) -> None:
        events = [self.submit, self.take, self.take, self.cancel, self.lease, self.lose, self.forget, self.age]
        for _ in range(steps):
            self.rng.choice(events)()
            self.world.clock.advance(self.rng.choice([0, 1, 500]))
        for region in self.rng.sample(self.regions, len(self.regions)):
            rest = {tenant: self.waiting(tenant, region, None) for tenant in self.tenants}
            taken = take(self.ready, self.world, region=region)
            assert {tenant: self.of(tenant, taken) for tenant in self.tenants} == rest
            self.taken.update(taken)
        assert (self.ready.buffered_count, self.ready._queues["mail"].size) == (0, 0)

    def waiting(self, tenant: str, region: str, names: Sequence[str] | None) -> list[JobId]:
        """What waits for workers of `region` and is not on its way, in the order of the documentation."""
        tags = None if names is None else tags_of(names)
        settings = self.world.state.queue("mail")
        assert settings is not None
        waiting = self.world.state.all_waiting()
        entries = [entry for entry in waiting if entry.tenant == tenant and entry.region in ("", region)]
        entries.sort(
            key=lambda entry: (entry.due_at_ms - entry.priority * settings.ageing_ms, entry.due_at_ms, entry.job_id)
        )
        wanted = (entry for entry in entries if tags is None or entry.tag in tags)
        return [entry.job_id for entry in wanted if entry.job_id not in self.taken]

    def of(self, tenant: str, job_ids: list[JobId]) -> list[JobId]:
        return [job_id for job_id in job_ids if self.world.job(job_id).tenant == tenant]

    def submit(self) -> None:
        overdue_ms = self.rng.choice([0, 0, -5, -500])
        count = self.rng.choice([1, 3, 400])
        tenant = self.rng.choice(self.tenants)
        region = self.rng.choice(self.regions)
        name = self.rng.choice(self.names)
        self.world.submit(
            priority=self.rng.randrange(10), delay_ms=overdue_ms, count=count, tenant=tenant, region=region, name=name
        )

    def take(self) -> None:
        count, region = self.rng.choice([1, 7, 300]), self.rng.choice(self.regions)
        names = self.rng.choice([None, [], [*self.names], self.rng.sample(self.names, 1), ["other"]])
        expected = {tenant: self.waiting(tenant, region, names) for tenant in self.tenants}
        queue = self.rng.choice(["mail", "mail", "*", "ma*"])
        whose = self.rng.choice([None, None, *self.tenants])
        taken = take(self.ready, self.world, queue, count=count, region=region, names=names, tenant=whose)
        if whose is not None:
            assert taken == expected[whose][:count]
            self.taken.update(taken)
            return
        assert len(taken) == min(count, sum(map(len, expected.values())))
        shares = {tenant: self.of(tenant, taken) for tenant in self.tenants}
        for tenant, share in shares.items():
            assert share == expected[tenant][: len(share)]
        self.check_shares({tenant: len(share) for tenant, share in shares.items()}, expected)
        self.taken.update(taken)

    def check_shares(self, counts: dict[str, int], expected: dict[str, list[JobId]]) -> None:
        """Nobody who still has jobs got more than one job less than anybody else."""
        for tenant, count in counts.items():
            if count < len(expected[tenant]):
                assert count >= max(counts.values()) - 1

    def cancel(self) -> None:
        waiting = [entry.job_id for entry in self.world.state.all_waiting()]
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
            add(self.ready, job)
        self.taken.difference_update(lost)

    def forget(self) -> None:
        if self.rng.random() < 0.5:
            self.ready.doubt()
        else:
            self.ready.forget_except(())

    def age(self) -> None:
        self.world.configure(ageing_ms=self.rng.choice([1, 100, 2_000, 1_000_000]))
