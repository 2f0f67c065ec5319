from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.operations.codec import LeaseJobs, RejectCode
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import AttemptEnd, Lease, Status
from raftsched.core.state.results import Leased
from raftsched.core.state.writes import PutFence
from tests.core.scene import TTL_MS, Scene, code_of, job_id, token_of


def test_lease_gives_a_ready_job_with_its_payload_under_a_new_token(scene: Scene) -> None:
    job = scene.submit(payload=b"[7]")
    scene.wait(5)
    (grant,) = scene.lease(job, worker="w1").grants
    assert grant.payload == b"[7]"
    assert grant.job.lease == Lease("w1", token_of(grant.job), TimeMs(scene.now_ms), TTL_MS)
    assert (grant.job.status, grant.job.attempt_number, grant.job.started_at_ms) == (Status.RUNNING, 1, scene.now_ms)
    assert (grant.job.updated_at_ms, grant.job.revision) == (scene.now_ms, scene.state.index)


def test_lease_gives_a_job_of_a_region_to_workers_of_it_alone(scene: Scene) -> None:
    eu, us, plain = (scene.submit(region=region) for region in ("eu", "us", ""))
    jobs = (eu.id, us.id, plain.id)
    nowhere = scene.apply(LeaseJobs("w1", TTL_MS, (eu.id, us.id)))
    assert nowhere == Leased((), (eu.id, us.id))
    assert scene.last.writes == ()
    result = scene.apply(LeaseJobs("w2", TTL_MS, jobs, region="eu"))
    assert isinstance(result, Leased)
    assert ([grant.job.id for grant in result.grants], result.missed) == ([eu.id, plain.id], (us.id,))


def test_lease_gives_a_worker_of_a_tenant_its_jobs_alone(scene: Scene) -> None:
    a, b = (scene.submit(tenant=tenant) for tenant in "ab")
    result = scene.apply(LeaseJobs("w1", TTL_MS, (a.id, b.id), tenant="b"))
    assert isinstance(result, Leased)
    assert ([grant.job.id for grant in result.grants], result.missed) == ([b.id], (a.id,))


def test_lease_stops_behind_the_job_whose_payload_fills_a_reply(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEASE_BYTES_MAX", 10)
    jobs = [scene.submit(payload=b"1234567") for _ in range(4)]
    result = scene.lease(*jobs)
    assert [grant.job.id for grant in result.grants] == [jobs[0].id, jobs[1].id]
    assert result.missed == (jobs[2].id, jobs[3].id)
    assert scene.now(jobs[2]) == jobs[2]


def test_lease_writes_the_fence_once_for_all_grants(scene: Scene) -> None:
    jobs = [scene.submit() for _ in range(3)]
    result = scene.lease(*jobs)
    assert [token_of(grant.job) for grant in result.grants] == [1, 2, 3]
    assert [write for write in scene.last.writes if isinstance(write, PutFence)] == [
        PutFence(token_of(result.grants[2].job))
    ]


def test_lease_of_nothing_grants_nothing(scene: Scene) -> None:
    assert scene.lease() == Leased((), ())
    assert scene.last.writes == ()


@pytest.mark.parametrize(
    "operation",
    [
        LeaseJobs("", TTL_MS, ()),
        LeaseJobs("w" * (limits.NAME_CHARS_MAX + 1), TTL_MS, ()),
        LeaseJobs("w", 0, ()),
        LeaseJobs("w", -1, ()),
        LeaseJobs("w", 1 << 62, ()),
        LeaseJobs("w", TTL_MS, (job_id(1),) * (limits.LEASE_CAPACITY_MAX + 1)),
        LeaseJobs("w", TTL_MS, (), region="r" * (limits.NAME_CHARS_MAX + 1)),
        LeaseJobs("w", TTL_MS, (), tenant="t" * (limits.NAME_CHARS_MAX + 1)),
    ],
)
def test_lease_refuses_numbers_and_names_out_of_range(scene: Scene, operation: LeaseJobs) -> None:
    scene.submit()
    assert code_of(scene.apply(operation)) is RejectCode.INVALID


def test_lease_records_when_the_attempt_began(scene: Scene) -> None:
    job = scene.submit()
    scene.wait(70)
    leased = scene.run(job)
    scene.wait(30)
    scene.complete(leased)
    (attempt,) = scene.now(job).attempts
    assert (attempt.started_at_ms, attempt.ended_at_ms) == (scene.now_ms - 30, scene.now_ms)
    assert attempt.end is AttemptEnd.COMPLETED


def test_lease_remembers_the_request_that_got_it(scene: Scene) -> None:
    job = scene.submit()
    result = scene.apply(LeaseJobs("w1", TTL_MS, (job.id,), "r1"))
    assert isinstance(result, Leased)
    lease = result.grants[0].job.lease
    assert lease is not None
    assert lease.request_id == "r1"
    other = scene.submit()
    too_long = LeaseJobs("w1", TTL_MS, (other.id,), "r" * (limits.REQUEST_ID_CHARS_MAX + 1))
    assert code_of(scene.apply(too_long)) is RejectCode.INVALID
