"""Reads that a majority confirms: rounds by number, in the leader's own term, begun after the request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from raftsched.consensus.raft.log.proposals import NOT_LEADER, REFUSED, SUCCESS
from raftsched.consensus.raft.messages import READ_ROUND, READ_ROUND_OK
from raftsched.errors import NoMajority
from tests.consensus.subjects import TIMING, MendedSubject

Answers = list[tuple[object, int]]


@pytest.fixture
def leader(tmp_path: Path) -> MendedSubject:
    """Leads three nodes, with its first entry applied."""
    subject = MendedSubject("bc", tmp_path)
    subject.lead()
    subject.give_ack("b", subject.last_index)
    subject.tick()
    assert subject.engine.is_leading
    return subject


def ask(subject: MendedSubject) -> Answers:
    answers: Answers = []
    subject.engine.confirm_lead(lambda result, reason: answers.append((result, reason)))
    subject.engine.step()
    return answers


def confirm(subject: MendedSubject, peer: str, number: int, *, term: int | None = None) -> None:
    subject.give(peer, type=READ_ROUND_OK, term=subject.term if term is None else term, round=number)
    subject.engine.step()


def rounds(subject: MendedSubject, peer: str = "b") -> list[int]:
    return [message["round"] for message in subject.take(READ_ROUND, peer)]


def test_a_read_is_answered_once_a_majority_has_confirmed_its_round(leader: MendedSubject) -> None:
    answers = ask(leader)
    assert rounds(leader) == [1]
    assert not answers
    confirm(leader, "c", 1)
    assert answers == [(None, SUCCESS)]


def test_a_read_is_not_answered_by_contact_of_another_kind(leader: MendedSubject) -> None:
    answers = ask(leader)
    for peer in "bc":
        leader.give_ack(peer, leader.last_index)
    leader.engine.step()
    assert not answers


def test_a_read_is_not_answered_by_a_round_that_had_begun_before_it(leader: MendedSubject) -> None:
    first = ask(leader)
    second = ask(leader)
    assert rounds(leader) == [1, 2]
    confirm(leader, "b", 1)
    assert (len(first), len(second)) == (1, 0)
    confirm(leader, "b", 2)
    assert second == [(None, SUCCESS)]


def test_reads_that_arrive_together_share_a_round(leader: MendedSubject) -> None:
    answers: Answers = []
    for _ in range(3):
        leader.engine.confirm_lead(lambda result, reason: answers.append((result, reason)))
    leader.engine.step()
    assert rounds(leader) == [1]
    confirm(leader, "b", 1)
    assert answers == [(None, SUCCESS)] * 3


def test_a_read_waits_for_what_was_committed_when_its_round_began(leader: MendedSubject) -> None:
    leader.propose(b"\x00x")
    leader.tick()
    leader.give_ack("b", leader.last_index)
    engine = leader.engine
    answers: Answers = []
    hooks = engine.core._hooked
    engine.core.hook(replace(hooks, apply_committed=lambda: None))
    engine.step()  # commits, and applies nothing yet
    engine.confirm_lead(lambda result, reason: answers.append((result, reason)))
    engine.step()
    confirm(leader, "b", 1)
    assert engine.commit_index > engine.applied_index
    assert not answers
    engine.core.hook(hooks)
    engine.step()
    engine.step()
    assert answers == [(None, SUCCESS)]


def test_an_answer_of_an_earlier_term_confirms_nothing(leader: MendedSubject) -> None:
    answers = ask(leader)
    confirm(leader, "b", 1, term=leader.term - 1)
    assert not answers


def test_an_answer_of_a_later_term_ends_the_lead_and_refuses_the_read(leader: MendedSubject) -> None:
    answers = ask(leader)
    confirm(leader, "b", 1, term=leader.term + 1)
    assert not leader.leads
    assert answers == [(None, NOT_LEADER)]


def test_a_read_that_nobody_confirms_is_refused_in_time(leader: MendedSubject) -> None:
    answers = ask(leader)
    assert leader.engine.next_deadline() <= leader.clock.now + TIMING.election_max_seconds
    leader.clock.now += TIMING.election_max_seconds
    leader.engine.reads.advance(leader.clock.now)
    [(error, reason)] = answers
    assert isinstance(error, NoMajority)
    assert reason == REFUSED


def test_a_follower_confirms_in_its_leaders_term_alone(tmp_path: Path) -> None:
    follower = MendedSubject("bc", tmp_path)
    follower.give("b", type=READ_ROUND, term=2, round=7)
    assert follower.engine.leader_id == "b"
    [answer] = follower.take(READ_ROUND_OK, "b")
    assert (answer["term"], answer["round"]) == (2, 7)
    follower.give("c", type=READ_ROUND, term=1, round=9)
    [answer] = follower.take(READ_ROUND_OK, "c")
    assert answer["term"] == 2


def test_a_follower_refuses_at_once(tmp_path: Path) -> None:
    assert ask(MendedSubject("bc", tmp_path)) == [(None, NOT_LEADER)]


def test_a_node_alone_is_its_own_majority(tmp_path: Path) -> None:
    alone = MendedSubject("", tmp_path)
    alone.tick()
    alone.tick()
    assert alone.engine.is_leading
    assert ask(alone) == [(None, SUCCESS)]
