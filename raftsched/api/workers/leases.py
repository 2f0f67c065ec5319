"""Lease jobs to workers, and renew their leases.

If a waiting worker disconnects, its request is cancelled, and it no longer waits for jobs. After a lost reply the
worker repeats the request with the same `request_id`, and gets the same leases; else these expire, like those of a dead
worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from aiohttp import web
from msgspec import UNSET

from raftsched import limits
from raftsched.api.access.principal import Principal, check_again, principal_of
from raftsched.api.access.requests import may_report_on
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.problems import problem_of
from raftsched.api.http.routes import Route, route
from raftsched.api.jobs.reply import lease_reply
from raftsched.api.json.decode import StructDecoder, run_id_at
from raftsched.api.json.items import Item, ItemsDecoder, named_text, without
from raftsched.api.workers.progress import progress_text
from raftsched.core.operations.control import Progress, ReportProgress
from raftsched.core.records.ids import FencingToken, JobId
from raftsched.core.records.spec import CallKind
from raftsched.core.state.results import Result
from raftsched.errors import Invalid
from raftsched.leader.leases.keeper import HeartbeatAnswer
from raftsched.wire.workers import HeartbeatReply, HeartbeatRequest, HeldLease, LeaseRequest, LeasesReply, LeaseState

_Run = tuple[JobId, int, FencingToken]


class Leases:
    """The routes by which workers get and keep jobs."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._lease = StructDecoder(LeaseRequest)
        self._heartbeat = ItemsDecoder(HeartbeatRequest, "leases")
        self._held = StructDecoder(HeldLease)

    def routes(self) -> tuple[Route, ...]:
        return (
            route(Access.WORK, "POST", "/leases", self.lease_jobs, LeasesReply, body=LeaseRequest, waits=True),
            route(Access.WORK, "POST", "/leases/heartbeat", self.heartbeat, HeartbeatReply, body=HeartbeatRequest),
        )

    async def lease_jobs(self, request: web.Request) -> web.Response:
        """Lease due jobs of the given queues, waiting up to `wait_seconds` for the first.

        Jobs of a region go only to workers of that region. A worker that sends `names` gets only jobs with these names.
        """
        wanted, _ = self._lease.read(await self._bodies.read_json(request))
        caller = principal_of(request)
        queues = tuple(dict.fromkeys(wanted.queues))
        for position, queue in enumerate(queues):
            caller.require_queue(queue, f"queues[{position}]")
        leadership = self._backend.leadership()
        grants = await leadership.lease(
            caller.own_name(wanted.worker),
            queues,
            wanted.capacity,
            wanted.wait_seconds,
            wanted.request_id,
            region=wanted.region or "",
            tenant=caller.scope,
            names=_names(wanted),
            check=partial(check_again, request),
            version=wanted.version,
        )
        return json_response(LeasesReply(leases=[lease_reply(grant) for grant in grants]))

    async def heartbeat(self, request: web.Request) -> web.Response:
        """Renew leases; the reply shows which of them are lost, and which jobs should stop.

        An unreadable lease is rejected on its own, with a problem in its place; if only its progress is unreadable, the
        lease is renewed without it.
        """
        beat = self._heartbeat.read(await self._bodies.read_json(request))
        caller = principal_of(request)
        held = [
            self._visible(self._read(item, f"leases[{position}]"), caller) for position, item in enumerate(beat.items)
        ]
        known = [each for each in held if each.run is not None]
        runs = [each.run for each in known if each.run is not None]
        alive = {each.run[0] for each in known if each.run is not None and each.is_alive}
        answers = iter(
            await self._backend.leadership().heartbeat(caller.own_name(beat.around.worker), runs, alive=alive)
        )
        self._keep([each.progress for each in known if each.progress is not None])
        return json_response(HeartbeatReply(leases=[_state(each, answers) for each in held]))

    def _visible(self, held: _Held, caller: Principal) -> _Held:
        """Return what the caller may know of a lease: nothing, if its job is another tenant's."""
        if held.run is None or may_report_on(caller, self._backend.fresh_state, held.run[0]):
            return held
        return _Held(held.run_id, flaw=held.flaw)

    def _read(self, item: Item, at: str) -> _Held:
        """Return the readable content of a part of a heartbeat."""
        flaw = item.flaw
        text = item.text
        if flaw is not None:
            bare = without(item, "progress")
            if bare is None:
                return _Held(named_text(text, "run_id"), flaw=flaw)
            text = bare
        run_id = named_text(text, "run_id")
        try:
            lease = self._held.decode(text, at=at)
            run_id = lease.run_id
            run = (*run_id_at(run_id, f"{at}.run_id"), FencingToken(lease.fencing_token))
        except Invalid as error:
            return _Held(run_id, flaw=error)
        is_alive = lease.alive or lease.progress is not UNSET or flaw is not None
        if lease.progress is UNSET:
            return _Held(run_id, run, is_alive, flaw=flaw)
        try:
            progress = Progress(*run, progress_text(lease.progress, f"{at}.progress"))
        except Invalid as error:
            return _Held(run_id, run, is_alive, flaw=error)
        return _Held(run_id, run, is_alive, progress)

    def _keep(self, reports: Sequence[Progress]) -> None:
        """Propose the progress of handlers, without waiting: a heartbeat must not be late, and the next one repeats
        it.
        """
        for first in range(0, len(reports), limits.PROGRESS_REPORTS_MAX):
            operation = ReportProgress(tuple(reports[first : first + limits.PROGRESS_REPORTS_MAX]))
            self._backend.propose(operation).add_done_callback(_forget)


def _names(wanted: LeaseRequest) -> Sequence[str] | None:
    """Return the names of handlers that a worker has, those of its executors included; None = any."""
    if wanted.executes is None:
        return wanted.names
    return [*(wanted.names or ()), *(CallKind[kind.upper()].handler for kind in wanted.executes)]


class _Held(NamedTuple):
    """The readable content of a part of a heartbeat."""

    run_id: str
    run: _Run | None = None
    is_alive: bool = False
    progress: Progress | None = None
    flaw: Invalid | None = None


def _state(held: _Held, answers: Iterator[HeartbeatAnswer]) -> LeaseState:
    problem = UNSET if held.flaw is None else problem_of(held.flaw)
    if held.run is None:
        return LeaseState(run_id=held.run_id, valid=False, cancel_requested=False, problem=problem)
    answer = next(answers)
    return LeaseState(run_id=held.run_id, valid=answer.valid, cancel_requested=answer.cancel_requested, problem=problem)


def _forget(proposal: asyncio.Future[Result]) -> None:
    if not proposal.cancelled():
        proposal.exception()
