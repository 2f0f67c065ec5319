"""Derive from the log when the leases that a new leader takes over were last renewed.

Theory of operation. Heartbeats are in the leader's memory alone. The log holds each grant, and of each worker a mark
that is made a few times in a term while the worker sends requests. A mark lists the worker's leases that were silent
then; all others had been renewed within `lease_silence_ms` before it. So for each lease there is a moment at which it
was certainly renewed, or granted. For a living worker that is seldom older than a term. For a worker without a mark,
its grants count.

During an outage no worker could reach a leader: terms count from its end. The outage that this leader ends shows in the
time that has passed since the last entry of the log; earlier ones are in the log (`outage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.core.records.job import Job, SilentLease
from raftsched.leader.now import Now
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.view import LeaderView


class KnownLiveness(NamedTuple):
    """Certain signs of life of a lease, in cluster time."""

    heartbeat_at_ms: int
    """It was renewed, or granted, no earlier."""
    handler_heartbeat_at_ms: int
    """The same for its handler."""
    terms_from_ms: int
    """Its worker's silence counts from here."""
    proven_at_ms: int
    """The same as far as the log alone proves it to any later leader."""


class _Marked(NamedTuple):
    seen_at_ms: int
    silent: Mapping[FencingToken, SilentLease]


_UNMARKED: Final = _Marked(0, {})


class Evidence:
    """Look each worker up once; made for one take-over."""

    def __init__(self, view: LeaderView, settings: LeaderSettings, now: Now) -> None:
        self._view: Final = view
        self._silence_ms: Final = settings.lease_silence_ms
        self._marks: Final[dict[str, _Marked]] = {}
        ends_now = now.cluster_ms - view.cluster_time_ms > settings.lease_ttl_ms
        self.outage_ended_at_ms: Final[int] = now.cluster_ms if ends_now else view.outage_ended_at_ms

    def of(self, job: Job) -> KnownLiveness:
        """Return the signs of life of the lease of `job`."""
        lease = job.lease
        assert lease is not None
        mark = self._mark(lease.worker)
        handler_ms = job.spec.options.heartbeat_timeout_ms if job.spec.options is not None else 0
        listed = mark.silent.get(lease.token)
        if listed is not None:
            heartbeat_at_ms, handler_heartbeat_at_ms = listed.heartbeat_at_ms, listed.handler_heartbeat_at_ms
        else:
            heartbeat_at_ms = TimeMs(mark.seen_at_ms - self._silence_ms)
            handler_heartbeat_at_ms = TimeMs(mark.seen_at_ms - max(self._silence_ms, handler_ms // 2))
        heartbeat_at_ms = max(heartbeat_at_ms, lease.granted_at_ms)
        return KnownLiveness(
            heartbeat_at_ms,
            max(handler_heartbeat_at_ms, lease.granted_at_ms, self.outage_ended_at_ms),
            max(heartbeat_at_ms, self.outage_ended_at_ms),
            max(heartbeat_at_ms, self._view.outage_ended_at_ms),
        )

    def _mark(self, worker: str) -> _Marked:
        known = self._marks.get(worker)
        if known is None:
            record = self._view.worker(worker)
            known = _UNMARKED
            if record is not None:
                known = _Marked(record.seen_at_ms, {lease.token: lease for lease in record.silent})
            self._marks[worker] = known
        return known
