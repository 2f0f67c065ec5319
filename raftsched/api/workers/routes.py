"""List the workers that made a request lately, by their coarse marks in the log, and take them out of service or back."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from raftsched.api.access.principal import OWNER_END, Principal, principal_of
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.consistency import Reading, read
from raftsched.api.http.json_reply import json_response, time_or_none
from raftsched.api.http.proposals import propose
from raftsched.api.http.routes import Route, route, verb_route
from raftsched.api.json.decode import StructDecoder
from raftsched.core.operations.workers import DrainWorker
from raftsched.core.records.job import Worker
from raftsched.core.state.results import WorkerSaved
from raftsched.errors import Forbidden, NotFound
from raftsched.leader.duties import WorkerFacts
from raftsched.wire.common import ReadQuery, is_name
from raftsched.wire.verbs import WORKER
from raftsched.wire.workers import DrainRequest, WorkerReply, WorkersReply

_NO_FACTS = WorkerFacts(0, None, None)


class Workers:
    """The routes of workers."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._drain = StructDecoder(DrainRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            route(Access.READ, "GET", "/workers", self.list_workers, WorkersReply, query=ReadQuery),
            verb_route(Access.OPERATE, WORKER["drain"], self.drain_worker),
            verb_route(Access.OPERATE, WORKER["undrain"], self.undrain_worker),
        )

    async def list_workers(self, request: web.Request) -> web.Response:
        """List the workers that made a request lately."""
        _, reading = read(self._backend, request, ReadQuery)
        sees = principal_of(request).sees_worker
        facts = self._facts(reading)
        workers = [_reply(worker, facts) for worker in reading.state.workers() if sees(worker.name, worker.tenant)]
        return reading.response(WorkersReply(workers=workers))

    async def drain_worker(self, request: web.Request) -> web.Response:
        wanted = self._drain.read_optional(await self._bodies.read_optional_json(request))
        return await self._change(request, drained=True, reason=wanted.reason or "")

    async def undrain_worker(self, request: web.Request) -> web.Response:
        return await self._change(request, drained=False)

    async def _change(self, request: web.Request, *, drained: bool, reason: str = "") -> web.Response:
        name = self._named(request, principal_of(request))
        operation = DrainWorker(name, drained, reason=reason, actor=actor_of(request))
        saved = await propose(self._backend, operation, WorkerSaved)
        return json_response(_reply(saved.worker, self._backend.leadership().worker_facts()))

    def _named(self, request: web.Request, caller: Principal) -> str:
        """Return the worker that the path names; raises `NotFound`, and `Forbidden` for one that all tenants share."""
        name = request.match_info["name"]
        known = self._backend.fresh_state().worker(name) if is_name(name) else None
        if known is None or not caller.sees_worker(known.name, known.tenant):
            raise NotFound("no worker of this name made a request lately")
        if caller.is_bound and not caller.owns_queue(name):
            raise Forbidden(
                f"the worker {name} is not only your tenant's; an operator of all tenants may drain it."
                f" The names of your own workers begin with {caller.scope}{OWNER_END}"
            )
        return name

    def _facts(self, reading: Reading) -> Mapping[str, WorkerFacts] | None:
        """Return what the leader knows beside the marks; None for a stale read, which another node may answer."""
        return self._backend.leadership().worker_facts() if reading.age_ms is None else None


def _reply(worker: Worker, facts: Mapping[str, WorkerFacts] | None) -> WorkerReply:
    known = None if facts is None else facts.get(worker.name, _NO_FACTS)
    is_idle = known is not None and known.running_count == 0
    return WorkerReply(
        name=worker.name,
        queues=worker.queues,
        capacity=worker.capacity,
        region=worker.region or None,
        tenant=worker.tenant or None,
        version=worker.version or None,
        first_seen_at=time_or_none(worker.first_seen_at_ms),
        seen_at=time_or_none(worker.seen_at_ms),
        state="active" if not worker.drained_at_ms else "drained" if is_idle else "draining",
        drained_at=time_or_none(worker.drained_at_ms),
        drained_by=worker.drained_by or None,
        drain_reason=worker.drain_reason or None,
        running=None if known is None else known.running_count,
        slots=None if known is None else known.slots,
        names=None if known is None else known.names,
    )
