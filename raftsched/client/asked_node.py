"""Ask one node about itself: its encryption, and a copy of its state. Any node answers, and none asks another.

Use a client of one address with `follow_leader=False`, so that it is known which node answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from raftsched.client.http.calls import Calls
from raftsched.client.http.retries import Failure
from raftsched.wire.cluster import EncryptionStatus

_SILENCE_SECONDS: Final = 3600.0
"""Time in which the node copies and verifies its state: some minutes with 10 million jobs."""


@dataclass(frozen=True, slots=True)
class BackupStream:
    """A backup that is being received. Its end tells whether it is whole: verify it before you rely on it."""

    name: str
    """A name for its file."""
    size_bytes: int
    parts: AsyncIterator[bytes]
    """Raises `Unavailable` if it is cut off."""


class AskedNode:
    """The node that a client asks. All calls need an admin of all tenants, and raise `Rejected` and `Unavailable`."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def encryption(self) -> EncryptionStatus:
        """Read how the node encrypts its files: its keys, and the rows of each."""
        return await self._calls.call(EncryptionStatus, "GET", "/cluster/encryption", has_consistency=False)

    async def reencrypt(self) -> EncryptionStatus:
        """Move the data of the node to the first key of its keys file; it continues after this returns."""
        return await self._calls.call(EncryptionStatus, "POST", "/cluster/encryption/rotate")

    @asynccontextmanager
    async def backup(self) -> AsyncIterator[BackupStream]:
        """Receive a backup of the node: its whole state as of one log index. It is not recorded as the latest backup."""
        path = "/cluster/backup"
        async with self._calls.connection.download(path, silence_seconds=_SILENCE_SECONDS) as download:
            if isinstance(download, Failure):
                raise download.error
            yield BackupStream(download.name, download.size_bytes, download.parts)
