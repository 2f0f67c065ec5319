"""Define where a request came from."""

from __future__ import annotations

import msgspec


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Tell where a request came from: for the audit trail only."""

    address: str
    """The address of the other end of its connection, as the node saw it that took the request."""
    tenant: str = ""
    """The tenant to which its caller is bound; "" = none, it may act for all."""
