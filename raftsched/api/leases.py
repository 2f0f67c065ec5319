"""Leases: workers ask for jobs, wait for them, and keep what they hold.

The wait is the worker's: when it goes away, the request is cancelled, and with it its place among those who wait. A
lease whose reply was lost is found again by the `request_id` under which the worker asks once more; else it ends after
its time, like that of a worker which died.
"""

from __future__ import annotations

from aiohttp import web

from raftsched.api.backend import Backend
from raftsched.api.bodies import Bodies
from raftsched.api.parsing import Fitter, run_id_at
from raftsched.api.rendering import json_response, lease_reply
from raftsched.api.replies import HeartbeatReply, LeasesReply, LeaseState
from raftsched.api.requests import HeartbeatRequest, LeaseRequest
from raftsched.api.routes import BASE_PATH, Answered, Route
from raftsched.core.ids import FencingToken


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
        """Lease due jobs of the given queues, waiting up to `wait_seconds` for the first."""
        asked, _ = self._lease.read(await self._bodies.read_json(request))
        queues = tuple(dict.fromkeys(asked.queues))
        leadership = self._backend.leadership()
        grants = await leadership.lease(asked.worker, queues, asked.capacity, asked.wait_seconds, asked.request_id)
        return json_response(LeasesReply(leases=[lease_reply(grant) for grant in grants]))

    async def heartbeat(self, request: web.Request) -> web.Response:
        """Keep leases, and hear which of them are lost and which jobs should stop."""
        beat, _ = self._heartbeat.read(await self._bodies.read_json(request))
        runs = []
        for position, lease in enumerate(beat.leases):
            job_id, run_number = run_id_at(lease.run_id, f"leases[{position}].run_id")
            runs.append((job_id, run_number, FencingToken(lease.fencing_token)))
        answers = self._backend.leadership().heartbeat(beat.worker, runs)
        states = [
            LeaseState(run_id=lease.run_id, valid=answer.valid, cancel_requested=answer.cancel_requested)
            for lease, answer in zip(beat.leases, answers, strict=True)
        ]
        return json_response(HeartbeatReply(leases=states))
