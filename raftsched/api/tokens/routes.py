"""Make, list, rotate and revoke tokens.

The text of a token is in the reply that makes it, and nowhere else: the log and the state have its digest. A request that
makes one is not repeated under an idempotency key, since its reply can't be given again; a lost reply leaves a token that
nobody has, to be revoked.

An admin of one tenant sees and makes tokens of that tenant only.
"""

from __future__ import annotations

import secrets
from typing import Final

from aiohttp import web
from msgspec.structs import replace

from raftsched import limits
from raftsched.api.access.door import ADMIN, EXECUTOR
from raftsched.api.access.principal import OWNER_END, Principal, principal_of
from raftsched.api.access.rules import ROLES, Access
from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.consistency import read
from raftsched.api.http.json_reply import json_response, time_or_none, time_text
from raftsched.api.http.proposals import propose
from raftsched.api.http.routes import BASE_PATH, Answered, Route, change, route
from raftsched.api.json.cursors import read_cursor, write_cursor
from raftsched.api.json.decode import StructDecoder
from raftsched.api.json.times import end_ms
from raftsched.core.operations.access import CreateToken, RevokeToken, RotateToken
from raftsched.core.records.api_token import EVERY_TENANT, TOKEN_PREFIX, ApiToken, Role, digest_of
from raftsched.core.records.bounds import ANONYMOUS
from raftsched.core.records.ids import TENANT_DEFAULT, TimeMs
from raftsched.core.records.queue_patterns import accepts
from raftsched.core.state.results import TokenSaved
from raftsched.errors import Forbidden, Invalid, NotFound, Rejected
from raftsched.wire.common import NAME_RULE, is_name
from raftsched.wire.tokens import (
    CallerReply,
    RevokedReply,
    RotateTokenRequest,
    TokenReply,
    TokenRequest,
    TokensQuery,
    TokensReply,
)

_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32
_TAKEN_NAMES: Final = (ADMIN, EXECUTOR, ANONYMOUS)


class Tokens:
    """The routes of tokens."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._request = StructDecoder(TokenRequest)
        self._rotation = StructDecoder(RotateTokenRequest)

    def routes(self) -> tuple[Route, ...]:
        path = "/tokens/{id}"
        return (
            change(Access.ADMIN, "POST", "/tokens", self.create_token, TokenReply, body=TokenRequest, statuses=(201,)),
            route(Access.ADMIN, "GET", "/tokens", self.list_tokens, TokensReply, query=TokensQuery),
            change(Access.ADMIN, "POST", f"{path}/rotate", self.rotate_token, TokenReply, optional=RotateTokenRequest),
            change(Access.ADMIN, "DELETE", path, self.revoke_token, RevokedReply),
            route(Access.SIGNED_IN, "GET", "/whoami", self.get_caller, CallerReply, answered=Answered.HERE),
        )

    async def get_caller(self, request: web.Request) -> web.Response:
        """Read who makes this request, and what it may do."""
        caller = principal_of(request)
        return json_response(
            CallerReply(
                name=caller.name,
                role=caller.role.label,
                tenant=caller.scope or EVERY_TENANT,
                queues=caller.queues,
                may=tuple(access.value for access in ROLES if caller.may(access)),
            )
        )

    async def create_token(self, request: web.Request) -> web.Response:
        """Make a token; its text is in this reply only."""
        wanted, _ = self._request.read(await self._bodies.read_json(request))
        caller, now_ms = principal_of(request), self._backend.now_ms()
        token_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        expires_ms = end_ms(
            wanted.expires_at,
            wanted.expires_in_seconds,
            name="expires_at",
            span_name="expires_in_seconds",
            from_ms=now_ms,
            prefix="",
        )
        if wanted.expires_at is not None and (expires_ms or 0) <= now_ms:
            raise Invalid(
                "expires_at: expected a time in the future; without it the token does not expire", field="expires_at"
            )
        operation = CreateToken(
            token_id,
            digest_of(secret),
            wanted.name or token_id,
            Role[wanted.role.upper()],
            _tenant(wanted, caller),
            tuple(dict.fromkeys(wanted.queues)),
            TimeMs(expires_ms or 0),
            actor_of(request),
        )
        if caller.queues and not operation.queues:
            raise Forbidden("queues: this token is limited to queues, so it makes tokens that are", field="queues")
        for position, queue in enumerate(operation.queues):
            caller.require_queue(queue, f"queues[{position}]")
        if operation.name in _TAKEN_NAMES:
            raise Invalid(f"name: {operation.name} is the name of another caller in the audit trail", field="name")
        self._require_room(caller)
        saved = await propose(self._backend, operation, TokenSaved)
        response = json_response(_document(saved.token, now_ms, text=_text(token_id, secret)), status=201)
        response.headers["Location"] = f"{BASE_PATH}/tokens/{token_id}"
        return response

    async def list_tokens(self, request: web.Request) -> web.Response:
        """List tokens, without their texts."""
        query, reading = read(self._backend, request, TokensQuery)
        caller = principal_of(request)
        after = read_cursor(query.cursor, "tokens")
        shown: list[TokenReply] = []
        while True:
            page = reading.state.list_api_tokens(after=after, limit=query.limit)
            for key, token in page.items:
                after = key
                if _sees(caller, token):
                    shown.append(_document(token, reading.now_ms))
                if len(shown) == query.limit:
                    break
            if len(shown) == query.limit or not page.next_cursor:
                break
        next_key = after if len(shown) == query.limit else b""
        return reading.response(TokensReply(tokens=shown, next_cursor=write_cursor(next_key, "tokens")))

    async def rotate_token(self, request: web.Request) -> web.Response:
        """Give a token another secret; the former text may be accepted for a while."""
        wanted = self._rotation.read_optional(await self._bodies.read_optional_json(request))
        token, secret, now_ms = self._found(request), secrets.token_urlsafe(_SECRET_BYTES), self._backend.now_ms()
        former_until_ms = TimeMs(now_ms + round(wanted.overlap_seconds * 1000) if wanted.overlap_seconds else 0)
        operation = RotateToken(token.id, digest_of(secret), former_until_ms, actor_of(request))
        saved = await propose(self._backend, operation, TokenSaved)
        return json_response(_document(saved.token, now_ms, text=_text(token.id, secret)))

    async def revoke_token(self, request: web.Request) -> web.Response:
        """Revoke a token: every node refuses it from now on."""
        token = self._found(request)
        await propose(self._backend, RevokeToken(token.id, actor_of(request)), TokenSaved)
        return json_response(RevokedReply(id=token.id, name=token.name, revoked=True))

    def _require_room(self, caller: Principal) -> None:
        """Raise `Rejected` if the tenant of the caller has all tokens that one tenant may have."""
        if not caller.is_bound:
            return
        tokens = self._backend.fresh_state().list_api_tokens(after=b"", limit=limits.TOKENS_MAX).items
        if sum(_sees(caller, token) for _, token in tokens) >= limits.TENANT_TOKENS_MAX:
            told = f"the tenant has {limits.TENANT_TOKENS_MAX} tokens, and no more may be"
            raise Rejected("limit_reached", told)

    def _found(self, request: web.Request) -> ApiToken:
        """Return the token that the path names; raises `NotFound` if there is none for its caller, and `Forbidden` for one
        that may do more than its caller.
        """
        token_id, caller = request.match_info["id"], principal_of(request)
        token = self._backend.fresh_state().api_token(token_id) if is_name(token_id) else None
        if token is None or not _sees(caller, token):
            raise NotFound("there is no such token")
        if caller.queues and not (token.queues and all(accepts(caller.queues, queue) for queue in token.queues)):
            raise Forbidden("this token is limited to queues, so it changes only tokens that are limited to them, too")
        return token


def _sees(caller: Principal, token: ApiToken) -> bool:
    return caller.scope is None or token.tenant == caller.scope


def _tenant(wanted: TokenRequest, caller: Principal) -> str:
    """Return the tenant of a new token; raises `Forbidden` for one that is not the caller's."""
    if wanted.tenant == EVERY_TENANT:
        if caller.is_bound:
            raise Forbidden(f"tenant: this token is for the tenant {caller.scope} only", field="tenant")
        return EVERY_TENANT
    if wanted.tenant is not None and not is_name(wanted.tenant):
        raise Invalid(f"tenant: expected {NAME_RULE}, or {EVERY_TENANT}", field="tenant")
    tenant = caller.tenant_for(wanted.tenant or caller.scope or TENANT_DEFAULT)
    if OWNER_END in tenant:
        told = f"may not contain {OWNER_END}, which separates a tenant from the name of its queue"
        raise Invalid(f"tenant: {told}", field="tenant")
    return tenant


def _text(token_id: str, secret: str) -> str:
    return f"{TOKEN_PREFIX}_{token_id}_{secret}"


def _document(token: ApiToken, now_ms: int, *, text: str = "") -> TokenReply:
    document = TokenReply(
        id=token.id,
        name=token.name,
        role=token.role.label,  # type: ignore[arg-type]  # the labels are the names of the roles
        tenant=token.tenant,
        queues=list(token.queues),
        created_at=time_text(token.created_at_ms),
        created_by=token.created_by,
        expires_at=time_or_none(token.expires_at_ms),
        rotated_at=time_or_none(token.rotated_at_ms),
        former_until=time_or_none(token.former_until_ms) if token.former_until_ms > now_ms else None,
        last_used_at=time_or_none(token.used_at_ms),
        expired=token.has_expired(now_ms),
    )
    return replace(document, token=text) if text else document
