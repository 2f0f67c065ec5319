"""Forward requests from followers to the leader, so that any node answers.

A follower reads the body within its limits, unparsed, and sends it over kept-alive connections. It receives the whole
reply before it passes on the first byte, so a leader that fails never leaves half a reply. The leader's limits bound
both sizes. A long poll is forwarded like any other request: when the worker disconnects, this node closes its
connection to the leader, which then ends the wait.

A request without a reply has two meanings. If nothing was sent, the leader has not seen it (`unavailable`). Otherwise
it may have taken effect (`outcome_unknown`), unless it only reads. A change is never sent twice. A read is sent again
at once if the connection broke: the leader may just have closed an idle one. `Raftsched-Forwarded` stops loops: a
request is forwarded once.

Connections to the leader are limited, and a request waits for a free one. Long polls, which hold one each, have their
own limit. Single submits are joined into few requests (`submit_relay`).

While no leader is known or reachable, as in an election, a request waits for the next leader for a short time, if it
cannot have had any effect. So the loss of a node is a pause, not an error. It waits for any change since before its
attempt, so that it misses none during the attempt. A newly elected node also lets forwarded requests wait: other nodes
know of it before it may serve. The wait counts from a leader's last message: a node without one for longer than an
election takes, or one that led and lost its majority, rejects at once.

A leader that is frozen or isolated keeps its connections and does not answer. Once another leader is known, no request
waits for the old one: unsent requests and reads go to the new leader. So does a request that the old one refused, since it
leads no more, if that refusal comes after the election.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from typing import Final

import msgspec
from aiohttp import web

from raftsched import limits
from raftsched.api.access.door import CALLER_HEADERS, CREDENTIALS_HEADER, Door
from raftsched.api.access.origin import origin_headers
from raftsched.api.backend import Backend
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.routes import Answered, Handler, Route
from raftsched.api.http.submit_relay import RELAY_PATH, SubmitRelay, submit_in
from raftsched.api.request_id import REQUEST_ID_HEADER, request_id_of
from raftsched.errors import DiskStalled, NoMajority, NotLeader, OutcomeUnknown, RaftschedError, Unavailable
from raftsched.exchange import Broken, Exchange, Http, HttpPool, Reply, TimedOut, Timeouts
from raftsched.wire.common import Problem, ReadQuery
from raftsched.wire.workers import CALLBACK_TOKEN_HEADER

FORWARDED_HEADER: Final = "Raftsched-Forwarded"
_CONNECT_SECONDS: Final = 2.0
_SILENCE_SECONDS: Final = 10.0
"""Longest wait for a leader's reply: far longer than a commit takes, or an election after its failure."""
_REPLACED_LEADER_SECONDS: Final = 0.5
"""Time for which a change waits for the reply of a replaced leader: if it is alive, it answers at once."""
REQUEST_HEADERS: Final = (
    "Content-Type",
    "Content-Encoding",
    "Idempotency-Key",
    "Accept",
    *CALLER_HEADERS,
    "If-Match",
    "If-None-Match",
    CALLBACK_TOKEN_HEADER,
)
_REPLY_HEADERS: Final = (
    "Content-Type",
    "Location",
    "ETag",
    "Retry-After",
    "Raftsched-Revision",
    "Raftsched-Leader",
    "Raftsched-Age-Ms",
)
ELECTION_SECONDS: Final = 2.5
"""Time after a leader's last message for which a request waits for the next leader: longer than most elections."""
_OK: Final = 200
_NOT_LEADING: Final = frozenset({NotLeader.code, NoMajority.code, DiskStalled.code})
"""Codes of a node that did nothing, since it can't lead."""
_KEEPALIVE_SECONDS: Final = 60.0
"""Less than the time for which a node keeps an idle connection, so that none is used while it is being closed."""


class _Unanswered(Unavailable):
    """The leader did nothing, and another one can be asked: the request was never sent, only reads, or was refused."""


class _ConnectionLost(_Unanswered):
    """The connection broke during a request that only reads."""


class _Forward:
    """A request in progress at the leader `url`; `timeout` ends the wait for its reply."""

    def __init__(self, url: str, exchange: Exchange, timeout: asyncio.Timeout) -> None:
        self.url: Final = url
        self.exchange: Final = exchange
        self.timeout: Final = timeout

    @property
    def is_harmless(self) -> bool:
        """Return whether the request cannot have changed anything."""
        return not self.exchange.is_sent or self.exchange.method == "GET"

    def end(self) -> None:
        """End the wait, since another node leads now."""
        if self.timeout.when() is None:
            seconds = 0.0 if self.is_harmless else _REPLACED_LEADER_SECONDS
            self.timeout.reschedule(asyncio.get_running_loop().time() + seconds)


class Forwarder:
    """Forwards requests to the leader's API through one pool of connections."""

    def __init__(
        self,
        backend: Backend,
        bodies: Bodies,
        door: Door,
        *,
        election_seconds: float = ELECTION_SECONDS,
        http: Http | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._backend = backend
        self._bodies = bodies
        self._door = door
        self._election_seconds = election_seconds
        self._http = http or _pool(limits.FORWARD_CONNECTIONS_MAX, tls)
        self._http_of_waits = http or _pool(limits.FORWARDED_WAITS_MAX, tls)
        self._relays: dict[str, SubmitRelay] = {}
        """Relays by the URL of the leader, or of a former one."""
        self._is_running = False
        self._under_way: dict[_Forward, None] = {}
        """Requests in the order of their starts, so that they end in the same order in each run of the simulator."""

    async def run(self, app: web.Application) -> AsyncIterator[None]:
        """Keep the connections while `app` runs; one of its `cleanup_ctx`."""
        del app
        self._is_running = True
        watch = asyncio.create_task(self._end_outdated(), name="forwards")
        yield
        self._is_running = False
        watch.cancel()
        await asyncio.wait((watch,))
        for relay in self._relays.values():
            await relay.close()
        for http in (self._http, self._http_of_waits):
            await http.close()

    def at_leader(self, route: Route) -> Handler:
        """Return the handler of `route`, with forwarding of requests that another node must answer."""
        if route.answered is Answered.HERE:
            return route.handler
        may_be_stale = route.answered is Answered.BY_LEADER_UNLESS_STALE

        async def answer(request: web.Request) -> web.StreamResponse:
            if may_be_stale and request.query.get("consistency") == "stale":
                return await route.handler(request)
            arrived_at = asyncio.get_running_loop().time()
            while True:
                seen = self._backend.leader_change_count
                try:
                    return await self._answer(request, route)
                except Unavailable as error:
                    give_up_at = self._led_until(arrived_at) + self._election_seconds
                    if not self._is_election(error) or not await self._leader_change(request, seen, give_up_at):
                        raise

        return answer

    def confirming(self, route: Route) -> Route:
        """Return `route`; if it is a read, and the request asks for it, a majority confirms the leader first."""
        if route.answered is Answered.HERE or route.query is None or not issubclass(route.query, ReadQuery):
            return route

        @wraps(route.handler)
        async def answer(request: web.Request) -> web.StreamResponse:
            if request.query.get("consistency") == "quorum":
                await self._backend.confirm_lead()
            return await route.handler(request)

        return replace(route, handler=answer)

    def _led_until(self, arrived_at: float) -> float:
        """Return the time of the last known leader, at most `arrived_at`: the start of a request's wait for the next
        one.
        """
        backend = self._backend
        if backend.is_leading or backend.leader_url() is not None:
            return arrived_at
        _, age_ms = backend.stale_state()
        return arrived_at if age_ms < 0 else min(arrived_at, asyncio.get_running_loop().time() - age_ms / 1000)

    async def _answer(self, request: web.Request, route: Route) -> web.StreamResponse:
        leader_url = self.leader_elsewhere(request)
        if leader_url is not None:
            await self._bodies.read(request)
            leader_url = self.leader_elsewhere(request)  # it may have changed while the body arrived
        if leader_url is None:
            return await route.handler(request)
        wait_seconds = _SILENCE_SECONDS + (limits.LEASE_WAIT_SECONDS_MAX if route.waits else 0.0)
        return await self.forward(request, leader_url, route, wait_seconds=wait_seconds)

    def _is_election(self, error: Unavailable) -> bool:
        """Return whether `error` means that nothing was changed, and that no leader is known or reachable now."""
        if isinstance(error, NotLeader | _Unanswered):
            return True
        # A newly elected node is ready soon. A leader that is overloaded is not waited for.
        return type(error) is Unavailable and not self._backend.is_leading

    async def _leader_change(self, request: web.Request, seen: int, give_up_at: float) -> bool:
        """Wait for a change of leader; False if none came in time, or if the request was forwarded already."""
        if give_up_at <= asyncio.get_running_loop().time():
            return False
        if FORWARDED_HEADER in request.headers and self._backend.leader_url() is not None:
            return False
        try:
            async with asyncio.timeout_at(give_up_at):
                await self._backend.leader_change(seen)
        except TimeoutError:
            return False
        return True

    def leader_elsewhere(self, request: web.Request) -> str | None:
        """Return the URL to forward `request` to; None if this node leads, or no leader is known.

        Raises `NotLeader` for a request that was forwarded already: two nodes disagree about the leader.
        """
        leader_url = self._backend.leader_url()
        if leader_url is not None and FORWARDED_HEADER in request.headers:
            raise NotLeader(leader_url)
        return leader_url

    async def forward(
        self, request: web.Request, leader_url: str, route: Route | None = None, *, wait_seconds: float
    ) -> web.Response:
        """Return the leader's reply to a request, of `route` if that is known.

        Raises `Unavailable`, or `OutcomeUnknown` if the leader may have acted: it closed the connection, did not answer
        for `wait_seconds`, or did not answer before another one led.
        """
        if not self._is_running:
            raise Unavailable("this node is stopping")
        body = await self._bodies.read(request)
        if route is not None and route.is_relayed and SubmitRelay.fits(body) and self._is_known(request):
            return await self._relayed(request, leader_url)
        headers = {name: request.headers[name] for name in REQUEST_HEADERS if name in request.headers}
        headers[FORWARDED_HEADER] = "1"
        headers[REQUEST_ID_HEADER] = request_id_of(request)
        headers |= origin_headers(self._door)
        # A HEAD is forwarded as a GET, and its body is left out here: so the reply has the right length.
        method = "GET" if request.method == "HEAD" else request.method
        url = leader_url + request.rel_url.raw_path_qs
        queue_seconds = min(wait_seconds, _SILENCE_SECONDS)
        timeouts = Timeouts(_CONNECT_SECONDS, silence_seconds=wait_seconds, queue_seconds=queue_seconds)
        http = self._http_of_waits if route is not None and route.waits else self._http
        if method == "GET":
            with suppress(_ConnectionLost):
                return _response(await self._sent(http, leader_url, Exchange(method, url, headers=headers), timeouts))
        exchange = Exchange(method, url, headers=headers, body=body or None)
        return _response(await self._sent(http, leader_url, exchange, timeouts))

    async def ask(self, request: web.Request, url: str, path: str, *, seconds: float) -> bytes | None:
        """Read `path` of the node at `url` for the caller of `request`; None without a good answer in that time."""
        if not self._is_running:
            return None
        headers = {name: request.headers[name] for name in CALLER_HEADERS if name in request.headers}
        headers |= {FORWARDED_HEADER: "1", REQUEST_ID_HEADER: request_id_of(request)}
        exchange = Exchange("GET", url + path, headers=headers)
        try:
            reply = await self._http.send(exchange, Timeouts(seconds, total_seconds=seconds, queue_seconds=seconds))
        except (Broken, TimeoutError):
            return None
        return reply.body if reply.status == _OK else None

    async def tell(self, leader_url: str, path: str, body: bytes, credentials: str) -> bool:
        """Send `body` to `path` of the leader, for this node itself; return whether that was taken."""
        if not self._is_running:
            return False
        headers = {"Content-Type": "application/msgpack", CREDENTIALS_HEADER: credentials, FORWARDED_HEADER: "1"}
        timeouts = Timeouts(_CONNECT_SECONDS, silence_seconds=_SILENCE_SECONDS, queue_seconds=_SILENCE_SECONDS)
        exchange = Exchange("POST", leader_url + path, headers=headers, body=body)
        try:
            return (await self._sent(self._http, leader_url, exchange, timeouts)).status == _OK
        except RaftschedError:
            return False

    def _is_known(self, request: web.Request) -> bool:
        """Return whether this node knows the caller; one that it doesn't may be refused, which must delay no other."""
        try:
            self._door.principal(request.headers)
        except RaftschedError:
            return False
        return True

    async def _relayed(self, request: web.Request, leader_url: str) -> web.Response:
        """Forward a submit together with others; raises as `forward` does."""
        submit = submit_in(request, await self._bodies.read_json(request))
        relay = self._relays.get(leader_url)
        if relay is None:
            relay = self._relays[leader_url] = SubmitRelay(partial(self._send_relay, leader_url))
        return await relay.submit(submit, seconds=_SILENCE_SECONDS)

    async def _send_relay(self, leader_url: str, body: bytes) -> Reply:
        if self._backend.leader_url() != leader_url:
            raise _Unanswered("another node leads now")
        headers = {"Content-Type": "application/msgpack", FORWARDED_HEADER: "1"}
        exchange = Exchange("POST", leader_url + RELAY_PATH, headers=headers, body=body)
        timeouts = Timeouts(_CONNECT_SECONDS, silence_seconds=_SILENCE_SECONDS, queue_seconds=_SILENCE_SECONDS)
        return await self._sent(self._http, leader_url, exchange, timeouts)

    async def _sent(self, http: Http, leader_url: str, exchange: Exchange, timeouts: Timeouts) -> Reply:
        """Send `exchange` once, and return the reply with the headers to pass on; raises as `forward`."""
        forward = _Forward(leader_url, exchange, asyncio.timeout(None))
        self._under_way[forward] = None
        try:
            async with forward.timeout:
                reply = await http.send(exchange, timeouts)
        except (Broken, TimeoutError) as error:
            if not exchange.is_sent:
                raise _Unanswered("the leader can't be reached; retry in a moment") from error
            if forward.is_harmless:
                kind = _Unanswered if isinstance(error, TimedOut | TimeoutError) else _ConnectionLost
                raise kind("the leader gave no answer; retry in a moment") from error
            raise OutcomeUnknown("the leader gave no answer; it may have acted on the request") from error
        finally:
            self._under_way.pop(forward, None)
        if self._leads_now() not in (None, leader_url) and _is_not_leading(reply):
            raise _Unanswered("another node leads now; retry in a moment")
        return _forwarded(reply)

    def _leads_now(self) -> str | None:
        """Return the URL of the leader, this node or another one; None if none is known."""
        backend = self._backend
        return backend.api_url if backend.is_leading else backend.leader_url()

    async def _end_outdated(self) -> None:
        """End the waits for a replaced leader, at each change of leader."""
        backend = self._backend
        while True:
            seen = backend.leader_change_count
            leader_url = self._leads_now()
            if leader_url is not None:
                for forward in self._under_way:
                    if forward.url != leader_url:
                        forward.end()
            await backend.leader_change(seen)


def _pool(connections_max: int, tls: ssl.SSLContext | None) -> HttpPool:
    return HttpPool(tls=tls, keepalive_seconds=_KEEPALIVE_SECONDS, connections_max=connections_max, decompress=False)


def _is_not_leading(reply: Reply) -> bool:
    """Return whether a node refused a request because it can't lead, so that it did nothing."""
    if reply.status != NotLeader.http_status:
        return False
    try:
        return msgspec.json.decode(reply.body, type=Problem).code in _NOT_LEADING
    except msgspec.DecodeError:
        return False


def _forwarded(reply: Reply) -> Reply:
    headers = {name: reply.headers[name] for name in _REPLY_HEADERS if name in reply.headers}
    return reply._replace(headers=headers)


def _response(reply: Reply) -> web.Response:
    return web.Response(body=reply.body, status=reply.status, headers=reply.headers)
