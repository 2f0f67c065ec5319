"""Track the committed and the durable index of the log.

Overrides, each with the defect of PYSYNCOBJ.md that it fixes:

    raise_to   3   stock commits what the leader itself has only in memory; nothing here is committed, and so nothing
                   applied, beyond `durable_index`. The machine is therefore never ahead of the journal.
    __init__   -   "commitclamp": stock restores a commit index beyond its log; ours starts at the machine's applied
                   index.
"""

from __future__ import annotations


class CommitIndex:
    """The commit index of one node; it never falls.

    `applied` is what the machine has applied at the start, `last` where the log ended: all that was read is durable.
    """

    def __init__(self, *, applied: int, last: int) -> None:
        self.durable_index = max(1, applied, last)
        self.waits_for_sync = False
        """In this step the rule allowed more than was durable here."""
        self._index = max(1, applied)
        self._written_index = 1
        self._leaders = 1
        """The highest commit index of a leader, limited to entries that this log has."""

    @property
    def index(self) -> int:
        """Index of the last entry that is known to be committed."""
        return self._index

    def raise_to(self, index: int) -> None:
        """Raise the commit index, unless this node has not got so far on disk; after the sync another step is due.

        Stock evaluates Raft's rule (§5.4.2: count only entries of the own term) for this very index, so it is taken as a
        whole or not at all.
        """
        if index > self.durable_index:
            self.waits_for_sync = True
        elif index > self._index:
            self._index = index

    def leader_committed(self, index: int) -> None:
        """Follow the leader's commit index; this log matches the leader's up to there, though perhaps not yet on disk."""
        self._leaders = max(self._leaders, index)
        self._index = max(self._index, min(self._leaders, self.durable_index))

    def written(self, last: int) -> None:
        """Note that the log up to `last` is handed to the disk: the next sync makes it durable."""
        self._written_index = last

    def synced(self) -> None:
        """Note that all that the log held at `written` is durable; the engine has rested since."""
        self.durable_index = max(self.durable_index, self._written_index)
        self.leader_committed(0)

    def cut(self, start: int) -> None:
        """Note that the log was cut from `start` on."""
        self.durable_index = min(self.durable_index, start - 1)

    def installed(self, index: int) -> None:
        """Note that a snapshot as of `index` is durable, and the log begins there."""
        self.durable_index = index
        self.leader_committed(index)
