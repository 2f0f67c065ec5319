"""Snapshots: the sender's and the receiver's state machines, and what a cluster makes of them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from chaos.sim.engine.cluster import SIZES, SimulatedCluster
from chaos.sim.engine.machine import HistoryMachine, MachineDisk
from raftsched.consensus.ports import Sizes
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.replication.snapshot_transfer import STALL_SECONDS
from raftsched.consensus.raft.replication.snapshots import (
    RETRY_SECONDS,
    SnapshotReceiver,
    SnapshotSender,
    Work,
    remove_leftovers,
)
from raftsched.errors import InvariantBroken
from tests.consensus.subjects import MendedSubject

CHUNKS = Sizes(chunk_bytes=10, window_chunks=3)


def machine_at(index: int, term: int = 1) -> HistoryMachine:
    return HistoryMachine(MachineDisk([(term, b"%d" % number) for number in range(index)]))


def finish(work: Work | None, now: float = 0.0) -> None:
    assert work is not None
    work.run()
    work.finish(now)


@pytest.fixture
def new_sender(tmp_path: Path) -> SnapshotSender:
    return SnapshotSender(tmp_path, machine_at(50), Random(1), CHUNKS, patience_seconds=0.25)


@pytest.fixture
def sender(new_sender: SnapshotSender) -> SnapshotSender:
    """A sender whose copy for b is ready."""
    new_sender.start("b", first_index=40, now=0.0)
    finish(new_sender.take_work())
    return new_sender


@pytest.fixture
def receiver(tmp_path: Path) -> SnapshotReceiver:
    return SnapshotReceiver(tmp_path, machine_at(3))


def transfer(sender: SnapshotSender, receiver: SnapshotReceiver, *, until: int | None = None) -> None:
    """Carry chunks and acknowledgements until the file is whole, or `until` bytes are there."""
    for _ in range(100):
        for chunk in sender.chunks("b", 0.0):
            offset = receiver.receive(chunk, 0.0)
            assert offset is not None
            sender.acknowledged("b", {"transfer": chunk["transfer"], "offset": offset}, 0.0)
            if until is not None and offset >= until:
                return


def test_a_copy_arrives_whole_in_chunks(new_sender: SnapshotSender, receiver: SnapshotReceiver) -> None:
    new_sender.start("b", first_index=40, now=0.0)
    assert new_sender.chunks("b", 0.0) == []
    finish(new_sender.take_work())
    transfer(new_sender, receiver)
    assert new_sender.progress("b") == receiver.progress
    finish(receiver.take_work())
    received = receiver.take_received()
    assert received is not None
    assert (received.index, received.term) == (50, 1)
    assert receiver.take_received() is None


def warm_up(sender: SnapshotSender) -> Message:
    """Let the window grow to its three chunks, with 30 bytes acknowledged; return a chunk."""
    chunk, *_ = [chunk for _ in range(2) for chunk in acknowledged_at_once(sender)]
    return chunk


def acknowledged_at_once(sender: SnapshotSender) -> list[Message]:
    chunks = sender.chunks("b", 0.0)
    for chunk in chunks:
        sender.acknowledged("b", {"transfer": chunk["transfer"], "offset": chunk["offset"] + 10}, 0.0)
    return chunks


def test_no_more_is_sent_than_the_window_holds(sender: SnapshotSender) -> None:
    warm_up(sender)
    assert [chunk["offset"] for chunk in sender.chunks("b", 0.0)] == [30, 40, 50]
    assert sender.chunks("b", STALL_SECONDS / 2) == []


def test_what_is_not_acknowledged_is_sent_again_after_a_pause(sender: SnapshotSender) -> None:
    transfer = warm_up(sender)["transfer"]
    sender.chunks("b", 0.0)
    sender.acknowledged("b", {"transfer": transfer, "offset": 40}, 0.1)
    assert [chunk["offset"] for chunk in sender.chunks("b", 0.1)] == [60]
    assert [chunk["offset"] for chunk in sender.chunks("b", 0.1 + STALL_SECONDS)] == [40]


def test_a_receiver_that_starts_anew_gets_all_anew(sender: SnapshotSender, receiver: SnapshotReceiver) -> None:
    transfer(sender, receiver, until=60)
    receiver.abandon()
    transfer(sender, receiver)
    finish(receiver.take_work())
    assert receiver.take_received() is not None


def test_a_receiver_that_lost_all_after_acknowledging_it_gets_all_anew(
    sender: SnapshotSender, receiver: SnapshotReceiver
) -> None:
    """A follower that died between the last piece and its installation was never helped (chaos.sim 60033, 5 nodes)."""
    transfer(sender, receiver)
    receiver.abandon()
    assert sender.chunks("b", STALL_SECONDS / 2) == []
    (last,) = sender.chunks("b", 2 * STALL_SECONDS)
    offset = receiver.receive(last, 0.0)
    assert offset == 0
    sender.acknowledged("b", {"transfer": last["transfer"], "offset": offset}, 2 * STALL_SECONDS)
    assert sender.chunks("b", 2 * STALL_SECONDS)[0]["offset"] == 0


def test_a_gap_is_not_written(sender: SnapshotSender, receiver: SnapshotReceiver) -> None:
    (first,) = acknowledged_at_once(sender)
    second, third = sender.chunks("b", 0.0)
    assert receiver.receive(first, 0.0) == 10
    assert receiver.receive(third, 0.0) == 10
    assert receiver.receive(first, 0.0) == 10
    assert receiver.receive(second, 0.0) == 20


def test_one_copy_serves_all_followers_and_goes_with_the_last(sender: SnapshotSender, tmp_path: Path) -> None:
    sender.start("c", first_index=40, now=0.0)
    assert sender.take_work() is None
    assert sender.chunks("c", 0.0)
    sender.stop("b")
    assert list(tmp_path.glob("*.copy"))
    sender.stop("c")
    assert not list(tmp_path.glob("*.copy"))
    assert sender.floor is None


def test_a_copy_that_the_log_has_left_behind_is_replaced(sender: SnapshotSender) -> None:
    sender.start("b", first_index=51, now=0.0)
    assert sender.take_work() is not None


def test_a_copy_nobody_waits_for_any_more_is_removed_when_it_is_done(
    new_sender: SnapshotSender, tmp_path: Path
) -> None:
    new_sender.start("b", first_index=40, now=0.0)
    work = new_sender.take_work()
    new_sender.stop_all()
    finish(work)
    assert not list(tmp_path.glob("*.copy"))


def test_a_copy_that_fails_is_tried_again_after_a_pause(new_sender: SnapshotSender) -> None:
    new_sender.start("b", first_index=40, now=0.0)
    work = new_sender.take_work()
    assert work is not None
    work.fail(OSError("disk full"), 1.0)
    new_sender.start("b", first_index=40, now=1.0)
    assert new_sender.take_work() is None
    new_sender.start("b", first_index=40, now=1.0 + RETRY_SECONDS)
    finish(new_sender.take_work())
    assert new_sender.chunks("b", 3.0)


@pytest.mark.parametrize("change", [{"crc": 1}, {"index": 49}, {"index_term": 2}])
def test_a_copy_that_is_not_what_was_announced_is_dropped(
    sender: SnapshotSender, receiver: SnapshotReceiver, change: Message
) -> None:
    chunks: list[Message] = []
    while len(chunks) * 10 < (sender.progress("b") or (0, 0))[1]:
        for chunk in sender.chunks("b", 0.0):
            chunks.append(chunk)
            offset = chunk["offset"] + len(chunk["data"])
            sender.acknowledged("b", {"transfer": chunk["transfer"], "offset": offset}, 0.0)
    for chunk in chunks:
        receiver.receive({**chunk, **change}, 0.0)
    work = receiver.take_work()
    assert work is not None
    with pytest.raises(ValueError, match="received copy") as refused:
        work.run()
    work.fail(refused.value, 5.0)
    assert receiver.take_received() is None
    assert receiver.receive(chunks[0], 5.0) is None
    assert receiver.receive(chunks[0], 5.0 + RETRY_SECONDS) == 10


def test_a_disk_that_is_full_is_no_acknowledgement(tmp_path: Path) -> None:
    receiver = SnapshotReceiver(tmp_path / "missing", machine_at(3))
    chunk = {"transfer": 1, "index": 9, "index_term": 1, "size": 9, "crc": 1, "offset": 0, "data": b"x"}
    assert receiver.receive(chunk, 0.0) is None


def test_files_of_an_earlier_life_are_removed(tmp_path: Path) -> None:
    (tmp_path / "incoming-1.copy").write_bytes(b"half")
    remove_leftovers(tmp_path)
    assert not list(tmp_path.iterdir())


# -- in an engine -----------------------------------------------------------------------------------------------------


def entry(index: int, term: int) -> tuple[bytes, int, int]:
    return b"\x00%d" % index, index, term


def give_snapshot(node: MendedSubject, peer: str, term: int, source: HistoryMachine, tmp_path: Path) -> None:
    """Deliver a whole snapshot, and check it."""
    sender = SnapshotSender(tmp_path, source, Random(5), Sizes(), patience_seconds=0.25)
    sender.start("a", first_index=1, now=0.0)
    finish(sender.take_work())
    for chunk in sender.chunks("a", 0.0):
        node.give(peer, type="snapshot_chunk", term=term, **chunk)
    work = node.engine.take_work()
    if work is not None:
        finish(work)
    node.tick()


def acknowledged(node: MendedSubject) -> list[int]:
    """Up to where the node says that its log equals the leader's."""
    return [message["next_node_idx"] - 1 for message in node.take("next_node_idx") if message["success"]]


def test_an_installed_snapshot_vouches_for_itself_and_not_for_a_tail_that_differs(
    tmp_path: Path, node: MendedSubject
) -> None:
    """Seed 100530: the follower has entries of its own, up to 60, which the snapshot at 50 contradicts."""
    node.give_append("b", 1, (1, 0), [entry(index, 1) for index in range(2, 61)])
    node.take("next_node_idx")
    give_snapshot(node, "c", 3, machine_at(50, term=2), tmp_path)
    assert acknowledged(node) == [50]
    assert node.log == [(b"\x01", 50, 2)]
    assert node.machine.applied_index == node.commit == 50


def test_a_snapshot_of_what_the_log_holds_is_not_installed_and_cuts_nothing(
    tmp_path: Path, node: MendedSubject
) -> None:
    node.give_append("b", 2, (1, 0), [entry(index, 2) for index in range(2, 61)])
    node.take("next_node_idx")
    give_snapshot(node, "b", 2, machine_at(50, term=2), tmp_path)
    assert set(acknowledged(node)) == {50}
    assert node.last_index == 60
    assert node.machine.installed_count == 0


def test_a_snapshot_older_than_what_is_applied_is_not_installed(tmp_path: Path, node: MendedSubject) -> None:
    node.give_append("b", 2, (1, 0), [entry(index, 2) for index in range(2, 61)])
    node.sync()
    node.give_append("b", 2, (60, 2), [], commit=60)
    node.tick()
    node.take("next_node_idx")
    give_snapshot(node, "b", 2, machine_at(50, term=2), tmp_path)
    assert set(acknowledged(node)) == {50}
    assert node.machine.applied_index == 60
    assert node.machine.installed_count == 0


def test_a_machine_that_is_elsewhere_after_an_installation_stops_the_node(tmp_path: Path, node: MendedSubject) -> None:
    node.machine.install = lambda path: path.unlink()  # type: ignore[method-assign]
    with pytest.raises(InvariantBroken, match="the installed snapshot is at"):
        give_snapshot(node, "b", 2, machine_at(50, term=2), tmp_path)


def test_a_caller_whose_entry_a_snapshot_skips_hears_that_nobody_knows(tmp_path: Path, node: MendedSubject) -> None:
    """Stock never answers it."""
    node.lead()
    answers: list[int] = []
    node.propose(b"x", lambda _result, reason: answers.append(reason))
    node.tick()
    give_snapshot(node, "c", node.term + 1, machine_at(50, term=9), tmp_path)
    assert answers == [7]


# -- in a cluster -----------------------------------------------------------------------------------------------------


def fall_behind(cluster: SimulatedCluster) -> tuple[Any, Any]:
    """A follower goes away, and the log forgets what it lacks. Returns the leader and the follower."""
    leader = cluster.elect()
    cluster.run(0.5)
    leader = cluster.elect()
    follower = next(node for node in cluster.nodes.values() if node is not leader)
    follower.crash(power_loss=True)
    for number in range(80):
        leader.propose(b"%d" % number + b"." * 80)
        cluster.run(0.02)
    cluster.run(0.5)
    assert leader.running is not None
    assert leader.running.engine.log.first_index > len(follower.machine_disk.history) + 1
    return leader, follower


def test_a_follower_behind_the_log_catches_up_by_snapshot() -> None:
    with SimulatedCluster(3, seed=11) as cluster:
        cluster.start()
        leader, follower = fall_behind(cluster)
        follower.start()
        cluster.run(3.0)
        assert follower.running.machine.installed_count == 1
        assert follower.running.machine.history == leader.running.machine.history
        assert leader.running.engine.sender.floor is None
        assert not list(cluster.directory.glob("*/*.copy"))


def test_a_snapshot_is_begun_anew_by_the_next_leader() -> None:
    with SimulatedCluster(3, seed=12) as cluster:
        cluster.start()
        leader, follower = fall_behind(cluster)
        follower.start()
        cluster.run_until(lambda: follower.running.engine.receiver.progress)
        leader.crash(power_loss=True)
        leader.start()
        cluster.run(6.0)
        cluster.checker.on_end()
        assert follower.running.machine.installed_count >= 1


def test_the_log_is_kept_for_a_transfer_but_not_without_bound() -> None:
    with SimulatedCluster(3, seed=13) as cluster:
        cluster.start()
        leader, follower = fall_behind(cluster)
        follower.start()
        cluster.run_until(lambda: leader.running.engine.sender.floor)
        for other in cluster.nodes.values():
            cluster.network.cut(follower.id, other.id) if other is not follower else None
        floor = leader.running.engine.sender.floor
        for number in range(30):
            leader.propose(b"held %d" % number + b"." * 80)
            cluster.run(0.02)
        assert leader.running.engine.log.first_index <= floor
        for number in range(150):
            leader.propose(b"not held %d" % number + b"." * 80)
            cluster.run(0.02)
        log = leader.running.engine.log
        assert log.first_index > floor
        assert log.first_index >= log.index_before_bytes(SIZES.hold_bytes)
