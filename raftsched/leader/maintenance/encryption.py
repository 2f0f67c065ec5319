"""Record the key with which this leader encrypts its files, once after it took over, and again when another one does.

So every node learns by the log whether it has the keys that the others have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from raftsched.core.operations.base import Operation
from raftsched.core.operations.encryption import AdoptKey
from raftsched.core.records.encryption import SECRET_BYTES
from raftsched.core.state.results import Counted, Result
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.view import LeaderView

log = structlog.get_logger()


class KeyAdoption:
    """Propose `AdoptKey` unless the state names `settings.key`; None = this node has no keys, and proposes nothing."""

    name: Final = "encryption"

    def __init__(self, view: LeaderView, settings: LeaderSettings, random_bytes: Callable[[int], bytes]) -> None:
        self._view: Final = view
        self._settings: Final = settings
        self._random_bytes: Final = random_bytes
        self._is_due = settings.key is not None

    def restart(self) -> None:
        """Look at the settings again."""
        self._is_due = self._settings.key is not None

    def step(self, now: Now) -> Sequence[Operation]:  # noqa: ARG002
        self._is_due = False
        key, known = self._settings.key, self._view.cluster_key
        if key is None or (known is not None and (known.key_id, known.check) == (key.id, key.check)):
            return ()
        return (AdoptKey(key.id, key.check, self._random_bytes(SECRET_BYTES)),)

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:  # noqa: ARG002
        """Note the result; if it is unknown (None), the key is proposed again."""
        self._is_due = result is None
        if isinstance(result, Counted) and result.count and isinstance(operation, AdoptKey):
            log.info("encryption_key_adopted", key=operation.key_id)

    def next_call_ms(self, now: Now) -> int:  # noqa: ARG002
        return 0 if self._is_due else NEVER_MS
