"""Move a node's data to the first key of its keys file, in small steps, until no file of it needs another key.

Theory of operation. Each node does it on its own, with its own files: the log and the other nodes have no part in it. The
rows of the state are re-encrypted in place, some at a time, in the open transaction. Then the journal drops the files of
earlier processes, which may have used other keys. At last `node.json` records that only the first key is needed.

The wish is recorded, too. So a restart continues, from the beginning of the state: rows that were moved are only read
again. Rows under another key that arrive later, in a snapshot of a node that was not moved yet, are moved as well.

Left out: pages of LMDB that are free, and blocks of the disk that held removed files. They keep old bytes until they are
used again; `raftsched compact` removes the former.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from raftsched import limits
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.machine import ReplicatedState
from raftsched.encryption.cipher import Cipher
from raftsched.encryption.keys import FIELD
from raftsched.errors import Rejected
from raftsched.node.identity import DirectoryClaim
from raftsched.storage.store.row_codec import FIRST_PLACE
from raftsched.wire.cluster import EncryptionStatus, KeyStatus

_STEP_SECONDS: Final = 0.01
_STEPS_PER_COMMIT: Final = 50
_JOURNAL_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 30.0
"""Interval of the look for rows that a snapshot has brought."""
log = structlog.get_logger()


class Reencryption:
    """Re-encrypt the data of one node, once a user has asked for it."""

    def __init__(
        self, node_id: str, cipher: Cipher, claim: DirectoryClaim, machine: ReplicatedState, journal: Journal
    ) -> None:
        self._node_id = node_id
        self._cipher = cipher
        self._claim = claim
        self._machine = machine
        self._journal = journal
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Begin, and remember it; no effect if it has begun. Raises `Rejected` if the node has no keys."""
        if not self._cipher:
            raise Rejected("encryption_off", f"node {self._node_id} encrypts nothing: {FIELD} is not set")
        self._claim.reencrypt_to(self._cipher.key_id)
        self._asked.set()

    async def run(self, wake: Callable[[], None]) -> None:
        """Re-encrypt whenever it is wanted and needed; `wake` is called after each change of the journal."""
        while True:
            if self._claim.reencrypts_to == self._cipher.key_id and self._cipher and self._needs_others():
                await self._move(wake)
            self._asked.clear()
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._asked.wait()
            except TimeoutError:
                continue

    def status(self) -> EncryptionStatus:
        """Return what this node encrypts, and which keys its files need."""
        rows = self._machine.state.rows_by_key()
        plain_rows = rows.pop("", 0)
        recorded = {check.id for check in self._claim.keys}
        ids = dict.fromkeys([*(key.id for key in self._cipher.keys), *rows, *sorted(recorded)])
        keys = tuple(
            KeyStatus(id=key_id, rows=rows.get(key_id, 0), needed=key_id in recorded or key_id in rows)
            for key_id in ids
        )
        return EncryptionStatus(
            node=self._node_id,
            state=self._state_name(),
            key=self._cipher.key_id or None,
            keys=keys,
            plain_rows=plain_rows,
        )

    def _state_name(self) -> str:
        if not self._cipher:
            return "off"
        if not self._needs_others():
            return "complete"
        return "moving" if self._claim.reencrypts_to == self._cipher.key_id else "incomplete"

    def _needs_others(self) -> bool:
        """Return whether any file may need another key than the first, or is plain."""
        return self._has_other_rows() or self._journal.has_older_files or self._claim.keys != self._cipher.checks[:1]

    def _has_other_rows(self) -> bool:
        return any(
            count and key_id != self._cipher.key_id for key_id, count in self._machine.state.rows_by_key().items()
        )

    async def _move(self, wake: Callable[[], None]) -> None:
        log.info("reencryption_begun", key=self._cipher.key_id)
        while self._has_other_rows():
            await self._move_rows()
        while self._journal.has_older_files:
            self._journal.drop_older_files(self._machine.durable_index)
            wake()
            await asyncio.sleep(_JOURNAL_SECONDS)
        if not self._has_other_rows():
            self._claim.need_only(self._cipher.checks[0])
            log.info("reencryption_done", key=self._cipher.key_id)

    async def _move_rows(self) -> None:
        """Examine all rows once. A snapshot may replace the state meanwhile; then some rows are examined later."""
        place, steps = FIRST_PLACE, 0
        while True:
            following = self._machine.state.reencrypt(place, rows_max=limits.REENCRYPTED_ROWS_MAX)
            steps += 1
            if following is None or steps % _STEPS_PER_COMMIT == 0:
                self._machine.checkpoint()
            if following is None:
                return
            place = following
            await asyncio.sleep(_STEP_SECONDS)
