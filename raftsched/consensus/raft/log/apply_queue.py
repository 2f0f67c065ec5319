"""Move commands from the queue into the log, apply committed entries, and answer the callers.

Replaces parts of pysyncobj, each with the defect of PYSYNCOBJ.md that it fixes:

    apply_committed   10  stock runs a command again when its callback raises, and for ever when applying raises; here an
                          entry counts as applied before anybody is answered, and an exception leaves the step.
    append_waiting    -   stock loops by the clock and forwards commands of followers; here the queue is drained, and
                          only a leader takes anything.

Left out: pysyncobj's membership and version commands, which need pickle. An entry of an unknown kind stops the node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from raftsched.consensus.ports import COMMAND, CONFIGURATION, NO_OP
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.log.commit_index import CommitIndex
from raftsched.consensus.raft.log.proposals import NOT_LEADER, QUEUE_FULL, Answer, Proposals
from raftsched.errors import InvariantBroken
from raftsched.limits import PROPOSALS_WAITING_MAX

_APPLY_SECONDS: Final = 0.05
"""A step stops applying after that long; what remains comes with the next, so that heartbeats are not late."""
_APPLY_BYTES: Final = 1024 * 1024
"""Read from the log, and at most applied, in one step."""


class CurrentTerm(Protocol):
    """The term that this node is in."""

    @property
    def term(self) -> int: ...


class ApplyQueue:
    """The log's way into the machine.

    `takes_proposals` returns whether this node accepts writes now. `configure` applies the configuration at (index,
    term) and returns the answer for its proposer. `on_applied` is called with the index of each other entry, right
    after it.
    """

    def __init__(
        self,
        ports: EnginePorts,
        *,
        current: CurrentTerm,
        commit: CommitIndex,
        proposals: Proposals,
        takes_proposals: Callable[[], bool],
        configure: Callable[[bytes, int, int], object],
        on_applied: Callable[[int], None],
    ) -> None:
        self._log = ports.log
        self._machine = ports.machine
        self._clock = ports.clock
        self._current = current
        self._commit = commit
        self._proposals = proposals
        self._takes_proposals = takes_proposals
        self._configure = configure
        self._on_applied = on_applied
        self._waiting: deque[tuple[bytes, Answer]] = deque()
        self.applied_index = ports.machine.applied_index
        self.applied_bytes = 0
        """Bytes of commands applied since the last checkpoint."""

    # -- propose ------------------------------------------------------------------------------------------------------

    def propose(self, command: bytes, answer: Answer) -> None:
        """Queue a command for the log; `answer` is called once, at once if there is no room."""
        if len(self._waiting) >= PROPOSALS_WAITING_MAX:
            answer(None, QUEUE_FULL)
            return
        self._waiting.append((COMMAND + command, answer))

    def append_waiting(self) -> None:
        """Append all queued commands, as leader; refuse them otherwise: they are certainly not in the log."""
        now = self._clock.now
        log, term, waiting = self._log, self._current.term, self._waiting
        while waiting:
            command, answer = waiting.popleft()
            if not self._takes_proposals():
                answer(None, NOT_LEADER)
                continue
            index = log.last_index + 1
            log.add(command, index, term)
            self._proposals.add(index, term, answer, now)

    def refuse_all(self) -> None:
        """Answer everybody who waits: this node stops."""
        self._proposals.abandon()
        while self._waiting:
            self._waiting.popleft()[1](None, NOT_LEADER)

    # -- apply --------------------------------------------------------------------------------------------------------

    def apply_committed(self) -> None:
        """Apply committed entries, for a short while; an exception of the machine must stop the process."""
        applied, commit = self.applied_index, self._commit.index
        if applied >= commit:
            return
        until = self._clock.now + _APPLY_SECONDS
        for command, index, term in self._log.entries(applied + 1, _APPLY_BYTES):
            result = self._apply(command, index, term)
            self.applied_index = index
            self._proposals.applied(index, term, result)
            if index >= commit or self._clock.read() > until:
                break

    def _apply(self, command: bytes, index: int, term: int) -> object:
        if index != self.applied_index + 1:
            raise InvariantBroken(f"the log offers entry {index} after {self.applied_index}")
        kind, result = command[:1], None
        if kind == COMMAND:
            self.applied_bytes += len(command)
            result = self._machine.apply(index, term, command[1:])
        elif kind == NO_OP:
            result = self._machine.apply(index, term, None)
        elif kind == CONFIGURATION:
            result = self._configure(command[1:], index, term)
        else:
            raise InvariantBroken(f"entry {index} is of the unknown kind {kind!r}")
        self._on_applied(index)
        return result

    def installed(self, index: int) -> None:
        """Note that the machine is a copy of another node's as of `index`."""
        self.applied_index = index
        self.applied_bytes = 0
        self._proposals.skipped(index)
