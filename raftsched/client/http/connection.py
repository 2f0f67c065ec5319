"""Send requests to the cluster over one connection pool: ask a node, follow the leader, avoid nodes that fail.

`attempt` sends one request to one node and returns its result; `call` repeats it within the retry budget. Requests that
change something can be repeated: they carry an id (idempotency key, completion id, fencing token), or a second
execution changes nothing.

An attempt without a reply has two meanings. If nothing was sent, the cluster has not seen it. Otherwise it may have
taken effect (`OutcomeUnknown`). Each attempt is sent at most once (`raftsched.exchange`).

Failed nodes and learned addresses are probed in the background (`nodes`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from yarl import URL

from raftsched import limits
from raftsched.client.http.client_tls import client_tls
from raftsched.client.http.hedge import HedgedRequest, Request
from raftsched.client.http.nodes import Nodes
from raftsched.client.http.problems import read_problem
from raftsched.client.http.retries import Failure, Retries, definite, given_up
from raftsched.client.http.settings import ClientSettings
from raftsched.client.http.token import caller_headers
from raftsched.errors import Invalid, OutcomeUnknown, QuotaExceeded, RaftschedError, Unavailable
from raftsched.exchange import Broken, Exchange, Http, HttpPool, Reply, StreamedReply, Timeouts
from raftsched.ports import Clock, Randomness
from raftsched.system import SystemClock, system_randomness
from raftsched.wire.cluster import ClusterStatus, HealthReply

API = "/api/v1"
_LEADER = "Raftsched-Leader"
_AGE = "Raftsched-Age-Ms"
"""Of stale answers, which any node gives, also one that can't serve anything else."""
_OVERLOAD = frozenset({429, 507})
"""Retry-After is obeyed for these statuses, and from the leader. A node without a leader cannot know when one is
elected: waiting for its second would make every election longer by that."""
_FILE_NAME = re.compile(r'filename="([A-Za-z0-9_.-]{1,200})"')
_log = logging.getLogger(__name__)
"""A standard logger, silent by default: a library must not write to the standard output of a program."""


_decode_health = msgspec.json.Decoder(HealthReply).decode
_decode_cluster = msgspec.json.Decoder(ClusterStatus).decode


class Download(NamedTuple):
    """A long reply that is arriving."""

    name: str
    """The name that the node proposes for its file; "" if none."""
    size_bytes: int
    parts: AsyncIterator[bytes]


class Connection:
    """Requests to the cluster over kept-alive connections; belongs to the event loop that first opens or uses it."""

    def __init__(
        self,
        nodes: Nodes,
        settings: ClientSettings,
        *,
        token: str | None = None,
        tenant: str | None = None,
        actor: str | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        http: Http | None = None,
    ) -> None:
        """Connect to `nodes` with `http`, by default a pool of connections that trusts `tls`; see `client_tls`."""
        self.nodes = nodes
        self.settings = settings
        self.clock = clock or SystemClock()
        self.randomness = randomness or system_randomness()
        self._http = http or HttpPool(tls=client_tls(tls))
        self._headers = {"Content-Type": "application/json"}
        self._headers |= caller_headers(token, tenant)
        if actor is not None:
            self._headers["Raftsched-Actor"] = _checked_actor(actor)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._learning: asyncio.Task[None] | None = None
        self._learned_from = ""
        self._probing: asyncio.Task[None] | None = None
        self._is_closed = False

    def bind(self) -> None:
        """Bind this to the running event loop; raises `RuntimeError` if it is bound to another one, unless closed."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop and not self._is_closed:
            raise RuntimeError(
                "this client belongs to another event loop: open a Client in each loop,"
                " or use Client.blocking(), which every thread may call"
            )

    async def close(self) -> None:
        """Close the connections; a request after it raises `Unavailable`. Closing twice is fine."""
        self.bind()
        self._is_closed = True
        background = [task for task in (self._learning, self._probing) if task is not None]
        for task in background:
            task.cancel()
        if background:
            await asyncio.wait(background)
        await self._http.close()

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        retry_seconds: float | None = None,
        timeout_seconds: float | None = None,
    ) -> bytes:
        """Return the body of the successful reply, with retries for at most `retry_seconds` (default: the settings').

        Raises the cluster's error. Once the retries are used up, raises `OutcomeUnknown` (a change may have taken
        effect) or `Unavailable` (it has not). A rejected repetition leaves the outcome unknown; see `definite`.
        """
        retries = Retries(self.settings, self.randomness)
        budget = self.settings.retry_seconds if retry_seconds is None else retry_seconds
        deadline = self.clock.monotonic() + budget
        maybe_applied = False
        while True:
            request = Request(method, path, body, query=query, headers=headers)
            if timeout_seconds is None:
                hedged = HedgedRequest(self, request, may_hedge=method == "GET")
                answer = await hedged.answer()
                maybe_applied |= method != "GET" and hedged.maybe_applied
            else:
                answer = await self.attempt(request, timeout_seconds=timeout_seconds)
            if isinstance(answer, bytes):
                return answer
            if not answer.error.retryable:
                raise definite(answer.error, maybe_applied=maybe_applied)
            maybe_applied |= method != "GET" and isinstance(answer.error, OutcomeUnknown)
            pause = retries.next_pause(answer.retry_after_seconds)
            if self.clock.monotonic() + pause >= deadline:
                raise given_up(answer.error, maybe_applied=maybe_applied)
            await asyncio.sleep(pause)

    async def attempt(self, request: Request, *, timeout_seconds: float | None = None) -> bytes | Failure:
        """Send `request` once to the current node; return the body of a 2xx reply, or the failure.

        After a failure, `nodes` has another current node. Raises only `asyncio.CancelledError`, and `Unavailable` if
        this connection is closed.
        """
        base = self.nodes.current
        return await self.send(base, self.exchange(base, request), timeout_seconds)

    async def send(self, base: str, exchange: Exchange, timeout_seconds: float | None = None) -> bytes | Failure:
        """Send `exchange`, which must be new, to the node at `base`; otherwise as `attempt`."""
        http = self._opened()
        total_seconds = timeout_seconds or self.settings.request_timeout_seconds
        connect_seconds = min(total_seconds, self.settings.connect_timeout_seconds)
        try:
            reply = await http.send(exchange, Timeouts(connect_seconds, total_seconds))
        except Broken as error:
            return self._broken(base, exchange, error)
        return self._judged(base, reply.status, reply.headers, reply.body)

    def exchange(self, base: str, request: Request) -> Exchange:
        """Return a new exchange of `request` with the node at `base`."""
        url = f"{base}{API}{request.path}"
        return Exchange(
            request.method,
            str(URL(url, encoded=True).with_query(request.query)) if request.query else url,
            headers={**self._headers, **request.headers} if request.headers else self._headers,
            body=request.body,
        )

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], headers: Mapping[str, str], silence_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes] | Failure]:
        """Open an endless reply from the current node; yield its lines, or the failure.

        The lines end with the connection, or after `silence_seconds` without any; then `nodes` has another current
        node.
        """
        base = self.nodes.current
        exchange = self.exchange(base, Request("GET", path, query=query, headers=headers))
        async with self._streamed(base, exchange, silence_seconds) as reply:
            if isinstance(reply, Failure):
                yield reply
                return
            self.nodes.answered(base)
            self._learn(reply.headers.get(_LEADER))
            yield self._lines(base, exchange, reply)

    @asynccontextmanager
    async def download(self, path: str, *, silence_seconds: float) -> AsyncIterator[Download | Failure]:
        """Read a long reply of the current node; yield it, or the failure. Its parts raise `Unavailable`."""
        base = self.nodes.current
        exchange = self.exchange(base, Request("GET", path))
        async with self._streamed(base, exchange, silence_seconds) as reply:
            if isinstance(reply, Failure):
                yield reply
            else:
                yield Download(_file_name(reply.headers), _size(reply.headers), self._parts(base, exchange, reply))

    @asynccontextmanager
    async def _streamed(
        self, base: str, exchange: Exchange, silence_seconds: float
    ) -> AsyncIterator[StreamedReply | Failure]:
        """Send a request and yield its reply, whose body is still to come; or the failure, or the refusal."""
        timeouts = Timeouts(self.settings.connect_timeout_seconds, silence_seconds=silence_seconds)
        async with AsyncExitStack() as stack:
            try:
                reply = await stack.enter_async_context(self._opened().stream(exchange, timeouts))
            except Broken as error:
                yield self._broken(base, exchange, error)
                return
            yield reply if reply.status == HTTPStatus.OK else await self._refused(base, exchange, reply)

    async def _parts(self, base: str, exchange: Exchange, reply: StreamedReply) -> AsyncIterator[bytes]:
        try:
            async for part in reply.parts():
                yield part
        except Broken as error:
            self._broken(base, exchange, error)
            raise Unavailable(f"the reply of {base} broke off: {error}") from error

    async def _lines(self, base: str, exchange: Exchange, reply: StreamedReply) -> AsyncIterator[bytes]:
        try:
            async for line in reply.lines():
                yield line
        except Broken as error:
            self._broken(base, exchange, error)
            return
        self.nodes.pass_over(base)

    async def _refused(self, base: str, exchange: Exchange, reply: StreamedReply) -> Failure:
        try:
            content = await reply.read()
        except Broken as error:
            return self._broken(base, exchange, error)
        answer = self._judged(base, reply.status, reply.headers, content)
        return answer if isinstance(answer, Failure) else Failure(OutcomeUnknown(f"an answer of status {reply.status}"))

    def _broken(self, base: str, exchange: Exchange, error: Broken) -> Failure:
        """Return the failure of a request without a reply; the next request goes to another node."""
        self.nodes.failed(base, self.clock.monotonic())
        self._probe_if_due()
        _log.debug("no_reply: %s %s, sent: %s: %s", exchange.method, exchange.url, exchange.is_sent, error)
        if not exchange.is_sent:
            return Failure(Unavailable(f"can't connect to {base}: {error}"))
        return Failure(OutcomeUnknown(f"no reply from {base}: {error}"))

    def _judged(self, base: str, status: int, headers: Mapping[str, str], content: bytes) -> bytes | Failure:
        leader = headers.get(_LEADER)
        is_success, failure = 200 <= status < 300, None
        if is_success and _AGE not in headers:
            self.nodes.served(base)
        else:
            self.nodes.answered(base)
        if not is_success:
            error, leads = read_problem(status, content), leader == base
            # A leader that does not know an outcome refuses nothing. Mostly it was elected while this request, which it had
            # forwarded, was with its predecessor. So it is the node to ask again, at once.
            is_unknown_to_leader = leads and isinstance(error, OutcomeUnknown)
            asks_for_time = (leads or status in _OVERLOAD) and not is_unknown_to_leader
            failure = Failure(error, _retry_after(headers) if asks_for_time else 0.0)
            if error.retryable and not is_unknown_to_leader and not isinstance(error, QuotaExceeded):
                self.nodes.refused(base)
        if leader:
            self.nodes.follow(leader)
            self._learn(leader)
        self._probe_if_due()
        return content if failure is None else failure

    async def probe(self, base: str) -> bool:
        """Return whether the node at `base` answers; if not, suspect it. No token is sent."""
        exchange = Exchange("GET", f"{base}/healthz", headers={})
        seconds = self.settings.hedge_seconds
        try:
            reply = await self._opened().send(exchange, Timeouts(seconds, seconds))
        except Broken:
            reply = None
        if reply is not None and (self.nodes.is_configured(base) or _is_from_node(reply)):
            self.nodes.answered(base)
            return True
        self.nodes.failed(base, self.clock.monotonic())
        return False

    def _probe_if_due(self) -> None:
        """Start probes of the nodes that are due for one, in the background."""
        if self.nodes.probe_at > self.clock.monotonic():
            return
        if self._probing is None or self._probing.done():
            self._probing = asyncio.get_running_loop().create_task(self._probe_due())

    async def _probe_due(self) -> None:
        await asyncio.gather(*map(self.probe, self.nodes.due(self.clock.monotonic())))

    def _opened(self) -> Http:
        if self._is_closed:
            raise Unavailable("this client is closed")
        self.bind()
        return self._http

    def _learn(self, leader: str | None) -> None:
        """Read the list of nodes in the background, once for each leader, so that other nodes are known if it fails."""
        if not leader or leader == self._learned_from or not self.settings.follow_leader:
            return
        self._learned_from = leader
        if self._learning is None or self._learning.done():
            self._learning = asyncio.get_running_loop().create_task(self._read_cluster())

    async def _read_cluster(self) -> None:
        try:
            cluster = _decode_cluster(await self.call("GET", "/cluster"))
        except (RaftschedError, msgspec.DecodeError) as error:
            _log.debug("cluster_not_learned: %s", error)
            return
        self.nodes.learn(node.api for node in cluster.nodes if node.api)
        self._probe_if_due()


def _is_from_node(reply: Reply) -> bool:
    """Return whether a reply to a probe is from a node: a learned address may belong to another service here."""
    try:
        return reply.status == HTTPStatus.OK and bool(_decode_health(reply.body).node)
    except msgspec.DecodeError:
        return False


def _checked_actor(actor: str) -> str:
    if not actor.strip() or not actor.isprintable() or len(actor.encode()) > limits.ACTOR_CHARS_MAX:
        raise Invalid(f"actor: 1 to {limits.ACTOR_CHARS_MAX} bytes of printable text, not {actor!r}", field="actor")
    return actor


def _file_name(headers: Mapping[str, str]) -> str:
    found = _FILE_NAME.search(headers.get("Content-Disposition", ""))
    return found[1] if found else ""


def _size(headers: Mapping[str, str]) -> int:
    text = headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds of Retry-After; 0 if there is none, or a date, which our servers never send."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0.0
