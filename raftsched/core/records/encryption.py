"""Define the record of the cluster's encryption at rest. It says which key the leader encrypts with, and not the key.

Nodes encrypt what they write to their disks, each on its own: the log and the state that `apply` sees are plain. This
record tells a node that its keys file is missing or differs from the leader's.
"""

from __future__ import annotations

from typing import Final

import msgspec

SECRET_BYTES: Final = 32


class ClusterKey(msgspec.Struct, frozen=True, array_like=True):
    """Record the key with which the latest leader with keys encrypts."""

    key_id: str
    check: str
    """A value by which another key of the same id is recognized (`encryption.keys`)."""
    secret: bytes
    """Random bytes, drawn once. The digests of unique keys depend on them: these are keys of an index, which is plain."""
