"""Leases: workers ask for jobs, wait for them, and keep what they hold.

The wait is the worker's: when it goes away, the request is cancelled, and with it its place among those who wait. A
lease whose reply was lost is found again by the `request_id` under which the worker asks once more; else it ends after
its time, like that of a worker which died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import web
from msgspec import UNSET

from raftsched import limits
from raftsched.api.backend import Backend
from raftsched.api.bodies import Bodies
from raftsched.api.parsing import Fitter, run_id_at
from raftsched.api.rendering import json_response, lease_reply
from raftsched.api.replies import HeartbeatReply, LeasesReply, LeaseState
from raftsched.api.requests import HeartbeatRequest, LeaseRequest
from raftsched.api.routes import BASE_PATH, Answered, Route
from raftsched.api.running import progress_text
from raftsched.core.control_operations import Progress, ReportProgress
from raftsched.core.ids import FencingToken, JobId
from raftsched.core.results import Result

_Run = tuple[JobId, int, FencingToken]


class Leases:
    """The routes by which workers get and keep jobs."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._lease = Fitter(LeaseRequest)
        self._heartbeat = Fitter(HeartbeatRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path=f"{BASE_PATH}/leases",
                handler=self.lease_jobs,
                answered=Answered.BY_LEADER,
                waits=True,
                body=LeaseRequest,
                reply=LeasesReply,
            ),
            Route(
                method="POST",
                path=f"{BASE_PATH}/leases/heartbeat",
                handler=self.heartbeat,
                answered=Answered.BY_LEADER,
                body=HeartbeatRequest,
                reply=HeartbeatReply,
            ),
        )

    async def lease_jobs(self, request: web.Request) -> web.Response:
        """Lease due jobs of the given queues, waiting up to `wait_seconds` for the first.

        Jobs of a region go only to workers of that region.
        """
        asked, _ = self._lease.read(await self._bodies.read_json(request))
        queues = tuple(dict.fromkeys(asked.queues))
        leadership = self._backend.leadership()
        grants = await leadership.lease(
            asked.worker, queues, asked.capacity, asked.wait_seconds, asked.request_id, region=asked.region or ""
        )
        return json_response(LeasesReply(leases=[lease_reply(grant) for grant in grants]))

    async def heartbeat(self, request: web.Request) -> web.Response:
        """Keep leases, and hear which of them are lost and which jobs should stop."""
        beat, _ = self._heartbeat.read(await self._bodies.read_json(request))
        runs: list[_Run] = []
        alive: set[JobId] = set()
        reports: list[Progress] = []
        for position, lease in enumerate(beat.leases):
            job_id, run_number = run_id_at(lease.run_id, f"leases[{position}].run_id")
            run = (job_id, run_number, FencingToken(lease.fencing_token))
            runs.append(run)
            if lease.progress is not UNSET:
                reports.append(Progress(*run, progress_text(lease.progress, f"leases[{position}].progress")))
            if lease.alive or lease.progress is not UNSET:
                alive.add(job_id)
        answers = self._backend.leadership().heartbeat(beat.worker, runs, alive=alive)
        self._keep(reports)
        states = [
            LeaseState(run_id=lease.run_id, valid=answer.valid, cancel_requested=answer.cancel_requested)
            for lease, answer in zip(beat.leases, answers, strict=True)
        ]
        return json_response(HeartbeatReply(leases=states))

    def _keep(self, reports: Sequence[Progress]) -> None:
        """Propose what handlers said; nobody waits for it, since a heartbeat must not be late. The next one says more."""
        for first in range(0, len(reports), limits.PROGRESS_REPORTS_MAX):
            operation = ReportProgress(tuple(reports[first : first + limits.PROGRESS_REPORTS_MAX]))
            self._backend.propose(operation).add_done_callback(_forget)


def _forget(proposal: asyncio.Future[Result]) -> None:
    if not proposal.cancelled():
        proposal.exception()
