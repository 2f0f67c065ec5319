"""Hold elections: pre-votes, votes, and the promise to a leader. pysyncobj counts terms, gives votes and becomes
leader.

Replaces parts of pysyncobj, each with the defect of PYSYNCOBJ.md that it fixes:

    votes        12  stock counts one voter as often as it answers.
    members      11  stock counts by whatever list it has; here by the configuration in effect (`configuration.py`).
    pre-votes     -  stock raises its term without a message, and so deposes a leader that the others follow. Here
                     a node first asks whether it could win; and nobody votes within the least election timeout after a
                     leader's message, which `quorum_lease.py` builds on.
    timeout_now   -  stock's transfer is stopped by that; it carries `force`.
    lead_ended    -  stock's leader that gives up is silent about it, and its late heartbeats delay the next election.
    clocks        -  a node that knows that its clock is off lets one election timeout pass. No more: who can lead never
                     depends on clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pysyncobj.node import Node

from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.clocks.measurements import Measurements
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.membership.configuration import Configuration
from raftsched.consensus.raft.membership.peer_identity import PeerIdentity
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.pysyncobj_adapter import CANDIDATE, RaftCore
from raftsched.errors import InvariantBroken

_PRE_VOTE_AGAIN: Final = (0.1, 0.3)
"""A pre-vote that failed is tried again after this part of the least election timeout, at random: it disturbs nobody."""

_AFTER_A_LEAD: Final = (0.0, 0.3)
"""Once their leader has given up, followers ask for pre-votes after this part of it, at random: rarely two at once."""


class Elections:
    """One node's part in elections.

    `is_sound` tells whether this node's state may be served; `idle_reason` why it starts no election, "" if it may.
    """

    def __init__(
        self,
        ports: EnginePorts,
        *,
        core: RaftCore,
        configuration: Configuration,
        identity: PeerIdentity,
        measured: Measurements,
        is_sound: Callable[[], bool],
        idle_reason: Callable[[], str],
    ) -> None:
        self._node_id = ports.node_id
        self._log = ports.log
        self._transport = ports.transport
        self._clock = ports.clock
        self._randomness = ports.randomness
        self._timing = ports.timing
        self._core = core
        self._configuration = configuration
        self._identity = identity
        self._cluster_clock = measured.cluster_clock
        self._round_trips = measured.round_trips
        self._is_sound = is_sound
        self._idle_reason = idle_reason
        self.leader_seen_at = ports.clock.monotonic()
        """Time of the last message of a leader; a start counts as one, for promises before it (`quorum_lease.py`)."""
        self.has_seen_leader = False
        self._votes: set[tuple[int, NodeId]] = set()
        self._pre_votes: set[NodeId] | None = None
        self._forced_term = 0
        self._followed_term = 0
        self._ended_term = 0
        """The latest term whose leader gave up and said so to this node, its follower."""
        self.is_cut_off = False
        """This node led until a majority no longer answered, and has heard no leader since; the engine sets it."""
        self._let_pass = False
        """Whether it let an election timeout pass since the last message of a leader, because its clock is off."""
        self._is_retiring = False

    # -- following ----------------------------------------------------------------------------------------------------

    def follow(self, node: Node, term: int) -> None:
        """Follow the leader of `term`, in pysyncobj's words: an empty message that can't raise the commit index."""
        self._pre_votes = None
        self._let_pass = False
        self.is_cut_off = False
        core = self._core
        if term == core.term and core.leads:
            raise InvariantBroken(f"{node.id} and this node both lead term {term}")
        core.stock_message(node, {"type": messages.APPEND, "term": term, "commit_index": 0})
        self._identity.vote_for_first_leader(node)
        self.leader_seen_at = self._clock.monotonic()
        self.has_seen_leader = True
        self._followed_term = term

    def _leader_is_alive(self) -> bool:
        """Check whether this node has promised a leader, which it may be itself, not to vote for others yet."""
        if self._core.leads:
            return True
        if self._is_released:
            return False
        return self._clock.monotonic() < self.leader_seen_at + self._timing.election_min_seconds

    @property
    def _is_released(self) -> bool:
        """Whether the leader of the latest term that this node followed leads no more, and so needs no promise."""
        return 0 < self._followed_term <= self._ended_term

    def tell_followers(self) -> None:
        """Tell the voters that this node, leader of the term until now, has given up."""
        for node in self._core.other_nodes:
            self._transport.send(node, {"type": messages.LEAD_ENDED, "term": self._core.term})

    def on_lead_ended(self, node: Node, message: Message) -> None:
        """Forget the leader, which has given up, and ask for pre-votes soon instead of after an election timeout."""
        core = self._core
        if message["term"] != core.term or node != core.leader_node:
            return
        self._ended_term = core.term
        core.leader_node = None
        core.election_deadline = self._clock.monotonic() + self._part_of_timeout(_AFTER_A_LEAD)

    def state_changed(self) -> None:
        """Forget the pre-votes of another state."""
        self._pre_votes = None

    # -- standing -----------------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """Win no election from now on, since this node stops; it still votes, and leads on if it does already."""
        self._is_retiring = True

    @property
    def may_campaign(self) -> bool:
        return self._configuration.may_campaign and self._is_sound() and not self._is_retiring

    def campaign_if_due(self, now: float) -> None:
        """Ask for pre-votes at the election timeout; pysyncobj itself starts an election when its deadline is 0."""
        core = self._core
        if not core.leads and not (self.may_campaign and self._identity.takes_part):
            if core.election_deadline <= now:
                self._identity.stay_idle(now, self._idle_reason())
            return
        if core.leads or core.transfer_in_progress or not 0 < core.election_deadline <= now:
            return
        if not core.other_nodes or not core.connected_nodes:
            return  # alone, it needs nobody's word; cut off, it asks nobody
        if self._cluster_clock.is_off and not self._let_pass:
            self._let_pass = True
            core.election_deadline = now + self._timing.election_max_seconds
            return
        self._ask_for_pre_votes(now)

    def _ask_for_pre_votes(self, now: float) -> None:
        core, log = self._core, self._log
        core.election_deadline = now + self._part_of_timeout(_PRE_VOTE_AGAIN)
        self._pre_votes = {self._node_id}
        request = {
            "type": messages.PRE_VOTE,
            "term": core.term + 1,
            "last_log_index": log.last_index,
            "last_log_term": log.term_at(log.last_index),
            "sent_us": int(now * 1_000_000),
        }
        for node in core.other_nodes:
            self._transport.send(node, request)

    def _part_of_timeout(self, part: tuple[float, float]) -> float:
        low, high = part
        return self._timing.election_min_seconds * (low + (high - low) * self._randomness.random())

    def on_pre_vote(self, node: Node, message: Message) -> None:
        """Tell a peer whether it would get this node's vote."""
        if not self._identity.takes_part:
            return
        core, log, stamp = self._core, self._log, {"sent_us": message.get("sent_us", 0)}
        term, candidate = message["term"], (message["last_log_term"], message["last_log_index"])
        is_newer = candidate >= (log.term_at(log.last_index), log.last_index)
        if term > core.term and is_newer and not self._leader_is_alive():
            self._transport.send(node, {"type": messages.PRE_VOTE_OK, "term": term, **stamp})
        elif term <= core.term:
            self._transport.send(node, {"type": messages.PRE_VOTE_NO, "term": core.term, **stamp})

    def on_pre_vote_ok(self, node: Node, message: Message) -> None:
        """Count a pre-vote; start an election once a majority has given theirs."""
        self._measure_round_trip(node, message)
        if self._pre_votes is None or message["term"] != self._core.term + 1:
            return
        self._pre_votes.add(node.id)
        if self._configuration.is_majority(self._pre_votes):
            self._pre_votes = None
            self._core.election_deadline = 0.0

    def on_pre_vote_no(self, node: Node, message: Message) -> None:
        """Learn of a later term."""
        self._measure_round_trip(node, message)
        if message["term"] > self._core.term:
            self._core.step_down(message["term"])

    def _measure_round_trip(self, node: Node, message: Message) -> None:
        self._round_trips.answered(str(node.id), message.get("sent_us", 0), self._clock.monotonic())

    # -- votes --------------------------------------------------------------------------------------------------------

    def outgoing(self, node: Node, message: Message) -> bool:
        """Send what pysyncobj itself sends: votes and requests for them."""
        if message["type"] == messages.VOTE_REQUEST:
            message["force"] = message["term"] == self._forced_term
        return bool(self._transport.send(node, message))

    def on_vote_request(self, node: Node, message: Message) -> None:
        """Give the vote as pysyncobj does, but never against the promise to a leader."""
        if not self._identity.takes_part:
            return
        if message["term"] > self._core.term and not message["force"] and self._leader_is_alive():
            return
        self._core.stock_message(node, message)

    def on_vote(self, node: Node, message: Message) -> None:
        """Count a vote of this term once, and only that of a voter."""
        term = self._core.term
        if message["term"] != term or self._core.state != CANDIDATE or self._is_retiring:
            return
        self._votes = {vote for vote in self._votes if vote[0] == term}
        self._votes.add((term, node.id))
        if self._configuration.is_majority({voter for _, voter in self._votes}):
            self._core.become_leader()

    def on_timeout_now(self, node: Node, message: Message) -> None:
        """Start an election at once, despite the others' promise to the leader: it transfers leadership to this
        node.
        """
        core = self._core
        is_leaders = message["term"] == core.term and node == core.leader_node and not self._configuration.is_removed
        if is_leaders and not core.leads and self.may_campaign:
            self._forced_term = core.term + 1
            core.stock_message(node, message)
