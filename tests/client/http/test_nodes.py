from __future__ import annotations

from math import inf

import pytest

from raftsched.client.http.nodes import NODES_MAX, PROBE_SECONDS_MAX, Nodes, normal_url
from raftsched.errors import Invalid

A, B, C, D = "http://a:1", "http://b:1", "http://c:1", "http://d:1"


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
    known.pass_over(A)
    assert known.current == B


def test_only_node_stays_current_when_it_fails() -> None:
    known = nodes(A)
    known.failed(A, 0.0)
    assert (known.current, known.another([A])) == (A, None)


def test_leader_that_was_learned_is_followed_once_it_has_answered() -> None:
    known = nodes(A)
    known.follow(B + "/")
    assert (known.current, len(known)) == (A, 1)
    assert known.due(0.0) == [B]
    known.answered(B)
    assert (known.current, len(known), known.due(1e9)) == (B, 2, [])
    known.failed(B, 0.0)
    assert known.current == A


def test_leader_that_failed_is_followed_only_once_it_answers() -> None:
    known = nodes(A, B)
    known.follow(B)
    known.failed(B, 1.0)
    known.follow(B)
    assert known.current == A
    assert (known.probe_at, known.due(5.9), known.due(6.0)) == (6.0, [], [B])
    known.answered(B)
    assert (known.current, known.probe_at) == (B, inf)


def test_node_that_answers_after_it_lost_the_lead_gets_no_work_for_it() -> None:
    known = nodes(A, B)
    known.follow(B)
    known.failed(B, 0.0)
    known.answered(B)
    assert known.current == A


def test_node_that_refused_is_not_followed_until_another_one_has_served_or_all_have_refused() -> None:
    """A leader without a majority, and a follower on its side that names it as long as it is cut off."""
    known = nodes(A, B, C, D)
    for refusing in (A, B):
        known.answered(refusing)
        known.refused(refusing)
        known.follow(A)
    assert known.current == C
    known.served(C)
    known.follow(A)
    assert known.current == A
    asked = []
    for _ in range(5):  # an election of them all: nobody is left out, in turn
        asked.append(known.current)
        known.refused(known.current)
    assert asked == [A, B, C, D, A]


def test_address_that_never_answered_is_probed_ever_less_often_and_gets_no_work() -> None:
    """Case N08: three addresses that only the cluster can reach."""
    known = nodes(A)
    known.learn([B, C, D])
    now, probes = 0.0, 0
    while now < 3600.0:
        known.follow(B)
        known.pass_over(A)
        assert (known.current, known.another([A]), known.last_resort([A])) == (A, None, None)
        for url in known.due(now):
            known.failed(url, now)
            probes += url == B
        now = known.probe_at
    assert probes == 17  # 0, 5, 15, 35, 75, 155, 315 s, then every 5 minutes
    known.follow(B)
    known.answered(B)
    assert known.current == B


def test_nodes_that_were_given_are_probed_every_few_seconds() -> None:
    known = nodes(A, B)
    for _ in range(10):
        known.failed(B, 0.0)
    assert known.probe_at == PROBE_SECONDS_MAX


def test_next_node_to_ask_is_neither_suspected_nor_asked_already() -> None:
    known = nodes(A, B, C, D)
    known.failed(C, 0.0)
    assert known.another([]) == A
    assert known.another([A]) == B
    assert known.another([A, B]) == D
    assert known.another([A, B, D]) is None
    assert known.last_resort([A, B, D]) == C
    assert known.last_resort([A, B, C, D]) is None


def test_nodes_that_follow_nobody_stay_with_what_they_were_given() -> None:
    known = Nodes([A, B], avoid_seconds=5.0, follow_leader=False)
    known.learn([C, D])
    for leader in (B, C):
        known.follow(leader)
    assert (known.known, known.current, known.probe_at) == ((A, B), A, inf)
    known.failed(A, 0.0)
    assert known.current == B


@pytest.mark.parametrize("leader", ["http://b:1", "nonsense", ""])
def test_leader_is_never_followed_from_https_to_anything_less(leader: str) -> None:
    known = nodes("https://a:1")
    known.follow(leader)
    assert (known.current, known.known) == ("https://a:1", ("https://a:1",))


def test_learned_nodes_replace_those_learned_before_but_never_the_configured() -> None:
    known = nodes(A)
    known.learn([B])
    known.follow(B)
    known.answered(B)
    known.learn([C, C, "nonsense"])
    assert (known.known, known.current) == ((A, C), A)


def test_learned_nodes_are_bounded() -> None:
    known = nodes(A)
    known.learn(f"http://n{number}:1" for number in range(1000))
    assert len(known.known) == NODES_MAX
    known.follow("http://one-more:1")
    assert (len(known.known), known.current) == (NODES_MAX, A)
