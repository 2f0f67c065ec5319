"""Forward the single submits of a follower to the leader, several in one request.

Without this, a follower would need as many connections to the leader as it has submitters, and the leader would handle
as many requests. Submits that arrive while a request is in flight are sent together when it ends; a submit that arrives
while none is in flight is sent at once. Each gets the same reply as alone: status, headers, body.

`SubmitRelay` is the follower's side, `RelayedSubmits` the leader's. They exchange msgpack, since bodies need not be
JSON. The path is for nodes only, and not in the documented API.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from raftsched import limits
from raftsched.api.access.door import CALLER_HEADERS
from raftsched.api.access.guard import Guard
from raftsched.api.access.principal import Principal
from raftsched.api.access.rules import Access
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.problems import problem_of, problem_response
from raftsched.api.http.proposals import is_refused_now
from raftsched.api.http.routes import KEY_HEADER
from raftsched.api.request_id import handling, request_id_of
from raftsched.client.http.gather import Gatherer, GatherLimits
from raftsched.errors import InvariantBroken, Malformed, OutcomeUnknown, RaftschedError, Unauthorized, Unavailable
from raftsched.exchange import Reply
from raftsched.tracing import TRACEPARENT
from raftsched.wire.common import TRACEPARENT_PATTERN

RELAY_PATH: Final = "/internal/submits"
_HEADERS: Final = ("Content-Type", "Location", "ETag", "Retry-After")
"""The headers of each submit's reply; the others are equal for all submits of a request."""
_OK: Final = 200
_LATE_SECONDS: Final = 1.0
"""A request to the leader that takes longer delays no other."""


class RelayedSubmit(msgspec.Struct, frozen=True, array_like=True):
    """A submit as its client sent it."""

    body: bytes
    keys: tuple[str, ...]
    """Values of its header `Idempotency-Key`."""
    caller: tuple[tuple[str, str], ...]
    """Its headers that tell who sent it."""
    request_id: str = ""
    traceparent: str | None = None
    """Its header of that name, if that is one."""


class RelayedReply(msgspec.Struct, frozen=True, array_like=True):
    """The reply to one submit."""

    status: int
    headers: dict[str, str]
    body: bytes


def submit_in(request: web.Request, body: bytes) -> RelayedSubmit:
    """Return the submit in `request`, with `body`."""
    headers = request.headers
    caller = tuple((name, value) for name in CALLER_HEADERS for value in headers.getall(name, ()))
    return RelayedSubmit(
        body, tuple(headers.getall(KEY_HEADER, ())), caller, request_id_of(request), _traceparent_in(request)
    )


def _traceparent_in(request: web.Request) -> str | None:
    """Return the header; a malformed one, or one of a version that is not known, does not count (W3C Trace Context)."""
    text = request.headers.get(TRACEPARENT, "")
    return text if _is_traceparent(text) else None


_is_traceparent: Final = re.compile(TRACEPARENT_PATTERN).match
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_submits: Final = msgspec.msgpack.Decoder(list[RelayedSubmit]).decode
_decode_replies: Final = msgspec.msgpack.Decoder(list[RelayedReply]).decode
Submit = Callable[[RelayedSubmit, Principal], Awaitable[web.Response]]
Send = Callable[[bytes], Awaitable[Reply]]


class RelayedSubmits:
    """The leader's side: handles several submits at the same time."""

    def __init__(self, bodies: Bodies, guard: Guard, submit: Submit) -> None:
        self._bodies = bodies
        self._guard = guard
        self._submit = submit

    async def submit_all(self, request: web.Request) -> web.Response:
        """Answer each submit of the request, in order.

        Raises `Unavailable` if certainly none of them took effect, so that all of them wait for a leader.
        """
        began = asyncio.get_running_loop().time()
        try:
            submits = _decode_submits(await self._bodies.read(request))
        except msgspec.DecodeError as error:
            raise Malformed(f"not the submits that a node forwards: {error}") from None
        answers = await asyncio.gather(*map(self._answer, submits))
        # A follower relays only tokens that it knows. So this delays nobody else, but who guesses tokens here.
        if refusals := [answer for answer in answers if isinstance(answer, Unauthorized)]:
            await self._guard.note(request, refusals[0], began)
        refused = [answer for answer in answers if is_refused_now(answer)]
        if answers and len(refused) == len(answers):
            raise refused[0]
        return web.Response(body=_encode([_reply_of(*each) for each in zip(answers, submits, strict=True)]))

    async def _answer(self, submit: RelayedSubmit) -> web.Response | RaftschedError:
        try:
            principal = self._guard.door.principal(CIMultiDictProxy(CIMultiDict(submit.caller)))
            principal.require(Access.SUBMIT)
            return await self._submit(submit, principal)
        except InvariantBroken:
            raise  # this node stops, and answers nothing by a state that is not trusted
        except RaftschedError as error:
            return error


class SubmitRelay:
    """The follower's side, for one leader; `send` sends an encoded request to it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._gatherer: Gatherer[_Waiting] = Gatherer(
            self._send_all,
            GatherLimits(
                items_max=limits.ENTRY_OPERATIONS_MAX,
                bytes_max=limits.RELAY_BYTES_MAX,
                in_flight_max=limits.RELAYS_IN_FLIGHT_MAX,
                early_items=limits.RELAY_EARLY_SUBMITS,
                late_seconds=_LATE_SECONDS,
                late_max=limits.RELAYS_IN_FLIGHT_MAX,
                waiting_max=limits.PROPOSALS_WAITING_MAX,
            ),
        )

    @staticmethod
    def fits(body: bytes) -> bool:
        """Return whether a submit of this size may share a request; a larger one is sent alone."""
        return len(body) <= limits.RELAY_BYTES_MAX // 2

    async def submit(self, submit: RelayedSubmit, *, seconds: float) -> web.Response:
        """Return the leader's reply; raises what `send` raises, and `Unavailable` if it was not sent in `seconds`."""
        if self._gatherer.is_full:
            raise Unavailable("too many requests wait for the leader; retry in a moment")
        waiting = _Waiting(submit, asyncio.get_running_loop().create_future())
        self._gatherer.add(waiting)
        try:
            await asyncio.wait((waiting.answer,), timeout=seconds)
        except asyncio.CancelledError:
            waiting.answer.cancel()  # it is not sent, since its client is gone
            raise
        if not waiting.answer.done() and not waiting.is_sent:
            waiting.answer.cancel()
            raise Unavailable("the leader does not take requests; retry in a moment")
        return await waiting.answer

    async def close(self) -> None:
        """End the submits that wait or are in flight."""
        await self._gatherer.close()

    async def _send_all(self, items: list[_Waiting]) -> None:
        wanted = [item for item in items if not item.answer.done()]  # without those whose clients are gone
        if not wanted:
            return
        for item in wanted:
            item.is_sent = True
        try:
            reply = await self._send(_encode([item.submit for item in wanted]))
            answers = _answers_in(reply, len(wanted))
        except RaftschedError as error:
            for item in wanted:
                item.settle(type(error)(str(error)))  # a copy for each, since each is raised elsewhere
        except BaseException:
            for item in wanted:
                item.settle(OutcomeUnknown("this node stopped before the leader's reply came"))
            raise
        else:
            for item, answer in zip(wanted, answers, strict=True):
                item.settle(answer)


class _Waiting:
    """A submit that waits for its reply; an `Item` of the gatherer."""

    __slots__ = ("answer", "is_sent", "submit")

    def __init__(self, submit: RelayedSubmit, answer: asyncio.Future[web.Response]) -> None:
        self.submit = submit
        self.answer = answer
        self.is_sent = False

    @property
    def body(self) -> bytes:
        return self.submit.body

    def settle(self, answer: object | RaftschedError) -> None:
        if self.answer.done():
            return
        if isinstance(answer, web.Response):
            self.answer.set_result(answer)
        elif isinstance(answer, RaftschedError):
            self.answer.set_exception(answer)


def _reply_of(answer: web.Response | RaftschedError, submit: RelayedSubmit) -> RelayedReply:
    with handling(submit.request_id):
        response = problem_response(problem_of(answer)) if isinstance(answer, RaftschedError) else answer
    body = response.body
    assert isinstance(body, bytes)
    headers = {name: response.headers[name] for name in _HEADERS if name in response.headers}
    return RelayedReply(response.status, headers, body)


def _answers_in(reply: Reply, count: int) -> Sequence[web.Response]:
    """Return the reply to each of `count` submits; if the leader refused the request, that refusal for each."""
    if reply.status != _OK:
        return [_response(reply.status, reply.headers, reply.body) for _ in range(count)]
    try:
        relayed = _decode_replies(reply.body)
    except msgspec.DecodeError as error:
        raise OutcomeUnknown(f"the leader's reply can't be read: {error}") from None
    if len(relayed) != count:
        raise OutcomeUnknown(f"the leader gave {len(relayed)} answers to {count} submits")
    return [_response(each.status, {**reply.headers, **each.headers}, each.body) for each in relayed]


def _response(status: int, headers: Mapping[str, str], body: bytes) -> web.Response:
    return web.Response(body=body, status=status, headers=headers)
