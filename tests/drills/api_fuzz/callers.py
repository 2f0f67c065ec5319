"""Who calls: tokens of every role in two tenants, an admin of all, tokens that are wrong, and nobody.

A third tenant has records that no caller may see or change; only the admin token could, and does not.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

ROLES: Final = ("admin", "operator", "submitter", "worker", "viewer")
NOBODY: Final = "nobody"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request."""

    name: str
    credentials: str = ""
    """The header `Authorization`; "" = none."""
    tenant: str = ""
    """The one tenant of its token; "" = all, or no valid token."""
    is_valid: bool = True

    @property
    def is_everywhere(self) -> bool:
        """Return whether it may change all tenants."""
        return self.is_valid and not self.tenant


@dataclass(slots=True)
class Cast:
    """All callers, and what no request may touch."""

    tenants: tuple[str, ...]
    reserved_tenant: str
    callers: list[Caller] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    """Texts of tokens that no reply and no log may show."""
    token_ids: set[str] = field(default_factory=set)
    """Ids of the tokens in use."""
    reserved: dict[str, Any] = field(default_factory=dict)
    """Paths of records of the reserved tenant, and their documents at the start."""


async def signed_up(session: aiohttp.ClientSession, url: str, admin_token: str, seed: int) -> Cast:
    """Make the tokens and the records of the reserved tenant."""
    mark = secrets.token_hex(6)
    cast = Cast((f"acme-{mark}", f"beta-{mark}"), f"reserved-{mark}")
    admin = {"Authorization": f"Bearer {admin_token}"}
    cast.callers.append(Caller("admin of all", admin["Authorization"]))
    cast.secrets.append(admin_token)
    for tenant in cast.tenants:
        for role in ROLES:
            wanted = {"role": role, "tenant": tenant, "name": f"fuzzing {role}"}
            made = await _posted(session, f"{url}/api/v1/tokens", admin, wanted)
            cast.callers.append(Caller(f"{role} of {tenant}", f"Bearer {made['token']}", tenant))
            cast.secrets.append(made["token"])
            cast.token_ids.add(made["id"])
    cast.callers += _impostors(cast.secrets)
    for path, body in _RESERVED:
        made = await _posted(session, url + path, admin, {**body, "tenant": cast.reserved_tenant})
        where = f"{path}/{made['id']}"
        if "token" in made:
            cast.token_ids.add(made["id"])
        else:
            cast.reserved[where] = await document_of(session, url + where, admin)
    return cast


_RESERVED: Final[Sequence[tuple[str, dict[str, Any]]]] = (
    ("/api/v1/jobs", {"name": "reserved", "queue": "reserved", "run_at": "2100-01-01T00:00:00Z"}),
    ("/api/v1/schedules", {"name": "reserved", "cron": "0 0 1 1 *", "job": {"name": "reserved", "queue": "reserved"}}),
    ("/api/v1/tokens", {"role": "viewer", "name": "reserved"}),
)


async def document_of(session: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> Any:
    async with session.get(url, headers=headers) as reply:
        assert reply.status == 200, await reply.text()
        return await reply.json()


async def _posted(session: aiohttp.ClientSession, url: str, headers: dict[str, str], body: Any) -> Any:
    async with session.post(url, headers=headers, json=body) as reply:
        assert reply.status in (200, 201), await reply.text()
        return await reply.json()


def _impostors(texts: Sequence[str]) -> list[Caller]:
    """Return callers without a valid token: some differ from a real one in a character."""
    token = texts[1]
    swapped = token[:-1] + ("A" if token[-1] != "A" else "B")
    wrong = {
        NOBODY: "",
        "a changed secret": f"Bearer {swapped}",
        "an unknown id": f"Bearer rs_0000000000000000_{token.rpartition('_')[2]}",
        "a token without its scheme": token,
        "basic": "Basic YWRtaW46YWRtaW4=",
        "the digest of nothing": "Bearer rs_executor_" + "0" * 64,
        "an empty token": "Bearer ",
        "a long token": "Bearer " + "x" * 4_000,
    }
    return [Caller(name, text, is_valid=False) for name, text in wrong.items()]
