"""Define API tokens: who may call the API, as the state stores it. The secret of a token is never stored.

A token is the text `rs_<id>_<secret>`. Its id is public. The secret has 256 random bits, so a plain SHA-256 of it is
enough: there is nothing to guess that a slow hash would protect.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import IntEnum
from typing import Final

import msgspec

from raftsched.core.records.ids import TimeMs

TOKEN_PREFIX: Final = "rs"  # noqa: S105  # the beginning of every token
EVERY_TENANT: Final = "*"
"""The tenant of a token that may act for all tenants."""
DIGEST_BYTES: Final = 32


class Role(IntEnum):
    """Enumerate what a token is for; `api.access.rules` says what each of them may do."""

    VIEWER = 1
    SUBMITTER = 2
    WORKER = 3
    OPERATOR = 4
    ADMIN = 5

    @property
    def label(self) -> str:
        return self.name.lower()


class ApiToken(msgspec.Struct, frozen=True, array_like=True):
    """Record a token."""

    id: str
    digest: bytes
    """SHA-256 of its secret."""
    name: str
    """The actor of what it does, in histories and in the audit trail."""
    role: Role
    tenant: str
    """Its tenant, or `EVERY_TENANT`."""
    queues: tuple[str, ...] = ()
    """The queues to which it is limited; `mail*` is all whose names begin so. () = all."""
    expires_at_ms: TimeMs = TimeMs(0)
    """0 = never."""
    former_digest: bytes = b""
    """Digest of the secret before the last rotation."""
    former_until_ms: TimeMs = TimeMs(0)
    """The former secret is accepted until then."""
    created_at_ms: TimeMs = TimeMs(0)
    rotated_at_ms: TimeMs = TimeMs(0)
    created_by: str = ""
    revision: int = 0
    used_at_ms: TimeMs = TimeMs(0)
    """The beginning of the hour of its latest use that is known; 0 = none is."""

    def accepts(self, secret: str, now_ms: int) -> bool:
        """Return whether `secret` is the token's, and the token has not expired; compares in constant time."""
        digest = digest_of(secret)
        is_current = hmac.compare_digest(digest, self.digest)
        is_former = hmac.compare_digest(digest, self.former_digest) and now_ms < self.former_until_ms
        return (is_current or is_former) and not self.has_expired(now_ms)

    def has_expired(self, now_ms: int) -> bool:
        return bool(self.expires_at_ms) and now_ms >= self.expires_at_ms


def digest_of(secret: str) -> bytes:
    """Return the digest of a secret, as a token stores it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


_decoder = msgspec.msgpack.Decoder(ApiToken)
_encode = msgspec.msgpack.Encoder().encode


def encode_api_token(token: ApiToken) -> bytes:
    return _encode(token)


def decode_api_token(data: bytes | memoryview) -> ApiToken:
    return _decoder.decode(data)
