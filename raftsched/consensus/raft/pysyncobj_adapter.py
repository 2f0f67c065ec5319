# ruff: noqa: N802, SLF001  # pysyncobj's own private names: an override must bear them, and they are called here only
"""Adapts pysyncobj: the only module that uses its private names and replaces its module globals.

`pysyncobj` 0.3.17 runs elections, terms, votes, the commit rule and the check for a quorum. `RaftCore` shows them under
plain names, and `Hooks` is everything that pysyncobj calls back. What PYSYNCOBJ.md found to be unsafe is overridden; the
modules that do it list the defects. Every name is checked when the module is imported or the first core is built, so
another version of the library fails at start and not in an election.

Module globals that are replaced for the whole process:

    createJournal   a journal object is used as it is, in place of a file name
    createPoller    no poller: the event loop waits, pysyncobj never does
    pickle          refused: nothing from the network or the disk may name a class (defect 5)
    monotonicTime   the moment of the core that is being stepped, set by `enter`: several nodes, each with its own
    random          clock and randomness, can live in one process (the simulator)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, overload

from pysyncobj import SyncObj, SyncObjConf, syncobj
from pysyncobj.journal import Journal as JournalPort
from pysyncobj.node import Node
from pysyncobj.transport import Transport as TransportPort

from raftsched.consensus.ports import Log, NodeId, Timing
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.peer_node import PeerNode
from raftsched.limits import APPEND_BYTES_MAX, FRAME_BYTES_MAX

VERSION: Final = "0.3.17"

FOLLOWER: Final = 0
CANDIDATE: Final = 1
LEADER: Final = 2
STATE_NAMES: Final = ("follower", "candidate", "leader")

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
    """Replaces pysyncobj's pickle module."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"pysyncobj reached for pickle.{name}; nothing here may be pickled")


class _NoPoller:
    """Replaces pysyncobj's poller: messages come through the transport, and nobody waits inside a step."""

    def poll(self, _timeout: float) -> None: ...


class _Outgoing(TransportPort):  # type: ignore[misc]  # pysyncobj carries no types
    """Replaces pysyncobj's transport after the start: its own messages pass through `Hooks.outgoing`."""

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


@dataclass(frozen=True, slots=True)
class Hooks:
    """Everything that pysyncobj calls in the middle of its own code."""

    on_message: Callable[[Node, Message], None]
    on_connected: Callable[[Node], None]
    on_disconnected: Callable[[Node], None]
    on_state_changed: Callable[[int, int], None]
    """Takes the old and the new state."""
    outgoing: Callable[[Node, Message], bool]
    """Sends a vote, or a request for one."""
    commit_index: Callable[[], int]
    commit: Callable[[int], None]
    """Takes the highest index that Raft's rule (§5.4.2) allows this leader to commit."""
    apply_committed: Callable[[], None]
    send_heartbeats: Callable[[], None]


class RaftCore(SyncObj):  # type: ignore[misc]  # pysyncobj carries no types
    """Elections, terms, votes, the commit rule and the check for a quorum, as pysyncobj has them.

    Typed windows show its private state. `hook` must be called before the first step or message.
    """

    term: Private[int] = Private("raftCurrentTerm")
    voted_for: Private[NodeId | None] = Private("votedForNodeId")
    state: Private[int] = Private("raftState")
    leader_node: Private[Node | None] = Private("raftLeader")
    other_nodes: Private[set[Node]] = Private("otherNodes")
    """The other voters."""
    connected_nodes: Private[set[Node]] = Private("connectedNodes")
    election_deadline: Private[float] = Private("raftElectionDeadline")
    heartbeat_at: Private[float] = Private("newAppendEntriesTime")
    transfer_in_progress: Private[bool] = Private("transferInProgress")
    match_index: Private[dict[Node, int]] = Private("raftMatchIndex")
    last_response: Private[dict[Node, float]] = Private("lastResponseTime")
    no_op_index: Private[int | None] = Private("noopIDx")
    _load_dump: Private[bool] = Private("needLoadDumpFile")
    _stock_transport: Private[TransportPort] = Private("transport")

    def __init__(self, ports: EnginePorts, peers: Iterable[NodeId]) -> None:
        install_seams()
        self._clock = ports.clock
        self._randomness = ports.randomness
        self._hooks: Hooks | None = None
        self.enter()
        super().__init__(
            PeerNode(ports.node_id),
            [PeerNode(peer) for peer in peers],
            self._settings(ports.log, ports.timing),
            transport=ports.transport,
        )
        _check_windows(self)
        self._stock_transport = _Outgoing(ports.transport, self._outgoing)
        self._load_dump = False

    def _settings(self, log: Log, timing: Timing) -> SyncObjConf:
        return SyncObjConf(
            autoTick=False,
            journalFile=log,
            raftMinTimeout=timing.election_min_seconds,
            raftMaxTimeout=timing.election_max_seconds,
            leaderFallbackTimeout=timing.election_max_seconds,
            appendEntriesPeriod=timing.heartbeat_seconds,
            appendEntriesBatchSizeBytes=max(FRAME_BYTES_MAX, 2 * APPEND_BYTES_MAX),
            connectionTimeout=10 * timing.election_max_seconds,
            onStateChanged=self._state_changed,
        )

    def hook(self, hooks: Hooks) -> None:
        """Have pysyncobj call these from now on."""
        self._hooks = hooks

    def __dir__(self) -> list[str]:
        """Return nothing: pysyncobj would evaluate every attribute in search of @replicated methods; there are none."""
        return []

    def enter(self) -> None:
        """Begin a moment, and lend pysyncobj this engine's clock and randomness: first line of all that runs its code."""
        self._clock.read()
        syncobj.monotonicTime = self._clock.monotonic
        syncobj.random = self._randomness

    @property
    def leads(self) -> bool:
        return self.state == LEADER

    # -- pysyncobj's own code -----------------------------------------------------------------------------------------

    def stock_message(self, node: Node, message: Message) -> None:
        """Let pysyncobj handle a message."""
        SyncObj._SyncObj__onMessageReceived(self, node, message)

    def tick(self) -> None:
        """Start an election when it is time; as leader commit, check the quorum, apply, send a heartbeat."""
        self._onTick(0.0)

    def set_vote(self, node_id: NodeId) -> None:
        """Give this term's vote."""
        self._SyncObj__setCurrentTerm(self.term, node_id)

    def become_leader(self) -> None:
        """Lead: the votes of a majority are there."""
        self._SyncObj__onBecomeLeader()

    def step_down(self, term: int) -> None:
        """Follow nobody, in `term`; no vote is given in it yet."""
        if term > self.term:
            self._SyncObj__setCurrentTerm(term, None)
        self.leader_node = None
        self._SyncObj__setState(FOLLOWER)
        self.election_deadline = self._clock.now + self.election_timeout()

    def is_current(self, message: Message) -> bool:
        """Check whether an answer is of this node's term; a higher term ends whatever this node is."""
        if message["term"] > self.term:
            self.step_down(message["term"])
        return bool(message["term"] == self.term)

    def election_timeout(self) -> float:
        """Draw a random number of seconds between the least and the most."""
        return cast("float", self._SyncObj__generateRaftTimeout())

    # -- hooks: pysyncobj calls the left, `Hooks` is the right ---------------------------------------------------------

    @property
    def _SyncObj__raftCommitIndex(self) -> int:
        return self._hooks.commit_index() if self._hooks is not None else 1

    @_SyncObj__raftCommitIndex.setter
    def _SyncObj__raftCommitIndex(self, index: int) -> None:
        if self._hooks is not None:  # what the journal says is not taken over
            self._hooks.commit(index)

    def _SyncObj__onMessageReceived(self, node: Node, message: Message) -> None:
        self.enter()
        self._hooked.on_message(node, message)

    def _SyncObj__onNodeConnected(self, node: Node) -> None:
        self.enter()
        SyncObj._SyncObj__onNodeConnected(self, node)
        self._hooked.on_connected(node)

    def _SyncObj__onNodeDisconnected(self, node: Node) -> None:
        self.enter()
        SyncObj._SyncObj__onNodeDisconnected(self, node)
        self._hooked.on_disconnected(node)

    def _SyncObj__sendAppendEntries(self) -> None:
        self._hooked.send_heartbeats()

    def _SyncObj__applyLogEntries(self) -> bool:
        self._hooked.apply_committed()
        return False

    def _checkCommandsToApply(self) -> None:
        """Nothing: proposals wait in `ApplyQueue`."""

    def _SyncObj__tryLogCompaction(self) -> None:
        """Nothing: the log is cut behind the machine's checkpoint, by `Replication.compact`."""

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N803, ARG002
        """Never called; stock swallows a failed load and acknowledges it (defect 6)."""
        raise RuntimeError("pysyncobj's snapshots are not used")

    @property
    def _hooked(self) -> Hooks:
        assert self._hooks is not None
        return self._hooks

    def _outgoing(self, node: Node, message: Message) -> bool:
        return self._hooked.outgoing(node, message)

    def _state_changed(self, old: int, new: int) -> None:
        self._hooked.on_state_changed(old, new)


def _check_library() -> None:
    """Reject any version of pysyncobj but the one that was read and adapted."""
    if version("pysyncobj") != VERSION:
        raise RuntimeError(f"raftsched adapts pysyncobj {VERSION}, not {version('pysyncobj')}")
    missing = [name for name in (*OVERRIDDEN, *_CALLED) if not hasattr(SyncObj, f"_SyncObj__{name}")]
    missing += [name for name in ("_onTick", "_checkCommandsToApply") if not hasattr(SyncObj, name)]
    if missing:
        raise RuntimeError(f"pysyncobj lacks {', '.join(missing)}")


def _check_windows(built: RaftCore) -> None:
    windows = [value for value in vars(RaftCore).values() if isinstance(value, Private)]
    missing = [window.name for window in windows if window.name not in built.__dict__]
    if missing:
        raise RuntimeError(f"pysyncobj lacks {', '.join(missing)}")


_check_library()
