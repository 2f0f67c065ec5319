"""Proposals that are in the log and whose callers wait: each gets exactly one answer, and never a wrong one.

    applied at its index, with its term     SUCCESS with the result
    another entry applied at its index      DISCARDED: it is certainly not, and never will be, in the committed log
    a snapshot passed over its index        UNKNOWN_OUTCOME: nobody here can tell (stock never answers)
    too long without any of these           UNKNOWN_OUTCOME
    the node led and lost its majority      UNKNOWN_OUTCOME at once: nobody is there who could tell

Being cut from this node's log proves nothing: another node may still hold the entry, win an election and commit it. So
a proposal of a lost term waits on, for a while, for the entry that is committed at its index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from pysyncobj import FAIL_REASON

from raftsched.consensus.ports import Timing

SUCCESS: Final = FAIL_REASON.SUCCESS
QUEUE_FULL: Final = FAIL_REASON.QUEUE_FULL
DISCARDED: Final = FAIL_REASON.DISCARDED
NOT_LEADER: Final = FAIL_REASON.NOT_LEADER
UNKNOWN_OUTCOME: Final = FAIL_REASON.UNKNOWN_OUTCOME
REFUSED: Final = FAIL_REASON.REQUEST_DENIED
"""The rules forbid it; the result is the error that says which."""

Answer = Callable[[object, int], None]
"""Called once with (result, reason): the result of applying if the reason is SUCCESS."""


@dataclass(slots=True)
class _Proposal:
    term: int
    answer: Answer
    expires_at: float


class Proposals:
    """Waiting callers by log index; one index can wait twice, for entries of different terms."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._by_index: dict[int, list[_Proposal]] = {}
        self._earliest = inf

    def __len__(self) -> int:
        return sum(map(len, self._by_index.values()))

    @property
    def deadline(self) -> float:
        """Return the time by which `expire` is due, on the monotonic clock."""
        return self._earliest

    def add(self, index: int, term: int, answer: Answer, now: float) -> None:
        expires_at = now + self._timing.proposal_seconds
        self._by_index.setdefault(index, []).append(_Proposal(term, answer, expires_at))
        self._earliest = min(self._earliest, expires_at)

    def applied(self, index: int, term: int, result: object) -> None:
        """The entry (index, term) was applied with `result`."""
        for proposal in self._by_index.pop(index, ()):
            if proposal.term == term:
                proposal.answer(result, SUCCESS)
            else:
                proposal.answer(None, DISCARDED)

    def skipped(self, index: float) -> None:
        """A snapshot took this node past `index`."""
        for passed in [waiting for waiting in self._by_index if waiting <= index]:
            for proposal in self._by_index.pop(passed):
                proposal.answer(None, UNKNOWN_OUTCOME)

    def abandon(self) -> None:
        """Answer all: the node stops, and nobody here will ever tell."""
        self.skipped(inf)

    def lost_leadership(self, now: float, *, is_cut_off: bool) -> None:
        """Wait less long for the proposals of the term that ended; not at all where a majority no longer answers."""
        limit = now if is_cut_off else now + self._timing.lost_proposal_seconds
        for waiting in self._by_index.values():
            for proposal in waiting:
                proposal.expires_at = min(proposal.expires_at, limit)
        if self._by_index:
            self._earliest = min(self._earliest, limit)

    def expire(self, now: float) -> None:
        """Answer those that waited too long; cheap while none did."""
        if now < self._earliest:
            return
        expired: list[_Proposal] = []
        for index, waiting in list(self._by_index.items()):
            expired += [proposal for proposal in waiting if proposal.expires_at <= now]
            self._by_index[index] = [proposal for proposal in waiting if proposal.expires_at > now]
            if not self._by_index[index]:
                del self._by_index[index]
        self._earliest = min((p.expires_at for waiting in self._by_index.values() for p in waiting), default=inf)
        for proposal in expired:
            proposal.answer(None, UNKNOWN_OUTCOME)
