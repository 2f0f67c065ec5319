"""Followers pass requests on to the leader, so that any node answers.

A follower reads the body within its bounds, unparsed, and sends it on over kept-alive connections; the reply comes back
whole before the first byte is passed on, so a leader that dies in between never leaves half an answer behind. Both are
bounded by what the leader accepts and sends. A long poll is passed on like any other request: when the worker goes
away, this node hangs up on the leader, which then drops the wait.

What became of a request that got no reply: before its first byte left, the leader has not seen it (`unavailable`);
later it may have taken effect (`outcome_unknown`), unless it only reads. A change is never sent twice. A read is sent
again at once where the connection broke: that may have been an old one, which the leader was just closing.
`Raftsched-Forwarded` stops loops: a request is passed on once.

Connections to the leader are bounded, and a request waits for a free one. Long polls, which hold one each, have a bound
of their own. Single submits are gathered into few requests (`submit_relay`).

While no leader is known or reachable, which is how an election looks from here, a request waits a little for the next
one, as long as nothing of it can have happened: so the loss of a node is a pause, not an error. It waits for any change
since before it was tried, so that none is missed that came while it failed. A node that was just elected lets wait what
is passed on to it, too: others hear of it before it may serve. The wait counts from the last word of a leader: a node
that has heard none for longer than an election takes, or that led and lost its majority, refuses at once.

A leader that is frozen or cut off keeps its connections and says nothing. Once another one is known, nobody waits for
its reply any longer: what it was not sent, and what only reads, goes to the new leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from aiohttp import web

from raftsched import limits
from raftsched.api.backend import Backend
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.routes import Answered, Handler, Route
from raftsched.api.http.submit_relay import RELAY_PATH, SubmitRelay
from raftsched.api.jobs.routes import submit_in
from raftsched.errors import NotLeader, OutcomeUnknown, Unavailable
from raftsched.exchange import Broken, Exchange, Http, HttpPool, Patience, Reply, TimedOut
from raftsched.wire.common import ReadQuery

FORWARDED_HEADER: Final = "Raftsched-Forwarded"
_CONNECT_SECONDS: Final = 2.0
_SILENCE_SECONDS: Final = 10.0
"""How long a leader may be silent: far longer than any commit takes, and than an election when it is dead."""
_LAST_WORD_SECONDS: Final = 0.5
"""How long a change waits for the reply of a leader that has a successor: one that lives answers within a moment."""
_REQUEST_HEADERS: Final = (
    "Content-Type",
    "Content-Encoding",
    "Idempotency-Key",
    "Authorization",
    "Accept",
    "X-Actor",
    "If-Match",
    "If-None-Match",
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
"""How long after the last word of a leader a request waits for the next one: longer than an ordinary election takes."""
_KEEPALIVE_SECONDS: Final = 60.0
"""Less than a node keeps a connection that is idle, so that none is used while it is closed."""


class _Unanswered(Unavailable):
    """The leader gave no answer, and another one can be asked: the request was never sent, or it only reads."""


class _HungUp(_Unanswered):
    """The connection broke over a request that only reads."""


class _Forward:
    """A request under way to the leader at `url`; `patience` ends the wait for its reply."""

    def __init__(self, url: str, exchange: Exchange, patience: asyncio.Timeout) -> None:
        self.url: Final = url
        self.exchange: Final = exchange
        self.patience: Final = patience

    @property
    def is_harmless(self) -> bool:
        """Whether nothing can have happened yet."""
        return not self.exchange.is_sent or self.exchange.method == "GET"

    def end(self) -> None:
        """Somebody else leads now."""
        if self.patience.when() is None:
            seconds = 0.0 if self.is_harmless else _LAST_WORD_SECONDS
            self.patience.reschedule(asyncio.get_running_loop().time() + seconds)


class Forwarder:
    """Sends requests on to the leader's API through one pool of connections."""

    def __init__(
        self,
        backend: Backend,
        bodies: Bodies,
        *,
        election_seconds: float = ELECTION_SECONDS,
        http: Http | None = None,
    ) -> None:
        self._backend = backend
        self._bodies = bodies
        self._election_seconds = election_seconds
        self._http = http or _pool(limits.FORWARD_CONNECTIONS_MAX)
        self._http_of_waits = http or _pool(limits.FORWARDED_WAITS_MAX)
        self._relays: dict[str, SubmitRelay] = {}
        """By the URL of the leader, or of one that led."""
        self._is_running = False
        self._under_way: dict[_Forward, None] = {}
        """In the order of their starts, so that they end in the same order in each run of the simulator."""

    async def run(self, app: web.Application) -> AsyncIterator[None]:
        """Hold the connections for as long as `app` runs; one of its `cleanup_ctx`."""
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
        """Return the handler of `route` that passes on what another node must answer."""
        if route.answered is Answered.HERE:
            return route.handler
        may_be_stale = route.answered is Answered.BY_LEADER_UNLESS_STALE
        if route.query is not None and issubclass(route.query, ReadQuery):
            route = replace(route, handler=self._confirming(route.handler))

        async def answer(request: web.Request) -> web.StreamResponse:
            if may_be_stale and request.query.get("consistency") == "stale":
                return await route.handler(request)
            came_at = asyncio.get_running_loop().time()
            while True:
                seen = self._backend.leader_change_count
                try:
                    return await self._answer(request, route)
                except Unavailable as error:
                    give_up_at = self._led_until(came_at) + self._election_seconds
                    if not self._is_election(error) or not await self._leader_change(request, seen, give_up_at):
                        raise

        return answer

    def _confirming(self, handler: Handler) -> Handler:
        """Return the handler of a read that a majority confirms first, where the request wants that."""

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.query.get("consistency") == "quorum":
                await self._backend.confirm_lead()
            return await handler(request)

        return answer

    def _led_until(self, came_at: float) -> float:
        """Return when an election began, as far as a request that came at `came_at` has to wait for its end."""
        backend = self._backend
        if backend.is_leading or backend.leader_url() is not None:
            return came_at
        _, age_ms = backend.stale_state()
        return came_at if age_ms < 0 else min(came_at, asyncio.get_running_loop().time() - age_ms / 1000)

    async def _answer(self, request: web.Request, route: Route) -> web.StreamResponse:
        leader_url = self.leader_elsewhere(request)
        if leader_url is not None:
            await self._bodies.read(request)
            leader_url = self.leader_elsewhere(request)  # which may have changed while the body arrived
        if leader_url is None:
            return await route.handler(request)
        wait_seconds = _SILENCE_SECONDS + (limits.LEASE_WAIT_SECONDS_MAX if route.waits else 0.0)
        return await self.forward(request, leader_url, route, wait_seconds=wait_seconds)

    def _is_election(self, error: Unavailable) -> bool:
        """Whether `error` says that nothing happened, and nobody leads or can be reached for now."""
        if isinstance(error, NotLeader | _Unanswered):
            return True
        # A node that was just elected is there within a moment; one that leads and is overloaded is not waited for.
        return type(error) is Unavailable and not self._backend.is_leading

    async def _leader_change(self, request: web.Request, seen: int, give_up_at: float) -> bool:
        """Wait for news of a leader; False where none came in time, or the request must be passed on a second time."""
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
        """Return the URL to pass `request` on to; None where this node leads, or no leader is known.

        Raises `NotLeader` for a request that was passed on already: two nodes disagree about who leads.
        """
        leader_url = self._backend.leader_url()
        if leader_url is not None and FORWARDED_HEADER in request.headers:
            raise NotLeader(leader_url)
        return leader_url

    async def forward(
        self, request: web.Request, leader_url: str, route: Route | None = None, *, wait_seconds: float
    ) -> web.Response:
        """Return the leader's reply to a request, of `route` if that is known.

        Raises `Unavailable`, or `OutcomeUnknown` where the leader may have acted: it hung up, was silent for
        `wait_seconds`, or said nothing although another one leads.
        """
        if not self._is_running:
            raise Unavailable("this node is stopping")
        body = await self._bodies.read(request)
        if route is not None and route.is_relayed and SubmitRelay.fits(body):
            return await self._relayed(request, leader_url)
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        headers[FORWARDED_HEADER] = "1"
        # The reply to a HEAD is that to a GET, and left out of it here: so its length is told.
        method = "GET" if request.method == "HEAD" else request.method
        url = leader_url + request.rel_url.raw_path_qs
        queue_seconds = min(wait_seconds, _SILENCE_SECONDS)
        patience = Patience(_CONNECT_SECONDS, silence_seconds=wait_seconds, queue_seconds=queue_seconds)
        http = self._http_of_waits if route is not None and route.waits else self._http
        if method == "GET":
            with suppress(_HungUp):
                return _response(await self._sent(http, leader_url, Exchange(method, url, headers=headers), patience))
        exchange = Exchange(method, url, headers=headers, body=body or None)
        return _response(await self._sent(http, leader_url, exchange, patience))

    async def _relayed(self, request: web.Request, leader_url: str) -> web.Response:
        """Pass a submit on with others; raises as `forward` does."""
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
        patience = Patience(_CONNECT_SECONDS, silence_seconds=_SILENCE_SECONDS, queue_seconds=_SILENCE_SECONDS)
        return await self._sent(self._http, leader_url, exchange, patience)

    async def _sent(self, http: Http, leader_url: str, exchange: Exchange, patience: Patience) -> Reply:
        """Send `exchange`, which is not sent again, and return what of the reply is passed on; raises as `forward`."""
        forward = _Forward(leader_url, exchange, asyncio.timeout(None))
        self._under_way[forward] = None
        try:
            async with forward.patience:
                return _passed_on(await http.send(exchange, patience))
        except (Broken, TimeoutError) as error:
            if not exchange.is_sent:
                raise _Unanswered("the leader can't be reached; retry in a moment") from error
            if forward.is_harmless:
                kind = _Unanswered if isinstance(error, TimedOut | TimeoutError) else _HungUp
                raise kind("the leader gave no answer; retry in a moment") from error
            raise OutcomeUnknown("the leader gave no answer; it may have acted on the request") from error
        finally:
            self._under_way.pop(forward, None)

    async def _end_outdated(self) -> None:
        """End the waits for leaders that have a successor, whenever there is one."""
        backend = self._backend
        while True:
            seen = backend.leader_change_count
            leader_url = backend.api_url if backend.is_leading else backend.leader_url()
            if leader_url is not None:
                for forward in self._under_way:
                    if forward.url != leader_url:
                        forward.end()
            await backend.leader_change(seen)


def _pool(connections_max: int) -> HttpPool:
    return HttpPool(keepalive_seconds=_KEEPALIVE_SECONDS, connections_max=connections_max, decompress=False)


def _passed_on(reply: Reply) -> Reply:
    headers = {name: reply.headers[name] for name in _REPLY_HEADERS if name in reply.headers}
    return reply._replace(headers=headers)


def _response(reply: Reply) -> web.Response:
    return web.Response(body=reply.body, status=reply.status, headers=reply.headers)
