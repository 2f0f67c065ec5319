from __future__ import annotations

import pytest

from raftsched.client.nodes import NODES_MAX, Nodes, normal_url
from raftsched.errors import Invalid

A, B, C = "http://a:1", "http://b:1", "http://c:1"


def nodes(*urls: str) -> Nodes:
    return Nodes(urls, avoid_seconds=5.0)


@pytest.mark.parametrize(
    "url", ["", "a:8400", "ftp://a", "http://", "http://a:port", "http://a/?x=1", "//a", "http://a#b"]
)
def test_address_that_is_none_of_a_node_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        normal_url(url)
    assert caught.value.field == "url"


def test_address_loses_its_trailing_slash() -> None:
    assert normal_url("https://a:1/base/") == "https://a:1/base"


def test_nodes_without_an_address_are_refused() -> None:
    with pytest.raises(Invalid):
        nodes()


def test_failed_node_is_passed_over_in_turn() -> None:
    known = nodes(A, B, C)
    known.failed(A, 0.0)
    assert known.current == B
    known.failed(B, 0.1)
    assert known.current == C
    known.failed(C, 0.2)
    assert known.current == A  # all failed lately: go round


def test_late_failure_of_another_node_leaves_the_current_one() -> None:
    known = nodes(A, B, C)
    known.failed(A, 0.0)
    known.pass_over(A, 0.0)
    assert known.current == B


def test_only_node_stays_current_when_it_fails() -> None:
    known = nodes(A)
    known.failed(A, 0.0)
    assert known.current == A


def test_leader_is_followed_and_kept_in_mind() -> None:
    known = nodes(A)
    known.follow(B + "/", 0.0)
    assert known.current == B
    known.failed(B, 0.0)
    assert known.current == A


def test_leader_that_failed_lately_is_followed_only_later() -> None:
    known = nodes(A, B)
    known.follow(B, 0.0)
    known.failed(B, 1.0)
    known.follow(B, 5.9)
    assert known.current == A
    known.follow(B, 6.0)
    assert known.current == B


def test_node_that_answers_is_followed_again() -> None:
    known = nodes(A, B)
    known.failed(B, 0.0)
    known.answered(B)
    known.follow(B, 0.1)
    assert known.current == B


@pytest.mark.parametrize("leader", ["http://b:1", "nonsense", ""])
def test_leader_is_never_followed_from_https_to_anything_less(leader: str) -> None:
    known = nodes("https://a:1")
    known.follow(leader, 0.0)
    assert known.current == "https://a:1"


def test_learned_nodes_replace_those_learned_before_but_never_the_configured() -> None:
    known = nodes(A)
    known.learn([B])
    known.follow(B, 0.0)
    known.learn([C, C, "nonsense"])
    assert (known.known, known.current) == ((A, C), A)


def test_learned_nodes_are_bounded() -> None:
    known = nodes(A)
    known.learn(f"http://n{number}:1" for number in range(1000))
    assert len(known) == NODES_MAX
    known.follow("http://one-more:1", 0.0)
    assert (len(known), known.current) == (NODES_MAX, A)
