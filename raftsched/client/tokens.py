"""Make, list, rotate and revoke the tokens of the API. It needs a token with the role `admin`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal

from raftsched.client.blocking import Blocking, blocking, blocking_each
from raftsched.client.http.calls import Calls, given, part
from raftsched.client.records import TokenInfo


class Tokens:
    """The tokens of the cluster. All calls raise `Rejected` with code `forbidden` for a token that is no admin's."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create(
        self,
        role: Literal["viewer", "submitter", "worker", "operator", "admin"],
        *,
        tenant: str | None = None,
        name: str | None = None,
        queues: Sequence[str] = (),
        expires_in_seconds: float | None = None,
    ) -> TokenInfo:
        """Make a token and return it with its text in `token`, which nobody can read again.

        `tenant` is `*` for all tenants. After `OutcomeUnknown` there may be a token that nobody has: revoke it.
        """
        wanted = given(tenant=tenant, name=name, expires_in_seconds=expires_in_seconds)
        return await self._calls.call(TokenInfo, "POST", "/tokens", {"role": role, "queues": list(queues), **wanted})

    def list(self, *, page_size: int = 100) -> AsyncIterator[TokenInfo]:
        """Yield the tokens that the caller may see, by id, without their texts."""
        return self._calls.each(TokenInfo, "/tokens", "tokens", {"limit": page_size})

    async def rotate(self, token_id: str, *, overlap_seconds: float = 0.0) -> TokenInfo:
        """Give a token another text, and return it in `token`; the former one is accepted for `overlap_seconds`."""
        path = f"{_path(token_id)}/rotate"
        return await self._calls.call(TokenInfo, "POST", path, {"overlap_seconds": overlap_seconds})

    async def revoke(self, token_id: str) -> None:
        """Revoke a token: every node refuses it from now on. Raises `NotFound` if there is none."""
        await self._calls.call(dict[str, object], "DELETE", _path(token_id))


def _path(token_id: str) -> str:
    return f"/tokens/{part(token_id, field='token_id')}"


class BlockingTokens(Blocking[Tokens]):
    """`Tokens` without `await`."""

    create = blocking(Tokens.create)
    list = blocking_each(Tokens.list)
    rotate = blocking(Tokens.rotate)
    revoke = blocking(Tokens.revoke)
