"""Planted into what passes requests on and answers for them: the transport, the forwarder, the client."""

from __future__ import annotations

from typing import Any

import aiohttp

from raftsched.api import forwarder as forwarding
from raftsched.client import submit as submits
from raftsched.client.http import connection
from raftsched.client.http.connection import Connection
from raftsched.client.http.hedge import HedgedRequest
from raftsched.client.http.retries import Failure
from raftsched.errors import OutcomeUnknown, RaftschedError, Unavailable
from raftsched.exchange import Exchange, pool


def sends_again_in_secret(patch: Any) -> None:
    """Aiohttp repeats GET, PUT and DELETE by itself where a connection breaks, as it does if nobody stops it."""

    async def pass_through(self: Any, request: Any, handler: aiohttp.ClientHandlerType) -> Any:
        request.exchange = self._exchange
        return await handler(request)

    def sending(self: Exchange) -> None:
        self.is_sent = True

    patch.setattr(pool._Once, "__call__", pass_through)  # noqa: SLF001
    patch.setattr(Exchange, "sending", sending)


def forwards_to_the_next_leader_what_it_sent(patch: Any) -> None:
    """A change whose outcome nobody knows is passed on a second time."""
    patch.setattr(forwarding._Forward, "is_harmless", True)  # noqa: SLF001  # bugs are planted where nobody should look


def says_unavailable_where_nobody_knows(patch: Any) -> None:
    """A client that got no reply says that nothing happened."""
    original = Connection._broken  # noqa: SLF001

    def broken(self: Connection, *arguments: Any) -> Failure:
        error = original(self, *arguments).error
        return Failure(Unavailable(str(error)) if isinstance(error, OutcomeUnknown) else error)

    patch.setattr(Connection, "_broken", broken)


def forgets_what_it_gave_up(patch: Any) -> None:
    """A request that was asked of another node as well did not happen where that one says so."""
    patch.setattr(HedgedRequest, "maybe_applied", property(lambda _: False, lambda _self, _value: None), raising=False)


def believes_the_refusal_of_a_repetition(patch: Any) -> None:
    """A deletion that is not found the second time did not happen the first time."""

    def definite(error: RaftschedError, *, maybe_applied: bool) -> RaftschedError:
        del maybe_applied
        return error

    for module in (connection, submits):
        patch.setattr(module, "definite", definite)
