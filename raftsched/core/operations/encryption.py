"""Define operations on the cluster's encryption at rest. Rules of the codec: see `codec`."""

from __future__ import annotations

from raftsched.core.operations.base import Operation


class AdoptKey(Operation, frozen=True, tag=36):
    """Record the key with which the leader encrypts. Result: `Counted` (1: it was another one)."""

    key_id: str
    check: str
    secret: bytes
    """Random bytes for `ClusterKey.secret`; ignored if it is set."""
