"""Contact with a majority, counted from the send."""

from __future__ import annotations

import pytest

from raftsched.consensus.raft.clocks.quorum_lease import DRIFT, QuorumContact


def test_nobody_has_answered_is_not_fresh() -> None:
    assert not QuorumContact("bc", promise_seconds=1.0).is_fresh(0.0)


def test_a_node_alone_is_always_fresh() -> None:
    assert QuorumContact("", promise_seconds=1.0).is_fresh(1e12)


@pytest.mark.parametrize(("peers", "needed"), [("b", 1), ("bc", 1), ("bcd", 2), ("bcde", 2)])
def test_a_majority_with_this_node_is_enough(peers: str, needed: int) -> None:
    contact = QuorumContact(peers, promise_seconds=1.0)
    for count, peer in enumerate(peers, start=1):
        contact.answered(peer, 10.0)
        assert contact.is_fresh(10.5) is (count >= needed)


def test_freshness_ends_before_the_promise_does() -> None:
    contact = QuorumContact("bc", promise_seconds=1.0)
    contact.answered("b", 10.0)
    assert contact.is_fresh(10.0 + (1 - DRIFT) * 0.999)
    assert not contact.is_fresh(10.0 + (1 - DRIFT))


def test_an_older_answer_takes_nothing_back() -> None:
    contact = QuorumContact("bc", promise_seconds=1.0)
    contact.answered("b", 10.0)
    contact.answered("b", 5.0)
    assert contact.is_fresh(10.5)


def test_five_nodes_count_from_the_second_latest_answer() -> None:
    contact = QuorumContact("bcde", promise_seconds=1.0)
    for peer, sent_at in zip("bcde", (10.0, 9.5, 3.0, 2.0), strict=True):
        contact.answered(peer, sent_at)
    assert contact.is_fresh(10.3)
    assert not contact.is_fresh(10.5)


def test_a_new_term_starts_without_contact() -> None:
    contact = QuorumContact("bc", promise_seconds=1.0)
    contact.answered("b", 10.0)
    contact.forget()
    assert not contact.is_fresh(10.0)
