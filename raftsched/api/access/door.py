"""Find out who makes a request: by its bearer token, or nobody in particular if there are no tokens.

Every node decides by its own copy of the tokens, and the leader decides again about what it is forwarded. So a revoked
token is refused at once wherever changes are made. A node that is cut off from the leader could still honour it for
stale reads: it trusts its copy for `TRUST_SECONDS` after the leader's last message, and no longer.

A refusal says the same for every fault of a token: unknown, wrong, expired or revoked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from multidict import CIMultiDictProxy

from raftsched import limits
from raftsched.api.access.admin_file import AdminFile
from raftsched.api.access.principal import ANYBODY, Principal
from raftsched.api.access.token_uses import TokenUses
from raftsched.api.backend import Backend
from raftsched.core.records.api_token import (
    EVERY_TENANT,
    TOKEN_PREFIX,
    ApiToken,
    Role,
    digest_of,
)
from raftsched.core.records.bounds import is_name
from raftsched.core.records.ids import TimeMs
from raftsched.errors import Malformed, Unauthorized, Unavailable

CREDENTIALS_HEADER: Final = "Authorization"
TENANT_HEADER: Final = "Raftsched-Tenant"
ACTOR_HEADER: Final = "Raftsched-Actor"
ORIGIN_HEADER: Final = "Raftsched-Origin"
"""The header in which a node tells another one where a request came from."""
CALLER_HEADERS: Final = (CREDENTIALS_HEADER, TENANT_HEADER, ACTOR_HEADER)
"""The headers that tell who makes a request."""
TRUST_SECONDS: Final = 10.0
ADMIN: Final = "admin"
"""The name of who holds the text of the admin token file."""
EXECUTOR: Final = "executor"
"""The id and the name of the token of a node's own executors."""
CERTIFICATE: Final = "certificate"
"""The id of vouchers: a node that has verified a client's certificate tells the leader whose it is."""
_VOUCHER_MS: Final = 60_000
"""Time for which a voucher is valid: more than clocks of nodes differ, and a request waits for a leader."""
_BEARER: Final = re.compile(r"bearer +(?P<token>[!-~]{1,512})", re.IGNORECASE)
_TOKEN: Final = re.compile(rf"{TOKEN_PREFIX}_(?P<id>[A-Za-z0-9]{{1,64}})_(?P<secret>[A-Za-z0-9-_]{{1,256}})")

Headers = CIMultiDictProxy[str]


class Door(Protocol):
    """Tell who makes a request."""

    @property
    def is_open(self) -> bool:
        """Return whether everybody may come in, so that callers name themselves."""

    def screen(self, headers: Headers) -> None:
        """Raise `Unauthorized` for what can't be a token, without a look at the tokens, and `Malformed` for a header
        that is no name.
        """

    def voucher(self, names: Sequence[str]) -> str | None:
        """Return the credentials of a client with a verified certificate of these names; None if it has none."""

    def named_origin(self, address: str) -> str:
        """Return the value of `ORIGIN_HEADER` by which this node tells another one where a request came from."""

    def origin_in(self, headers: Mapping[str, str]) -> str:
        """Return the address that a node of the cluster names in the header; "" if none does."""

    def principal(self, headers: Headers, *, trusts_old_copy: bool = False) -> Principal:
        """Return the caller; raises `Unauthorized` if it has no valid token.

        Raises `Unavailable` if the node's copy of the tokens may be too old, unless that is trusted.
        """


class OpenDoor:
    """Lets everybody in, as admin of all tenants: `auth = "none"`."""

    is_open: Final = True

    def screen(self, headers: Headers) -> None:
        tenant_in(headers)
        actor_in(headers)

    def voucher(self, names: Sequence[str]) -> str | None:
        del names
        return None

    def named_origin(self, address: str) -> str:
        return address

    def origin_in(self, headers: Mapping[str, str]) -> str:
        """Return what the header says: everybody is trusted."""
        text = headers.get(ORIGIN_HEADER, "")
        return text if text.isprintable() else ""

    def principal(self, headers: Headers, *, trusts_old_copy: bool = False) -> Principal:
        del trusts_old_copy
        tenant, actor = tenant_in(headers), actor_in(headers)
        if tenant is None and actor is None:
            return ANYBODY
        return replace(ANYBODY, name=actor or ANYBODY.name, scope=tenant)


class TokenDoor:
    """Lets in who has a token of the state, or the text of the admin token file."""

    is_open: Final = False

    def __init__(self, backend: Backend, admin: AdminFile, clients: Sequence[CertifiedClient] = ()) -> None:
        self._backend = backend
        self._admin = admin
        self.uses = TokenUses()
        self._clients: dict[str, CertifiedClient] = {}
        self.set_clients(clients)

    def set_clients(self, clients: Sequence[CertifiedClient]) -> None:
        """Let in these clients by their certificates from now on, and no others."""
        self._clients = {_tag(client.name): client for client in clients}

    def screen(self, headers: Headers) -> None:
        _bearer(headers)
        tenant_in(headers)

    def principal(self, headers: Headers, *, trusts_old_copy: bool = False) -> Principal:
        principal = self._holder(_bearer(headers), trusts_old_copy=trusts_old_copy)
        tenant = tenant_in(headers)
        if tenant is None:
            return principal
        return principal.narrowed_to(principal.tenant_for(tenant, TENANT_HEADER))

    def named_origin(self, address: str) -> str:
        return f"{address} {self._admin.vouch(_origin_statement(address))}"

    def origin_in(self, headers: Mapping[str, str]) -> str:
        address, _, mac = headers.get(ORIGIN_HEADER, "").partition(" ")
        return address if self._admin.has_vouched(_origin_statement(address), mac) else ""

    def credentials(self) -> str:
        """Return those by which this node calls others: all nodes have the same."""
        return f"Bearer {TOKEN_PREFIX}_{EXECUTOR}_{self._admin.executor_secret}"

    def voucher(self, names: Sequence[str]) -> str | None:
        tag = next((tag for tag in map(_tag, names) if tag in self._clients), None)
        if tag is None:
            return None
        statement = f"{tag}-{self._backend.now_ms() + _VOUCHER_MS}"
        return f"Bearer {TOKEN_PREFIX}_{CERTIFICATE}_{statement}-{self._admin.vouch(statement)}"

    def _certified(self, text: str) -> Principal | None:
        """Return the client for whom a node has vouched by `text`; None if none has."""
        statement, _, mac = text.rpartition("-")
        tag, _, until_ms = statement.partition("-")
        client = self._clients.get(tag)
        if client is None or not self._admin.has_vouched(statement, mac) or self._backend.now_ms() >= int(until_ms):
            return None
        is_bound = client.tenant != EVERY_TENANT
        return Principal(client.name, client.role, client.tenant if is_bound else None, is_bound, token_id=CERTIFICATE)

    def _holder(self, text: str, *, trusts_old_copy: bool) -> Principal:
        """Return who holds the token; raises as `principal` does."""
        found = _TOKEN.fullmatch(text)
        if found is not None and found["id"] == CERTIFICATE and (client := self._certified(found["secret"])):
            return client
        if found is not None and found["id"] == EXECUTOR and self._admin.is_executor(found["secret"]):
            return Principal(EXECUTOR, Role.WORKER, None, token_id=EXECUTOR)
        token = None if found is None else self._backend.stale_state()[0].api_token(found["id"])
        # Without such a token the secret is compared with that of another, so that both take the same time.
        known = token or _NOBODY
        is_right = found is not None and known.accepts(found["secret"], self._backend.now_ms())
        if not is_right and self._admin.is_admin(text):
            return Principal(ADMIN, Role.ADMIN, None, token_id=ADMIN)
        if found is not None and not trusts_old_copy:
            self._require_contact()
        if token is None or not is_right:
            raise Unauthorized("the token is not valid")
        self.uses.note(token.id, self._backend.now_ms())
        return principal_of_token(token)

    def _require_contact(self) -> None:
        """Raise `Unavailable` if this node's copy of the tokens may be too old."""
        if self._backend.is_leading:
            return
        _, age_ms = self._backend.stale_state()
        if age_ms < 0 or age_ms > TRUST_SECONDS * 1000:
            raise Unavailable("this node has not heard from a leader for too long to know who may do what")


@dataclass(frozen=True, slots=True)
class CertifiedClient:
    """A client that shows a certificate of a name."""

    name: str
    role: Role
    tenant: str
    """A tenant, or `EVERY_TENANT`."""


def _origin_statement(address: str) -> str:
    """Return the statement of a node about a request; it can't be taken for that of a voucher, which begins otherwise."""
    return f"origin {address}"


def _tag(name: str) -> str:
    """Return the name of a certificate as a part of a token."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def principal_of_token(token: ApiToken) -> Principal:
    """Return the holder of `token`."""
    is_bound = token.tenant != EVERY_TENANT
    scope = token.tenant if is_bound else None
    return Principal(token.name, token.role, scope, is_bound, token.queues, token.id)


def actor_in(headers: Headers) -> str | None:
    """Return the actor that the header names; raises `Malformed` for one that is not a name."""
    values = headers.getall(ACTOR_HEADER, None)
    if values is None:
        return None
    actor = values[0].strip()
    if len(values) > 1 or not actor or not actor.isprintable() or len(actor.encode()) > limits.ACTOR_CHARS_MAX:
        rule = f"1 to {limits.ACTOR_CHARS_MAX} bytes of printable text, once"
        raise Malformed(f"{ACTOR_HEADER}: expected {rule}", field=ACTOR_HEADER)
    return actor


def tenant_in(headers: Headers) -> str | None:
    """Return the tenant that the header names; raises `Malformed` for one that is not a name."""
    values = headers.getall(TENANT_HEADER, None)
    if values is None:
        return None
    if len(values) > 1 or not is_name(values[0]) or not values[0].isprintable() or values[0] == EVERY_TENANT:
        rule = f"1 to {limits.NAME_CHARS_MAX} bytes of printable text, once"
        raise Malformed(f"{TENANT_HEADER}: expected the name of a tenant, {rule}", field=TENANT_HEADER)
    return values[0]


def _bearer(headers: Headers) -> str:
    """Return the token that the headers carry; raises `Unauthorized`."""
    values = headers.getall(CREDENTIALS_HEADER, [])
    if not values:
        raise Unauthorized(f"send a token, as in {CREDENTIALS_HEADER}: Bearer {TOKEN_PREFIX}_…")
    found = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
    if found is None:
        raise Unauthorized(f"expected one header {CREDENTIALS_HEADER}: Bearer <token>")
    return found["token"]


_NOBODY: Final = ApiToken(  # expired in 1970
    "nobody", digest_of(""), "nobody", Role.ADMIN, "nobody", (), TimeMs(1), created_at_ms=TimeMs(1)
)
