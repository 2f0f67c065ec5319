"""Build the API as an aiohttp application: routes, errors as problems, and the headers of every reply.

`create_app` connects the parts for one node. `create_runner` adds the settings of the server. A handler is cancelled
when its client disconnects, so that none waits for a client that is gone; the server does not decompress bodies; single
requests are logged at the level `debug` only.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final

import structlog
from aiohttp import web

from raftsched import logs
from raftsched.api.access.door import Door, TokenDoor
from raftsched.api.access.guard import Guard
from raftsched.api.access.origin import handling_for_origin
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.cluster.audit import Audit
from raftsched.api.cluster.backup import BackupRoutes
from raftsched.api.cluster.events import Events
from raftsched.api.cluster.health import Health
from raftsched.api.cluster.metrics import MetricsPage
from raftsched.api.cluster.routes import Cluster
from raftsched.api.forwarder import ELECTION_SECONDS, FORWARDED_HEADER, Forwarder
from raftsched.api.http.bodies import FRAMING_HEADER, Bodies, check_framing
from raftsched.api.http.consistency import REVISION_HEADER
from raftsched.api.http.empty_body import refusing_bodies
from raftsched.api.http.empty_query import refusing_queries
from raftsched.api.http.json_reply import encode
from raftsched.api.http.openapi import openapi_document
from raftsched.api.http.problems import http_problem, problem_of, problem_response
from raftsched.api.http.routes import BASE_PATH, Answered, Handler, Route
from raftsched.api.http.server import SERVER, Runner
from raftsched.api.http.submit_relay import RELAY_PATH, RelayedSubmits
from raftsched.api.jobs.bulk.dead_letters import DeadLetters
from raftsched.api.jobs.bulk.routes import Bulk
from raftsched.api.jobs.control.routes import Controls
from raftsched.api.jobs.records.routes import JobRecords
from raftsched.api.jobs.submission.legacy import LegacyJobs
from raftsched.api.jobs.submission.routes import Jobs
from raftsched.api.queues.overview import Overview
from raftsched.api.queues.routes import Queues
from raftsched.api.queues.settings import QueueSettings
from raftsched.api.request_id import REQUEST_ID_HEADER, named, request_id_of
from raftsched.api.schedules.backfill import Backfills
from raftsched.api.schedules.files import ScheduleFiles
from raftsched.api.schedules.routes import Schedules
from raftsched.api.schedules.runs import ScheduleRuns
from raftsched.api.schedules.save import ScheduleSaver
from raftsched.api.tenants.quotas import SubmitQuotas, slow_down
from raftsched.api.tenants.routes import Tenants
from raftsched.api.tokens.routes import Tokens
from raftsched.api.tokens.uses import USES_PATH, TokenUseNotes
from raftsched.api.workers.leases import Leases
from raftsched.api.workers.outcomes import Outcomes
from raftsched.api.workers.progress import Runs
from raftsched.api.workers.routes import Workers
from raftsched.api.workflows.routes import Workflows
from raftsched.errors import InvariantBroken, OutcomeUnknown, QuotaExceeded, RaftschedError, Unavailable
from raftsched.exchange import Http

LEADER_HEADER: Final = "Raftsched-Leader"
NO_ROUTE: Final = "none"
"""The label of requests that no route answers."""
_KEEPALIVE_SECONDS: Final = 75.0
_QUOTA_EXCEEDED: Final = QuotaExceeded.http_status
_UNAUTHORIZED: Final = 401
_LINGER_SECONDS: Final = 1.0
"""Time for a client that still sends a rejected body to read the reply, before the connection is closed."""
_log = structlog.get_logger()
_http_log = logging.getLogger("raftsched.api.http")
_http_log.setLevel(logging.CRITICAL)
"""aiohttp's logger is silent: it would log a stack for each client that does not speak HTTP. Our faults are logged
below."""


def create_app(
    backend: Backend,
    door: Door,
    *,
    election_seconds: float = ELECTION_SECONDS,
    http: Http | None = None,
    tls: ssl.SSLContext | None = None,
) -> web.Application:
    """Return the application that serves the API of `backend`'s node to whom `door` lets in.

    Requests wait for a leader for `election_seconds`, and are forwarded to it by `http`, or over connections that trust
    `tls`.
    """
    bodies = Bodies()
    forwarder = Forwarder(backend, bodies, door, election_seconds=election_seconds, http=http, tls=tls)
    app = web.Application(middlewares=[_answer_every_request(backend, bodies, door)])
    events = Events(backend)
    quotas = SubmitQuotas(backend)
    guard = Guard(door, lambda: backend.is_leading)
    for route in all_routes(backend, bodies, forwarder, events, quotas):
        checked = forwarder.confirming(refusing_queries(refusing_bodies(route, bodies)))
        checked = replace(checked, handler=guard.protected(route.access, checked.handler))
        handler = guard.screened(route.access, forwarder.at_leader(checked))
        for method in route.methods:
            app.router.add_route(method, route.path, handler, name=route.name)
    app.router.add_post(RELAY_PATH, forwarder.at_leader(_relay_route(backend, bodies, guard, quotas)))
    app.cleanup_ctx.append(forwarder.run)
    if isinstance(door, TokenDoor):
        notes = TokenUseNotes(backend, bodies, door, forwarder)
        app.router.add_post(USES_PATH, guard.protected(Access.WORK, notes.take_uses))
        app.cleanup_ctx.append(notes.run)
    app.on_shutdown.append(events.close)
    app.on_response_prepare.append(_headers_of_every_reply(backend))
    return app


def create_runner(app: web.Application, *, stop_seconds: float = 2.0) -> web.AppRunner:
    """Return the runner for `app`; when it is cleaned up, requests in progress have `stop_seconds` to end."""
    return Runner(
        app,
        access_log=None,
        auto_decompress=False,
        logger=_http_log,
        keepalive_timeout=_KEEPALIVE_SECONDS,
        lingering_time=_LINGER_SECONDS,
        shutdown_timeout=stop_seconds,
    )


def all_routes(
    backend: Backend, bodies: Bodies, forwarder: Forwarder, events: Events, quotas: SubmitQuotas
) -> tuple[Route, ...]:
    """Return the table of all routes."""
    jobs = Jobs(backend, bodies, quotas)
    bulk = Bulk(backend, bodies)
    queues = Queues(backend)
    saver = ScheduleSaver(backend)
    routes = (
        *jobs.routes(),
        *Controls(backend, bodies).routes(),
        *JobRecords(backend).routes(),
        *bulk.routes(),
        *DeadLetters(backend, bodies, bulk).routes(),
        *Workflows(backend, bodies, quotas).routes(),
        *Runs(backend, bodies).routes(),
        *LegacyJobs(backend, bodies, jobs).routes(),
        *Leases(backend, bodies).routes(),
        *Outcomes(backend, bodies).routes(),
        *queues.routes(),
        *Overview(backend, queues).routes(),
        *QueueSettings(backend, bodies).routes(),
        *Tenants(backend, bodies).routes(),
        *ScheduleRuns(backend, bodies).routes(),
        *Schedules(backend, bodies, saver).routes(),
        *ScheduleFiles(backend, bodies, saver).routes(),
        *Backfills(backend, bodies).routes(),
        *events.routes(),
        *Audit(backend).routes(),
        *Workers(backend, bodies).routes(),
        *Tokens(backend, bodies).routes(),
        *Cluster(backend, bodies, forwarder).routes(),
        *BackupRoutes(backend, bodies).routes(),
        *Health(backend).routes(),
        *MetricsPage(backend).routes(),
    )
    return (*routes, _openapi_route(routes))


def _relay_route(backend: Backend, bodies: Bodies, guard: Guard, quotas: SubmitQuotas) -> Route:
    """Return the route by which followers forward submits, each with its token; clients don't use it."""
    relayed = RelayedSubmits(bodies, guard, Jobs(backend, bodies, quotas).submit_text)
    return Route(
        method="POST",
        path=RELAY_PATH,
        handler=relayed.submit_all,
        access=Access.PUBLIC,
        answered=Answered.BY_LEADER,
        reply=None,
    )


def _openapi_route(routes: tuple[Route, ...]) -> Route:
    @cache
    def document() -> bytes:
        return encode(openapi_document((*routes, route)))

    async def get_openapi(request: web.Request) -> web.Response:
        """Read this document."""
        del request
        return web.Response(body=document(), content_type="application/json")

    path = f"{BASE_PATH}/openapi.json"
    route = Route(
        method="GET",
        path=path,
        handler=get_openapi,
        access=Access.SIGNED_IN,
        answered=Answered.HERE,
        reply=None,
    )
    return route


def _answer_every_request(backend: Backend, bodies: Bodies, door: Door) -> Any:
    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with named(request), handling_for_origin(request, door.origin_in):
            response = await answer_at_once(request, handler)
        if response.status == _QUOTA_EXCEEDED and FORWARDED_HEADER not in request.headers:
            await slow_down(backend)
        seconds = loop.time() - began
        backend.request_times.observe(_route_label(request), response.status, seconds)
        if logs.shows_debug():
            _log_request(request, response, seconds)
        return response

    async def answer_at_once(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            check_framing(request)
            return await handler(request)
        except InvariantBroken as error:
            backend.fail(error)
            return _failed(request)
        except RaftschedError as error:
            return _refused(request, error)
        except web.HTTPException as error:
            return _http_error(error)
        except Exception:  # noqa: BLE001  # any fault is answered by 500, and the log has the trace
            return _fault(request)
        finally:
            bodies.release(request)

    return answer


def _route_label(request: web.Request) -> str:
    """Return the method and path of the request's route."""
    resource = request.match_info.route.resource
    return NO_ROUTE if resource is None else f"{request.method} {resource.canonical}"


def _log_request(request: web.Request, response: web.StreamResponse, seconds: float) -> None:
    """Log a request without what its caller wrote: no query, no header but its id, no body."""
    _log.debug(
        "request",
        request_id=request_id_of(request),
        route=_route_label(request),
        status=response.status,
        milliseconds=round(1000 * seconds, 1),
        is_forwarded=FORWARDED_HEADER in request.headers,
    )


def _fault(request: web.Request) -> web.Response:
    """Log the exception that is being handled, and return its reply."""
    _log_fault(request)
    return problem_response(http_problem(500, "this is a fault of the server; it is logged there"))


def _failed(request: web.Request) -> web.Response:
    """Log the exception that is being handled, and return the reply of a node that must stop because of it.

    The requested change may be committed nevertheless: the store may have failed after that, before it was read again.
    """
    _log_fault(request)
    if request.method in ("GET", "HEAD"):
        return _refused(request, Unavailable("this node has failed, and stops; ask another node"))
    return _refused(request, OutcomeUnknown("this node has failed, and stops; it may have acted on the request"))


def _log_fault(request: web.Request) -> None:
    _log.exception("request_failed", request_id=request_id_of(request), method=request.method, path=request.path)


def _refused(request: web.Request, error: RaftschedError) -> web.Response:
    response = problem_response(problem_of(error))
    if not request.content.is_eof() or FRAMING_HEADER in request.headers:
        # The rest of the body is never read, so this connection can carry no other request.
        response.force_close()
    return response


def _http_error(error: web.HTTPException) -> web.Response:
    response = problem_response(http_problem(error.status, error.reason))
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def _headers_of_every_reply(backend: Backend) -> Any:
    async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
        headers = response.headers
        headers["Server"] = SERVER
        headers[REQUEST_ID_HEADER] = request_id_of(request)
        headers.setdefault("Cache-Control", "no-store")
        if response.status == _UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
            return  # who has no token learns nothing of the cluster
        if REVISION_HEADER not in headers:
            with suppress(Unavailable):
                headers[REVISION_HEADER] = str(backend.stale_state()[0].applied_index)
        leader = backend.api_url if backend.is_leading else backend.leader_url()
        if leader and LEADER_HEADER not in headers:
            headers[LEADER_HEADER] = leader

    return add_headers
