"""Changing who belongs to the cluster: configurations in the log, the one in effect, and the rule for a change.

    request ──rule──► entry in the log ──► in effect at once, on every node that has it ──► committed, applied, answered
                                       └─► cut from the log: the one before is in effect again

The rule (Raft thesis §4.1, with the correction of 2015): the leader appends a configuration with another set of voters
only when (a) it has committed an entry of its own term, and (b) the configuration before is committed. With voters that
differ by one at most, the majorities of any two configurations that can be in effect at the same time overlap. Without
(a) they need not: a leader that was deposed with an uncommitted configuration could come back with a majority of it.

Which configuration is in effect: the latest in the log; else, since what is applied is cut from the log some day, the one
that the machine applied last, which snapshots carry; else that of the config file, on the first start of a new node only
(case R08: an old list of members never wins over a newer one).

A node that joins gets entries like any other and is counted nowhere. When it has the entry by which it joins, and is
within `PROMOTE_LAG_ENTRIES` of the leader's log, the leader makes it a voter. A leader that is not a voter any more
leads on, without counting itself, until that is committed, and steps down then. A node that was removed, and does not
know yet that this is committed, may still stand: its log may be the one that a majority needs (thesis §4.2.2). One that
knows it stays silent.

A node that was away while members changed, and knows none of those that are left, hears of them as guests (`greetings.py`).

Left out: joint consensus (several nodes at once), and changing a member's addresses: a node's own config file wins
over what is recorded, for the ids that it lists (`replica.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, Final

import structlog
from pysyncobj.node import Node

from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft.apply_queue import Applying
from raftsched.consensus.raft.membership import (
    CONFIGURATION,
    Membership,
    encode_membership,
    recorded_membership,
)
from raftsched.consensus.raft.progress import Progress
from raftsched.consensus.raft.pysyncobj_adapter import NOT_LEADER, REFUSED, Answer
from raftsched.errors import ChangeUnderWay, Invalid, Rejected, Unavailable

PROMOTE_LAG_ENTRIES: Final = 64
"""A node that joins and lacks no more of the log than that becomes a voter."""
_LINGER_ELECTIONS: Final = 10
"""Links to a node that was removed stay for that many election timeouts, so that it learns of it."""
_READ_BYTES: Final = 1024 * 1024

Change = Callable[[Membership], Membership]
"""From the present membership to the wanted one; raises `Rejected` or `Invalid` where there is no way."""
OnMembers = Callable[[Membership], None]

_log = structlog.get_logger()


class Configuring(Applying):
    """The configurations of one node. `members` are those of its config file; `on_members` hears of new ones first."""

    progress: dict[NodeId, Progress]

    def __init__(self, *, node_id: NodeId, members: Membership, on_members: OnMembers, **rest: Any) -> None:
        self.node_id = node_id
        self._on_members = on_members
        self._configurations = [(0, members)]
        """(index, membership), rising: the last one applied or committed, and all that the log holds behind it."""
        self._requests: deque[tuple[Change, Answer]] = deque()
        self._voters = frozenset({node_id})
        self._leaving: dict[NodeId, float] = {}
        """When the links to nodes that are no members any more are dropped."""
        others = [peer for peer in members.ids if peer != node_id]
        super().__init__(node_id=node_id, peers=[peer for peer in others if peer in members.voters], **rest)
        self.nodes = {peer: Node(peer) for peer in others}
        """Those that this node links to: the other members, and for a while those that were or will be."""
        self._load_configurations()

    def _load_configurations(self) -> None:
        """Take what the machine and the log say, where they say anything."""
        recorded, log = self.machine.configuration, self.log
        if recorded is not None:
            self._configurations = [(recorded[0], recorded_membership(recorded[1]))]
        index = max(log.first_index, self.machine.applied_index + 1)
        while entries := log.entries(index, _READ_BYTES):
            for command, at, _ in entries:
                if command[:1] == CONFIGURATION:
                    self._configurations.append((at, recorded_membership(command[1:])))
            index = entries[-1][1] + 1
        self._adopt()

    # -- what is in effect --------------------------------------------------------------------------------------------

    @property
    def membership(self) -> Membership:
        """The configuration in effect: the latest, committed or not."""
        return self._configurations[-1][1]

    @property
    def possible_members(self) -> set[NodeId]:
        """The members of every configuration that may be in effect yet: the last one committed, and those behind it."""
        return {node_id for _, membership in self._configurations for node_id in membership.ids}

    @property
    def configuration_index(self) -> int:
        """Where in the log it stands; 0 for that of the config file."""
        return self._configurations[-1][0]

    @property
    def is_voter(self) -> bool:
        return self.node_id in self._voters

    @property
    def is_removed(self) -> bool:
        """Whether this node was a member once, and will never be one again."""
        return self.node_id in self.membership.former and self.configuration_index <= self.commit_index

    @property
    def may_stand(self) -> bool:
        """Whether this node may ask for votes: a voter, or one whose removal is not known to be committed."""
        if self.is_voter:
            return True
        if self.configuration_index <= self.commit_index:
            return False
        return any(self.node_id in membership.voters for _, membership in self._configurations)

    def is_majority(self, ids: set[NodeId]) -> bool:
        """Whether `ids`, and this node where it votes, are a majority of the configuration in effect."""
        return self.membership.is_majority({*ids, self.node_id})

    def _adopt(self) -> None:
        """Go by the latest configuration from now on."""
        membership = self.membership
        self._voters = membership.voters
        self.link(membership)
        gone = set(self.nodes) if self.is_removed else set(self.nodes) - set(membership.ids)
        drop_at = self.clock.monotonic() + _LINGER_ELECTIONS * self.timing.election_max_seconds
        self._leaving = {peer: self._leaving.get(peer, drop_at) for peer in sorted(gone)}
        self.other_nodes = {self.nodes[peer] for peer in self._voters if peer != self.node_id}
        self.members_changed()

    def link(self, membership: Membership) -> None:
        """Link to all of these members that this node has no link to."""
        unknown = [peer for peer in membership.ids if peer != self.node_id and peer not in self.nodes]
        if unknown:
            self._on_members(membership)
        for peer in unknown:
            node = self.nodes[peer] = Node(peer)
            self.transport.addNode(node)

    def members_changed(self) -> None:
        """Another configuration, or another link: everything that counts members must follow."""
        raise NotImplementedError

    def drop_links(self, now: float) -> None:
        """Drop the links whose time has come."""
        for peer in [peer for peer, drop_at in self._leaving.items() if drop_at <= now]:
            del self._leaving[peer]
            self.progress.pop(peer, None)
            self.transport.dropNode(self.nodes.pop(peer))

    @property
    def drop_deadline(self) -> float:
        return min(self._leaving.values(), default=inf)

    # -- the log ------------------------------------------------------------------------------------------------------

    def configuration_added(self, index: int, content: bytes) -> None:
        """A leader's entry with a configuration has come into the log."""
        self._configurations.append((index, recorded_membership(content)))
        self._adopt()

    def configurations_cut(self, start: int) -> None:
        """The log was cut from `start` on."""
        if self.configuration_index < start or len(self._configurations) == 1:
            return
        while len(self._configurations) > 1 and self.configuration_index >= start:
            self._configurations.pop()
        _log.info("members_reverted", node=self.node_id, members=self.membership.ids)
        self._adopt()

    def snapshot_took_over(self) -> None:
        """The machine is a copy of another node's, and the log begins behind it: what the copy says counts."""
        recorded = self.machine.configuration
        if recorded is not None:
            self._configurations = [(recorded[0], recorded_membership(recorded[1]))]
            self._adopt()

    def _apply(self, command: bytes, index: int, term: int) -> object:
        if command[:1] != CONFIGURATION:
            return super()._apply(command, index, term)
        self.machine.configure(index, term, command[1:])
        self._configurations = [each for each in self._configurations if each[0] >= index]
        membership = self._configurations[0][1]
        joining = [member.id for member in membership.joining]
        _log.info("members_changed", node=self.node_id, index=index, voters=sorted(membership.voters), joining=joining)
        if self.is_removed:
            _log.warning("removed", node=self.node_id, advice="this node takes no part any more: stop it")
            self._adopt()
        if self.leads and not self.is_voter and index == self.configuration_index:
            self.step_down(self.term)
        return membership

    def commit(self, index: int) -> None:
        """As `Applying.commit`; pysyncobj counts this node in any case, so where it is no voter we count ourselves."""
        if not self.is_voter:
            index = min(index, self._majority_index())
            if index <= self.commit_index or self.log.term_at(index) != self.term:
                return
        super().commit(index)

    def _majority_index(self) -> int:
        """The last index that a majority of the voters, of which this node is none, is known to hold."""
        matched = sorted((self.match_index.get(node, 0) for node in self.other_nodes), reverse=True)
        return matched[len(matched) // 2]

    def step_down(self, term: int) -> None:
        raise NotImplementedError

    # -- changes ------------------------------------------------------------------------------------------------------

    def request_change(self, change: Change, answer: Answer) -> None:
        """Have the members changed at the next step.

        `answer` is called once: (membership, SUCCESS) once the change is committed, (error, REFUSED) where the rule
        forbids it, or as for a command.
        """
        self._requests.append((change, answer))

    def take_requests(self) -> None:
        """Answer or append what was requested."""
        while self._requests:
            change, answer = self._requests.popleft()
            if not self.takes_proposals:
                answer(None, NOT_LEADER)
                continue
            try:
                self._require_changeable()
                wanted = change(self.membership)
                self._require_majority_of(wanted)
            except (Invalid, Rejected, Unavailable) as refusal:
                answer(refusal, REFUSED)
                continue
            index = self.append_configuration(wanted)
            self.proposals.add(index, self.term, answer, self.clock.monotonic())

    def refuse_all(self) -> None:
        super().refuse_all()
        while self._requests:
            self._requests.popleft()[1](None, NOT_LEADER)

    def append_configuration(self, membership: Membership) -> int:
        """Put a configuration into the leader's log and go by it; return its index. The rule is the caller's to keep."""
        index = self.log.last_index + 1
        self.log.add(CONFIGURATION + encode_membership(membership), index, self.term)
        self._configurations.append((index, membership))
        self._adopt()
        return index

    def promote(self) -> None:
        """As leader, make a node that has joined and caught up a voter, if the rule allows it now."""
        joining = self.membership.joining
        if not joining or not self.takes_proposals or not self._is_changeable:
            return
        for member in joining:
            progress, incarnation = self.progress.get(member.id), self.incarnation_of(member.id)
            if progress is None or progress.node not in self.connected_nodes or incarnation is None:
                continue
            # A voter that holds nothing yet could not vote (`greetings.py`), and with it nobody might have a majority.
            has_joined = progress.match >= self.configuration_index
            if has_joined and progress.match + PROMOTE_LAG_ENTRIES >= self.log.last_index:
                self.append_configuration(self.membership.with_voter(member.id, incarnation))
                return

    def incarnation_of(self, peer: NodeId) -> str | None:
        """Which data directory a peer says it has; None where it was not heard."""
        raise NotImplementedError

    @property
    def _has_committed_in_term(self) -> bool:
        return self.no_op_index is not None and self.commit_index >= self.no_op_index

    @property
    def _is_changeable(self) -> bool:
        return self._has_committed_in_term and self.configuration_index <= self.commit_index

    def _require_changeable(self) -> None:
        if not self._has_committed_in_term:
            raise Unavailable("just elected; retry in a moment")
        if not self._is_changeable:
            raise ChangeUnderWay("another change of the members is not committed yet; retry in a moment")

    def _require_majority_of(self, wanted: Membership) -> None:
        """Refuse to leave a cluster behind that can't commit anything, this very change included."""
        reachable = {self.node_id, *(str(node.id) for node in self.connected_nodes)}
        if wanted.voters != self._voters and not wanted.is_majority(reachable):
            silent = ", ".join(sorted(wanted.voters - reachable))
            raise Rejected("majority_lost", f"too few of the nodes that stay are up: start or remove {silent} first")
