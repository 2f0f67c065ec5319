"""The lease of a run whose target reports the outcome: nobody renews it, and it ends by its timeout or a cancel alone."""

from __future__ import annotations

import pytest

from raftsched.core.operations.control import AwaitCallback, StartRun
from raftsched.core.records.job import AttemptEnd, Job, Status
from tests.leader.leases.test_take_over import TENURES_MS, Relay
from tests.leader.scene import TTL_MS, token_of

TIMEOUT_MS = 6 * TTL_MS


def awaiting(relay: Relay) -> Job:
    relay.world.submit_one(timeout_ms=TIMEOUT_MS, heartbeat_timeout_ms=TTL_MS)
    (job,) = relay.leader.lease()
    relay.world.apply(StartRun(job.id, job.run_number, token_of(job), b"d" * 16))
    relay.world.apply(AwaitCallback(job.id, job.run_number, token_of(job)))
    return relay.world.job(job.id)


@pytest.mark.parametrize("tenure_ms", [*TENURES_MS, 100 * TTL_MS])
def test_lease_lasts_until_its_timeout_whoever_leads_and_although_a_late_heartbeat_comes(tenure_ms: int) -> None:
    relay = Relay(tenure_ms)
    job = awaiting(relay)
    relay.leader.heartbeat(job)
    relay.run(TIMEOUT_MS - 1)
    assert relay.world.status(job.id) is Status.RUNNING
    relay.run(2)
    ended = relay.world.job(job.id)
    assert [attempt.end for attempt in ended.attempts] == [AttemptEnd.TIMEOUT]
    assert (ended.failure_count, ended.lost_count) == (1, 0)


def test_cancel_ends_it_at_once_since_no_worker_has_to_stop() -> None:
    relay = Relay(100 * TTL_MS)
    job = awaiting(relay)
    relay.world.cancel(job.id)
    assert relay.world.status(job.id) is Status.CANCELLED
