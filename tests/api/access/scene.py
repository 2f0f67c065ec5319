"""A node with tokens: callers of each kind, and what two tenants have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from raftsched.api.access.admin_file import AdminFile
from raftsched.api.access.door import EXECUTOR, TokenDoor
from raftsched.core.operations.access import CreateToken, RevokeToken
from raftsched.core.records.api_token import Role, digest_of
from raftsched.core.records.ids import TimeMs
from tests.api.node import REQUEST_ID, START_MS, Api, SimulatedNode, serving

ADMIN_TEXT: Final = "the-text-of-the-admin-token-file"


@dataclass(frozen=True, slots=True)
class Caller:
    """A token to make."""

    role: Role
    tenant: str = "acme"
    queues: tuple[str, ...] = ()
    expires_at_ms: int = 0

    def token(self, name: str) -> str:
        return f"rs_{name.replace('_', '')}_secret-of-{name}"


BAD: Final = {
    "expired": Caller(Role.ADMIN, "*", expires_at_ms=START_MS),
    "revoked": Caller(Role.ADMIN, "*"),
    "wrong_secret": Caller(Role.ADMIN, "*"),
}
GOOD: Final = {
    "viewer": Caller(Role.VIEWER),
    "monitor": Caller(Role.VIEWER, "*"),
    "submitter": Caller(Role.SUBMITTER),
    "worker": Caller(Role.WORKER),
    "operator": Caller(Role.OPERATOR),
    "tenant_admin": Caller(Role.ADMIN),
    "admin": Caller(Role.ADMIN, "*"),
}


@asynccontextmanager
async def guarded(
    directory: Path, callers: Mapping[str, Caller], *, leader: SimulatedNode | None = None, **options: Any
) -> AsyncIterator[Api]:
    """Serve a node with these tokens; a follower has those of its leader. `options` are those of `serving`."""
    node = SimulatedNode("n2", leader=leader) if leader else SimulatedNode()
    admin = directory / "admin.token"
    if not admin.exists():
        admin.write_text(ADMIN_TEXT)
    for name, caller in callers.items():
        make_token(node, name, caller)
    async with serving(node, door=TokenDoor(node, AdminFile(admin)), **options) as api:
        yield api


def make_token(node: SimulatedNode, name: str, caller: Caller) -> str:
    """Make the token of a caller, and return its text; one that is called `revoked` is revoked at once."""
    text = caller.token(name)
    _, token_id, secret = text.split("_", 2)
    expires_at_ms = TimeMs(caller.expires_at_ms)
    node.apply(CreateToken(token_id, digest_of(secret), name, caller.role, caller.tenant, caller.queues, expires_at_ms))
    if name == "revoked":
        node.apply(RevokeToken(token_id))
    return text


def executor_token(admin: Path) -> str:
    """The token of a node's own executors."""
    return f"rs_{EXECUTOR}_{AdminFile(admin).executor_secret}"


class Door:
    """Clients of one API, each with its own token."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def by(self, token: str, **headers: str) -> Api:
        """Return the API as the holder of `token` calls it."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}", "X-Request-Id": REQUEST_ID} | named
        )
        return replace(self._api, session=await self._stack.enter_async_context(session))
