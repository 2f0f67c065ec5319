"""Each waiting caller gets one answer, and never a wrong one."""

from __future__ import annotations

from functools import partial

from raftsched.consensus.ports import Timing
from raftsched.consensus.raft.log.proposals import DISCARDED, SUCCESS, UNKNOWN_OUTCOME, Proposals

TIMING = Timing(proposal_seconds=10.0, lost_proposal_seconds=2.0)


class Callers:
    """Proposals by name, and what each was answered."""

    def __init__(self) -> None:
        self.proposals = Proposals(TIMING)
        self.answers: list[tuple[str, object, int]] = []

    def add(self, name: str, index: int, term: int, now: float = 0.0) -> None:
        self.proposals.add(index, term, partial(self._answer, name), now)

    def _answer(self, name: str, result: object, reason: int) -> None:
        self.answers.append((name, result, reason))


def test_an_applied_entry_answers_with_its_result() -> None:
    callers = Callers()
    callers.add("a", 5, 1)
    callers.proposals.applied(4, 1, "other")
    callers.proposals.applied(5, 1, "result")
    callers.proposals.applied(5, 1, "again")
    assert callers.answers == [("a", "result", SUCCESS)]


def test_another_entry_at_the_index_is_a_definite_refusal() -> None:
    callers = Callers()
    callers.add("a", 5, 1)
    callers.proposals.applied(5, 2, "other")
    assert callers.answers == [("a", None, DISCARDED)]


def test_entries_of_two_terms_at_one_index_are_told_apart() -> None:
    callers = Callers()
    callers.add("old", 5, 1)
    callers.add("new", 5, 3)
    callers.proposals.applied(5, 3, "result")
    assert callers.answers == [("old", None, DISCARDED), ("new", "result", SUCCESS)]


def test_what_a_snapshot_skips_is_unknown() -> None:
    callers = Callers()
    for index in (4, 5, 6):
        callers.add(str(index), index, 1)
    callers.proposals.skipped(5)
    assert callers.answers == [("4", None, UNKNOWN_OUTCOME), ("5", None, UNKNOWN_OUTCOME)]
    assert len(callers.proposals) == 1


def test_what_waits_too_long_is_unknown() -> None:
    callers = Callers()
    callers.add("a", 5, 1, now=0.0)
    callers.add("b", 6, 1, now=3.0)
    assert callers.proposals.deadline == 10.0
    callers.proposals.expire(9.9)
    assert callers.answers == []
    callers.proposals.expire(10.0)
    assert callers.answers == [("a", None, UNKNOWN_OUTCOME)]
    assert callers.proposals.deadline == 13.0


def test_nobody_waits_where_a_majority_no_longer_answers() -> None:
    callers = Callers()
    callers.add("a", 5, 1, now=0.0)
    callers.proposals.lost_leadership(1.0, is_cut_off=True)
    callers.proposals.expire(1.0)
    assert callers.answers == [("a", None, UNKNOWN_OUTCOME)]


def test_a_lost_leadership_shortens_the_wait_and_decides_nothing() -> None:
    callers = Callers()
    callers.add("a", 5, 1, now=0.0)
    callers.add("b", 6, 1, now=0.0)
    callers.proposals.lost_leadership(1.0, is_cut_off=False)
    callers.proposals.applied(5, 1, "by the next leader")
    callers.proposals.expire(3.0)
    assert callers.answers == [("a", "by the next leader", SUCCESS), ("b", None, UNKNOWN_OUTCOME)]
