"""Identify peers by a handshake on every connection that names the sender's disk, and limit empty nodes.

A node whose disk was emptied is another node with a member's id: it has forgotten what it voted for and what it
acknowledged, and two of three such nodes would form a majority without any memory (case R13). So each data directory
has an *incarnation*, a random name, and the first message either way on a connection is a greeting with it:

  * A peer whose incarnation is not the one that the configuration records for its id is refused: its messages are
    dropped, nothing is sent to it but greetings, and the log says what to do.
  * A leader records the incarnation of a voter in the log (that changes no voters, so the rule of `configuration.py`
    does not apply) before it sends it the first entry. Hence nothing that was acknowledged to it is ever counted for
    another disk. A node that joins is recorded when it becomes a voter.
  * A *blank* node, one whose log and state hold nothing, takes no part: it gives no vote and starts no election. It begins
    to when a leader has sent it entries (that leader knows its disk, or takes it for new), or when every node of its
    config file has greeted it as blank too: then there is nothing that could be forgotten, and a new cluster forms.
    The node notes that on disk, for the time in which it is still blank, and begins in a term of its own, so that an
    earlier life's votes, if there was one, were given in another term.

Blank nodes ask until all have answered. What they wait for is in the log and in `idle_reason`.

Greetings also carry the members that the sender knows: a node that is behind links to those that it does not know, so
that one of them can win its vote. They may be all that are left: it also reads the greeting of an *unknown caller*, for
the members in it and for nothing else (thesis §4.1: servers accept messages of servers outside their configuration).

And they carry versions of log entries (`entry_versions.py`): a peer that reads less than what is in force is refused as
well, and a node that learns of entries which it can't read stops, by `UnknownVersion`: it must be upgraded.

An engine without an incarnation does none of this: its members are fixed, and known by their ids alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
from pysyncobj.node import Node

from raftsched.consensus.journal.recovery import FormedMark
from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.log.entry_versions import OperationVersions
from raftsched.consensus.raft.membership.configuration import Configuration
from raftsched.consensus.raft.membership.members import decode_membership, encode_membership
from raftsched.consensus.raft.messages import Message
from raftsched.core.operations.codec import require_readable
from raftsched.errors import Invalid

_OTHER_DISK: Final = "its disk was replaced"
_TOO_OLD: Final = "it can't read the cluster's log entries: its release is too old"
_ADVICE: Final = {
    _OTHER_DISK: "restore its disk, or remove {0} and add the node under a new id",
    _TOO_OLD: "upgrade raftsched on {0}",
}

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Identity:
    """The latest report of a peer about itself."""

    incarnation: str
    term: int
    is_blank: bool
    knows_us_otherwise: bool
    """It knows this node's id by another disk."""


class Voter(Protocol):
    """The term and the vote of this node, and whom it can talk to."""

    election_deadline: float

    @property
    def connected_nodes(self) -> set[Node]: ...
    @property
    def leader_node(self) -> Node | None: ...
    @property
    def term(self) -> int: ...
    @property
    def leads(self) -> bool: ...
    def set_vote(self, node_id: NodeId) -> None: ...
    def step_down(self, term: int) -> None: ...
    def election_timeout(self) -> float: ...


class PeerIdentity:
    """The identities of peers, and whether this node takes part itself.

    `leader_seen_at` returns the time of a leader's last message. `on_identified` and `on_lost` are called
    with a peer that is connected and accepted from now on, or no more. `open` must be called once, before anything else.
    """

    def __init__(
        self,
        ports: EnginePorts,
        *,
        incarnation: str,
        formed: FormedMark,
        voter: Voter,
        configuration: Configuration,
        versions: OperationVersions,
        leader_seen_at: Callable[[], float],
        on_identified: Callable[[Node], None],
        on_lost: Callable[[Node], None],
    ) -> None:
        self._node_id = ports.node_id
        self._log = ports.log
        self._machine = ports.machine
        self._transport = ports.transport
        self._clock = ports.clock
        self._timing = ports.timing
        self._incarnation = incarnation
        self._formed_mark = formed
        self._voter = voter
        self._configuration = configuration
        self._versions = versions
        self._leader_seen_at = leader_seen_at
        self._on_identified = on_identified
        self._on_lost = on_lost
        self._identities: dict[NodeId, _Identity] = {}
        self._identified: set[NodeId] = set()
        """Peers that have greeted on the connection that is up."""
        self._objections: dict[NodeId, str] = {}
        """Of the peers that have greeted: why nothing of them counts; "" if it does."""
        self._logged_reason = ""
        # The mark without the journal is that of a disk from which only the journal was removed.
        self._is_formed = formed.is_set and voter.term > 0

    def open(self) -> None:
        """Let nodes greet that this one does not know."""
        if self._incarnation:
            self._transport.unknown_callers.open(self.may_greet, self.on_unknown_caller)

    # -- this node ----------------------------------------------------------------------------------------------------

    @property
    def is_blank(self) -> bool:
        """Whether log and state hold nothing but the entry that every log begins with."""
        return self._log.last_index <= 1 and self._machine.applied_index <= 1

    @property
    def takes_part(self) -> bool:
        """Return whether this node may vote and start elections."""
        return not self._incarnation or self._is_formed or not self.is_blank

    @property
    def idle_reason(self) -> str:
        """Return the reason why this node takes no part, for people; "" if it does."""
        if self._configuration.is_removed:
            return f"{self._node_id} was removed from the cluster: stop this process; its data is of no more use"
        if self.takes_part:
            return ""
        if any(identity.knows_us_otherwise for identity in self._identities.values()):
            return (
                f"{self._node_id} is a member of the cluster by another disk, and this one is empty: restore the old one, "
                f"or `raftsched cluster remove {self._node_id}` and add this node under a new id"
            )
        leader, silence = self._voter.leader_node, self._clock.monotonic() - self._leader_seen_at()
        if leader is not None and silence < self._timing.election_max_seconds:
            return (
                f"this node is empty: it waits for the log, or a snapshot of the state, from {leader.id}, which leads"
            )
        holders = sorted(peer for peer, identity in self._identities.items() if not identity.is_blank)
        if holders:
            return (
                f"this node is empty, and {', '.join(holders)} hold data: it waits to be added, `raftsched cluster add`"
            )
        missing = sorted(set(self._configuration.founders) - set(self._identities))
        return (
            f"this node is empty: a new cluster forms once all say that they are; not heard yet: {', '.join(missing)}"
        )

    def form_if_all_are_blank(self) -> None:
        """Form a new cluster if there is none."""
        if self.takes_part or self._configuration.index:
            return
        identities = [self._identities.get(peer) for peer in self._configuration.founders]
        if not all(identity is not None and identity.is_blank for identity in identities):
            return
        self._formed_mark.set()
        self._is_formed = True
        self._voter.step_down(
            max([self._voter.term, *(identity.term for identity in identities if identity is not None)]) + 1
        )
        if not identities:
            self._voter.election_deadline = 0.0
        _log.info("cluster_formed", node=self._node_id, members=self._configuration.membership.ids)

    def stay_idle(self, now: float, reason: str) -> None:
        """Ask the peers without a report, instead of an election, and log the `reason` for that."""
        self._voter.election_deadline = now + self._voter.election_timeout()
        if reason and reason != self._logged_reason:
            self._logged_reason = reason
            _log.warning("takes_no_part", node=self._node_id, reason=reason)
        if self._incarnation and not self.takes_part:
            for node in self._configuration.nodes.values():
                self._send_identity(node, asks=True)

    def vote_for_first_leader(self, node: Node) -> None:
        """A blank node follows its first leader: it has voted for it in this term, whatever an earlier life did."""
        if not self.takes_part:
            self._voter.set_vote(node.id)

    # -- peers --------------------------------------------------------------------------------------------------------

    def on_connected(self, node: Node) -> None:
        """A connection is there; the peer counts as connected once it has greeted."""
        if not self._incarnation:
            self._on_identified(node)
            return
        self._voter.connected_nodes.discard(node)
        self._send_identity(node, asks=False)

    def on_disconnected(self, node: Node) -> None:
        self._identified.discard(node.id)
        self._objections.pop(node.id, None)
        self._versions.disconnected(node.id)
        self._on_lost(node)

    def accepts(self, node: Node) -> bool:
        """Return whether to process messages of the peer; ask it for its identity if it has not sent one."""
        if not self._incarnation or node in self._voter.connected_nodes:
            return True
        if node.id not in self._identified:
            self._send_identity(node, asks=True)
        return False

    def incarnation_of(self, peer: NodeId) -> str | None:
        if not self._incarnation:
            return ""
        return self._identities[peer].incarnation if peer in self._identified else None

    def _send_identity(self, node: Node, *, asks: bool) -> None:
        self._transport.send(
            node,
            {
                "type": messages.PEER_IDENTITY,
                "incarnation": self._incarnation,
                "term": self._voter.term,
                "blank": self.is_blank,
                "asks": asks,
                "members": encode_membership(self._configuration.membership),
                "members_index": self._configuration.index,
                "operations_read": self._versions.own,
                "operations_in_force": self._versions.in_force,
            },
        )

    def on_peer_identity(self, node: Node, message: Message) -> None:
        """A peer says who it is; raises `UnknownVersion` where its log entries are not for this node."""
        require_readable(message["operations_in_force"], reads=self._versions.own)
        try:
            theirs = decode_membership(message["members"])
        except Invalid as error:
            _log.warning("peer_identity_dropped", node=self._node_id, peer=node.id, error=str(error))
            return
        us = theirs.member(self._node_id)
        self._identities[node.id] = _Identity(
            message["incarnation"],
            message["term"],
            is_blank=message["blank"],
            knows_us_otherwise=us is not None and us.incarnation not in ("", self._incarnation),
        )
        self._identified.add(node.id)
        self._versions.record(node.id, message["operations_read"], self._clock.monotonic())
        if message["members_index"] > self._configuration.index:
            self._configuration.link(theirs)
        if self._voter.leads:
            self.record_incarnations()
        self._judge(node)
        if message["asks"]:
            self._send_identity(node, asks=False)

    def may_greet(self, node_id: NodeId) -> bool:
        """Whether a node that is none of those linked to may greet: no former member may, nor whoever has our id."""
        if node_id == self._node_id or self._configuration.is_removed:
            return False
        return all(node_id not in membership.former for membership in self._configuration.possible)

    def on_unknown_caller(self, caller: NodeId, message: Message) -> bool:
        """A node that is not known here has greeted: link to it if it is a member of a newer configuration than ours.

        A node with an empty disk knows no configuration, so it never is, whatever id it has.
        """
        try:
            theirs = decode_membership(message["members"])
            if message["members_index"] <= self._configuration.index or theirs.member(caller) is None:
                return False
            self._configuration.link(theirs)
        except Invalid:
            return False
        _log.info("unknown_caller_linked", node=self._node_id, peer=caller, members=theirs.ids)
        return True

    def record_incarnations(self) -> None:
        """As leader, record the disks of voters that were not known."""
        if not self._incarnation:
            return
        known = {peer: identity.incarnation for peer, identity in self._identities.items()}
        known[self._node_id] = self._incarnation
        self._configuration.record_incarnations(known)

    def members_changed(self) -> None:
        """Judge again by the new configuration, and tell it to everybody who is there."""
        for peer in sorted(self._identified):
            node = self._configuration.nodes.get(peer)
            if node is not None:
                self._judge(node)
                self._send_identity(node, asks=False)

    def _judge(self, node: Node) -> None:
        """Let a peer that has greeted count as connected if it is the member with its id, and can take part."""
        peer = str(node.id)
        reason = self._objection(peer)
        was_refused_for, self._objections[peer] = self._objections.get(peer, ""), reason
        if not reason:
            if node not in self._voter.connected_nodes:
                self._voter.connected_nodes.add(node)
                self._on_identified(node)
        elif reason != was_refused_for:
            self._voter.connected_nodes.discard(node)
            advice = _ADVICE[reason].format(peer)
            _log.warning("member_refused", node=self._node_id, peer=peer, reason=reason, advice=advice)

    def _objection(self, peer: NodeId) -> str:
        """Return the reason to ignore a peer that has sent its identity; "" if there is none.

        A removal may be reverted until it is committed: so far, the disk that was recorded before counts.
        """
        members = (membership.member(peer) for membership in self._configuration.possible)
        if any(
            each is not None and each.incarnation not in ("", self._identities[peer].incarnation) for each in members
        ):
            return _OTHER_DISK
        reads = self._versions.read_by(peer)
        return _TOO_OLD if reads is not None and reads < self._versions.in_force else ""

    @property
    def other_disks(self) -> tuple[NodeId, ...]:
        """Members that are there, but with a disk that is not theirs."""
        return tuple(sorted(peer for peer, reason in self._objections.items() if reason == _OTHER_DISK))
