"""RaftEngine: pysyncobj's Raft, mended, as a plain object that is stepped.

    Stock (stock.py)            SyncObj with its private parts given plain names
    Applying (applying.py)      queue -> log -> commit -> machine -> answer
    Configuring (configuring.py)  who belongs to the cluster, and how that changes
    Greeting (greetings.py)     who the peers are, disk included; what an empty node may do
    Comparing (comparison.py)   whether this node's state is the one that the others have
    Replication (replication.py)  leader -> followers, snapshots
    QuorumReads (quorum_reads.py)  the lead confirmed by a majority, for reads that rest on no clock
    RaftEngine (here)           who leads: pre-votes, votes, transfer of leadership, fresh reads; and the stepping

How a shell drives it, and nothing else calls it:

    transport.dispatch()        messages and connections, through pysyncobj's callbacks
    engine.step()               time passed, or something arrived; messages are queued at the transport
    flush of append_entries     these may leave early: a leader's entries need not be on its own disk first
    sync of the journal         while it runs the engine is not touched
    engine.synced()
    flush of everything else    an answer or a vote leaves only after what it promises is durable (defect 3)

and it sleeps until `next_deadline()`. There is no tick: an idle node only sends or gets heartbeats.

Overrides, each with the defect of PYSYNCOBJ.md that it mends:

    on_message        5   `apply_command` and its answer, and everything that is not in the table below, is dropped; so
                          nothing from the network reaches pickle.
    votes             12  stock counts one voter as often as it answers.
    pre-votes         -   stock raises its term whenever it hears nothing, and so deposes a leader that the others hear.
                          Here a node first asks whether it could win; and nobody votes within the least election timeout
                          of hearing a leader, which `lease.py` builds on.
    timeout_now       -   stock's transfer is stopped by that; it carries `force`, and the old leader stops serving.
    clocks            -   a leader whose wall clock is off hands over to a node whose clock is right, and a node that knows
                          that it is off lets one turn to stand pass. No more: who can lead never depends on clocks.
    disks             -   a leader without room hands over to a node that has room (`disk_space.py`).
    members           11  stock accepts two changes at once, and counts by whatever list it has; here the votes are counted
                          by the configuration in effect (`configuring.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

import structlog
from pysyncobj.node import Node
from pysyncobj.transport import Transport as TransportPort

from raftsched.consensus.disk_space import ClusterSpace
from raftsched.consensus.machine import StateMachine
from raftsched.consensus.ports import Log, NodeId, Sizes, Timing
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.cluster_clock import ClusterClock
from raftsched.consensus.raft.configuration import OnMembers
from raftsched.consensus.raft.membership import Member, Membership
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.progress import Progress
from raftsched.consensus.raft.pysyncobj_adapter import CANDIDATE, LEADER, STATE_NAMES
from raftsched.consensus.raft.quorum_reads import QuorumReads
from raftsched.errors import NoMajority, NotLeader, Unavailable
from raftsched.ports import Clock, Randomness

_JUST_AFTER: Final = 0.001
"""pysyncobj acts when a deadline lies behind it, not when it is reached."""
_PRE_VOTE_AGAIN: Final = (0.1, 0.3)
"""A pre-vote that failed is tried again after this part of the least election timeout, at random: it disturbs nobody."""

_LEAVE_AGAIN_SECONDS: Final = 30.0
"""A leader whose clock is off or whose disk is low tries to hand over again after this, not before."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _Transfer:
    """A leadership that is being handed over: nothing is served or accepted any more."""

    give_up_at: float
    target: NodeId = ""
    """Who was told to stand; "" while nobody has caught up."""


class RaftEngine(QuorumReads):
    """One node's Raft. `machine` gets the committed entries; an exception out of any method must stop the process."""

    def __init__(
        self,
        node_id: NodeId,
        peers: list[NodeId],
        *,
        log: Log,
        machine: StateMachine,
        transport: TransportPort,
        clock: Clock,
        randomness: Randomness,
        snapshot_directory: Path,
        timing: Timing | None = None,
        sizes: Sizes | None = None,
        cluster_clock: ClusterClock | None = None,
        space: ClusterSpace | None = None,
        members: Membership | None = None,
        incarnation: str = "",
        on_members: OnMembers = lambda _members: None,
    ) -> None:
        self._votes: set[tuple[int, NodeId]] = set()
        self._pre_votes: set[NodeId] | None = None
        self._forced_term = 0
        self._transfer: _Transfer | None = None
        self._leave_at = -inf
        self._led_term = 0
        self._led_until = -inf
        """Until when this node has last led with a majority behind it."""
        self._is_cut_off = False
        """It led until a majority no longer answered, and has heard no leader since."""
        self._let_pass = False
        """It let a turn to stand pass since it heard a leader, because its clock is off."""
        super().__init__(
            node_id=node_id,
            members=members or Membership.of(Member(each) for each in (node_id, *peers)),
            incarnation=incarnation,
            on_members=on_members,
            snapshot_directory=snapshot_directory,
            log=log,
            machine=machine,
            transport=transport,
            clock=clock,
            randomness=randomness,
            timing=timing or Timing(),
            sizes=sizes or Sizes(),
            cluster_clock=cluster_clock,
            space=space,
        )
        if not self.other_nodes and self.configuration_index <= self.applied_index:
            # Alone, and known to be: a leader that only removes itself may still serve on this node's promise.
            self.election_deadline = 0.0
        self._handlers = {
            messages.APPEND: self.on_append,
            messages.APPEND_ACK: self.on_append_ack,
            messages.CHUNK: self.on_chunk,
            messages.CHUNK_ACK: self.on_chunk_ack,
            messages.PRE_VOTE: self._on_pre_vote,
            messages.PRE_VOTE_OK: self._on_pre_vote_ok,
            messages.PRE_VOTE_NO: self._on_pre_vote_no,
            messages.VOTE_REQUEST: self._on_vote_request,
            messages.VOTE: self._on_vote,
            messages.TIMEOUT_NOW: self._on_timeout_now,
            messages.DIGEST: self.on_digest,
            messages.READ_ROUND: self.on_read_round,
            messages.READ_ROUND_OK: self.on_read_round_ok,
            messages.DISK_SPACE: self.on_disk_space,
        }
        if incarnation:
            self._handlers[messages.GREETING] = self.on_greeting

    # -- for the shell ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do what is due: elections, commits, applying, sending. Raises what the machine raises."""
        self.enter()
        now = self.clock.monotonic()
        self._commit_waits = False
        self.install_received()
        self.form_if_all_are_blank()
        self.drop_links(now)
        self.take_requests()
        self.space.judge(now)
        self._leave_if_unfit(now)
        self._advance_transfer(now)
        self._stand_if_due(now)
        self.stock_tick()
        self.proposals.expire(now)
        self.compare_states(now)
        self.advance_reads(now)
        if self.leads:
            self.agree_on_version()
            self.promote()
            self.replicate(heartbeat=False)

    def next_deadline(self) -> float:
        """When, on the monotonic clock, `step` is due again if nothing arrives before."""
        if self.applied_index < self.commit_index or self._must_commit():
            return -inf
        deadline = min(self.proposals.deadline, self.drop_deadline, self.read_deadline)
        if self._transfer is not None:
            deadline = min(deadline, self._transfer.give_up_at)
        if self.leads:
            return min(deadline, self.heartbeat_at + _JUST_AFTER)
        if self.connected_nodes or not self.other_nodes or not self.takes_part:
            return min(deadline, self.election_deadline + _JUST_AFTER)
        return deadline

    def _must_commit(self) -> bool:
        """Whether a sync has just made a commit possible that nobody will send a message about."""
        waits = self._commit_waits or not self.other_nodes
        return self.leads and waits and self.commit_index < self.durable_index

    @property
    def leader_id(self) -> NodeId:
        """Who leads, as far as this node knows; "" while it knows of nobody, and once it was removed."""
        return str(self.leader_node.id) if self.leader_node is not None and not self.is_removed else ""

    @property
    def state_name(self) -> str:
        return STATE_NAMES[self.state]

    @property
    def is_leading(self) -> bool:
        """Leader, and all of earlier terms is applied; not once leadership is being handed over."""
        if not self.takes_proposals:
            return False
        return self.no_op_index is not None and self.applied_index >= self.no_op_index

    @property
    def takes_proposals(self) -> bool:
        return self.leads and self._transfer is None and not self.comparison.difference

    @property
    def is_transferring(self) -> bool:
        return self._transfer is not None

    @property
    def transfer_target(self) -> NodeId:
        """Who was told to stand by this leader; "" while nobody was."""
        return self._transfer.target if self._transfer is not None else ""

    def is_connected(self, peer: NodeId) -> bool:
        return Node(peer) in self.connected_nodes

    def leader_age_seconds(self) -> float | None:
        """How long ago this node heard a leader, or led with a majority; 0 while it leads, None where it never did."""
        if self.leads:
            return 0.0
        heard_at = max(self.leader_seen_at if self.heard_leader else -inf, self._led_until)
        return self.clock.monotonic() - heard_at if heard_at > -inf else None

    def check_fresh(self) -> None:
        """Return if this node's state holds all that was ever acknowledged; raises `NotLeader` or `Unavailable`."""
        if not self.takes_proposals:
            raise self.not_leader()
        if not self.is_leading:
            raise Unavailable("just elected; retry in a moment")
        if not self.contact.is_fresh(self.clock.monotonic()):
            raise Unavailable("no answer from a majority of nodes in time; retry in a moment")

    def not_leader(self) -> Unavailable:
        """Why nobody is served here, while this node doesn't lead."""
        if reason := self.idle_reason:
            return Unavailable(reason)
        return NoMajority() if self._is_cut_off else NotLeader("" if self.leads else self.leader_id)

    # -- messages -----------------------------------------------------------------------------------------------------

    def on_message(self, node: Node, message: Message) -> None:
        """One message of a peer, of a shape that `framing` has checked; unknown types are dropped."""
        kind = message["type"]
        handler = self._handlers.get(kind)
        if handler is not None and (kind == messages.GREETING or self.hears(node)):
            handler(node, message)

    def outgoing(self, node: Node, message: Message) -> bool:
        """What pysyncobj itself sends: votes and requests for them."""
        if message["type"] == messages.VOTE_REQUEST:
            message["force"] = message["term"] == self._forced_term
        return bool(self.transport.send(node, message))

    def on_met(self, node: Node) -> None:
        progress = self.progress.get(node.id)
        if progress is not None:
            progress.probe(progress.match + 1)
            self._send_empty(progress, self.clock.monotonic())

    def on_parted(self, node: Node) -> None:
        progress = self.progress.get(node.id)
        if progress is not None:
            progress.probe(progress.match + 1)

    def on_state_changed(self, old: int, new: int) -> None:
        """Follower, candidate and leader are pysyncobj's; what comes with a change is ours."""
        self._pre_votes = None
        if new == LEADER:
            self._is_cut_off = False
            self._led_term = self.term
            self.start_leading()
        elif old == LEADER:
            now = self.clock.monotonic()
            self._transfer = None
            is_deposed = self.term != self._led_term  # somebody is there who said so
            self._is_cut_off = not is_deposed and self.contact.is_lost(now, self.timing.election_max_seconds)
            self._led_until = min(now, self.contact.since)
            self.stop_leading(is_cut_off=self._is_cut_off)
            self.election_deadline = now + self.election_timeout()
        _log.info("raft_state", node=self.node_id, state=STATE_NAMES[new], term=self.term)

    # -- elections ----------------------------------------------------------------------------------------------------

    def _leader_is_alive(self) -> bool:
        """Whether this node has promised a leader, of which it may be one, not to vote for others yet."""
        if self.leads:
            return True
        return self.clock.monotonic() < self.leader_seen_at + self.timing.election_min_seconds

    def _stand_if_due(self, now: float) -> None:
        """Ask for pre-votes when it is time to stand; pysyncobj stands itself when its deadline is 0."""
        if not self.leads and not (self.may_stand and self.takes_part):
            if self.election_deadline <= now:
                self.stay_idle(now)
            return
        if self.leads or self.transfer_in_progress or not 0 < self.election_deadline <= now:
            return
        if not self.other_nodes or not self.connected_nodes:
            return  # alone, it needs nobody's word; cut off, it asks nobody
        if self.cluster_clock.is_off and not self._let_pass:
            self._let_pass = True
            self.election_deadline = now + self.timing.election_max_seconds
            return
        low, high = _PRE_VOTE_AGAIN
        pause = self.timing.election_min_seconds * (low + (high - low) * self.randomness.random())
        self.election_deadline = now + pause
        self._pre_votes = {self.node_id}
        request = {
            "type": messages.PRE_VOTE,
            "term": self.term + 1,
            "last_log_index": self.log.last_index,
            "last_log_term": self.log.term_at(self.log.last_index),
            "sent_us": int(now * 1_000_000),
        }
        for node in self.other_nodes:
            self.transport.send(node, request)

    def _on_pre_vote(self, node: Node, message: Message) -> None:
        if not self.takes_part:
            return
        log, term, stamp = self.log, message["term"], {"sent_us": message.get("sent_us", 0)}
        candidate = (message["last_log_term"], message["last_log_index"])
        is_newer = candidate >= (log.term_at(log.last_index), log.last_index)
        if term > self.term and is_newer and not self._leader_is_alive():
            self.transport.send(node, {"type": messages.PRE_VOTE_OK, "term": term, **stamp})
        elif term <= self.term:
            self.transport.send(node, {"type": messages.PRE_VOTE_NO, "term": self.term, **stamp})

    def _on_pre_vote_ok(self, node: Node, message: Message) -> None:
        self.measure_round_trip(node, message.get("sent_us", 0))
        if self._pre_votes is None or message["term"] != self.term + 1:
            return
        self._pre_votes.add(node.id)
        if self.is_majority(self._pre_votes):
            self._pre_votes = None
            self.election_deadline = 0.0

    def _on_pre_vote_no(self, node: Node, message: Message) -> None:
        self.measure_round_trip(node, message.get("sent_us", 0))
        if message["term"] > self.term:
            self.step_down(message["term"])

    def _on_vote_request(self, node: Node, message: Message) -> None:
        if not self.takes_part:
            return
        if message["term"] > self.term and not message["force"] and self._leader_is_alive():
            return
        self.stock_message(node, message)

    def _on_vote(self, node: Node, message: Message) -> None:
        """Count a vote of this term once, and only that of a voter."""
        if message["term"] != self.term or self.state != CANDIDATE:
            return
        self._votes = {vote for vote in self._votes if vote[0] == self.term}
        self._votes.add((self.term, node.id))
        if self.is_majority({voter for _, voter in self._votes}):
            self.become_leader()

    def _heard_leader(self, node: Node, term: int) -> None:
        self._pre_votes = None
        self._let_pass = False
        self._is_cut_off = False
        super()._heard_leader(node, term)

    # -- transfer of leadership ---------------------------------------------------------------------------------------

    def start_transfer(self) -> bool:
        """Stop serving, and hand over as soon as a connected follower has the whole log; False where nothing can be.

        It ends with this node as a follower, or, if nobody was told to stand in time, as the leader it was.
        """
        if not self.leads or not self.connected_nodes:
            return False
        if self._transfer is None:
            self.enter()
            self.take_commands()
            self._transfer = _Transfer(self.clock.monotonic() + self.timing.election_max_seconds)
        return True

    def _leave_if_unfit(self, now: float) -> None:
        """Let a node lead whose clock is right, and whose disk has room if this one's has none, if there is one."""
        if not self.leads or self._transfer is not None or now < self._leave_at:
            return
        if self.cluster_clock.is_off:
            reason, is_fitter = "own_clock_off", self._can_take_over
        elif self.space.should_leave(now):
            reason, is_fitter = "own_disk_low", self._has_room_to_lead
        else:
            return
        if any(is_fitter(progress) for progress in self.progress.values()):
            self._leave_at = now + _LEAVE_AGAIN_SECONDS
            _log.warning("handing_over", node=self.node_id, term=self.term, reason=reason)
            self.start_transfer()

    def _has_room_to_lead(self, progress: Progress) -> bool:
        return self._can_take_over(progress) and self.space.has_room(progress.node.id)

    def _can_take_over(self, progress: Progress) -> bool:
        """Whether a follower keeps up with the log, and its clock is right."""
        if progress.node not in self.other_nodes:
            return False
        keeps_up = not progress.probing and not progress.snapshotting and progress.node in self.connected_nodes
        return keeps_up and self.cluster_clock.is_right(progress.node.id)

    def _advance_transfer(self, now: float) -> None:
        transfer = self._transfer
        if transfer is None:
            return
        if not transfer.target:
            self._tell_to_stand(transfer, now)
        if now < transfer.give_up_at:
            return
        _log.warning("transfer_failed", node=self.node_id, target=transfer.target)
        self._transfer = None
        if transfer.target:
            # It may still stand by force, so this term's promise is gone: never serve in it again.
            self.step_down(self.term)

    def _tell_to_stand(self, transfer: _Transfer, now: float) -> None:
        last = self.log.last_index
        followers = list(self.progress.items())
        fit = [(peer, progress) for peer, progress in followers if self._can_take_over(progress)]
        roomy = [(peer, progress) for peer, progress in fit if self._has_room_to_lead(progress)]
        for peer, progress in roomy or fit or followers:
            if progress.node not in self.other_nodes:
                continue
            if progress.match == last and progress.node in self.connected_nodes:
                transfer.target = peer
                transfer.give_up_at = now + self.timing.election_max_seconds
                self.transport.send(progress.node, {"type": messages.TIMEOUT_NOW, "term": self.term})
                return

    def _on_timeout_now(self, node: Node, message: Message) -> None:
        """The leader hands over to this node: stand at once, for the next term, against the others' promise to it."""
        if message["term"] == self.term and node.id == self.leader_id and not self.leads and self.may_stand:
            self._forced_term = self.term + 1
            self.stock_message(node, message)
