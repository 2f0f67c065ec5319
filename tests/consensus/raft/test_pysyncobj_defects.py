"""Each defect of pysyncobj that is mended: the stock library shows it under a schedule, ours doesn't under the same.

The numbers are those of PYSYNCOBJ.md, "Defects ranked".
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from pysyncobj import FAIL_REASON, syncobj
from pysyncobj.journal import MemoryJournal
from pysyncobj.node import Node

import raftsched
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.raft.pysyncobj_adapter import ORIGINALS, RaftCore
from raftsched.errors import InvariantBroken
from tests.consensus.subjects import TIMING, MendedSubject, StockSubject, Subject, carry

NO_OP = b"\x01"


def entry(index: int, term: int = 1, text: bytes = b"x") -> tuple[bytes, int, int]:
    return b"\x00" + text, index, term


@pytest.fixture(autouse=True)
def _seams() -> Any:
    """Leave pysyncobj's seams as every other test expects them."""
    yield
    for name, value in ORIGINALS.items():
        setattr(syncobj, name, value)


@pytest.fixture(params=[StockSubject, MendedSubject], ids=["stock", "mended"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_piece_of_a_snapshot_commits_nothing(kind: Any, tmp_path: Path) -> None:
    """1: stock takes over the commit index with a piece, and applies its own divergent tail."""
    node: Subject = kind("bc", tmp_path)
    node.give_append("b", 1, (1, 0), [entry(2, text=b"never committed")])
    if node.is_stock:
        node.give("c", type="append_entries", term=9, commit_index=500, serialized=(b"piece", True, False))
    else:
        copy = {"transfer": 1, "index": 500, "index_term": 8, "size": 100, "crc": 0, "offset": 0, "data": b"piece"}
        node.give("c", type="snapshot_chunk", term=9, **copy)
    node.tick()
    assert (node.applied == [b"never committed"]) is node.is_stock
    assert (node.commit > 1) is node.is_stock


def test_a_repeated_message_cuts_nothing_that_matches(kind: Any, tmp_path: Path) -> None:
    """2: stock cuts the log behind whatever message arrives, though it acknowledged what it cuts."""
    node: Subject = kind("bc", tmp_path)
    node.give_append("b", 1, (1, 0), [entry(2), entry(3), entry(4)])
    node.give_append("b", 1, (1, 0), [entry(2)])
    assert (node.last_index == 2) is node.is_stock
    assert node.last_index == (2 if node.is_stock else 4)


def test_a_conflict_is_cut_where_it_begins_and_only_there(tmp_path: Path) -> None:
    """2: what matches stays, what differs goes."""
    node = MendedSubject("bc", tmp_path)
    node.give_append("b", 1, (1, 0), [entry(2), entry(3), entry(4)])
    node.give_append("c", 2, (1, 0), [entry(2), entry(3, 2, b"other")])
    assert node.log == [(NO_OP, 1, 0), entry(2), entry(3, 2, b"other")]


def test_cutting_what_is_committed_stops_the_node(tmp_path: Path) -> None:
    """2: stock logs a critical line and goes on."""
    node = MendedSubject("bc", tmp_path)
    node.give_append("b", 1, (1, 0), [entry(2)])
    node.sync()
    node.give_append("b", 1, (2, 1), [], commit=2)
    with pytest.raises(InvariantBroken, match="differs from committed entry 2"):
        node.give_append("c", 2, (1, 0), [entry(2, 2)])


def test_an_acknowledgement_never_moves_the_next_entry_back(kind: Any, tmp_path: Path) -> None:
    """2, "nextidx": stock sends everything in flight again with each acknowledgement of an older message."""
    node: Subject = kind("bc", tmp_path)
    node.lead()
    node.give_ack("b", 2)
    for _ in range(4):
        node.propose(b"x")
        node.tick()
    node.clock.now += TIMING.heartbeat_seconds * 1.5
    node.tick()
    node.take("append_entries")
    node.give_ack("b", 3)
    node.clock.now += TIMING.heartbeat_seconds * 1.5
    node.tick()
    sent_again = [message for message in node.take("append_entries", "b") if message.get("entries")]
    assert bool(sent_again) is node.is_stock


def test_a_leader_counts_itself_only_when_it_is_durable(kind: Any, tmp_path: Path) -> None:
    """3: stock, alone, acknowledges before anything could be on disk."""
    node: Subject = kind("", tmp_path)
    node.stand()
    answers: list[int] = []
    node.propose(b"x", lambda _result, reason: answers.append(reason))
    for _ in range(3):
        node.step()
    assert (answers == [FAIL_REASON.SUCCESS]) is node.is_stock
    node.tick()
    assert answers == [FAIL_REASON.SUCCESS]


def test_an_acknowledgement_of_an_earlier_term_counts_for_nothing(kind: Any, tmp_path: Path) -> None:
    """4: stock's acknowledgements carry no term."""
    node: Subject = kind("bc", tmp_path)
    node.lead()
    node.give_ack("b", node.last_index, term=node.term - 1)
    node.tick()
    assert (node.commit == node.last_index) is node.is_stock
    node.give_ack("b", node.last_index)
    node.tick()
    assert node.commit == node.last_index


def elect(nodes: dict[str, Subject], leader: Subject, voters: str) -> None:
    """Long after anybody heard of a leader, `leader` gets these votes."""
    for node in nodes.values():
        node.clock.now += 2 * TIMING.election_max_seconds
        node.transport.sent.clear()
    leader.stand()
    for voter in voters:
        carry(leader, nodes[voter], "request_vote")
        carry(nodes[voter], leader, "response_vote")
    assert leader.leads


def replicate(leader: Subject, follower: Subject) -> None:
    """Heartbeats and answers, until the follower has the leader's log."""
    for _ in range(12):
        leader.clock.now += TIMING.heartbeat_seconds * 1.5
        leader.enter()
        leader.core._SyncObj__sendAppendEntries()
        carry(leader, follower, "append_entries")
        carry(follower, leader, "next_node_idx")


def test_five_nodes_commit_nothing_by_an_acknowledgement_of_an_earlier_term(kind: Any, tmp_path: Path) -> None:
    """4: a leads term 1, c overwrites its entries in term 2, a leads term 3, and b's answer of term 1 arrives."""
    nodes = {name: kind("abcde".replace(name, ""), tmp_path, node_id=name) for name in "abcde"}
    a, c = nodes["a"], nodes["c"]
    elect(nodes, a, "bc")
    for _ in range(2):
        a.propose(b"one")
        a.append_waiting()
    a.core._SyncObj__sendAppendEntries()
    carry(a, nodes["b"], "append_entries")
    if not a.is_stock:  # ours asks first where the logs agree
        carry(nodes["b"], a, "next_node_idx")
        a.engine.replication.replicate(heartbeat=False)
        carry(a, nodes["b"], "append_entries")
    late = nodes["b"].take("next_node_idx", "a")[-1:]
    assert late[0]["next_node_idx"] == 5

    elect(nodes, c, "de")
    for name in "abd":
        replicate(c, nodes[name])
    elect(nodes, a, "bd")
    no_op = a.log[-1]
    replicate(a, nodes["d"])
    for message in late:
        a.give("b", **message)
    a.tick()

    holders = [name for name, node in nodes.items() if no_op in node.log]
    assert holders == ["a", "d"]
    assert (a.commit >= no_op[1]) is a.is_stock


class _Attack:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_nothing_from_the_network_is_unpickled(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5: stock runs what a peer sends."""
    monkeypatch.delattr("tests.consensus.subjects.StockNode._SyncObj__doApplyCommand")
    node: Subject = kind("bc", tmp_path)
    node.lead()
    canary = tmp_path / "canary"
    node.give("b", type="apply_command", command=b"\x00" + pickle.dumps(_Attack(canary)))
    node.tick()
    node.give_ack("b", node.last_index)
    with contextlib.suppress(KeyError):  # stock trips over what it has run
        node.tick()
    assert canary.exists() is node.is_stock


def test_a_snapshot_that_fails_to_load_is_not_acknowledged(kind: Any, tmp_path: Path) -> None:
    """6: stock swallows the error and says that it has all."""
    node: Subject = kind("bc", tmp_path)
    node.give_append("b", 1, (1, 0), [entry(2)])
    node.take("next_node_idx")
    if node.is_stock:
        node.give("b", type="append_entries", term=1, commit_index=1, serialized=(b"garbage", True, True))
    else:
        copy = {"transfer": 1, "index": 50, "index_term": 1, "size": 7, "crc": 1, "offset": 0, "data": b"garbage"}
        node.give("b", type="snapshot_chunk", term=1, **copy)
        work = node.engine.take_work()
        with pytest.raises(ValueError, match="differs from the one that was sent") as refused:
            work.run()
        work.fail(refused.value, node.clock.now)
    node.tick()
    assert any(message["success"] for message in node.take("next_node_idx")) is node.is_stock


def test_logs_that_differ_agree_after_one_refusal(kind: Any, tmp_path: Path) -> None:
    """7: stock steps back by one entry at a time, each a round trip of a whole period."""
    node: Subject = kind("bc", tmp_path)
    node.give_append("b", 1, (1, 0), [entry(index) for index in range(2, 42)])
    ours = [(NO_OP, 1, 0), *[entry(index, 2) for index in range(2, 42)]]
    following = 42
    refusals = -1
    reset = True
    while reset:
        refusals += 1
        previous = ours[following - 2]
        node.give_append("c", 3, previous[1:], ours[following - 1 :])
        answer = node.take("next_node_idx")[-1]
        reset, following = answer["reset"], answer["next_node_idx"]
    assert node.log == ours
    assert (refusals > 20) is node.is_stock
    assert refusals == (40 if node.is_stock else 1)


def test_a_snapshot_that_is_not_ready_is_waited_for(kind: Any, tmp_path: Path) -> None:
    """8: stock sends empty messages for a whole period, in a loop, and for ever if its clock stands still."""
    node: Subject = kind("bc", tmp_path)
    node.lead()
    for _ in range(3):
        node.propose(b"x")
        node.tick()
    if node.is_stock:
        node.engine._SyncObj__raftLog.deleteEntriesTo(4)
        node.engine._SyncObj__raftNextIndex[Node("b")] = 2
        node.engine._SyncObj__serializer._Serializer__pid = 1  # it is being written
    else:
        node.engine.log.compact_to(5)
        give_refusal(node, "b", rejected=max(node.engine.replication.progress["b"].next - 1, 5))
        assert node.engine.replication.progress["b"].snapshotting
    node.transport.sent.clear()
    node.clock.drift = 0.0001
    node.clock.now += TIMING.heartbeat_seconds * 1.5
    node.tick()
    assert (len(node.take("append_entries")) > 50) is node.is_stock


def give_refusal(node: Subject, peer: str, *, rejected: int) -> None:
    answer = {"success": False, "reset": True, "next_node_idx": 2, "rejected": rejected}
    node.give(peer, type="next_node_idx", term=node.term, **answer)


def test_a_large_entry_arrives_whole(kind: Any, tmp_path: Path) -> None:
    """9: stock splits an entry of the batch size so that its last piece comes twice, and the follower raises."""
    leader: Subject = kind("b", tmp_path / "leader")
    follower: Subject = kind("b", tmp_path / "follower")
    leader.lead()
    command = b"x" * 131_060
    leader.propose(command)
    leader.tick()
    broken = False
    for _ in range(3):
        leader.clock.now += TIMING.heartbeat_seconds * 1.5
        leader.tick()
        try:
            for message in leader.take("append_entries"):
                follower.give("b", **message)
        except EOFError:
            broken = True
        for message in follower.take("next_node_idx"):
            leader.enter()
            leader.give("b", **message)
    assert broken is leader.is_stock
    assert (follower.log[-1][0] == b"\x00" + command) is not leader.is_stock


def test_a_callback_that_raises_runs_nothing_twice(kind: Any, tmp_path: Path) -> None:
    """10: stock runs the command again with every tick."""
    node: Subject = kind("", tmp_path)
    node.stand()

    def fails(_result: object, _reason: int) -> None:
        raise RuntimeError("callback")

    node.propose(b"once", fails)
    for _ in range(3):
        with contextlib.suppress(RuntimeError):
            node.tick()
    assert (node.applied.count(b"once") > 1) is node.is_stock


def test_a_fault_in_apply_leaves_the_step_and_answers_nobody(kind: Any, tmp_path: Path) -> None:
    """10: stock forgets the caller, and tries for ever; ours keeps it for the answer "unknown" when the node stops."""
    node: Subject = kind("", tmp_path)
    node.stand()
    node.tick()
    answers: list[int] = []

    def fails(_command: bytes) -> None:
        raise ZeroDivisionError

    node.on_apply = fails
    node.propose(b"x", lambda _result, reason: answers.append(reason))
    with pytest.raises(ZeroDivisionError):
        for _ in range(3):
            node.tick()
    if not node.is_stock:
        node.engine.refuse_all()
    assert (answers == []) is node.is_stock


def test_membership_is_not_changed_by_commands(kind: Any, tmp_path: Path) -> None:
    """11: stock accepts a second change before the first is committed."""
    settings = {"dynamicMembershipChange": True} if kind is StockSubject else {}
    node: Subject = kind("bc", tmp_path, **settings)
    node.lead()
    node.give_ack("b", node.last_index)
    node.tick()
    with contextlib.nullcontext() if node.is_stock else pytest.raises(Exception, match="is disabled"):
        node.core.addNodeToCluster(Node("d"))
        node.core.addNodeToCluster(Node("e"))
    node.tick()
    assert ({other.id for other in node.core.otherNodes} == set("bcde")) is node.is_stock


def test_a_voter_counts_once(kind: Any, tmp_path: Path) -> None:
    """12: stock, one of five, leads with two votes."""
    node: Subject = kind("bcde", tmp_path)
    node.stand()
    for _ in range(2):
        node.give("b", type="response_vote", term=node.term)
    assert node.leads is node.is_stock
    node.give("c", type="response_vote", term=node.term)
    assert node.leads


class _BoastfulJournal(MemoryJournal):  # type: ignore[misc]  # pysyncobj carries no types
    def getRaftCommitIndex(self) -> int:  # noqa: N802  # pysyncobj's name
        return 500


def test_a_commit_index_beyond_the_log_is_not_believed(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "commitclamp": stock commits whatever the next leader sends below the index that it remembers."""
    monkeypatch.setattr(Journal, "getRaftCommitIndex", lambda _self: 500)
    node: Subject = kind("bc", tmp_path, journal=_BoastfulJournal()) if kind is StockSubject else kind("bc", tmp_path)
    assert (node.commit == 500) is node.is_stock


def test_a_node_that_hears_nothing_keeps_its_term(kind: Any, tmp_path: Path) -> None:
    """Stock raises its term with every timeout, and deposes the leader when it is back: no pre-vote."""
    node: Subject = kind("bc", tmp_path)
    node.give_append("b", 1, (1, 0), [])
    for _ in range(5):
        node.clock.now += 2 * TIMING.election_max_seconds
        node.tick()
    assert (node.term > 1) is node.is_stock


def test_a_node_that_hears_a_leader_votes_for_nobody_else(kind: Any, tmp_path: Path) -> None:
    """Stock gives its vote to any candidate, and so ends a leadership that works."""
    node: Subject = kind("bc", tmp_path)
    node.give_append("b", 1, (1, 0), [])
    request = {"term": 2, "last_log_index": 9, "last_log_term": 1, "force": False}
    node.give("c", type="request_vote", **request)
    assert bool(node.take("response_vote")) is node.is_stock
    node.clock.now += TIMING.election_min_seconds
    node.give("c", type="request_vote", **{**request, "term": 3})
    assert node.take("response_vote")


def test_no_method_that_is_overridden_is_missing_from_the_library() -> None:
    """The seams are tied to names that the pinned version has; `RaftCore` itself defines no other private ones."""
    ours = [name for name in vars(RaftCore) if name.startswith("_SyncObj__")]
    assert len(ours) >= 7
    assert [name for name in ours if not hasattr(syncobj.SyncObj, name)] == ["_SyncObj__raftCommitIndex"]


def test_only_the_adapter_names_private_parts_of_the_library() -> None:
    """Another version of pysyncobj is read and adapted in one file."""
    package = Path(raftsched.__file__).parent
    named = re.compile(r"_SyncObj__|from pysyncobj import .*syncobj", re.IGNORECASE)
    naming = [path.name for path in sorted(package.rglob("*.py")) if named.search(path.read_text())]
    assert naming == ["pysyncobj_adapter.py"]


def test_pickle_is_out_of_reach_of_the_library(tmp_path: Path) -> None:
    """5: whatever way pysyncobj might take to pickle, it raises."""
    MendedSubject("bc", tmp_path)
    with pytest.raises(RuntimeError, match=r"reached for pickle\.loads"):
        syncobj.pickle.loads(b"")
