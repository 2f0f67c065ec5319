"""Record, once a leader takes leases over, whether the cluster had no leader for longer than a lease.

A leader stamps entries at least once in a third of a term while leases run (`worker_marks`). So a longer silence of the
log before a leader's own first entry is time in which no worker could reach a leader. The log decides, by its own
stamps, since a new leader may not know the cluster's time yet. The note precedes everything else that the leader puts
into the log, whoever proposes it (`note`): otherwise, if this leader is soon lost, the next one would see no silence.
`on_recorded` receives whether there was an outage; until then no lease may end, since the cause of its end would be a
guess.

Cluster time may also step while one leads: clocks are corrected, or a guess is. To the next leader each proof of a renewal
from before the step looks as old as the step is long. So the first entry after it also begins with a note (`note_silence`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import RecordOutage
from raftsched.core.records.ids import TimeMs
from raftsched.core.state.results import Counted, Result
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.view import LeaderView


class Outage:
    """Propose `RecordOutage` once, if there is a lease that it may concern."""

    name: Final = "outage"

    def __init__(self, view: LeaderView, settings: LeaderSettings, on_recorded: Callable[[bool], None]) -> None:
        self._on_recorded: Final = on_recorded
        self._longest_ms: Final = settings.lease_ttl_ms
        self._operation: Final = RecordOutage(view.cluster_time_ms, self._longest_ms)
        self._is_due = False

    def start(self) -> None:
        """Begin: this leader takes over leases."""
        self._is_due = True

    @property
    def note(self) -> Operation | None:
        """Return the operation that must precede everything else that this leader puts into the log; None if it takes
        over no lease.

        Called right after `start`.
        """
        return self._operation if self._is_due else None

    def note_silence(self, since_ms: TimeMs, now_ms: TimeMs) -> Operation | None:
        """Return the note for an entry stamped `now_ms` behind one of `since_ms`; None if no lease outlives less."""
        return RecordOutage(since_ms, self._longest_ms) if now_ms - since_ms > self._longest_ms else None

    def step(self, now: Now) -> Sequence[Operation]:  # noqa: ARG002
        self._is_due = False
        return (self._operation,)

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:  # noqa: ARG002
        """Note the result; if it is unknown (None), the note is proposed again."""
        self._is_due = result is None
        if result is not None:
            self._on_recorded(isinstance(result, Counted) and result.count > 0)

    def next_call_ms(self, now: Now) -> int:  # noqa: ARG002
        return 0 if self._is_due else NEVER_MS
