"""What a leader sends and makes of the answers; one node by hand."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

from raftsched.consensus.ports import Sizes
from raftsched.errors import InvariantBroken
from tests.consensus.subjects import TIMING, MendedSubject

SIZES = Sizes(append_bytes=300, appends_in_flight=3)


def leader(tmp_path: Path, others: str = "bc", **options: Any) -> MendedSubject:
    """A leader whose followers have all that it has; nothing of it is left to take."""
    node = MendedSubject(others, tmp_path, **options)
    node.lead()
    for other in others:
        node.give_ack(other, node.last_index)
    node.tick()
    node.transport.sent.clear()
    return node


def fill(node: MendedSubject, count: int, size: int = 10) -> None:
    for _ in range(count):
        node.propose(b"x" * size)
    node.tick()


def sent_entries(node: MendedSubject, peer: str) -> list[list[int]]:
    """The indexes in each message with entries."""
    return [
        [entry[1] for entry in message["entries"]]
        for message in node.take("append_entries", peer)
        if message["entries"]
    ]


def test_entries_are_sent_before_earlier_ones_are_acknowledged(tmp_path: Path) -> None:
    node = leader(tmp_path)
    for _ in range(3):
        fill(node, 1)
    assert sent_entries(node, "b") == [[3], [4], [5]]


def test_no_more_messages_are_in_flight_than_the_window_holds(tmp_path: Path) -> None:
    node = leader(tmp_path, sizes=SIZES)
    for _ in range(5):
        fill(node, 1)
    assert sent_entries(node, "b") == [[3], [4], [5]]
    node.give_ack("b", 3)
    node.tick()
    assert sent_entries(node, "b") == [[6, 7]]
    assert sent_entries(node, "c") == [[3], [4], [5]]


def test_a_message_holds_entries_up_to_its_size_and_at_least_one(tmp_path: Path) -> None:
    node = leader(tmp_path, sizes=SIZES)
    fill(node, 4, size=100)
    fill(node, 1, size=1000)
    assert sent_entries(node, "b") == [[3, 4], [5, 6], [7]]


def test_followers_that_are_equally_far_get_the_very_same_message(tmp_path: Path) -> None:
    """The transport encodes a message once if it comes twice in a row."""
    node = leader(tmp_path)
    fill(node, 1)
    with_entries = [message for _, message in node.transport.sent if message.get("entries")]
    assert len(with_entries) == 2
    assert with_entries[0] is with_entries[1]


def test_a_new_leader_asks_where_logs_agree_before_it_sends_entries(node: MendedSubject) -> None:
    node.lead()
    assert not any(message["entries"] for message in node.take("append_entries"))
    node.give_ack("b", 1)
    node.tick()
    assert sent_entries(node, "b") == [[2]]


def test_a_refusal_sends_from_where_logs_agree(tmp_path: Path) -> None:
    node = leader(tmp_path)
    fill(node, 5)
    node.transport.sent.clear()
    refuse(node, "b", rejected=7, hint=4)
    node.give_ack("b", 3)
    node.tick()
    assert sent_entries(node, "b") == [[4, 5, 6, 7]]


def refuse(node: MendedSubject, peer: str, *, rejected: int, hint: int) -> None:
    answer = {"success": False, "reset": True, "next_node_idx": hint, "rejected": rejected}
    node.give(peer, type="next_node_idx", term=node.term, **answer)


def test_refusals_of_what_else_was_in_flight_change_nothing(tmp_path: Path) -> None:
    """The livelock of stock: each stale refusal began everything anew (defect 7)."""
    node = leader(tmp_path)
    for _ in range(4):
        fill(node, 1)
    node.transport.sent.clear()
    for rejected in (3, 4, 5, 6):
        refuse(node, "b", rejected=rejected, hint=2)
    assert len(node.take("append_entries", "b")) == 1


def test_a_follower_that_lost_what_it_acknowledged_counts_no_more(tmp_path: Path) -> None:
    node = leader(tmp_path)
    fill(node, 1)
    node.give_ack("b", 3)
    refuse(node, "b", rejected=3, hint=2)
    assert node.engine.replication.progress["b"].match == 0
    assert node.engine.core.match_index[node.engine.configuration.nodes["b"]] == 0


def test_an_acknowledgement_of_what_does_not_exist_stops_the_node(tmp_path: Path) -> None:
    node = leader(tmp_path)
    with pytest.raises(InvariantBroken, match="acknowledged entry 99"):
        node.give_ack("b", 99)


def test_another_leader_of_the_same_term_stops_the_node(tmp_path: Path) -> None:
    node = leader(tmp_path)
    with pytest.raises(InvariantBroken, match="both lead"):
        node.give_append("b", node.term, (1, 0), [])


def test_an_entry_of_an_unknown_kind_stops_the_node(node: MendedSubject) -> None:
    with pytest.raises(InvariantBroken, match="unknown kind"):
        node.give_append("b", 1, (1, 0), [(b"\x03version", 2, 1)])


def test_a_leader_of_an_older_term_is_told_and_steps_down(tmp_path: Path) -> None:
    node = leader(tmp_path)
    follower = MendedSubject("ac", tmp_path, node_id="b")
    follower.give_append("c", node.term + 1, (1, 0), [])
    follower.take("next_node_idx")
    follower.give_append("a", node.term, (1, 0), [])
    for message in follower.take("next_node_idx", "a"):
        node.give("b", **message)
    assert not node.leads
    assert node.term == follower.term


def test_entries_below_the_first_one_kept_match_and_later_ones_are_added(node: MendedSubject) -> None:
    entries = [(b"\x00x", index, 1) for index in range(2, 12)]
    node.give_append("b", 1, (1, 0), entries[:6], commit=7)
    node.tick()
    node.tick()
    node.engine.log.compact_to(6)
    node.take("next_node_idx")
    node.give_append("b", 1, (2, 1), entries[1:])
    assert node.take("next_node_idx")[0]["next_node_idx"] == 12
    assert [entry[1] for entry in node.log] == [6, 7, 8, 9, 10, 11]
    node.give_append("b", 1, (2, 1), entries[1:3])
    assert node.take("next_node_idx")[0]["next_node_idx"] == 5
    assert node.last_index == 11


def test_a_follower_applies_nothing_that_is_not_on_its_disk(node: MendedSubject) -> None:
    node.give_append("b", 1, (1, 0), [(b"\x00x", 2, 1)], commit=2)
    node.engine.step()
    assert node.applied == []
    node.sync()
    assert node.engine.next_deadline() == -inf
    node.engine.step()
    assert node.applied == [b"x"]


def test_a_peer_that_connects_is_asked_at_once(tmp_path: Path) -> None:
    node = leader(tmp_path)
    fill(node, 2)
    peer = node.engine.configuration.nodes["b"]
    node.transport._onNodeDisconnected(peer)
    node.transport.sent.clear()
    fill(node, 1)
    assert node.take("append_entries", "b") == []
    node.transport._onNodeConnected(peer)
    (probe,) = node.take("append_entries", "b")
    assert (probe["prevLogIdx"], probe["entries"]) == (2, ())


def test_the_next_deadline_of_a_leader_is_its_heartbeat(tmp_path: Path) -> None:
    node = leader(tmp_path)
    assert 0 < node.engine.next_deadline() - node.clock.now <= TIMING.heartbeat_seconds + 0.001


def test_a_node_that_is_connected_to_nobody_is_never_due(tmp_path: Path) -> None:
    node = MendedSubject("b", tmp_path)
    node.transport._onNodeDisconnected(node.engine.configuration.nodes["b"])
    node.engine.step()
    assert node.engine.next_deadline() == inf


def test_the_offset_of_a_followers_clock_is_measured_by_the_quickest_answer(tmp_path: Path) -> None:
    node = leader(tmp_path)

    def answer(offset_ms: int, round_trip: float) -> None:
        sent_us = int(node.clock.now * 1_000_000)
        node.clock.now += round_trip
        wall_ms = node.clock.wall_ms() + offset_ms - round(round_trip * 500)
        same = {"success": True, "reset": False, "next_node_idx": 2, "rejected": 0}
        node.give("b", type="next_node_idx", term=node.term, sent_us=sent_us, wall_ms=wall_ms, **same)

    node.clock.now += 100.0
    answer(250, 0.004)
    answer(300, 0.3)
    offset_ms = node.engine.measured.cluster_clock.offset_ms("b")
    assert offset_ms is not None
    assert abs(offset_ms - 250) <= 1


def checkpoint(node: MendedSubject) -> int:
    """Commit the state, cut the log behind it, and return the first index that is left."""
    node.machine.checkpoint()
    node.engine.checkpointed()
    return node.engine.log.first_index


def test_the_log_is_held_for_a_receiver_of_a_snapshot_until_it_has_caught_up(tmp_path: Path) -> None:
    """Else one whose transfer takes as long as a tail of the log needs snapshots for ever (1610291 on 3 nodes)."""
    node = leader(tmp_path, sizes=Sizes(tail_bytes=300, hold_bytes=100_000))
    fill(node, 50)
    node.give_ack("b", node.last_index)
    node.tick()
    assert checkpoint(node) > 3
    refusal: dict[str, Any] = {"success": False, "reset": True, "rejected": node.last_index, "next_node_idx": 3}
    node.give("c", type="next_node_idx", term=node.term, **refusal)
    node.tick()
    work = node.engine.take_work()
    assert work is not None
    work.run()
    work.finish(node.clock.now)
    copied = node.machine.durable_index
    fill(node, 50)
    node.give_ack("b", node.last_index)
    node.give_ack("c", copied)
    node.tick()
    assert checkpoint(node) <= copied
    node.give_ack("c", node.last_index)
    caught_up = node.last_index
    fill(node, 50)
    node.give_ack("b", node.last_index)
    node.tick()
    assert checkpoint(node) > caught_up  # it is silent again, and nothing is held for it any more
