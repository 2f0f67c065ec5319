"""Keep each worker's latest lease request and its grants, so that a repeated request gets the same leases.

A reply can be lost: the leader dies, or the connection breaks. The worker then asks again under the same request id.
Without this table the jobs would wait for the end of a lease that nobody holds. A worker has one request open at a
time, so only its latest answer has to be kept. A new leader learns it from the leases themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from raftsched import limits
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import Job


class LatestRequests:
    """Map worker → (request id, job ids); the one that has been silent longest is evicted first."""

    def __init__(self) -> None:
        self._latest: Final[dict[str, tuple[str, tuple[JobId, ...]]]] = {}

    def start(self, leased: Iterable[Job]) -> None:
        """Learn from the running leases: for each worker, the request with the largest token."""
        jobs = sorted((job for job in leased if job.lease and job.lease.request_id), key=_token)
        for job in jobs:
            assert job.lease is not None
            worker, request_id = job.lease.worker, job.lease.request_id
            known, ids = self._latest.get(worker, ("", ()))
            self.note(worker, request_id, (*ids, job.id) if known == request_id else (job.id,))

    def note(self, worker: str, request_id: str, job_ids: Sequence[JobId]) -> None:
        """Store that `worker` was granted `job_ids`; ignored for a request without an id."""
        if not request_id:
            return
        self._latest.pop(worker, None)
        self._latest[worker] = (request_id, tuple(job_ids))
        if len(self._latest) > limits.WORKERS_REMEMBERED_MAX:
            del self._latest[next(iter(self._latest))]

    def find(self, worker: str, request_id: str) -> tuple[JobId, ...]:
        """Return the jobs that this very request was granted; () if it is new."""
        known, ids = self._latest.get(worker, ("", ()))
        return ids if request_id and known == request_id else ()


def _token(job: Job) -> int:
    return job.lease.token if job.lease else 0
