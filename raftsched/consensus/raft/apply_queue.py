"""From the queue into the log, from the log into the machine, and the answer to the caller.

Overrides, each with the defect of PYSYNCOBJ.md that it mends:

    commit            3   stock commits what the leader itself has only in memory; nothing here is committed, and so
                          nothing applied, beyond `durable_index`. The machine is therefore never ahead of the journal.
    commit            -   "commitclamp": stock restores a commit index beyond its log; ours starts at the machine's
                          applied index.
    apply_committed   10  stock runs a command again when its callback raises, and for ever when applying raises; here an
                          entry counts as applied before anybody hears of it, and an exception leaves the step.
    take_commands     -   stock loops by the clock and forwards commands of followers; here the queue is drained, and
                          only a leader takes anything.

Left out: pysyncobj's membership and version commands, which need pickle. An entry of an unknown kind stops the node.
"""

from __future__ import annotations

from queue import Empty
from typing import Any, Final

from raftsched.consensus.machine import StateMachine
from raftsched.consensus.raft.proposals import Proposals
from raftsched.consensus.raft.pysyncobj_adapter import LEADER, NO_OP, NOT_LEADER, Answer, Stock
from raftsched.errors import InvariantBroken

_APPLY_SECONDS: Final = 0.05
"""A step stops applying after that long; what remains comes with the next, so that heartbeats are not late."""
_APPLY_BYTES: Final = 1024 * 1024
"""Read from the log, and at most applied, in one step."""


class Applying(Stock):
    """The log's way into the machine. `propose`, `synced` and `durable_index` are for the shell."""

    def __init__(self, *, machine: StateMachine, **stock: Any) -> None:
        self.machine = machine
        self.proposals = Proposals(stock["timing"])
        self.durable_index = 1
        self.applied_bytes = 0
        """Bytes of commands applied since the last checkpoint."""
        self._written_index = 1
        self._commit_target = 1
        self._commit_waits = False
        super().__init__(**stock)
        self.applied_index = machine.applied_index
        self.durable_index = max(1, machine.applied_index, self.log.last_index)
        self.commit(max(1, machine.applied_index))

    @property
    def commit_index(self) -> int:
        return self._commit_index

    @property
    def leads(self) -> bool:
        return self.state == LEADER

    @property
    def takes_proposals(self) -> bool:
        return self.leads

    # -- commit -------------------------------------------------------------------------------------------------------

    def commit(self, index: int) -> None:
        """Raise the commit index, unless this node has not got so far on disk; `synced` then asks for another step.

        Stock evaluates Raft's rule (§5.4.2: count only entries of the own term) for this very index, so it is taken as a
        whole or not at all.
        """
        if index > self.durable_index:
            self._commit_waits = True
        elif index > self._commit_index:
            self._commit_index = index

    def leader_committed(self, index: int) -> None:
        """The leader says that our log is committed up to `index`, which we have, though perhaps not yet on disk."""
        self._commit_target = max(self._commit_target, index)
        self._commit_index = max(self._commit_index, min(self._commit_target, self.durable_index))

    def written(self) -> None:
        """All that the log holds now is handed to the disk, and the next sync makes it durable."""
        self._written_index = self.log.last_index

    def synced(self) -> None:
        """All that the log held at `written` is durable; the engine has rested since."""
        self.durable_index = max(self.durable_index, self._written_index)
        self.leader_committed(0)

    def checkpointed(self) -> None:
        """The machine is durable up to what is applied."""
        self.applied_bytes = 0

    # -- propose ------------------------------------------------------------------------------------------------------

    def propose(self, command: bytes, answer: Answer) -> None:
        """Queue a command for the log; `answer` is called once, perhaps at once."""
        self.enqueue(command, answer)

    def take_commands(self) -> None:
        """Append all queued commands, as leader; refuse them otherwise: they are certainly not in the log."""
        now = self.clock.monotonic()
        log, term, queue = self.log, self.term, self.command_queue
        while True:
            try:
                command, answer = queue.get_nowait()
            except Empty:
                return
            if not self.takes_proposals:
                answer(None, NOT_LEADER)
                continue
            index = log.last_index + 1
            log.add(command, index, term)
            self.proposals.add(index, term, answer, now)

    def refuse_all(self) -> None:
        """Answer everybody who waits: this node stops."""
        self.proposals.abandon()
        while True:
            try:
                _, answer = self.command_queue.get_nowait()
            except Empty:
                return
            answer(None, NOT_LEADER)

    # -- apply --------------------------------------------------------------------------------------------------------

    def apply_committed(self) -> None:
        """Apply committed entries, for a short while; an exception of the machine must stop the process."""
        applied, commit = self.applied_index, self._commit_index
        if applied >= commit:
            return
        until = self.clock.monotonic() + _APPLY_SECONDS
        for command, index, term in self.log.entries(applied + 1, _APPLY_BYTES):
            if index > commit or self.clock.monotonic() > until:
                break
            result = self._apply(command, index, term)
            self.applied_index = index
            self.proposals.applied(index, term, result)

    def _apply(self, command: bytes, index: int, term: int) -> object:
        if index != self.applied_index + 1:
            raise InvariantBroken(f"the log offers entry {index} after {self.applied_index}")
        kind = command[:1]
        if kind == b"\x00":
            self.applied_bytes += len(command)
            return self.machine.apply(index, term, command[1:])
        if kind == NO_OP:
            return self.machine.apply(index, term, None)
        raise InvariantBroken(f"entry {index} is of the unknown kind {kind!r}")
