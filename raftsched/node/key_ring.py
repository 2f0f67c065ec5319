"""Take over the keys of a node's keys file while it runs, and encrypt under its first key from then on.

Theory of operation. A key is recorded in `node.json` before anything is encrypted under it, in one step with the change: so
the end of a re-encryption, which records that only the present key is needed, comes before it or after it. The journal
changes to a new file between two groups. Rows of the state are encrypted one by one, so they need no such moment.

Left out: keys that were removed from the file. The process keeps them until it ends; a file without a key that data on the
disk may need is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from raftsched.consensus.journal.journal import Journal
from raftsched.encryption.cipher import Cipher
from raftsched.encryption.keys import Key, require_keys
from raftsched.node.identity import DirectoryClaim

log = structlog.get_logger()


class KeyRing:
    """The keys of a node that runs; `changed` is called when another one encrypts."""

    def __init__(
        self, cipher: Cipher, claim: DirectoryClaim, journal: Journal, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._cipher = cipher
        self._claim = claim
        self._journal = journal
        self._changed = changed
        self._wanted = cipher.key_id

    def check(self, keys: Sequence[Key]) -> None:
        """Raise `Invalid` or `KeyMissing` if the file has other bytes under a known id, or lacks a key that is needed."""
        if self._cipher:
            self._cipher.require_known(keys)
            require_keys(self._claim.keys, keys, whose="the data of this node")

    def take(self, keys: Sequence[Key]) -> list[str]:
        """Decrypt with these keys at once, and encrypt with the first of them soon; return the ids of the new ones.

        They must have passed `check`. A node that encrypts nothing takes none: it needs a restart for that.
        """
        if not self._cipher:
            return []
        added = self._cipher.add(keys)
        if keys[0].id != self._wanted:
            self._wanted = keys[0].id
            self._journal.change_files(self._change)
        return added

    def _change(self) -> None:
        cipher, wanted = self._cipher, self._wanted
        (check,) = (check for check in cipher.checks if check.id == wanted)
        try:
            self._claim.need_key(check)
        except OSError as error:
            self._wanted = cipher.key_id
            log.error("encryption_key_not_changed", key=cipher.key_id, wanted=wanted, error=str(error))  # noqa: TRY400  # one line
            return
        cipher.encrypt_under(wanted)
        log.info("encryption_key_changed", key=wanted)
        self._changed()
