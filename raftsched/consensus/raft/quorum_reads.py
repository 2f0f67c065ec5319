"""Reads that rest on no clock: one round of contact with a majority, begun after the request (Raft thesis §6.4, ReadIndex).

`lease.py` lets a leader answer from its own state for as long as its clock says that no other can have been elected. A
clock that stands still while time passes, as on a suspended virtual machine, makes that wrong. Here the leader asks:

    a request arrives ─► the next round begins ─► a majority still follows this term ─► all committed by the start is applied
                         (its number, and the commit index then)                      ─► answer from the state

A follower confirms a round only in the term of the leader that asks. Whoever confirms has not followed a later leader, so
when a majority has, no later leader existed when the round began. The commit index of that moment covers all that was ever
acknowledged, once the leader has committed an entry of its own term. Rounds are told by number: no time is compared.

Requests that arrive together share a round; rounds overlap. A request that no majority confirms in time is refused.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Any

from pysyncobj.node import Node

from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.pysyncobj_adapter import NOT_LEADER, REFUSED, SUCCESS, Answer
from raftsched.consensus.raft.replication import Replication
from raftsched.errors import NoMajority


@dataclass(slots=True)
class _Request:
    answer: Answer
    give_up_at: float
    round: int = 0
    """The round that must be confirmed; 0 until one has begun since the request arrived."""
    index: int = 0
    """What must be applied then."""


class QuorumReads(Replication):
    """A leader that can have its lead confirmed. `confirm_lead` is for the shell."""

    def __init__(self, **rest: Any) -> None:
        self._reads: deque[_Request] = deque()
        """In the order in which they arrived, and so of their rounds."""
        self._read_round = 0
        self._confirmed_rounds: dict[NodeId, int] = {}
        """The latest round of this term that each peer has confirmed."""
        super().__init__(**rest)

    @property
    def is_leading(self) -> bool:
        """Leader, with all of earlier terms applied."""
        raise NotImplementedError

    def confirm_lead(self, answer: Answer) -> None:
        """Have a majority confirm that this node leads; `answer` is called once.

        (None, SUCCESS): from now on the machine holds all that was acknowledged before this call. (None, NOT_LEADER), or
        (error, REFUSED) if no majority answered.
        """
        give_up_at = self.clock.monotonic() + self.timing.election_max_seconds
        self._reads.append(_Request(answer, give_up_at))

    @property
    def read_deadline(self) -> float:
        """When requests are refused at the latest."""
        return self._reads[0].give_up_at if self._reads else inf

    def advance_reads(self, now: float) -> None:
        """Begin a round for what has arrived, and answer what is confirmed or can't be."""
        if not self._reads:
            return
        if not self.takes_proposals:
            self._refuse_reads()
            return
        if self.is_leading and not self._reads[-1].round:
            self._begin_round()
        confirmed = self._majority_round()
        while self._reads and 0 < self._reads[0].round <= confirmed and self._reads[0].index <= self.applied_index:
            self._reads.popleft().answer(None, SUCCESS)
        while self._reads and self._reads[0].give_up_at <= now:
            self._reads.popleft().answer(NoMajority(), REFUSED)

    def _begin_round(self) -> None:
        self._read_round += 1
        for request in self._reads:
            if not request.round:
                request.round, request.index = self._read_round, self.commit_index
        message = {"type": messages.READ_ROUND, "term": self.term, "round": self._read_round}
        for progress in self.progress.values():
            if progress.node in self.connected_nodes:
                self.transport.send(progress.node, message)

    def _majority_round(self) -> int:
        """The latest round that a majority has confirmed, of the voters now."""
        for number in sorted({self._read_round, *self._confirmed_rounds.values()}, reverse=True):
            if self.is_majority({peer for peer, confirmed in self._confirmed_rounds.items() if confirmed >= number}):
                return number
        return 0

    def on_read_round(self, node: Node, message: Message) -> None:
        """A leader asks whether this node still follows it; an older one learns of the term."""
        if message["term"] >= self.term:
            self._heard_leader(node, message["term"])
        self.transport.send(node, {"type": messages.READ_ROUND_OK, "term": self.term, "round": message["round"]})

    def on_read_round_ok(self, node: Node, message: Message) -> None:
        """A peer follows this leader, in this term, after it was asked."""
        if self._is_current(message) and self.leads:
            peer = str(node.id)
            self._confirmed_rounds[peer] = max(self._confirmed_rounds.get(peer, 0), message["round"])

    def start_leading(self) -> None:
        self._confirmed_rounds.clear()
        super().start_leading()

    def stop_leading(self, *, is_cut_off: bool) -> None:
        super().stop_leading(is_cut_off=is_cut_off)
        self._refuse_reads()

    def refuse_all(self) -> None:
        super().refuse_all()
        self._refuse_reads()

    def _refuse_reads(self) -> None:
        while self._reads:
            self._reads.popleft().answer(None, NOT_LEADER)
