"""Bring the uses of tokens into the log: those that the leader has seen itself, and those that other nodes tell it.

A follower answers stale reads itself, so the leader does not see all uses. Each node tells the leader of the first use of a
token in each hour; the leader proposes those that the state does not have. The path is for nodes only, and not in the
documented API: nodes know each other by the credentials of their executors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from itertools import islice
from typing import Final

import msgspec
from aiohttp import web

from raftsched import limits
from raftsched.api.access.door import EXECUTOR, TokenDoor
from raftsched.api.access.principal import principal_of
from raftsched.api.backend import Backend
from raftsched.api.forwarder import Forwarder
from raftsched.api.http.bodies import Bodies
from raftsched.core.operations.access import NoteTokenUses
from raftsched.core.records.bounds import is_name
from raftsched.core.records.ids import TimeMs
from raftsched.errors import Forbidden, Malformed, RaftschedError

USES_PATH: Final = "/internal/token-uses"
_GATHER_SECONDS: Final = 1.0
"""Uses of this time are noted together: at the full hour all tokens come at once."""
_RETRY_SECONDS: Final = 5.0
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(dict[str, int]).decode


class TokenUseNotes:
    """Notes the uses that `door` has seen, while the application runs."""

    def __init__(self, backend: Backend, bodies: Bodies, door: TokenDoor, forwarder: Forwarder) -> None:
        self._backend = backend
        self._bodies = bodies
        self._door = door
        self._forwarder = forwarder

    async def run(self, app: web.Application) -> AsyncIterator[None]:
        """Note uses while `app` runs; one of its `cleanup_ctx`."""
        del app
        noting = asyncio.create_task(self._keep(), name="uses of tokens")
        yield
        noting.cancel()
        await asyncio.wait((noting,))

    async def _keep(self) -> None:
        uses = self._door.uses
        while True:
            await uses.wait()
            await asyncio.sleep(_GATHER_SECONDS)
            taken = uses.take()
            if not await self._is_noted(taken):
                uses.give_back(taken)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _is_noted(self, uses: Mapping[str, int]) -> bool:
        leader_url = self._backend.leader_url()
        if leader_url is not None:
            return await self._forwarder.tell(leader_url, USES_PATH, _encode(uses), self._door.credentials())
        try:
            await self._note(uses)
        except RaftschedError:
            return False
        return True

    async def take_uses(self, request: web.Request) -> web.Response:
        """Note the uses that another node has seen."""
        if principal_of(request).token_id != EXECUTOR:
            raise Forbidden("only nodes of the cluster tell which tokens are used")
        try:
            uses = _decode(await self._bodies.read(request))
        except msgspec.DecodeError as error:
            raise Malformed(f"not the uses of tokens that a node sends: {error}") from None
        await self._note(uses)
        return web.Response()

    async def _note(self, uses: Mapping[str, int]) -> None:
        """Propose the uses that the state does not have; raises `Unavailable` if this node does not lead."""
        state = self._backend.fresh_state()
        known = {token_id: state.api_token(token_id) for token_id in uses if is_name(token_id)}
        news = iter(
            [(name, TimeMs(uses[name])) for name, token in known.items() if token and token.used_at_ms < uses[name]]
        )
        while some := tuple(islice(news, limits.TOKEN_USES_MAX)):
            await self._backend.propose(NoteTokenUses(some))
