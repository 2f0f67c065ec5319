"""Let a request pass to its handler if its caller may use the route.

Refused sign-ins are counted, logged at most once in a while, and answered late, so that guessing is slow. A valid token
is never slowed down by those of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Final

import structlog
from aiohttp import web
from multidict import CIMultiDict

from raftsched.api.access.client_certificate import client_certificate_names
from raftsched.api.access.door import CERTIFICATE, CREDENTIALS_HEADER, Door, Headers
from raftsched.api.access.origin import note_caller
from raftsched.api.access.principal import Principal, admit
from raftsched.api.access.rules import Access
from raftsched.api.request_id import request_id_of
from raftsched.errors import Forbidden, Unauthorized

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_REFUSAL_SECONDS: Final = 0.25
_LATE_SECONDS: Final = 0.2
"""Time for which a follower's copy of the tokens may be behind the leader's."""
_SLOWED_MAX: Final = 1_000
"""Refusals that wait at the same time; more are answered at once, so that they hold no memory."""
_LOG_SECONDS: Final = 5.0
log = structlog.get_logger()


class Guard:
    """Checks the callers of all routes of one node."""

    def __init__(self, door: Door, is_leading: Callable[[], bool]) -> None:
        self.door: Final = door
        self._is_leading: Final = is_leading
        self.refused_count = 0
        """Sign-ins that were refused since the start of the node."""
        self._slowed = 0
        self._logged_at = float("-inf")

    def protected(self, access: Access, handler: Handler) -> Handler:
        """Return the handler of a route, for the node that answers; the caller is in `principal_of(request)`."""
        if access in (Access.PUBLIC, Access.CALLBACK):
            return handler

        @wraps(handler)
        async def answer(request: web.Request) -> web.StreamResponse:
            principal = await self._principal(request.headers, trusts_old_copy=access is Access.METRICS)
            principal.require(access)
            admit(request, principal, partial(self._check_again, principal, request.headers))
            note_caller(principal)
            return await handler(request)

        return answer

    def _check_again(self, principal: Principal, headers: Headers) -> None:
        """Raise `Unauthorized` if the caller's token has been revoked or has expired since."""
        if principal.token_id != CERTIFICATE:  # that of the connection; only its voucher is short-lived
            self.door.principal(headers)

    async def _principal(self, headers: Headers, *, trusts_old_copy: bool) -> Principal:
        """Return the caller. A follower may not have a token yet that was made a moment ago: so it looks twice."""
        try:
            return self.door.principal(headers, trusts_old_copy=trusts_old_copy)
        except Unauthorized:
            if self._is_leading():
                raise
            await self._wait_until(asyncio.get_running_loop().time() + _LATE_SECONDS)
            return self.door.principal(headers, trusts_old_copy=trusts_old_copy)

    def screened(self, access: Access, handler: Handler) -> Handler:
        """Return the handler of a route, for every node: what can't be a token is not even forwarded."""
        if access in (Access.PUBLIC, Access.CALLBACK) or self.door.is_open:
            return handler

        @wraps(handler)
        async def answer(request: web.Request) -> web.StreamResponse:
            began = asyncio.get_running_loop().time()
            try:
                if CREDENTIALS_HEADER not in request.headers and (voucher := self._voucher(request)):
                    headers = CIMultiDict(request.headers)
                    headers[CREDENTIALS_HEADER] = voucher
                    request = request.clone(headers=headers)
                self.door.screen(request.headers)
                return await handler(request)
            except (Unauthorized, Forbidden) as error:
                await self.note(request, error, began)
                raise

        return answer

    def _voucher(self, request: web.Request) -> str | None:
        """Return the credentials that follow from the client's certificate; None if it has none that counts."""
        names = client_certificate_names(request)
        return self.door.voucher(names) if names else None

    async def note(self, request: web.Request, error: Unauthorized | Forbidden, began: float) -> None:
        """Count and log a refusal of a request that began then, and wait.

        The wait counts from there, so that the time of the reply does not depend on what was compared.
        """
        self.refused_count += 1
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            log.warning(
                "request_refused",
                request_id=request_id_of(request),
                code=error.code,
                reason=str(error),
                remote=request.remote,
                method=request.method,
                route=_route_of(request),
                refused_count=self.refused_count,
            )
        if isinstance(error, Unauthorized):
            await self._wait_until(began + _REFUSAL_SECONDS)

    async def _wait_until(self, at: float) -> None:
        if self._slowed >= _SLOWED_MAX:
            return
        self._slowed += 1
        try:
            await asyncio.sleep(at - asyncio.get_running_loop().time())
        finally:
            self._slowed -= 1


def _route_of(request: web.Request) -> str:
    """Return the path of the request's route, without what its caller wrote there."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical
