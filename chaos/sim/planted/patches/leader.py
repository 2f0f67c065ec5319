"""Planted into what a leader does beside replication: serving, renewing leases, ending them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from raftsched.consensus.raft.leadership.quorum_reads import QuorumReads
from raftsched.core.records.job import AttemptEnd, Job
from raftsched.leader.dispatch.due_jobs import TimerHorizon
from raftsched.leader.dispatch.lanes import Line
from raftsched.leader.dispatch.ready import ReadyJobs
from raftsched.leader.leases import keeper as lease_keeper
from raftsched.leader.leases.evidence import Evidence
from raftsched.leader.leases.keeper import LeaseKeeper, _Lease
from raftsched.leader.leases.outage import Outage
from raftsched.leader.now import Now
from raftsched.node.backend import NodeBackend


def leads_without_contact(patch: Any) -> None:
    """A leader that was cut off continues to renew leases."""
    original = NodeBackend.leadership

    def leadership(self: NodeBackend) -> Any:
        return self._terms.current or original(self)

    patch.setattr(NodeBackend, "leadership", leadership)


def expires_early_after_an_election(patch: Any) -> None:
    """A new leader counts from the grant, not from its own start."""
    original = LeaseKeeper.start

    def start(self: LeaseKeeper, leased: Iterable[Job], evidence: Evidence, now: Now) -> None:
        original(self, leased, evidence, now)
        for lease in self._leases.values():
            lease.silent_at_ms = now.monotonic_ms
            self._set_timer(lease)

    patch.setattr(LeaseKeeper, "start", start)


def gives_a_term_with_each_election(patch: Any) -> None:
    """A new leader gives every lease a full term, whatever the log knows of its worker's silence."""
    patch.setattr(lease_keeper, "LEASE_TERMS_MAX", 1_000)


def counts_outages_as_lost_workers(patch: Any) -> None:
    """Whoever was not heard for a term is lost, also if there was no leader to receive it."""
    original = _Lease.cause

    def cause(self: _Lease, now_ms: int) -> AttemptEnd:
        end = original(self, now_ms)
        return AttemptEnd.WORKER_LOST if end is AttemptEnd.OUTAGE else end

    patch.setattr(_Lease, "cause", cause)


def notes_no_outage(patch: Any) -> None:
    """The leader that ends an outage knows of it, and no later one does."""
    patch.setattr(Outage, "start", lambda self: self._on_recorded(False))


def gives_jobs_whatever_the_handlers(patch: Any) -> None:
    """Workers get jobs that they said they have no handler for."""
    original = ReadyJobs.take

    def take(self: ReadyJobs, queues: Any, line: Line, count: int, now_ms: int) -> Any:
        return original(self, queues, line._replace(tags=None), count, now_ms)

    patch.setattr(ReadyJobs, "take", take)


def keeps_its_timers_when_time_goes_back(patch: Any) -> None:
    """Jobs that came due by a reading that was corrected since are looked for by the earlier time, once."""
    original = TimerHorizon.step

    def step(self: TimerHorizon, now: Now) -> None:
        self._cluster_ms = min(self._cluster_ms, now.cluster_ms)
        original(self, now)

    patch.setattr(TimerHorizon, "step", step)


def never_expires(patch: Any) -> None:
    patch.setattr(LeaseKeeper, "step", lambda _self, _now: ())


def renews_what_it_expires(patch: Any) -> None:
    """A heartbeat is answered "valid" while the lease's end is on its way."""
    original = LeaseKeeper.heartbeat

    def heartbeat(self: LeaseKeeper, worker: str, runs: Any, now: Now, **alive: Any) -> Any:
        for job_id, _, _ in runs:
            if job_id in self._leases:
                self._leases[job_id].expiring = False
        return original(self, worker, runs, now, **alive)

    patch.setattr(LeaseKeeper, "heartbeat", heartbeat)


def reads_without_a_round(patch: Any) -> None:
    """Whoever believes to lead answers at once what a majority should confirm."""
    patch.setattr(QuorumReads, "_majority_round", lambda self: self._read_round)


def joins_the_round_under_way(patch: Any) -> None:
    """A read is confirmed by answers to what was asked before it came."""
    original = QuorumReads._begin_round  # noqa: SLF001  # what is patched

    def begin(self: QuorumReads) -> None:
        if self._read_round <= self._majority_round():
            original(self)
        for request in self._reads:
            if not request.round:
                request.round, request.index = self._read_round, self._lead.commit_index

    patch.setattr(QuorumReads, "_begin_round", begin)
