"""One connection pool to the whole cluster: asks a node, follows the leader, moves on from nodes that fail.

`attempt` is one request to one node and says what became of it; `call` repeats it within the retry budget. Requests
that change something carry their own names (idempotency key, completion id, fencing token), so repeating them is
always safe; that is the caller's side of the bargain.

What an attempt that got no reply means: the connection was never made = the cluster has not seen it; anything later =
it may have taken effect (`OutcomeUnknown`). Redirects are not followed and cookies not kept: no node sends any.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp
import msgspec
import structlog
from yarl import URL

from raftsched import limits
from raftsched.client.nodes import Nodes
from raftsched.client.problems import read_problem
from raftsched.client.retries import Failure, Retries, given_up
from raftsched.client.settings import ClientSettings
from raftsched.errors import Invalid, OutcomeUnknown, RaftschedError, Unavailable
from raftsched.ports import Clock, Randomness
from raftsched.system import SystemClock, system_randomness

API = "/api/v1"
_LEADER = "Raftsched-Leader"
_OVERLOAD = frozenset({429, 507})
"""With these, and from the leader, Retry-After is obeyed. A node without a leader can't know when there will be one:
waiting for a second then would make every election that much longer."""
_NEVER_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_BROKEN = (aiohttp.ClientError, TimeoutError, OSError)
_log = structlog.get_logger(__name__)


class _Node(msgspec.Struct):
    api: str | None = None


class _Cluster(msgspec.Struct):
    nodes: list[_Node] = []


_decode_cluster = msgspec.json.Decoder(_Cluster).decode


class Connection:
    """Requests to the cluster over kept-alive connections; belongs to the event loop that first opens or uses it."""

    def __init__(
        self,
        nodes: Nodes,
        settings: ClientSettings,
        *,
        token: str | None = None,
        actor: str | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.nodes = nodes
        self.settings = settings
        self.clock = clock or SystemClock()
        self.randomness = randomness or system_randomness()
        self._tls = tls
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        if actor is not None:
            self._headers["X-Actor"] = _checked_actor(actor)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None
        self._learning: asyncio.Task[None] | None = None
        self._learned_from = ""
        self._is_closed = False

    def bind(self) -> None:
        """Belong to the running event loop; raises `RuntimeError` where it belongs to another one, unless closed."""
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
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.wait([self._learning])
        if self._session is not None:
            await self._session.close()

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
        idempotent: bool = True,
    ) -> bytes:
        """Return the body of the successful reply, retrying for at most `retry_seconds` (default: the settings').

        Raises what the cluster answers, and once the retries are used up `OutcomeUnknown` (a change may have taken
        effect) or `Unavailable` (it has not). `idempotent`: the answer to a repetition is that to the first attempt;
        where it is not, a repetition that is refused leaves the outcome unknown.
        """
        retries = Retries(self.settings, self.randomness)
        budget = self.settings.retry_seconds if retry_seconds is None else retry_seconds
        deadline = self.clock.monotonic() + budget
        maybe_applied = False
        while True:
            answer = await self.attempt(
                method, path, body, query=query, headers=headers, timeout_seconds=timeout_seconds
            )
            if isinstance(answer, bytes):
                return answer
            if not answer.error.retryable:
                if maybe_applied and not idempotent:
                    raise OutcomeUnknown(f"an earlier attempt may have taken effect; repeated: {answer.error}")
                raise answer.error
            maybe_applied |= method != "GET" and isinstance(answer.error, OutcomeUnknown)
            pause = retries.next_pause(answer.retry_after_seconds)
            if self.clock.monotonic() + pause >= deadline:
                raise given_up(answer.error, maybe_applied=maybe_applied)
            await asyncio.sleep(pause)

    async def attempt(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> bytes | Failure:
        """Send one request to the current node; return the body of a 2xx reply, or why there is none.

        A failure has already moved `nodes` on. Raises nothing but `asyncio.CancelledError`, and `Unavailable` when
        this connection is closed.
        """
        base = self.nodes.current
        url = URL(f"{base}{API}{path}", encoded=True)
        try:
            async with self._opened().request(
                method,
                url.with_query(query) if query else url,
                data=body,
                headers={**self._headers, **headers} if headers else self._headers,
                timeout=self._timeout(timeout_seconds),
                allow_redirects=False,
            ) as reply:
                content = await reply.read()
        except _BROKEN as error:
            return self._broken(base, error)
        return self._judged(base, reply.status, reply.headers, content)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], headers: Mapping[str, str], silence_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes] | Failure]:
        """Open a reply that has no end, from the current node: its lines, or why there is none.

        The lines end where the connection does, and after `silence_seconds` without any; `nodes` have moved on then.
        """
        base = self.nodes.current
        url = URL(f"{base}{API}{path}", encoded=True)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self.settings.connect_timeout_seconds, sock_read=silence_seconds
        )
        headers = {**self._headers, **headers}
        try:
            reply = await self._opened().get(
                url.with_query(query), headers=headers, timeout=timeout, allow_redirects=False
            )
        except _BROKEN as error:
            yield self._broken(base, error)
            return
        async with reply:
            if reply.status == HTTPStatus.OK:
                self.nodes.answered(base)
                self._learn(reply.headers.get(_LEADER))
                yield self._lines(base, reply)
            else:
                yield await self._refused(base, reply)

    async def _lines(self, base: str, reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for line in reply.content:
                yield line
        except (*_BROKEN, ValueError) as error:  # ValueError: a line without end
            self._broken(base, error)
            return
        self.nodes.pass_over(base, self.clock.monotonic())

    async def _refused(self, base: str, reply: aiohttp.ClientResponse) -> Failure:
        try:
            content = await reply.read()
        except _BROKEN as error:
            return self._broken(base, error)
        answer = self._judged(base, reply.status, reply.headers, content)
        return answer if isinstance(answer, Failure) else Failure(OutcomeUnknown(f"an answer of status {reply.status}"))

    def _broken(self, base: str, error: Exception) -> Failure:
        """What became of a request that got no reply; the next one goes to another node."""
        self.nodes.failed(base, self.clock.monotonic())
        if isinstance(error, _NEVER_CONNECTED):
            return Failure(Unavailable(f"can't connect to {base}: {error}"))
        return Failure(OutcomeUnknown(f"no reply from {base}: {type(error).__name__} {error}".rstrip()))

    def _judged(self, base: str, status: int, headers: Mapping[str, str], content: bytes) -> bytes | Failure:
        now = self.clock.monotonic()
        leader = headers.get(_LEADER)
        self.nodes.answered(base)
        failure = None
        if not 200 <= status < 300:
            is_overload = status in _OVERLOAD or leader == base
            failure = Failure(read_problem(status, content), _retry_after(headers) if is_overload else 0.0)
            if failure.error.retryable:
                self.nodes.pass_over(base, now)
        if leader:
            self.nodes.follow(leader, now)
            self._learn(leader)
        return content if failure is None else failure

    def _opened(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise Unavailable("this client is closed")
        self.bind()
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True)
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=jar, raise_for_status=False)
        return self._session

    def _timeout(self, total_seconds: float | None) -> aiohttp.ClientTimeout:
        total = total_seconds or self.settings.request_timeout_seconds
        return aiohttp.ClientTimeout(total=total, sock_connect=min(total, self.settings.connect_timeout_seconds))

    def _learn(self, leader: str | None) -> None:
        """Read the list of nodes beside the work, once for each leader: when it dies, the others are known."""
        if not leader or leader == self._learned_from:
            return
        self._learned_from = leader
        if self._learning is None or self._learning.done():
            self._learning = asyncio.get_running_loop().create_task(self._read_cluster())

    async def _read_cluster(self) -> None:
        try:
            cluster = _decode_cluster(await self.call("GET", "/cluster"))
        except (RaftschedError, msgspec.DecodeError) as error:
            _log.debug("cluster_not_learned", error=str(error))
            return
        self.nodes.learn(node.api for node in cluster.nodes if node.api)


def _checked_actor(actor: str) -> str:
    if not actor.strip() or not actor.isprintable() or len(actor.encode()) > limits.ACTOR_CHARS_MAX:
        raise Invalid(f"actor: 1 to {limits.ACTOR_CHARS_MAX} bytes of printable text, not {actor!r}", field="actor")
    return actor


def _retry_after(headers: Mapping[str, str]) -> float:
    """The seconds of Retry-After; 0 where there is none, or a date, which our servers never send."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0.0
