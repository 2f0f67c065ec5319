"""RaftEngine: one node's Raft, composed of parts, as a plain object that is stepped.

`parts.py` lists the parts and builds them. How a shell drives it, and nothing else calls it:

    transport.dispatch()        messages and connections, through pysyncobj's callbacks
    engine.step()               if `is_due`: time passed, or something arrived; messages are queued at the transport
    flush of append_entries     these may leave early: a leader's entries need not be on its own disk first
    sync of the journal         while it runs the engine is not touched
    engine.synced()
    flush of everything else    an answer or a vote leaves only after what it promises is durable (defect 3)

and it sleeps until `next_deadline()`. There is no tick: an idle node only sends or gets heartbeats. A step is for what
changes something. A heartbeat of the known leader without news, and an acknowledgement by which nothing can be committed
or sent, are handled by `dispatch` alone. A commit index reaches followers with the next entries or heartbeat.

A message that is not in the table of handlers is dropped, `apply_command` among them: so nothing from the network
reaches pickle (PYSYNCOBJ.md, defect 5).
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Final

import structlog
from pysyncobj.node import Node

from raftsched.consensus.disk_space import ClusterSpace
from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.log.proposals import Answer
from raftsched.consensus.raft.membership.configuration import Change, OnMembers
from raftsched.consensus.raft.membership.members import Membership
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.parts import Parts
from raftsched.consensus.raft.peer_node import PeerNode
from raftsched.consensus.raft.pysyncobj_adapter import LEADER, STATE_NAMES, Hooks
from raftsched.consensus.raft.replication.snapshots import Work
from raftsched.errors import NoMajority, NotLeader, Unavailable

_JUST_AFTER: Final = 0.001
"""pysyncobj acts when a deadline lies behind it, not when it is reached."""

_log = structlog.get_logger()


class RaftEngine:
    """One node's Raft. An exception out of any method must stop the process."""

    def __init__(
        self,
        ports: EnginePorts,
        members: Membership,
        *,
        snapshot_directory: Path,
        cluster_clock: ClusterClock,
        space: ClusterSpace | None = None,
        incarnation: str = "",
        on_members: OnMembers = lambda _members: None,
    ) -> None:
        """Compose the parts. `members` are those of the config file, and `on_members` is called with others first."""
        self.ports = ports
        self.node_id, self.log, self.clock, self.timing = ports.node_id, ports.log, ports.clock, ports.timing
        self._has_news = True
        """Something happened since the last step that it must act on."""
        self._led_term = 0
        self._led_until = -inf
        """Until when this node has last led with a majority behind it."""
        parts = Parts(
            ports,
            members,
            whole=self,
            snapshot_directory=snapshot_directory,
            cluster_clock=cluster_clock,
            space=space,
            incarnation=incarnation,
            on_members=on_members,
        )
        self.core = core = parts.core
        self.measured = parts.measured
        self.versions = parts.versions
        self.sender, self.receiver = parts.sender, parts.receiver
        self.comparison = parts.comparison
        self.proposals, self.commit, self.queue = parts.proposals, parts.commit, parts.queue
        self.configuration = parts.configuration
        self.identity = parts.identity
        self.replication, self.follower = parts.replication, parts.follower
        self.elections, self.transfer = parts.elections, parts.transfer
        self.reads = parts.reads
        self._handlers = parts.handlers
        core.hook(
            Hooks(
                on_message=self.on_message,
                on_connected=self._on_connected,
                on_disconnected=self._on_disconnected,
                on_state_changed=self._on_state_changed,
                outgoing=self.elections.outgoing,
                commit_index=lambda: self.commit.index,
                commit=self.configuration.commit,
                apply_committed=self.queue.apply_committed,
                send_heartbeats=lambda: self.replication.replicate(heartbeat=True),
            )
        )
        self.configuration.load()
        self.identity.open()
        if not core.other_nodes and self.configuration.index <= self.applied_index:
            # Alone, and known to be: a leader that only removes itself may still serve on this node's promise.
            core.election_deadline = 0.0

    # -- for the shell: the cycle -------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do what is due: elections, commits, applying, sending. Raises what the machine raises."""
        core = self.core
        core.enter()
        now = self.clock.now
        self._has_news = False
        self.commit.waits_for_sync = False
        self.follower.install_received()
        self.identity.form_if_all_are_blank()
        self.configuration.drop_links(now, self.replication.progress)
        self.configuration.take_requests()
        self.measured.space.judge(now)
        if self.transfer.reason_to_leave(now):
            self.start_transfer()
        self.transfer.advance(now)
        self.elections.campaign_if_due(now)
        core.tick()
        self.queue.append_waiting()
        self.proposals.expire(now)
        self._compare_states(now)
        self.reads.advance(now)
        if core.leads:
            self._agree_on_version()
            self.configuration.promote(self.replication.progress, self.identity.incarnation_of)
            self.replication.replicate(heartbeat=False)

    @property
    def is_due(self) -> bool:
        """Whether a step would change anything now."""
        return self._has_news or self.next_deadline() <= self.clock.read()

    def expect_step(self) -> None:
        """Note that something happened that the next step must act on."""
        self._has_news = True

    def next_deadline(self) -> float:
        """Return when, on the monotonic clock, `step` is due again if nothing arrives before."""
        core = self.core
        if self.applied_index < self.commit_index or self._must_commit():
            return -inf
        deadline = min(
            self.proposals.deadline,
            self.configuration.drop_deadline,
            self.reads.deadline,
            self.transfer.deadline,
        )
        if core.connected_nodes:
            deadline = min(deadline, self.comparison.deadline)
        if core.leads:
            return min(deadline, core.heartbeat_at + _JUST_AFTER)
        if core.connected_nodes or not core.other_nodes or not self.identity.takes_part:
            return min(deadline, core.election_deadline + _JUST_AFTER)
        return deadline

    def _must_commit(self) -> bool:
        """Check whether a sync has just made a commit possible that nobody will send a message about."""
        waits = self.commit.waits_for_sync or not self.core.other_nodes
        return self.core.leads and waits and self.commit.index < self.commit.durable_index

    def written(self) -> None:
        """Note that all that the log holds now is handed to the disk, and the next sync makes it durable."""
        self.commit.written(self.log.last_index)

    def synced(self) -> None:
        """Note that all that the log held at `written` is durable; the engine has rested since."""
        self.commit.synced()
        self.follower.synced()

    def checkpointed(self) -> None:
        """Note that the machine is durable up to what is applied; cut the log behind it."""
        self.queue.applied_bytes = 0
        self.replication.compact()

    def take_work(self) -> Work | None:
        """Return something for a thread, if there is any."""
        return self.sender.take_work() or self.receiver.take_work()

    # -- for the shell: requests --------------------------------------------------------------------------------------

    def propose(self, command: bytes, answer: Answer) -> None:
        """Queue a command for the log; `answer` is called once, perhaps at once."""
        self._has_news = True
        self.queue.propose(command, answer)

    def request_change(self, change: Change, answer: Answer) -> None:
        """Have the members changed at the next step (`Configuration.request_change`)."""
        self._has_news = True
        self.configuration.request_change(change, answer)

    def confirm_lead(self, answer: Answer) -> None:
        """Have a majority confirm that this node leads (`QuorumReads.confirm_lead`)."""
        self._has_news = True
        self.core.enter()
        self.reads.confirm_lead(answer)

    def refuse_all(self) -> None:
        """Answer everybody who waits: this node stops."""
        self.queue.refuse_all()
        self.configuration.refuse_all()
        self.reads.refuse_all()

    def start_transfer(self, to: NodeId = "") -> bool:
        """Transfer leadership, and serve nothing from now on; return False if there is no node to transfer it to.

        `to` is the only voter that may take it; "" = any.
        """
        self._has_news = True
        if not self.transfer.is_possible(to):
            return False
        if not self.transfer.is_under_way:
            self.core.enter()
            self.queue.append_waiting()
            self.transfer.start(to)
        return True

    # -- for the shell: who leads -------------------------------------------------------------------------------------

    @property
    def term(self) -> int:
        return self.core.term

    @property
    def leads(self) -> bool:
        """Whether this node believes that it leads the term, served or not."""
        return self.core.leads

    @property
    def leader_id(self) -> NodeId:
        """Return the known leader; "" if none is known, and once this node was removed."""
        leader = self.core.leader_node
        return str(leader.id) if leader is not None and not self.configuration.is_removed else ""

    @property
    def state_name(self) -> str:
        return STATE_NAMES[self.core.state]

    @property
    def is_leading(self) -> bool:
        """Leader, and all of earlier terms is applied; not during a transfer of leadership."""
        if not self.takes_proposals:
            return False
        return self.core.no_op_index is not None and self.applied_index >= self.core.no_op_index

    @property
    def takes_proposals(self) -> bool:
        return self.core.leads and not self.transfer.is_under_way and not self.comparison.difference

    @property
    def commit_index(self) -> int:
        return self.commit.index

    @property
    def applied_index(self) -> int:
        return self.queue.applied_index

    @property
    def idle_reason(self) -> str:
        """Return the reason why this node takes no part or serves nothing, for people; "" if it does."""
        return self.identity.idle_reason or self.comparison.difference

    def is_connected(self, peer: NodeId) -> bool:
        return PeerNode(peer) in self.core.connected_nodes

    def leader_age_seconds(self) -> float | None:
        """Return how long ago this node heard a leader, or led with a majority; 0 while it leads, None if it never did."""
        if self.core.leads:
            return 0.0
        seen_at = max(self.elections.leader_seen_at if self.elections.has_seen_leader else -inf, self._led_until)
        return self.clock.read() - seen_at if seen_at > -inf else None

    def check_fresh(self) -> None:
        """Return if this node's state holds all that was ever acknowledged; raises `NotLeader` or `Unavailable`."""
        if not self.takes_proposals:
            raise self.not_leader()
        if not self.is_leading:
            raise Unavailable("just elected; retry in a moment")
        if not self.measured.contact.is_fresh(self.clock.read()):
            raise Unavailable("no answer from a majority of nodes in time; retry in a moment")

    def not_leader(self) -> Unavailable:
        """Return why nobody is served here, while this node doesn't lead."""
        if reason := self.idle_reason:
            return Unavailable(reason)
        return NoMajority() if self.elections.is_cut_off else NotLeader("" if self.core.leads else self.leader_id)

    # -- what concerns several parts ----------------------------------------------------------------------------------

    def on_message(self, node: Node, message: Message) -> None:
        """Handle one message of a peer, of a shape that `framing` has checked; unknown types are dropped."""
        kind = message["type"]
        handler = self._handlers.get(kind)
        if handler is None or not (kind == messages.PEER_IDENTITY or self.identity.accepts(node)):
            return
        core = self.core
        term, leader = core.term, core.leader_node
        handler(node, message)
        if term != core.term or leader is not core.leader_node:
            self._has_news = True
        elif kind == messages.APPEND_ACK:
            self._has_news |= self._may_act_on_answer(node)
        elif kind != messages.APPEND or message["entries"]:
            self._has_news = True

    def _may_act_on_answer(self, node: Node) -> bool:
        """Check whether a follower's answer may let this leader commit or send anything, or change the cluster."""
        if self.transfer.is_under_way or self.versions.may_rise or self.configuration.has_joining:
            return True
        return self.replication.may_act_on_answer(node)

    def _on_connected(self, node: Node) -> None:
        self._has_news = True
        self.identity.on_connected(node)

    def _on_disconnected(self, node: Node) -> None:
        self._has_news = True
        self.identity.on_disconnected(node)

    def follow(self, node: Node, term: int) -> None:
        """Follow the leader of `term`, and tell it how full this node's disk is."""
        self.elections.follow(node, term)
        space = self.measured.space.report_due(node.id, self.clock.now)
        if space is not None:
            report = {"free_bytes": space.free_bytes, "reserve_bytes": space.reserve_bytes, "low": space.is_low}
            self.ports.transport.send(node, {"type": messages.DISK_SPACE, **report})

    def _on_state_changed(self, old: int, new: int) -> None:
        """Follower, candidate and leader are pysyncobj's; what comes with a change is ours."""
        self.elections.state_changed()
        if new == LEADER:
            self.elections.is_cut_off = False
            self._led_term = self.term
            self._start_leading()
        elif old == LEADER:
            self._stop_leading()
        _log.info("raft_state", node=self.node_id, state=STATE_NAMES[new], term=self.term)

    def _start_leading(self) -> None:
        self.reads.start()
        self.identity.record_incarnations()
        self.replication.start()
        self.measured.start_leading()

    def _stop_leading(self) -> None:
        now = self.clock.now
        self.transfer.stop()
        is_deposed = self.term != self._led_term  # somebody is there who said so
        if not is_deposed:
            self.elections.tell_followers()
        is_cut_off = not is_deposed and self.measured.contact.is_lost(now, self.timing.election_max_seconds)
        self.elections.is_cut_off = is_cut_off
        self._led_until = min(now, self.measured.contact.since)
        self.measured.space.stop_leading()
        self.replication.stop()
        self.proposals.lost_leadership(now, is_cut_off=is_cut_off)
        self.reads.refuse_all()
        self.core.election_deadline = now + self.core.election_timeout()

    def members_changed(self) -> None:
        """Have everything that counts members follow the configuration in effect."""
        self.identity.members_changed()
        others, counts_self = sorted(str(node.id) for node in self.core.other_nodes), self.configuration.is_voter
        self.measured.set_voters(others, counts_self=counts_self)
        self.replication.members_changed()

    def installed(self) -> None:
        """Another node's state is ours now."""
        self.comparison.replaced()
        self.configuration.installed()

    def _agree_on_version(self) -> None:
        """As leader, write log entries in a later version from now on, if all who may get them can read it."""
        if not self.versions.may_rise:
            return
        linked = {str(node.id) for node in self.core.connected_nodes}
        others = (self.configuration.possible_members | linked) - {self.node_id}
        if self.versions.agree(others, self.measured.contact.answered_at):
            _log.info("operations_upgraded", node=self.node_id, version=self.versions.in_force)
            self.members_changed()

    def _compare_states(self, now: float) -> None:
        """Send this state's digests to the peers, judge theirs, and stop leading if this node is wrong."""
        for note in self.comparison.due(now):
            message = {"type": messages.DIGEST, "index": note.index, "digest": note.digest}
            for _, node in sorted(self.configuration.nodes.items()):
                if node in self.core.connected_nodes:
                    self.ports.transport.send(node, message)
        self.comparison.judge(self.configuration.voters)
        if self.comparison.difference and self.core.leads:
            self.core.step_down(self.term)
