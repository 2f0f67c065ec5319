# ruff: noqa: N802, SLF001  # pysyncobj's own private names: an override must bear them, and they are called here only
"""The one place that names pysyncobj's private parts: typed windows on them, and hooks where they are overridden.

`pysyncobj` 0.3.17 runs elections, the commit rule, the check for a quorum, terms and votes. What PYSYNCOBJ.md found to
be unsafe is overridden by the classes above this one (`Applying`, `Replication`, `RaftEngine`); they use plain names,
and this module ties each to the private name that pysyncobj calls. Every name is checked when the module is imported or
the first engine is built, so another version of the library fails at start and not in an election.

Module seams that are replaced for the whole process:

    createJournal   a journal object is used as it is, in place of a file name
    createPoller    no poller: the event loop waits, pysyncobj never does
    pickle          refused: nothing from the network or the disk may name a class (defect 5)
    monotonicTime   the clock of the engine that is being stepped, set by `enter`: several engines, each with its own
    random          clock and randomness, can live in one process (the simulator)
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, overload

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, syncobj
from pysyncobj.journal import Journal as JournalPort
from pysyncobj.node import Node
from pysyncobj.transport import Transport as TransportPort

from raftsched.consensus.ports import Log, NodeId, Timing
from raftsched.consensus.raft.messages import Message
from raftsched.limits import APPEND_BYTES_MAX, FRAME_BYTES_MAX, PROPOSALS_WAITING_MAX
from raftsched.ports import Clock, Randomness

VERSION: Final = "0.3.17"

FOLLOWER: Final = 0
CANDIDATE: Final = 1
LEADER: Final = 2
STATE_NAMES: Final = ("follower", "candidate", "leader")

REGULAR: Final = 0
NO_OP: Final = b"\x01"
"""What pysyncobj writes as the first entry of a term; ours are `\\x00` + command."""

SUCCESS: Final = FAIL_REASON.SUCCESS
QUEUE_FULL: Final = FAIL_REASON.QUEUE_FULL
DISCARDED: Final = FAIL_REASON.DISCARDED
NOT_LEADER: Final = FAIL_REASON.NOT_LEADER
UNKNOWN_OUTCOME: Final = FAIL_REASON.UNKNOWN_OUTCOME
REFUSED: Final = FAIL_REASON.REQUEST_DENIED
"""The rules forbid it; the result is the error that says which."""

Answer = Callable[[object, int], None]
"""Called once with (result, reason): the result of applying where the reason is SUCCESS."""

T = TypeVar("T")


class Private(property, Generic[T]):
    """A typed window on one private attribute of SyncObj; as cheap to look through as can be, for all do all the time."""

    def __init__(self, name: str) -> None:
        self.name = f"_SyncObj__{name}"
        super().__init__(attrgetter(self.name), self._write)

    def _write(self, instance: object, value: T) -> None:
        instance.__dict__[self.name] = value

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # a property says less about what it holds
        def __get__(self, instance: None, owner: type) -> Private[T]: ...
        @overload
        def __get__(self, instance: object, owner: type) -> T: ...
        def __get__(self, instance: object | None, owner: type) -> Private[T] | T: ...
        def __set__(self, instance: object, value: T) -> None: ...


class _NoPickle:
    """Stands in for pysyncobj's pickle module."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"pysyncobj reached for pickle.{name}; nothing here may be pickled")


class _NoPoller:
    """Stands in for pysyncobj's poller: messages come through the transport, and nobody waits inside a step."""

    def poll(self, _timeout: float) -> None: ...


class _Outgoing(TransportPort):  # type: ignore[misc]  # pysyncobj carries no types
    """What pysyncobj takes for its transport after the start: its own messages pass through a hook of ours."""

    def __init__(self, transport: TransportPort, send: Callable[[Node, Message], bool]) -> None:
        super().__init__(None, None, None)
        self.send = send
        self.destroy = transport.destroy


def _journal_itself(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda journal: journal if isinstance(journal, JournalPort) else original(journal)


ORIGINALS: Final = {
    name: getattr(syncobj, name) for name in ("createJournal", "createPoller", "pickle", "monotonicTime", "random")
}
"""The seams as pysyncobj has them; the tests of the stock library put them back."""


def install_seams() -> None:
    """Replace pysyncobj's module seams; may be called again."""
    syncobj.createJournal = _journal_itself(ORIGINALS["createJournal"])
    syncobj.createPoller = lambda _kind: _NoPoller()
    syncobj.pickle = _NoPickle()
    syncobj.PIPE_NOTIFIER_ENABLED = False


OVERRIDDEN: Final = (
    "onMessageReceived",
    "onNodeConnected",
    "onNodeDisconnected",
    "sendAppendEntries",
    "applyLogEntries",
    "tryLogCompaction",
    "loadDumpFile",
)
_CALLED: Final = ("setCurrentTerm", "setState", "generateRaftTimeout", "onBecomeLeader")


class Stock(SyncObj):  # type: ignore[misc]  # pysyncobj carries no types
    """SyncObj with typed windows on what we read and write, and a hook for each method that is overridden."""

    term: Private[int] = Private("raftCurrentTerm")
    voted_for: Private[NodeId | None] = Private("votedForNodeId")
    state: Private[int] = Private("raftState")
    leader_node: Private[Node | None] = Private("raftLeader")
    log: Private[Log] = Private("raftLog")
    other_nodes: Private[set[Node]] = Private("otherNodes")
    connected_nodes: Private[set[Node]] = Private("connectedNodes")
    election_deadline: Private[float] = Private("raftElectionDeadline")
    heartbeat_at: Private[float] = Private("newAppendEntriesTime")
    transfer_in_progress: Private[bool] = Private("transferInProgress")
    applied_index: Private[int] = Private("raftLastApplied")
    match_index: Private[dict[Node, int]] = Private("raftMatchIndex")
    last_response: Private[dict[Node, float]] = Private("lastResponseTime")
    no_op_index: Private[int | None] = Private("noopIDx")
    command_queue: Private[Any] = Private("commandsQueue")
    _load_dump: Private[bool] = Private("needLoadDumpFile")
    _stock_transport: Private[TransportPort] = Private("transport")

    def __init__(
        self,
        node_id: NodeId,
        peers: list[NodeId],
        *,
        log: Log,
        transport: TransportPort,
        clock: Clock,
        randomness: Randomness,
        timing: Timing,
    ) -> None:
        install_seams()
        self.clock = clock
        self.randomness = randomness
        self.timing = timing
        self.transport = transport
        self._commit_index = 1
        self.enter()
        super().__init__(Node(node_id), [Node(peer) for peer in peers], self._settings(log), transport=transport)
        _check_windows(self)
        self._stock_transport = _Outgoing(transport, self.outgoing)
        self._load_dump = False

    def _settings(self, log: Log) -> SyncObjConf:
        timing = self.timing
        return SyncObjConf(
            autoTick=False,
            journalFile=log,
            raftMinTimeout=timing.election_min_seconds,
            raftMaxTimeout=timing.election_max_seconds,
            leaderFallbackTimeout=timing.election_max_seconds,
            appendEntriesPeriod=timing.heartbeat_seconds,
            appendEntriesBatchSizeBytes=max(FRAME_BYTES_MAX, 2 * APPEND_BYTES_MAX),
            commandsQueueSize=PROPOSALS_WAITING_MAX,
            commandsWaitLeader=False,
            connectionTimeout=10 * timing.election_max_seconds,
            onStateChanged=self.on_state_changed,
        )

    def __dir__(self) -> list[str]:
        """Nothing: pysyncobj would evaluate every attribute in search of @replicated methods, and there are none."""
        return []

    def enter(self) -> None:
        """Lend pysyncobj this engine's clock and randomness; first line of everything that runs its code."""
        syncobj.monotonicTime = self.clock.monotonic
        syncobj.random = self.randomness

    # -- pysyncobj's own code -----------------------------------------------------------------------------------------

    def stock_message(self, node: Node, message: Message) -> None:
        SyncObj._SyncObj__onMessageReceived(self, node, message)

    def stock_tick(self) -> None:
        """Start an election when it is time; as leader commit, check the quorum, apply, send a heartbeat."""
        self._onTick(0.0)

    def set_term(self, term: int) -> None:
        """Enter `term` with no vote given."""
        self._SyncObj__setCurrentTerm(term, None)

    def set_vote(self, node_id: NodeId) -> None:
        """Give this term's vote."""
        self._SyncObj__setCurrentTerm(self.term, node_id)

    def become_leader(self) -> None:
        """Lead: the votes of a majority are there."""
        self._SyncObj__onBecomeLeader()

    def set_state(self, state: int) -> None:
        self._SyncObj__setState(state)

    def election_timeout(self) -> float:
        """A random number of seconds between the least and the most."""
        return cast("float", self._SyncObj__generateRaftTimeout())

    def enqueue(self, command: bytes, answer: Answer) -> None:
        """Put a command into pysyncobj's queue; answers QUEUE_FULL at once where there is no room."""
        self._applyCommand(command, answer, REGULAR)

    # -- hooks: pysyncobj calls the left, ours is the right -----------------------------------------------------------

    @property
    def _SyncObj__raftCommitIndex(self) -> int:
        return self._commit_index

    @_SyncObj__raftCommitIndex.setter
    def _SyncObj__raftCommitIndex(self, index: int) -> None:
        self.commit(index)

    def _SyncObj__onMessageReceived(self, node: Node, message: Message) -> None:
        self.enter()
        self.on_message(node, message)

    def _SyncObj__onNodeConnected(self, node: Node) -> None:
        self.enter()
        SyncObj._SyncObj__onNodeConnected(self, node)
        self.on_connected(node)

    def _SyncObj__onNodeDisconnected(self, node: Node) -> None:
        self.enter()
        SyncObj._SyncObj__onNodeDisconnected(self, node)
        self.on_disconnected(node)

    def _SyncObj__sendAppendEntries(self) -> None:
        self.replicate(heartbeat=True)

    def _SyncObj__applyLogEntries(self) -> bool:
        self.apply_committed()
        return False

    def _checkCommandsToApply(self) -> None:
        self.take_commands()

    def _SyncObj__tryLogCompaction(self) -> None:
        """Nothing: the log is cut behind the machine's checkpoint, by `compact`."""

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N803, ARG002
        """Never called; stock swallows a failed load and acknowledges it (defect 6)."""
        raise RuntimeError("pysyncobj's snapshots are not used")

    def outgoing(self, node: Node, message: Message) -> bool:
        raise NotImplementedError

    def commit(self, index: int) -> None:
        raise NotImplementedError

    def on_message(self, node: Node, message: Message) -> None:
        raise NotImplementedError

    def on_connected(self, node: Node) -> None:
        raise NotImplementedError

    def on_disconnected(self, node: Node) -> None:
        raise NotImplementedError

    def on_state_changed(self, old: int, new: int) -> None:
        raise NotImplementedError

    def replicate(self, *, heartbeat: bool) -> None:
        raise NotImplementedError

    def apply_committed(self) -> None:
        raise NotImplementedError

    def take_commands(self) -> None:
        raise NotImplementedError


def _check_library() -> None:
    """Refuse any pysyncobj but the one that was read and mended."""
    if version("pysyncobj") != VERSION:
        raise RuntimeError(f"raftsched mends pysyncobj {VERSION}, not {version('pysyncobj')}")
    missing = [name for name in (*OVERRIDDEN, *_CALLED) if not hasattr(SyncObj, f"_SyncObj__{name}")]
    missing += [name for name in ("_onTick", "_applyCommand", "_checkCommandsToApply") if not hasattr(SyncObj, name)]
    if missing:
        raise RuntimeError(f"pysyncobj lacks {', '.join(missing)}")


def _check_windows(built: Stock) -> None:
    windows = [value for value in vars(Stock).values() if isinstance(value, Private)]
    missing = [window.name for window in windows if window.name not in built.__dict__]
    if missing:
        raise RuntimeError(f"pysyncobj lacks {', '.join(missing)}")


_check_library()
