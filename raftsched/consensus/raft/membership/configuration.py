"""Change the members of the cluster: configurations in the log, the one in effect, and the rule for a change.

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
within `PROMOTE_LAG_ENTRIES` of the leader's log, the leader makes it a voter. A leader that is no voter any more
continues to lead, without counting itself, until that is committed, and steps down then. A node that was removed, and
does not know yet that this is committed, may still start an election: its log may be the one that a majority needs
(thesis §4.2.2). One that knows it stays silent.

A node that was away while members changed, and knows none of those that are left, learns of them from unknown nodes
(`peer_identity.py`).

Left out: joint consensus (several nodes at once), and changing a member's addresses: a node's own config file wins
over what is recorded, for the ids that it lists (`replica.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Final, Protocol

import structlog
from pysyncobj.node import Node

from raftsched.consensus.ports import CONFIGURATION, NodeId
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.log.commit_index import CommitIndex
from raftsched.consensus.raft.log.progress import Progress
from raftsched.consensus.raft.log.proposals import NOT_LEADER, REFUSED, Answer, Proposals
from raftsched.consensus.raft.membership.members import Membership, encode_membership, recorded_membership
from raftsched.consensus.raft.peer_node import PeerNode
from raftsched.errors import ChangeUnderWay, Invalid, InvariantBroken, Rejected, Unavailable

PROMOTE_LAG_ENTRIES: Final = 64
"""A node that joins and lacks no more of the log than that becomes a voter."""
_LINGER_ELECTIONS: Final = 10
"""Links to a node that was removed stay for that many election timeouts, so that it learns of it."""
_READ_BYTES: Final = 1024 * 1024

Change = Callable[[Membership], Membership]
"""From the present membership to the wanted one; raises `Rejected` or `Invalid` if there is no way."""
OnMembers = Callable[[Membership], None]

_log = structlog.get_logger()


class Voting(Protocol):
    """The term and the peers that this node knows; `other_nodes` are the voters that elections count."""

    other_nodes: set[Node]

    @property
    def connected_nodes(self) -> set[Node]: ...
    @property
    def match_index(self) -> dict[Node, int]: ...
    @property
    def no_op_index(self) -> int | None: ...
    @property
    def term(self) -> int: ...
    @property
    def leads(self) -> bool: ...
    def step_down(self, term: int) -> None: ...


class Configuration:
    """The configurations of one node. `members` are those of its config file; `on_members` is called with new ones
    first.

    `members_changed` is called after another configuration or link: everything that counts members must follow.
    `load` must be called once, before anything else.
    """

    def __init__(
        self,
        ports: EnginePorts,
        *,
        members: Membership,
        voting: Voting,
        commit: CommitIndex,
        proposals: Proposals,
        takes_proposals: Callable[[], bool],
        on_members: OnMembers,
        members_changed: Callable[[], None],
    ) -> None:
        self._node_id = ports.node_id
        self._log = ports.log
        self._machine = ports.machine
        self._transport = ports.transport
        self._clock = ports.clock
        self._timing = ports.timing
        self._voting = voting
        self._commit = commit
        self._proposals = proposals
        self._takes_proposals = takes_proposals
        self._on_members = on_members
        self._members_changed = members_changed
        self._configurations = [(0, members)]
        """(index, membership), rising: the last one applied or committed, and all that the log holds behind it."""
        self._requests: deque[tuple[Change, Answer]] = deque()
        self._voters = frozenset({ports.node_id})
        self.has_joining = False
        """A member of the configuration in effect is no voter yet."""
        self._leaving: dict[NodeId, float] = {}
        """Time at which the links to former members are dropped."""
        self.nodes = {peer: PeerNode(peer) for peer in members.ids if peer != ports.node_id}
        """Those that this node links to: the other members, and for a while those that were or will be."""

    def load(self) -> None:
        """Go by what the machine and the log say, if they say anything."""
        recorded, log = self._machine.configuration, self._log
        if recorded is not None:
            self._configurations = [(recorded[0], recorded_membership(recorded[1]))]
        index = max(log.first_index, self._machine.applied_index + 1)
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
    def index(self) -> int:
        """Index of its entry in the log; 0 for that of the config file."""
        return self._configurations[-1][0]

    @property
    def possible(self) -> tuple[Membership, ...]:
        """Every configuration that may be in effect yet: the last one committed, and those behind it."""
        return tuple(membership for _, membership in self._configurations)

    @property
    def possible_members(self) -> set[NodeId]:
        """The members of every configuration that may be in effect yet."""
        return {node_id for _, membership in self._configurations for node_id in membership.ids}

    @property
    def founders(self) -> list[NodeId]:
        """The other nodes of the config file; none once the log says who belongs to the cluster."""
        index, membership = self._configurations[0]
        return [] if index else [peer for peer in membership.ids if peer != self._node_id]

    @property
    def voters(self) -> frozenset[NodeId]:
        """The voters of the configuration in effect."""
        return self._voters

    @property
    def is_voter(self) -> bool:
        return self._node_id in self._voters

    @property
    def is_removed(self) -> bool:
        """Whether this node was a member once, and will never be one again."""
        return self._node_id in self.membership.former and self.index <= self._commit.index

    @property
    def may_campaign(self) -> bool:
        """Whether this node may ask for votes: a voter, or one whose removal is not known to be committed."""
        if self.is_voter:
            return True
        if self.index <= self._commit.index:
            return False
        return any(self._node_id in membership.voters for _, membership in self._configurations)

    def is_majority(self, ids: set[NodeId]) -> bool:
        """Check whether `ids`, and this node if it votes, are a majority of the configuration in effect."""
        return self.membership.is_majority({*ids, self._node_id})

    def _adopt(self) -> None:
        """Go by the latest configuration from now on."""
        membership = self.membership
        self._voters = membership.voters
        self.has_joining = bool(membership.joining)
        self.link(membership)
        gone = set(self.nodes) if self.is_removed else set(self.nodes) - set(membership.ids)
        drop_at = self._clock.monotonic() + _LINGER_ELECTIONS * self._timing.election_max_seconds
        self._leaving = {peer: self._leaving.get(peer, drop_at) for peer in sorted(gone)}
        self._voting.other_nodes = {self.nodes[peer] for peer in self._voters if peer != self._node_id}
        self._members_changed()

    def link(self, membership: Membership) -> None:
        """Link to all of these members that this node has no link to."""
        unknown = [peer for peer in membership.ids if peer != self._node_id and peer not in self.nodes]
        if unknown:
            self._on_members(membership)
        for peer in unknown:
            node = self.nodes[peer] = PeerNode(peer)
            self._transport.addNode(node)

    def drop_links(self, now: float, progress: dict[NodeId, Progress]) -> None:
        """Drop the links whose time has come, and what is known of the nodes behind them."""
        for peer in [peer for peer, drop_at in self._leaving.items() if drop_at <= now]:
            del self._leaving[peer]
            progress.pop(peer, None)
            self._transport.dropNode(self.nodes.pop(peer))

    @property
    def drop_deadline(self) -> float:
        return min(self._leaving.values(), default=inf)

    # -- the log ------------------------------------------------------------------------------------------------------

    def added(self, index: int, content: bytes) -> None:
        """Go by a leader's entry with a configuration that has come into the log."""
        self._configurations.append((index, recorded_membership(content)))
        self._adopt()

    def cut(self, start: int) -> None:
        """Forget the configurations of a log that was cut from `start` on."""
        if self.index < start or len(self._configurations) == 1:
            return
        while len(self._configurations) > 1 and self.index >= start:
            self._configurations.pop()
        _log.info("members_reverted", node=self._node_id, members=self.membership.ids)
        self._adopt()

    def installed(self) -> None:
        """Go by the machine, which is a copy of another node's; the log begins behind it."""
        recorded = self._machine.configuration
        if recorded is not None:
            self._configurations = [(recorded[0], recorded_membership(recorded[1]))]
            self._adopt()

    def apply(self, content: bytes, index: int, term: int) -> Membership:
        """Apply the configuration at (index, term); return it. A leader that it leaves out steps down.

        Raises `InvariantBroken`, and changes nothing, if this node does not go by the entry that is applied.
        """
        configurations = [each for each in self._configurations if each[0] >= index]
        if not configurations or configurations[0][0] != index:
            raise InvariantBroken(f"the members of entry {index} are applied, but this node goes by {self.index}")
        self._machine.configure(index, term, content)
        self._configurations = configurations
        membership = configurations[0][1]
        joining = [member.id for member in membership.joining]
        _log.info("members_changed", node=self._node_id, index=index, voters=sorted(membership.voters), joining=joining)
        if self.is_removed:
            _log.warning("removed", node=self._node_id, advice="this node takes no part any more: stop it")
            self._adopt()
        if self._voting.leads and not self.is_voter and index == self.index:
            self._voting.step_down(self._voting.term)
        return membership

    def commit(self, index: int) -> None:
        """Raise the commit index; pysyncobj counts this node in any case, so if it is no voter we count ourselves."""
        if not self.is_voter:
            index = min(index, self._majority_index())
            if index <= self._commit.index or self._log.term_at(index) != self._voting.term:
                return
        self._commit.raise_to(index)

    def _majority_index(self) -> int:
        """Return the last index that a majority of the voters, of which this node is none, is known to hold."""
        match_index = self._voting.match_index
        matched = sorted((match_index.get(node, 0) for node in self._voting.other_nodes), reverse=True)
        return matched[len(matched) // 2]

    # -- changes ------------------------------------------------------------------------------------------------------

    def request_change(self, change: Change, answer: Answer) -> None:
        """Have the members changed at the next step.

        `answer` is called once: (membership, SUCCESS) once the change is committed, (error, REFUSED) if the rule
        forbids it, or as for a command.
        """
        self._requests.append((change, answer))

    def take_requests(self) -> None:
        """Answer or append what was requested."""
        while self._requests:
            change, answer = self._requests.popleft()
            if not self._takes_proposals():
                answer(None, NOT_LEADER)
                continue
            try:
                self._require_changeable()
                wanted = change(self.membership)
                self._require_majority_of(wanted)
            except (Invalid, Rejected, Unavailable) as refusal:
                answer(refusal, REFUSED)
                continue
            index = self.append(wanted)
            self._proposals.add(index, self._voting.term, answer, self._clock.monotonic())

    def refuse_all(self) -> None:
        """Answer everybody who waits: this node stops."""
        while self._requests:
            self._requests.popleft()[1](None, NOT_LEADER)

    def append(self, membership: Membership) -> int:
        """Put a configuration into the leader's log and go by it; return its index. The rule is the caller's to keep."""
        index = self._log.last_index + 1
        self._log.add(CONFIGURATION + encode_membership(membership), index, self._voting.term)
        self._configurations.append((index, membership))
        self._adopt()
        return index

    def record_incarnations(self, incarnations: Mapping[NodeId, str]) -> None:
        """As leader, record the data directories of voters that were not known."""
        recorded = self.membership.with_incarnations(incarnations)
        if recorded != self.membership:
            self.append(recorded)

    def promote(self, progress: Mapping[NodeId, Progress], incarnation_of: Callable[[NodeId], str | None]) -> None:
        """As leader, make a node that has joined and caught up a voter, if the rule allows it now."""
        if not self.has_joining or not self._takes_proposals() or not self._is_changeable:
            return
        for member in self.membership.joining:
            theirs, incarnation = progress.get(member.id), incarnation_of(member.id)
            if theirs is None or theirs.node not in self._voting.connected_nodes or incarnation is None:
                continue
            # A voter that holds nothing yet could not vote (`peer_identity.py`), and nobody might have a majority.
            has_joined = theirs.match >= self.index
            if has_joined and theirs.match + PROMOTE_LAG_ENTRIES >= self._log.last_index:
                self.append(self.membership.with_voter(member.id, incarnation))
                return

    @property
    def _has_committed_in_term(self) -> bool:
        no_op_index = self._voting.no_op_index
        return no_op_index is not None and self._commit.index >= no_op_index

    @property
    def _is_changeable(self) -> bool:
        return self._has_committed_in_term and self.index <= self._commit.index

    def _require_changeable(self) -> None:
        if not self._has_committed_in_term:
            raise Unavailable("just elected; retry in a moment")
        if not self._is_changeable:
            raise ChangeUnderWay("another change of the members is not committed yet; retry in a moment")

    def _require_majority_of(self, wanted: Membership) -> None:
        """Refuse to leave a cluster behind that can't commit anything, this very change included."""
        reachable = {self._node_id, *(str(node.id) for node in self._voting.connected_nodes)}
        if wanted.voters != self._voters and not wanted.is_majority(reachable):
            silent = ", ".join(sorted(wanted.voters - reachable))
            raise Rejected("majority_lost", f"too few of the nodes that stay are up: start or remove {silent} first")
