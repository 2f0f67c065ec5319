"""Reads that rest on no clock: one round of contact with a majority, begun after the request (Raft thesis §6.4, ReadIndex).

`quorum_lease.py` lets a leader answer from its own state for as long as its clock says that no other can have been
elected. A clock that does not advance while time passes, as on a suspended virtual machine, makes that wrong. Here the
leader asks:

    a request arrives ─► the next round begins ─► a majority still follows this term ─► all committed by the start is applied
                         (its number, and the commit index then)                      ─► answer from the state

A follower confirms a round only in the term of the leader that asks. Whoever confirms has not followed a later leader, so
when a majority has, no later leader existed when the round began. The commit index of that moment covers all that was ever
acknowledged, once the leader has committed an entry of its own term. Rounds are counted: no time is compared.

Requests that arrive together share a round; rounds overlap. A request that no majority confirms in time is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from pysyncobj.node import Node

from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.log.proposals import NOT_LEADER, REFUSED, SUCCESS, Answer
from raftsched.consensus.raft.messages import Message
from raftsched.errors import NoMajority


class Lead(Protocol):
    """Whether this node leads, and what of its log is committed and applied."""

    @property
    def term(self) -> int: ...
    @property
    def leads(self) -> bool: ...
    @property
    def takes_proposals(self) -> bool: ...
    @property
    def is_leading(self) -> bool:
        """Leader, with all of earlier terms applied."""

    @property
    def commit_index(self) -> int: ...
    @property
    def applied_index(self) -> int: ...


@dataclass(slots=True)
class _Request:
    answer: Answer
    give_up_at: float
    round: int = 0
    """The round that must be confirmed; 0 until one has begun since the request arrived."""
    index: int = 0
    """The index that must be applied then."""


class QuorumReads:
    """Has a lead confirmed. `followers` returns the connected followers, `is_majority` judges who confirmed.

    `is_current` and `follow` handle the term of an answer and of a question, as for entries.
    """

    def __init__(
        self,
        ports: EnginePorts,
        *,
        lead: Lead,
        followers: Callable[[], Iterable[Node]],
        is_majority: Callable[[set[NodeId]], bool],
        is_current: Callable[[Message], bool],
        follow: Callable[[Node, int], None],
    ) -> None:
        self._transport = ports.transport
        self._clock = ports.clock
        self._timing = ports.timing
        self._lead = lead
        self._followers = followers
        self._is_majority = is_majority
        self._is_current = is_current
        self._follow = follow
        self._reads: deque[_Request] = deque()
        """In the order in which they arrived, and so of their rounds."""
        self._read_round = 0
        self._confirmed_rounds: dict[NodeId, int] = {}
        """The latest round of this term that each peer has confirmed."""

    def confirm_lead(self, answer: Answer) -> None:
        """Have a majority confirm that this node leads; `answer` is called once.

        (None, SUCCESS): from now on the machine holds all that was acknowledged before this call. (None, NOT_LEADER), or
        (error, REFUSED) if no majority answered.
        """
        give_up_at = self._clock.monotonic() + self._timing.election_max_seconds
        self._reads.append(_Request(answer, give_up_at))

    @property
    def deadline(self) -> float:
        """Return the time by which requests are refused."""
        return self._reads[0].give_up_at if self._reads else inf

    def advance(self, now: float) -> None:
        """Begin a round for what has arrived, and answer what is confirmed or can't be."""
        if not self._reads:
            return
        if not self._lead.takes_proposals:
            self.refuse_all()
            return
        if self._lead.is_leading and not self._reads[-1].round:
            self._begin_round()
        confirmed = self._majority_round()
        while (
            self._reads and 0 < self._reads[0].round <= confirmed and self._reads[0].index <= self._lead.applied_index
        ):
            self._reads.popleft().answer(None, SUCCESS)
        while self._reads and self._reads[0].give_up_at <= now:
            self._reads.popleft().answer(NoMajority(), REFUSED)

    def _begin_round(self) -> None:
        self._read_round += 1
        for request in self._reads:
            if not request.round:
                request.round, request.index = self._read_round, self._lead.commit_index
        message = {"type": messages.READ_ROUND, "term": self._lead.term, "round": self._read_round}
        for node in self._followers():
            self._transport.send(node, message)

    def _majority_round(self) -> int:
        """Return the latest round that a majority of the present voters has confirmed."""
        for number in sorted({self._read_round, *self._confirmed_rounds.values()}, reverse=True):
            if self._is_majority({peer for peer, confirmed in self._confirmed_rounds.items() if confirmed >= number}):
                return number
        return 0

    def on_read_round(self, node: Node, message: Message) -> None:
        """Tell a leader whether this node still follows it; an older one learns of the term."""
        if message["term"] >= self._lead.term:
            self._follow(node, message["term"])
        self._transport.send(node, {"type": messages.READ_ROUND_OK, "term": self._lead.term, "round": message["round"]})

    def on_read_round_ok(self, node: Node, message: Message) -> None:
        """Count that a peer follows this leader, in this term, after it was asked."""
        if self._is_current(message) and self._lead.leads:
            peer = str(node.id)
            self._confirmed_rounds[peer] = max(self._confirmed_rounds.get(peer, 0), message["round"])

    def start(self) -> None:
        """Begin a term: nobody has confirmed anything."""
        self._confirmed_rounds.clear()

    def refuse_all(self) -> None:
        """Answer everybody who waits: this node leads no more."""
        while self._reads:
            self._reads.popleft().answer(None, NOT_LEADER)
