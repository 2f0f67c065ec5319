"""What becomes of leases while one leader follows the other; a term is `TTL_MS`, and nobody leads for longer than that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raftsched.core.operations.codec import MarkWorkers
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import AttemptEnd, Job, Status
from raftsched.leader.leases.keeper import HeartbeatAnswer
from raftsched.leader.settings import LeaderSettings
from tests.leader.scene import TTL_MS, Leader, World, token_of

SETTINGS = LeaderSettings(lease_ttl_ms=TTL_MS, cancel_grace_ms=TTL_MS)
TENURES_MS = (TTL_MS // 20, TTL_MS // 5, TTL_MS * 3 // 5, TTL_MS - 1)
"""How long each leader leads: from shorter than a worker takes between heartbeats to nearly a term."""
TERMS_MAX = 3
"""A lease that nobody renews lasts no longer, however many leaders there are."""
VALID = HeartbeatAnswer(valid=True, cancel_requested=False)


class Relay:
    """A world whose leader is replaced by another one every `tenure_ms`."""

    def __init__(self, tenure_ms: int) -> None:
        self.world = World()
        self.leader = Leader(self.world, SETTINGS)
        self._tenure_ms = tenure_ms
        self._left_ms = tenure_ms

    def run(self, ms: int) -> None:
        while ms:
            step_ms = min(ms, self._left_ms)
            self.leader.run(step_ms)
            self._left_ms -= step_ms
            ms -= step_ms
            if not self._left_ms:
                self.leader, self._left_ms = Leader(self.world, SETTINGS), self._tenure_ms

    def run_until(self, is_over: Callable[[], bool], *, every_ms: int = TTL_MS // 3, beat: Callable[[], object]) -> int:
        """Return how long it takes, of at most ten terms; workers beat all the time."""
        since_ms = self.world.clock.passed_ms
        while not is_over() and self.world.clock.passed_ms - since_ms < 10 * TTL_MS:
            beat()
            self.run(every_ms)
        return self.world.clock.passed_ms - since_ms

    def leased(self, *, count: int = 1, **options: Any) -> list[Job]:
        self.world.submit(count=count, **options)
        jobs = self.leader.lease(capacity=count)
        self.run(1)
        return jobs

    def is_running(self, job: Job) -> bool:
        now = self.world.job(job.id)
        return now.lease is not None and now.lease.token == token_of(job)


@pytest.fixture
def leader(world: World) -> Leader:
    return Leader(world, SETTINGS)


@pytest.fixture(params=TENURES_MS)
def relay(request: pytest.FixtureRequest) -> Relay:
    return Relay(request.param)


def test_lease_of_a_dead_worker_ends_however_many_leaders_there_are(relay: Relay) -> None:
    (job,) = relay.leased()
    took_ms = relay.run_until(lambda: not relay.is_running(job), every_ms=100, beat=lambda: None)
    assert took_ms <= TERMS_MAX * TTL_MS + 200
    assert relay.world.job(job.id).attempts[-1].end is AttemptEnd.WORKER_LOST


def test_lease_that_its_living_worker_knows_nothing_of_ends(relay: Relay) -> None:
    """The reply that granted it was lost, and never asked for again; the worker's other leases live on."""
    kept, lost = relay.leased(count=2)

    def beat() -> None:
        assert relay.leader.heartbeat(kept) == [VALID]
        relay.leader.take("elsewhere")

    took_ms = relay.run_until(lambda: not relay.is_running(lost), beat=beat)
    assert took_ms <= (TERMS_MAX + 1) * TTL_MS
    assert relay.is_running(kept)


def test_cancelled_job_whose_worker_does_not_stop_it_ends(relay: Relay) -> None:
    (job,) = relay.leased()
    relay.world.cancel(job.id)
    took_ms = relay.run_until(lambda: not relay.is_running(job), beat=lambda: relay.leader.heartbeat(job))
    assert took_ms <= (TERMS_MAX + 1) * TTL_MS
    assert relay.world.status(job.id) is Status.CANCELLED


def test_silent_handler_of_a_living_worker_ends(relay: Relay) -> None:
    (job,) = relay.leased(heartbeat_timeout_ms=TTL_MS)
    took_ms = relay.run_until(lambda: not relay.is_running(job), beat=lambda: relay.leader.heartbeat(job))
    assert took_ms <= (TERMS_MAX + 1) * TTL_MS
    assert relay.world.job(job.id).attempts[-1].end is AttemptEnd.TIMEOUT


def test_living_worker_keeps_its_leases_through_any_number_of_elections(relay: Relay) -> None:
    jobs = relay.leased(count=3, heartbeat_timeout_ms=TTL_MS // 2)

    def beat() -> None:
        assert relay.leader.heartbeat(*jobs, alive=jobs) == [VALID] * 3

    took_ms = relay.run_until(lambda: not all(map(relay.is_running, jobs)), beat=beat)
    assert took_ms >= 10 * TTL_MS


def test_outage_is_nobodys_silence(world: World, leader: Leader) -> None:
    """The worker needs most of a term to find the cluster again, and the first leader after the outage is soon gone."""
    world.submit(count=2)
    job, dead = leader.lease(capacity=2)
    leader.run(TTL_MS // 2)
    leader.heartbeat(job, dead)
    leader.run(TTL_MS // 2)
    world.clock.advance(20 * TTL_MS)
    Leader(world, SETTINGS).run(TTL_MS // 10)
    last = Leader(world, SETTINGS)
    last.run(TTL_MS * 9 // 10)
    assert last.heartbeat(job) == [VALID]
    last.run(TTL_MS - 1)
    assert [world.status(each.id) for each in (job, dead)] == [Status.RUNNING, Status.QUEUED]


def test_worker_lost_by_an_outage_does_not_count_and_one_lost_later_does(world: World, leader: Leader) -> None:
    world.submit(count=2)
    quiet, heard = leader.lease(capacity=2)
    leader.heartbeat(quiet, heard)
    world.clock.advance(5 * TTL_MS)
    leader = Leader(world, SETTINGS)
    leader.run(TTL_MS // 2)
    assert leader.heartbeat(heard) == [VALID]
    leader.run(2 * TTL_MS)
    assert [world.job(each.id).attempts[-1].end for each in (quiet, heard)] == [
        AttemptEnd.OUTAGE,
        AttemptEnd.WORKER_LOST,
    ]
    assert [world.job(each.id).lost_count for each in (quiet, heard)] == [0, 1]


def test_no_lease_ends_before_the_log_says_whether_there_was_an_outage(world: World, leader: Leader) -> None:
    """The leader can't commit for a whole term, so that the note and the ends of leases are due at the same time."""
    job_id = world.submit_one()
    leader.lease()
    world.clock.advance(TTL_MS // 2)
    leader = Leader(world, SETTINGS)
    held = leader.hold(for_ms=2 * TTL_MS)
    leader.settle_all(held)
    leader.run(TTL_MS // 10)
    lost = world.job(job_id)
    assert (lost.attempts[-1].end, lost.lost_count) == (AttemptEnd.OUTAGE, 0)


def test_heartbeat_before_the_outage_is_noted_makes_no_lost_worker(world: World, leader: Leader) -> None:
    """Its answer waited for a leader that can commit, and the worker may have stopped meanwhile (seed 1430014)."""
    job_id = world.submit_one()
    (job,) = leader.lease()
    world.clock.advance(2 * TTL_MS)
    leader = Leader(world, SETTINGS)
    held = leader.hold()
    leader.step()
    leader.duties.heartbeat("w1", [(job.id, job.run_number, token_of(job))], world.now)
    leader.settle_all(held)
    leader.run(2 * TTL_MS)
    lost = world.job(job_id)
    assert (lost.attempts[-1].end, lost.lost_count) == (AttemptEnd.OUTAGE, 0)


def test_quiet_cluster_is_no_outage(world: World) -> None:
    """A leader alone with a silent lease writes something, so that the next one can tell its silence from an outage."""
    world.submit()
    leader = Leader(world, SETTINGS)
    leader.lease()
    for _ in range(TERMS_MAX + 2):
        leader.run(TTL_MS - 1)
        leader = Leader(world, SETTINGS)
    assert world.state.leased_jobs() == []
    assert world.state.outage_ended_at_ms == 0
    marks = [operation for operation in world.log if isinstance(operation, MarkWorkers)]
    assert len(marks) <= 4 * (TERMS_MAX + 2)


def test_no_later_leader_ends_the_term_of_a_heartbeat_that_was_answered_as_valid(world: World) -> None:
    """Each leader is gone before its round of marks; only what the answer itself waited for is in the log."""
    world.submit()
    (job,) = Leader(world, SETTINGS).lease()
    for _ in range(4):
        world.clock.advance(TTL_MS * 3 // 5)
        world.submit(queue="others")
        assert Leader(world, SETTINGS).heartbeat(job) == [VALID]
    last = Leader(world, SETTINGS)
    last.run(TTL_MS - 1)
    assert world.status(job.id) is Status.RUNNING
    last.run(TTL_MS // 10)
    assert world.status(job.id) is Status.QUEUED


@pytest.mark.parametrize("step_ms", [TTL_MS * tenths // 10 for tenths in range(16)])
def test_no_step_of_cluster_time_between_leaders_ends_the_term_of_a_valid_heartbeat(step_ms: int, world: World) -> None:
    """The first leader answers as late as it may by the proof that it has; the second one's time is ahead by the step."""
    world.submit()
    first = Leader(world, SETTINGS)
    (job,) = first.lease()
    runs = [(job.id, job.run_number, token_of(job))]
    while first.duties.unproven("w1", runs, world.now) is None:
        assert first.heartbeat(job) == [VALID]
        world.submit(queue="others")  # so that the log is not silent
        world.clock.advance(TTL_MS // 20)
    world.clock.wall_offset_ms += step_ms
    second = Leader(world, SETTINGS)
    second.run(TTL_MS - 1)
    assert world.status(job.id) is Status.RUNNING


def test_step_of_cluster_time_while_one_leads_ends_no_term_after_it(world: World) -> None:
    """Clocks were set right by half an hour, and the leader was gone a second later (seed 1650050 on 5 nodes)."""
    first = Leader(world, SETTINGS)
    world.submit()
    (job,) = first.lease()
    first.run(TTL_MS // 2)
    assert first.heartbeat(job) == [VALID]
    since_ms = TimeMs(world.state.cluster_time_ms)
    world.clock.wall_offset_ms += 200 * TTL_MS
    note = first.duties.note_silence(since_ms, TimeMs(world.now.cluster_ms))
    assert note is not None
    world.apply(note, world.submission("others"))
    first.run(TTL_MS // 10)
    second = Leader(world, SETTINGS)
    second.run(TTL_MS - 1)
    assert world.status(job.id) is Status.RUNNING
    assert second.duties.note_silence(since_ms, TimeMs(since_ms + TTL_MS)) is None


def test_grant_that_was_long_on_its_way_lasts_for_a_term_through_an_election(world: World) -> None:
    first = Leader(world, SETTINGS)
    world.clock.advance(4 * TTL_MS)
    world.apply(world.submission(), age_ms=2 * TTL_MS)
    (job,) = first.lease(age_ms=2 * TTL_MS)
    second = Leader(world, SETTINGS)
    second.run(TTL_MS - 1)
    assert world.status(job.id) is Status.RUNNING


def test_outage_counts_against_no_job_though_its_length_is_known_later_than_the_lead(
    world: World, leader: Leader
) -> None:
    """After a power loss of all nodes: the clocks of a majority are not known yet when the first leader begins."""
    job_id = world.submit_one()
    leader.lease()
    leader.run(1)
    world.clock.advance(20 * TTL_MS)
    world.clock.wall_offset_ms -= 20 * TTL_MS
    leader = Leader(world, SETTINGS)
    assert world.now.cluster_ms - world.state.cluster_time_ms < TTL_MS
    world.clock.wall_offset_ms += 20 * TTL_MS
    late = world.submit_one()
    leader.lease()
    leader.run(TTL_MS)
    lost = world.job(job_id)
    assert (lost.attempts[-1].end, lost.lost_count) == (AttemptEnd.OUTAGE, 0)
    leader.run(TTL_MS)
    assert world.job(late).lost_count == 1


def test_heartbeat_under_another_workers_name_is_invalid_and_waits_for_no_proof(world: World) -> None:
    world.submit()
    (job,) = Leader(world, SETTINGS).lease()
    world.clock.advance(TTL_MS * 3 // 5)
    Leader(world, SETTINGS).heartbeat(job)
    world.clock.advance(TTL_MS * 3 // 5)
    leader = Leader(world, SETTINGS)
    world.clock.advance(TTL_MS * 3 // 5)
    length = len(world.log)
    (answer,) = leader.heartbeat(job, worker="w2")
    assert not answer.valid
    assert len(world.log) == length


def test_leader_trusts_no_proof_of_a_renewal_before_it_has_committed_an_entry(world: World) -> None:
    """Until then it may guess cluster time, and a guess that is too low makes an old renewal look recent (seed 1200248)."""
    world.submit()
    (job,) = Leader(world, SETTINGS).lease()
    leader = Leader(world, SETTINGS)
    length = len(world.log)
    assert leader.heartbeat(job) == [VALID]
    assert isinstance(world.log[length], MarkWorkers)
    assert leader.heartbeat(job) == [VALID]
    assert len(world.log) == length + 1
