"""Define operations on API tokens. Rules of the codec: see `codec`.

They carry digests. The secret of a token exists only in the reply of the request that made it.
"""

from __future__ import annotations

from raftsched.core.operations.base import Operation
from raftsched.core.records.api_token import Role
from raftsched.core.records.ids import TimeMs


class CreateToken(Operation, frozen=True, tag=31):
    """Store a token. Result: `TokenSaved`. Rejected: `exists`, `limit_reached`."""

    id: str
    digest: bytes
    name: str
    role: Role
    tenant: str
    queues: tuple[str, ...] = ()
    expires_at_ms: TimeMs = TimeMs(0)
    actor: str = ""


class RotateToken(Operation, frozen=True, tag=32):
    """Give a token another secret; the former one is accepted until `former_until_ms`.

    Result: `TokenSaved`. Rejected: `not_found`.
    """

    id: str
    digest: bytes
    former_until_ms: TimeMs = TimeMs(0)
    """0 = it is refused at once."""
    actor: str = ""


class NoteTokenUses(Operation, frozen=True, tag=39):
    """Note when tokens were used, for each the beginning of an hour.

    Times that are not later than known ones, and tokens that are not there, change nothing.

    Result: `Counted`, the changed tokens. Rejected: `invalid`.
    """

    uses: tuple[tuple[str, TimeMs], ...]
    """(id, time)."""


class RevokeToken(Operation, frozen=True, tag=33):
    """Remove a token: it is refused from now on. Result: `TokenSaved`, with its last state. Rejected: `not_found`."""

    id: str
    actor: str = ""
