"""Find out who makes a request: by its bearer token, or nobody in particular if there are no tokens.

Every node decides by its own copy of the tokens, and the leader decides again about what it is forwarded. So a revoked
token is refused at once wherever changes are made. A node that is cut off from the leader could still honour it for
stale reads: it trusts its copy for `TRUST_SECONDS` after the leader's last message, and no longer.

A refusal says the same for every fault of a token: unknown, wrong, expired or revoked.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from multidict import CIMultiDictProxy

from raftsched import limits
from raftsched.api.access.principal import ANYBODY, Principal
from raftsched.api.backend import Backend
from raftsched.core.records.api_token import EVERY_TENANT, TOKEN_PREFIX, ApiToken, Role, digest_of
from raftsched.core.records.bounds import is_name
from raftsched.errors import Invalid, Malformed, Unauthorized, Unavailable

CREDENTIALS_HEADER: Final = "Authorization"
TENANT_HEADER: Final = "Raftsched-Tenant"
ACTOR_HEADER: Final = "Raftsched-Actor"
CALLER_HEADERS: Final = (CREDENTIALS_HEADER, TENANT_HEADER, ACTOR_HEADER)
"""The headers that tell who makes a request."""
TRUST_SECONDS: Final = 10.0
ADMIN: Final = "admin"
"""The name of who holds the text of the admin token file."""
EXECUTOR: Final = "executor"
"""The id and the name of the token of a node's own executors."""
_ADMIN_CHARS_MIN: Final = 16
_BEARER: Final = re.compile(r"bearer +(?P<token>[!-~]{1,512})", re.IGNORECASE)
_TOKEN: Final = re.compile(rf"{TOKEN_PREFIX}_(?P<id>[A-Za-z0-9]{{1,64}})_(?P<secret>[A-Za-z0-9-_]{{1,256}})")

Headers = CIMultiDictProxy[str]


class Door(Protocol):
    """Tell who makes a request."""

    @property
    def is_open(self) -> bool:
        """Return whether everybody may come in, so that callers name themselves."""

    def screen(self, headers: Headers) -> None:
        """Raise `Unauthorized` for what can't be a token, without a look at the tokens."""

    def principal(self, headers: Headers) -> Principal:
        """Return the caller; raises `Unauthorized` if it has no valid token."""


class OpenDoor:
    """Lets everybody in, as admin of all tenants: `auth = "none"`."""

    is_open: Final = True

    def screen(self, headers: Headers) -> None:
        del headers

    def principal(self, headers: Headers) -> Principal:
        tenant, actor = tenant_in(headers), actor_in(headers)
        if tenant is None and actor is None:
            return ANYBODY
        return replace(ANYBODY, name=actor or ANYBODY.name, scope=tenant)


class TokenDoor:
    """Lets in who has a token of the state, or the text of the admin token file."""

    is_open: Final = False

    def __init__(self, backend: Backend, admin: AdminFile) -> None:
        self._backend = backend
        self._admin = admin

    def screen(self, headers: Headers) -> None:
        _bearer(headers)

    def principal(self, headers: Headers) -> Principal:
        tenant = tenant_in(headers)
        principal = self._holder(_bearer(headers))
        if tenant is None:
            return principal
        return principal.narrowed_to(principal.tenant_for(tenant, TENANT_HEADER))

    def _holder(self, text: str) -> Principal:
        """Return who holds the token; raises `Unauthorized`."""
        found = _TOKEN.fullmatch(text)
        if found is not None and found["id"] == EXECUTOR and self._admin.is_executor(found["secret"]):
            return Principal(EXECUTOR, Role.WORKER, None, token_id=EXECUTOR)
        if found is not None:
            self._require_contact()
            token = self._backend.stale_state()[0].api_token(found["id"])
            # A secret is compared even if there is no such token, so that both take the same time.
            if (token or _NOBODY).accepts(found["secret"], self._backend.now_ms()) and token is not None:
                return principal_of_token(token)
        if self._admin.is_admin(text):
            return Principal(ADMIN, Role.ADMIN, None, token_id=ADMIN)
        raise Unauthorized("the token is not valid")

    def _require_contact(self) -> None:
        """Raise `Unavailable` if this node's copy of the tokens may be too old."""
        if self._backend.is_leading:
            return
        _, age_ms = self._backend.stale_state()
        if age_ms < 0 or age_ms > TRUST_SECONDS * 1000:
            raise Unavailable("this node has not heard from a leader for too long to know who may do what")


class AdminFile:
    """The file whose lines are admin tokens; a change of the file is noticed at the next request that needs it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: tuple[int, int] | None = None
        self._digests: tuple[bytes, ...] = ()
        self._executors: tuple[bytes, ...] = ()

    def load(self) -> None:
        """Read the file if it has changed; raises `Invalid` naming the setting if it is no file of tokens."""
        field = "admin_token_file"
        try:
            status = self._path.stat()
            if (status.st_mtime_ns, status.st_size) == self._read_at:
                return
            lines = self._path.read_text(encoding="ascii").split()
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"{field}: {self._path}: {error}", field=field) from error
        if not lines or any(len(line) < _ADMIN_CHARS_MIN for line in lines):
            told = f"expected a random text of at least {_ADMIN_CHARS_MIN} characters in each line"
            raise Invalid(f"{field}: {self._path}: {told}; `openssl rand -hex 32` makes one", field=field)
        self._digests = tuple(map(digest_of, lines))
        self._executors = tuple(digest_of(executor_secret(line)) for line in lines)
        self._read_at = (status.st_mtime_ns, status.st_size)

    @property
    def executor_token(self) -> str:
        """Return the token of this node's own executors; raises as `load` does."""
        return f"{TOKEN_PREFIX}_{EXECUTOR}_{executor_secret(self._path.read_text(encoding='ascii').split()[0])}"

    def is_admin(self, text: str) -> bool:
        return self._is_among(text, lambda: self._digests)

    def is_executor(self, secret: str) -> bool:
        return self._is_among(secret, lambda: self._executors)

    def _is_among(self, text: str, digests: Callable[[], Sequence[bytes]]) -> bool:
        try:
            self.load()
        except Invalid:
            return False  # a file that is being replaced, or was damaged: nobody is let in by it
        digest = digest_of(text)
        # All are compared, so that the time tells nothing of their order.
        return sum(hmac.compare_digest(digest, each) for each in digests()) > 0


def executor_secret(admin_text: str) -> str:
    """Return the secret of the token by which the executors of nodes work; it follows from the admin token, as all
    nodes know that.
    """
    return hmac.new(admin_text.encode(), b"raftsched executor", hashlib.sha256).hexdigest()


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


_NOBODY: Final = ApiToken("", digest_of(""), "", Role.VIEWER, "", (), expires_at_ms=1)  # type: ignore[arg-type]  # in 1970
