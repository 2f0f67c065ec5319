"""The asyncio shell around one `RaftEngine`: sockets, disk, threads and futures. It decides nothing.

One task, the pump, does everything that touches the engine, in a fixed order; each cycle is one group commit:

    finish work of threads → dispatch messages → step → tell of leadership → flush what may leave early
    → sync the journal, in a thread, if it is dirty → flush the rest → checkpoint and cut the log, if due

If what arrived changes nothing, as most heartbeats and acknowledgements, there is no step and nothing to sync: answers
leave at once.

While a sync runs the engine rests: what arrives, and what is proposed, waits in queues. A sync that takes longer than
an election is a stall: the others may have elected a leader, so this node serves and accepts nothing until it is over,
and everybody who waits is answered. Then the pump sleeps until
something arrives or the engine's next deadline; nothing polls. Whatever is raised on the way (a failed sync, a fault in
apply, a broken invariant) leaves `run`, and the process must end: what is on disk is right, what is in memory may not be.

The machine's checkpoint runs here, on the event loop, because the state has one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol

import structlog
from msgspec.structs import replace

from raftsched.consensus.disk_space import ClusterSpace
from raftsched.consensus.machine import StateMachine
from raftsched.consensus.net.address import Address
from raftsched.consensus.ports import Log, NodeId, Sizes, Timing
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.raft.clocks.step_clock import StepClock
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.log.proposals import DISCARDED, NOT_LEADER, QUEUE_FULL, REFUSED, SUCCESS
from raftsched.consensus.raft.membership.configuration import Change
from raftsched.consensus.raft.membership.members import Member, Membership
from raftsched.consensus.raft.replication.snapshots import Work
from raftsched.consensus.replica_status import PeerStatus, ReplicaStatus
from raftsched.consensus.sync_thread import SyncThread
from raftsched.errors import DiskStalled, NotLeader, OutcomeUnknown, RaftschedError, TooLarge, Unavailable
from raftsched.histogram import DISK_BUCKETS, Histogram
from raftsched.limits import (
    APPEND_BYTES_MAX,
    CHECKPOINT_BYTES,
    CHECKPOINT_SECONDS,
    JOURNAL_TAIL_BYTES,
    SNAPSHOT_HOLD_BYTES,
)
from raftsched.ports import Clock, Randomness, Wake

_SILENT_ELECTIONS: Final = 2
"""Elections' time without a word of the leader after which it is not named any more."""
_logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """The identity and the settings of this node; `snapshot_directory` is for this replica alone."""

    node_id: NodeId
    peers: tuple[NodeId, ...]
    """The other nodes of the config file; of a running cluster, the log says who belongs to it."""
    snapshot_directory: Path
    timing: Timing = field(default_factory=Timing)
    tail_bytes: int = JOURNAL_TAIL_BYTES
    """Log kept behind the checkpoint for slow followers."""
    sizes: Sizes | None = None
    """All that is kept and sent at once; None: by `tail_bytes` and the limits."""
    members: Membership | None = None
    """The nodes of the config file, this one included; None: `peers`, whose addresses others know."""
    incarnation: str = ""
    """Identity of this data directory; "" if members never change, and have ids only."""
    checkpoint_seconds: float = CHECKPOINT_SECONDS


class ReplicaJournal(Log, Protocol):
    """The log, and the three steps of a group commit."""

    def write(self) -> None: ...
    def datasync(self) -> None:
        """Blocks; the only one that runs in a thread. Its first error is final."""

    def synced(self) -> None: ...
    def _destroy(self) -> None: ...


MakeTransport = Callable[[Wake], Any]
"""Makes the transport, a `raftsched.consensus.net.transport.Transport`, which calls the function whenever it has news."""


class Replica:
    """One replica of the machine. `start`, then `run` in a task of its own, then `stop`.

    `on_leadership(True)` is called when this node leads and has applied everything of earlier terms, and
    `on_leadership(False)` at once when it doesn't any more; between two terms of its own both are called. Nothing else
    runs in between, so whoever sees that this node leads can be served. What they raise leaves `run`.
    """

    def __init__(
        self,
        *,
        settings: ReplicaSettings,
        machine: StateMachine,
        journal: ReplicaJournal,
        make_transport: MakeTransport,
        clock: Clock,
        randomness: Randomness,
        on_leadership: Callable[[bool], None],
        cluster_clock: ClusterClock | None = None,
        space: ClusterSpace | None = None,
    ) -> None:
        self.node_id = settings.node_id
        self._settings = settings
        self._machine = machine
        self._journal = journal
        self._clock = clock
        self._on_leadership = on_leadership
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._transport = make_transport(self._woken.set)
        self._engine = RaftEngine(
            EnginePorts(
                node_id=settings.node_id,
                log=journal,
                machine=machine,
                transport=self._transport,
                clock=StepClock(clock),
                randomness=randomness,
                timing=settings.timing,
                sizes=settings.sizes
                or Sizes(tail_bytes=settings.tail_bytes, hold_bytes=max(SNAPSHOT_HOLD_BYTES, 4 * settings.tail_bytes)),
            ),
            settings.members or Membership.of(map(Member, (settings.node_id, *settings.peers))),
            snapshot_directory=settings.snapshot_directory,
            cluster_clock=cluster_clock or ClusterClock(clock),
            space=space,
            incarnation=settings.incarnation,
            on_members=self._on_members,
        )
        self._disk = SyncThread()
        self._worker = ThreadPoolExecutor(1, "snapshot")
        self._finished_work: list[tuple[Work, asyncio.Future[None]]] = []
        self._led_term = 0
        self._known_leader = ""
        self._known_membership: Membership | None = None
        self._known_members: tuple[Member, ...] = ()
        self._leader_change_count = 0
        self._seen_leader: tuple[NodeId, int] = ("", 0)
        """The latest known leader, and its term."""
        self.leader_count = 0
        """Leaders that this node has known, one for each term."""
        self.checkpoint_seconds = Histogram(DISK_BUCKETS)
        self._leader_changed = asyncio.Event()
        self._checkpoint_at = inf
        self._transfer: asyncio.Future[bool] | None = None
        self._transfer_began = False
        self._transfer_to = ""
        self._is_stalled = False
        """The disk has not answered for longer than an election takes."""
        self._stopping = False
        self._running: asyncio.Future[None] | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen for peers; raises OSError where the address can't be bound."""
        await self._transport.start()

    async def run(self) -> None:
        """Drive the replica until `stop`; raises a fatal error, and then the process must end."""
        self._running = self._loop.create_future()
        try:
            while not self._stopping:
                self._finish_work()
                self._transport.dispatch()
                self._begin_transfer()
                if self._engine.is_due or self._journal.dirty:
                    await self._cycle()
                else:
                    self._transport.flush(early=False)
                await self._rest()
        finally:
            self._end()

    def _end(self) -> None:
        """Leave nobody waiting."""
        self._stopping = True
        self._tell_leadership(0)
        self._engine.refuse_all()
        self._settle_transfer(done=False)
        if self._running is not None and not self._running.done():
            self._running.set_result(None)

    async def stop(self) -> None:
        """End `run`, close every socket, and sync and close the journal. The machine stays open.

        It waits for a sync that is under way, however long that takes: who can't wait cancels it. The sockets are closed
        then, and nothing touches the journal any more.
        """
        self._stopping = True
        self._woken.set()
        self._worker.shutdown(wait=False, cancel_futures=True)
        try:
            if self._running is not None:
                await self._running
        finally:
            await self._transport.close()
        self._disk.shutdown()  # at rest: `run` has ended
        self._journal._destroy()  # noqa: SLF001  # pysyncobj's name for close

    # -- the pump -----------------------------------------------------------------------------------------------------

    async def _cycle(self) -> None:
        """Step the engine, and make durable what it wrote: one group commit."""
        engine, journal, transport = self._engine, self._journal, self._transport
        engine.step()
        self._end_transfer()
        self._tell_leadership(engine.term if engine.is_leading else 0)
        transport.flush(early=True)
        if journal.dirty:
            journal.write()
            engine.written()
            await self._sync()
            journal.synced()
            engine.synced()
        transport.flush(early=False)
        self._start_work()

    async def _sync(self) -> None:
        timer = self._loop.call_later(self._settings.timing.election_max_seconds, self._stall)
        try:
            await self._loop.run_in_executor(self._disk, self._journal.datasync)
        finally:
            timer.cancel()
            self._is_stalled = False

    def _stall(self) -> None:
        """Answer everybody who waits: what is in the log may be committed yet, what is not in it never will be."""
        self._is_stalled = True
        _logger.warning("disk_stalled", node=self.node_id, seconds=self._settings.timing.election_max_seconds)
        self._tell_leadership(0)
        self._engine.refuse_all()

    async def _rest(self) -> None:
        """Checkpoint if that is due, and wait until something arrives or is due; always lets other tasks run."""
        now = self._clock.monotonic()
        if self._is_checkpoint_due(now):
            self._machine.checkpoint()
            self._engine.checkpointed()
            self._checkpoint_at = inf
            began, now = now, self._clock.monotonic()
            self.checkpoint_seconds.observe(now - began)
        delay = min(self._engine.next_deadline(), self._checkpoint_at) - now
        if delay <= 0:
            await asyncio.sleep(0)
            return
        timer = self._loop.call_later(delay, self._woken.set) if delay < inf else None
        try:
            await self._woken.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._woken.clear()

    def _tell_leadership(self, term: int) -> None:
        """Tell of a change; `term` is the one that this node leads and serves, 0 for none."""
        leader_id = self._engine.leader_id
        if term == self._led_term and leader_id == self._known_leader:
            return
        if leader_id and (leader_id, self._engine.term) != self._seen_leader:
            self._seen_leader = (leader_id, self._engine.term)
            self.leader_count += 1
        led_term, self._led_term, self._known_leader = self._led_term, term, leader_id
        if led_term and term != led_term:
            self._on_leadership(False)
        if term and term != led_term:
            self._on_leadership(True)
        # Last, for those who waited for it try again at once.
        self._leader_change_count += 1
        changed, self._leader_changed = self._leader_changed, asyncio.Event()
        changed.set()

    def _is_checkpoint_due(self, now: float) -> bool:
        if self._machine.applied_index == self._machine.durable_index:
            self._checkpoint_at = inf
            return False
        self._checkpoint_at = min(self._checkpoint_at, now + self._settings.checkpoint_seconds)
        return now >= self._checkpoint_at or self._engine.queue.applied_bytes >= CHECKPOINT_BYTES

    # -- work in threads ----------------------------------------------------------------------------------------------

    def _start_work(self) -> None:
        work = self._engine.take_work()
        if work is not None:
            done = self._loop.run_in_executor(self._worker, work.run)
            done.add_done_callback(partial(self._on_work_done, work))

    def _on_work_done(self, work: Work, done: asyncio.Future[None]) -> None:
        self._finished_work.append((work, done))
        self._woken.set()

    def _finish_work(self) -> None:
        if not self._finished_work:
            return
        finished, self._finished_work = self._finished_work, []
        now = self._clock.monotonic()
        for work, done in finished:
            self._engine.expect_step()
            if done.cancelled():
                continue
            error = done.exception()
            if error is None:
                work.finish(now)
            elif isinstance(error, Exception):
                work.fail(error, now)
            else:
                raise error

    # -- for the node -------------------------------------------------------------------------------------------------

    @property
    def sync_seconds(self) -> Histogram:
        """Return the durations of the journal's syncs."""
        return self._disk.seconds

    @property
    def term(self) -> int:
        return self._engine.term

    @property
    def leader_id(self) -> NodeId:
        """Return the known leader; "" if none is known."""
        return self._engine.leader_id

    @property
    def is_leading(self) -> bool:
        """Whether this node leads, has applied everything of earlier terms, and its disk answers."""
        return self._engine.is_leading and not self._is_stalled

    @property
    def is_stalled(self) -> bool:
        """Whether the disk has not answered for longer than an election takes."""
        return self._is_stalled

    @property
    def operation_version(self) -> int:
        """The version in which this node may write log entries, if it leads (`entry_versions.py`)."""
        return self._engine.versions.in_force

    def check_fresh(self) -> None:
        """Return if the machine holds all that was ever acknowledged by anybody (`quorum_lease.py`).

        Raises `NotLeader` on any other node, and `Unavailable` where a majority or the disk hasn't answered in time.
        """
        if self._stopping:
            raise NotLeader
        if self._is_stalled:
            raise DiskStalled
        self._engine.check_fresh()

    async def confirm_lead(self) -> None:
        """Return once a majority has confirmed, after this call, that this node leads (`quorum_reads.py`).

        The machine then holds all that was acknowledged before the call; no clock is involved. Raises as `check_fresh`.
        """
        if self._stopping:
            raise NotLeader
        if self._is_stalled:
            raise DiskStalled
        future: asyncio.Future[object] = self._loop.create_future()
        self._engine.confirm_lead(partial(self._settle, future))
        self._woken.set()
        await future

    @property
    def leader_change_count(self) -> int:
        """Return a count that rises with each change of the leader that this node knows: itself, another node, none."""
        return self._leader_change_count

    async def leader_change(self, since: int) -> None:
        """Wait until `leader_change_count` differs from `since`."""
        while self._leader_change_count == since:
            await self._leader_changed.wait()

    def leader_age_ms(self) -> int:
        """Milliseconds since this node last heard a leader, 0 on a leader; -1 where it never did."""
        age = self._engine.leader_age_seconds()
        return -1 if age is None else round(age * 1000)

    def wake(self) -> None:
        """Look for work at once: the journal was changed from outside."""
        self._woken.set()

    def propose(self, command: bytes) -> asyncio.Future[object]:
        """Return a future of what the machine returns for this command, once it is committed and applied here.

        The future raises `NotLeader` or `Unavailable` where the command is certainly not in the log and never will be,
        and `OutcomeUnknown` where nobody here can tell. Cancelling it takes nothing back. Raises `TooLarge`.
        """
        if len(command) >= APPEND_BYTES_MAX:
            raise TooLarge(f"an entry of {len(command)} bytes is more than {APPEND_BYTES_MAX}")
        future: asyncio.Future[object] = self._loop.create_future()
        engine = self._engine
        if self._stopping or not self.is_leading:
            future.set_exception(self.refusal())
            return future
        engine.propose(command, partial(self._settle, future))
        self._woken.set()
        return future

    def refusal(self) -> Unavailable:
        """Return why nothing is accepted here."""
        return DiskStalled() if self._is_stalled else self._engine.not_leader()

    def _settle(self, future: asyncio.Future[object], result: object, reason: int) -> None:
        if future.done():
            return
        if reason == SUCCESS:
            future.set_result(result)
        elif reason == NOT_LEADER:
            future.set_exception(self.refusal())
        elif reason == REFUSED and isinstance(result, RaftschedError):
            future.set_exception(result)
        elif reason == QUEUE_FULL:
            future.set_exception(Unavailable("too many writes are waiting; retry in a moment"))
        elif reason == DISCARDED:
            future.set_exception(Unavailable("the leader changed before the write was accepted; retry"))
        else:
            future.set_exception(
                OutcomeUnknown("the leader changed while the write was on its way; retry to learn more")
            )

    @property
    def members(self) -> tuple[Member, ...]:
        """Return the known members of the cluster, with the addresses that this node uses."""
        membership = self._engine.configuration.membership
        if membership is not self._known_membership:
            self._known_membership, self._known_members = membership, self._as_reached(membership)
        return self._known_members

    @property
    def idle_reason(self) -> str:
        """Return the reason why this node takes no part in the cluster, for people; "" if it does."""
        return self._engine.idle_reason

    @property
    def difference(self) -> str:
        """Return the reason why this node's state must not be served: it differs from the majority's; "" if it may
        be.
        """
        return self._engine.comparison.difference

    @property
    def difference_warning(self) -> str:
        """Return a warning about differing states although this node serves; "" if there is none."""
        return self._engine.comparison.warning

    @property
    def differing(self) -> frozenset[NodeId]:
        """Members whose state is known not to be that of the majority."""
        return self._engine.comparison.differing

    @property
    def other_disks(self) -> tuple[NodeId, ...]:
        """Members that are there, but with a disk that is not the one they joined with."""
        return self._engine.identity.other_disks

    def change_members(self, change: Change) -> asyncio.Future[object]:
        """Return a future of the new `Membership`, once it is committed.

        The future raises as that of `propose`, `ChangeUnderWay`, and what `change` raises; nothing is changed then.
        """
        future: asyncio.Future[object] = self._loop.create_future()
        if self._stopping or self._is_stalled or not self._engine.takes_proposals:
            future.set_exception(self.refusal())
            return future
        self._engine.request_change(change, partial(self._settle, future))
        self._woken.set()
        return future

    def _as_reached(self, membership: Membership) -> tuple[Member, ...]:
        """The config file of a node wins over the addresses that were recorded, for the nodes that it lists (case R11)."""
        listed = {member.id: member for member in self._settings.members.members} if self._settings.members else {}
        return tuple(
            replace(member, raft=listed[member.id].raft, api=listed[member.id].api) if member.id in listed else member
            for member in membership.members
        )

    def _on_members(self, membership: Membership) -> None:
        """Tell the transport where nodes listen that it is about to link to."""
        for member in self._as_reached(membership):
            if member.id != self.node_id and member.raft:
                self._transport.set_address(member.id, Address.parse(member.raft))

    async def transfer_leadership(self, to: NodeId = "") -> bool:
        """Transfer leadership to the follower with the most complete log, or to the voter `to`.

        Return whether this node no longer leads. A transfer that is under way decides for further calls, too.

        Nothing is served or accepted from now on. False, after at most two election timeouts, if no follower could take
        over; then this node may continue to lead.
        """
        if self._stopping or not self._engine.leads:
            return not self._engine.leads
        if self._transfer is None:
            self._transfer = self._loop.create_future()
            self._transfer_began = False
            self._transfer_to = to
            self._woken.set()
        return await asyncio.shield(self._transfer)

    def retire(self) -> None:
        """Win no election from now on, since this node is about to stop; a leader leads until it is transferred."""
        self._engine.elections.retire()

    def _begin_transfer(self) -> None:
        """The pump does it, because the engine rests during a sync."""
        if self._transfer is not None and not self._transfer_began:
            self._transfer_began = self._engine.start_transfer(self._transfer_to)

    def _end_transfer(self) -> None:
        """See whether it is over, in the step that ended it: nothing else may be due for long."""
        engine = self._engine
        if self._transfer is not None and not engine.transfer.is_under_way:
            self._settle_transfer(done=not engine.leads)

    def _settle_transfer(self, *, done: bool) -> None:
        waiting, self._transfer = self._transfer, None
        if waiting is not None and not waiting.done():
            waiting.set_result(done)

    @property
    def round_trip_warning(self) -> str:
        """Return a warning with the peers that are too slow for the timing, and the setting to change; "" if none
        is.
        """
        return self._engine.measured.round_trips.warning

    @property
    def round_trip_ms(self) -> int:
        """Return the longest round trip between the leader and another node, as far as this node knows; 0 = unknown."""
        return self._engine.measured.round_trips.known_ms

    def status(self) -> ReplicaStatus:
        """A look at this replica."""
        engine, journal = self._engine, self._journal
        return ReplicaStatus(
            node_id=self.node_id,
            state=engine.state_name,
            term=engine.term,
            leader_id=self._heard_leader(),
            commit_index=engine.commit_index,
            applied_index=engine.applied_index,
            durable_index=self._machine.durable_index,
            first_index=journal.first_index,
            last_index=journal.last_index,
            peers=tuple(
                self._peer_status(peer) for peer in engine.configuration.membership.ids if peer != self.node_id
            ),
            incoming_snapshot_bytes=engine.receiver.progress,
            operations_read=engine.versions.own,
            operation_version=engine.versions.in_force,
        )

    def _heard_leader(self) -> NodeId:
        """Return the known leader; "" if it is silent for longer than elections take.

        A node without any connection starts no election, so it never learns that its leader is gone.
        """
        silence = self._engine.leader_age_seconds()
        is_silent = silence is not None and silence > _SILENT_ELECTIONS * self._settings.timing.election_max_seconds
        return "" if is_silent else self._engine.leader_id

    def _peer_status(self, peer: NodeId) -> PeerStatus:
        engine = self._engine
        progress = engine.replication.progress.get(peer)
        return PeerStatus(
            node_id=peer,
            is_connected=engine.is_connected(peer),
            match_index=progress.match if progress is not None else 0,
            clock_offset_ms=engine.measured.cluster_clock.offset_ms(peer),
            round_trip_ms=None
            if (seconds := engine.measured.round_trips.seconds(peer)) is None
            else round(1000 * seconds),
            snapshot_bytes=engine.sender.progress(peer),
            operations_read=engine.versions.read_by(peer),
            space=engine.measured.space.of(peer),
        )
