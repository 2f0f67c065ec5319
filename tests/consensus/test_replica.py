"""The asyncio shell, with real sockets and a real disk."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import Counter
from pathlib import Path

import pytest
from pysyncobj.node import Node

from raftsched.consensus.ports import Timing
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.consensus.raft.membership.members import Membership
from raftsched.consensus.raft.replication import state_comparison
from raftsched.consensus.replica import Replica
from raftsched.consensus.replica_status import PeerStatus
from raftsched.disk import DiskFailed
from raftsched.errors import (
    ChangeUnderWay,
    DiskStalled,
    NoMajority,
    NotFound,
    NotLeader,
    OutcomeUnknown,
    TooLarge,
    Unavailable,
)
from raftsched.limits import APPEND_BYTES_MAX, PROPOSALS_WAITING_MAX
from tests.consensus.replicas import WAIT_SECONDS, Group, Member, started


def histories(group: Group) -> list[object]:
    return [member.machine.history for member in group.members.values()]


@pytest.mark.parametrize("count", [1, 3, 5])
async def test_replica_applies_what_is_proposed_on_every_node(tmp_path: Path, count: int) -> None:
    async with started(tmp_path, count) as group:
        leader = await group.leader()
        index = await leader.replica.propose(b"one")
        assert isinstance(index, int)
        assert leader.machine.history[index - 1][1] == b"one"
        await group.until(lambda: all(history == leader.machine.history for history in histories(group)))


async def test_replica_answers_proposals_made_together_in_order(tmp_path: Path) -> None:
    async with started(tmp_path, 3) as group:
        leader = await group.leader()
        futures = [leader.replica.propose(b"%d" % number) for number in range(500)]
        indexes = await asyncio.gather(*futures)
        assert isinstance(indexes[0], int)
        assert indexes == list(range(indexes[0], indexes[0] + 500))


async def test_follower_refuses_and_names_the_leader(tmp_path: Path) -> None:
    async with started(tmp_path, 3) as group:
        leader = await group.leader()
        follower = group.others(leader)[0]
        await group.until(lambda: follower.replica.leader_id == leader.id)
        with pytest.raises(NotLeader) as refused:
            await follower.replica.propose(b"x")
        assert refused.value.leader == leader.id
        with pytest.raises(NotLeader):
            follower.replica.check_fresh()
        assert 0 <= follower.replica.leader_age_ms() < 10_000


async def test_replica_that_never_heard_a_leader_says_so(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    alone = group.members["n1"]
    await alone.start()
    assert alone.replica.leader_age_ms() == -1
    assert alone.replica.status().state == "follower"
    await alone.stop()


async def test_replica_names_no_leader_that_has_been_silent(tmp_path: Path) -> None:
    """A node that is left alone starts no election, and must not say for ever that its dead leader leads."""
    async with started(tmp_path, 3) as group:
        leader = await group.leader()
        left, other = group.others(leader)
        await group.until(lambda: left.replica.status().leader_id == leader.id)
        for gone in (leader, other):
            await gone.stop()
        await group.until(lambda: not left.replica.status().leader_id)


async def test_leader_serves_fresh_reads(tmp_path: Path) -> None:
    async with started(tmp_path, 3) as group:
        leader = await group.leader()
        await leader.replica.propose(b"x")
        leader.replica.check_fresh()
        assert leader.replica.leader_age_ms() == 0


async def test_a_majority_confirms_the_leader_and_nobody_else(tmp_path: Path) -> None:
    async with started(tmp_path, 3) as group:
        leader = await group.leader()
        await asyncio.gather(*(leader.replica.confirm_lead() for _ in range(3)))
        for follower in group.others(leader):
            with pytest.raises(NotLeader):
                await follower.replica.confirm_lead()


async def test_entry_too_large_is_refused_before_the_log(tmp_path: Path) -> None:
    async with started(tmp_path, 1) as group:
        leader = await group.leader()
        with pytest.raises(TooLarge):
            leader.replica.propose(bytes(APPEND_BYTES_MAX))
        assert await leader.replica.propose(bytes(APPEND_BYTES_MAX - 1))


async def test_queue_that_is_full_refuses_at_once(tmp_path: Path) -> None:
    async with started(tmp_path, 1) as group:
        leader = await group.leader()
        futures = [leader.replica.propose(b"x") for _ in range(PROPOSALS_WAITING_MAX + 1)]
        assert futures[-1].done()
        with pytest.raises(Unavailable, match="too many"):
            await futures[-1]
        await asyncio.gather(*futures[:-1])


async def test_leadership_is_announced_once_and_taken_back(tmp_path: Path) -> None:
    async with started(tmp_path, 3) as group:
        leader = await group.leader()
        others = group.others(leader)
        for other in others:
            await other.stop()
        await group.until(lambda: leader.leaderships == [True, False])
        with pytest.raises(NoMajority):
            await leader.replica.propose(b"x")


async def test_next_leader_has_what_was_acknowledged_and_is_none_that_retires(tmp_path: Path) -> None:
    async with started(tmp_path, 3) as group:
        leader = await group.leader()
        for number in range(20):
            await leader.replica.propose(b"%d" % number)
        retiring, other = group.others(leader)
        retiring.replica.retire()
        await leader.stop()
        leader.leaderships.clear()
        successor = await group.leader()
        assert successor is other
        assert [command for _, command in successor.machine.history if command] == [b"%d" % n for n in range(20)]


async def test_transfer_moves_leadership_without_a_timeout(tmp_path: Path) -> None:
    async with started(tmp_path, 3) as group:
        leader = await group.leader()
        futures = [leader.replica.propose(b"%d" % number) for number in range(50)]
        began = asyncio.get_running_loop().time()
        assert await leader.replica.transfer_leadership()
        await asyncio.gather(*futures)
        assert leader.leaderships == [True, False]
        successor = await group.leader()
        assert successor is not leader
        assert asyncio.get_running_loop().time() - began < 5.0


async def test_transfer_of_a_single_node_is_refused_and_it_still_leads(tmp_path: Path) -> None:
    async with started(tmp_path, 1) as group:
        leader = await group.leader()
        assert not await leader.replica.transfer_leadership()
        assert await leader.replica.propose(b"x")


async def test_fault_in_apply_stops_the_replica_and_answers_unknown(tmp_path: Path) -> None:
    async with started(tmp_path, 1) as group:
        leader = await group.leader()

        def fails(_index: int, _entry: object) -> None:
            raise ZeroDivisionError("apply")

        leader.machine.on_apply = fails
        waiting = leader.replica.propose(b"x")
        with pytest.raises(ZeroDivisionError):
            await leader.task
        assert leader.leaderships == [True, False]
        with pytest.raises((OutcomeUnknown, NotLeader)):
            await waiting
        with pytest.raises(NotLeader):
            await leader.replica.propose(b"y")
        with pytest.raises(NotLeader):
            leader.replica.check_fresh()


async def test_failed_sync_stops_the_replica_before_anything_is_acknowledged(tmp_path: Path) -> None:
    async with started(tmp_path, 1) as group:
        leader = await group.leader()

        def fails() -> None:
            raise OSError(errno.EIO, "injected")

        leader.journal._writer._file.datasync = fails  # type: ignore[method-assign]
        waiting = leader.replica.propose(b"x")
        with pytest.raises(DiskFailed):
            await leader.task
        with pytest.raises(OutcomeUnknown):
            await waiting


async def test_stall_of_the_disk_answers_everybody_at_once(tmp_path: Path) -> None:
    """A sync that takes longer than an election: what may be in the log is unknown, what comes later is refused."""
    async with started(tmp_path, 1) as group:
        leader = await group.leader()
        resumed = threading.Event()
        sync = leader.journal._writer._file.datasync

        def hangs() -> None:
            resumed.wait(WAIT_SECONDS)
            sync()

        leader.journal._writer._file.datasync = hangs  # type: ignore[method-assign]
        try:
            in_the_log = leader.replica.propose(b"x")
            await group.until(lambda: leader.journal.last_index > leader.replica.status().commit_index)
            queued = leader.replica.propose(b"y")
            with pytest.raises(OutcomeUnknown):
                await in_the_log
            with pytest.raises(DiskStalled):
                await queued
            assert leader.leaderships == [True, False]
            assert (leader.replica.is_leading, leader.replica.is_stalled) == (False, True)
            with pytest.raises(DiskStalled):
                await leader.replica.propose(b"z")
            with pytest.raises(DiskStalled):
                leader.replica.check_fresh()
        finally:
            resumed.set()
        await group.until(lambda: leader.leaderships == [True, False, True])
        await leader.replica.propose(b"after")
        assert [command for _, command in leader.machine.history if command] == [b"x", b"after"]


async def test_stopped_replica_keeps_everything_for_its_next_life(tmp_path: Path) -> None:
    async with started(tmp_path, 1) as group:
        member = group.members["n1"]
        for life in range(3):
            await group.leader()
            await member.replica.propose(b"life %d" % life)
            await member.stop()
            member.leaderships.clear()
            await member.start()
        await group.leader()
        assert [command for _, command in member.machine.history if command] == [b"life 0", b"life 1", b"life 2"]


async def test_what_is_applied_becomes_durable_and_the_log_is_cut_behind_it(tmp_path: Path) -> None:
    async with started(tmp_path, 1, tail_bytes=2_000, checkpoint_seconds=0.02) as group:
        leader = await group.leader()
        for number in range(50):
            await leader.replica.propose(b"%d" % number + bytes(200))
        last = leader.machine.applied_index
        await group.until(lambda: leader.replica.status().durable_index == last)
        status = leader.replica.status()
        assert 1 < status.first_index < last - 5
        assert status.last_index == status.commit_index == last


async def test_follower_away_past_the_log_gets_a_snapshot(tmp_path: Path) -> None:
    async with started(tmp_path, 3, tail_bytes=2_000, checkpoint_seconds=0.02) as group:
        leader = await group.leader()
        away = group.others(leader)[0]
        await away.stop()
        for number in range(100):
            await leader.replica.propose(b"%d" % number + bytes(200))
        await group.until(lambda: leader.replica.status().first_index > away.machine.applied_index + 1)
        await away.start()
        await group.until(lambda: away.machine.installed_count == 1)
        await leader.replica.propose(b"after")
        await group.until(lambda: away.machine.history == leader.machine.history)
        await group.until(lambda: peer_status(leader, away).snapshot_bytes is None)


def peer_status(member: Member, peer: Member) -> PeerStatus:
    return next(status for status in member.replica.status().peers if status.node_id == peer.id)


async def test_status_shows_peers_as_the_leader_sees_them(tmp_path: Path) -> None:
    async with started(tmp_path, 3) as group:
        leader = await group.leader()
        await leader.replica.propose(b"x")
        last = leader.replica.status().last_index

        def all_caught_up() -> bool:
            return all(peer.match_index == last and peer.is_connected for peer in leader.replica.status().peers)

        await group.until(all_caught_up)
        offsets = [peer.clock_offset_ms for peer in leader.replica.status().peers]
        assert all(offset is not None and abs(offset) < 5_000 for offset in offsets)
        assert leader.replica.status().state == "leader"
        assert leader.replica.status().leader_id == leader.replica.leader_id == leader.id


async def test_replica_that_was_never_run_can_be_stopped(tmp_path: Path) -> None:
    group = Group(tmp_path, 1)
    member = group.members["n1"]
    await member.start(run=False)
    await member.replica.stop()
    with pytest.raises(NotLeader):
        await member.replica.propose(b"x")


async def test_replica_changes_its_members_one_at_a_time_and_tells_why_not(tmp_path: Path) -> None:
    async with started(tmp_path, 5) as group:
        leader = await group.leader()
        await leader.replica.propose(b"x")
        one, other, *_ = group.others(leader)
        first = leader.replica.change_members(lambda members: members.without(one.id))
        second = leader.replica.change_members(lambda members: members.without(other.id))
        with pytest.raises(ChangeUnderWay):
            await second
        after = await first
        assert isinstance(after, Membership)
        assert one.id not in after.ids
        with pytest.raises(NotFound, match="removed before"):
            await leader.replica.change_members(lambda members: members.without(one.id))
        assert {peer.node_id for peer in leader.replica.status().peers} == {*after.ids} - {leader.id}
        await group.until(lambda: one.replica.idle_reason)
        with pytest.raises(Unavailable, match="was removed"):
            await one.replica.propose(b"y")
        with pytest.raises(NotLeader):
            await other.replica.change_members(lambda members: members.without(other.id))


async def test_change_of_leader_that_has_come_already_is_not_waited_for(tmp_path: Path) -> None:
    async with started(tmp_path, 1) as group:
        member = group.members["n1"]
        since = member.replica.leader_change_count
        waiting = asyncio.create_task(member.replica.leader_change(since))
        await group.leader()
        await waiting
        await member.replica.leader_change(since)
        since = member.replica.leader_change_count
        waiting = asyncio.create_task(member.replica.leader_change(since))
        await member.stop()
        await waiting
        assert member.leaderships == [True, False]


async def test_lone_write_takes_two_steps_on_the_leader_and_one_on_each_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader sends and syncs, then commits and answers; the commit index reaches followers with the next entry.

    The clock is read once for each step and message, before each rest, and as it wakes up.
    """
    counts: Counter[tuple[str, str]] = Counter()
    step, cycle, hashed = RaftEngine.step, Replica._cycle, Node.__hash__

    def counted_step(self: RaftEngine) -> None:
        counts["steps", self.node_id] += 1
        step(self)

    async def counted_cycle(self: Replica) -> None:
        counts["cycles", self.node_id] += 1
        await cycle(self)

    def counted_hash(self: Node) -> int:
        counts["hashes", ""] += 1
        return int(hashed(self))

    monkeypatch.setattr(RaftEngine, "step", counted_step)
    monkeypatch.setattr(Replica, "_cycle", counted_cycle)
    monkeypatch.setattr(Node, "__hash__", counted_hash)
    monkeypatch.setattr(state_comparison, "BEAT_SECONDS", 1_000.0)
    silent = Timing(heartbeat_seconds=100.0, election_min_seconds=400.0, election_max_seconds=500.0)
    async with started(tmp_path, 3, timing=silent, checkpoint_seconds=1_000.0) as group:
        engine = group.members["n1"].replica._engine
        engine.elections._forced_term = 1
        engine.core.election_deadline = 0.0
        leader = await group.leader()

        def is_settled() -> bool:
            return [each.match for each in engine.replication.progress.values()] == [engine.log.last_index] * 2

        blocks: list[Counter[tuple[str, str]]] = []
        for _ in range(4):
            await group.until(is_settled)
            counts.clear()
            counts.update({("reads", member.id): -member.clock.reads for member in group.members.values()})
            for _ in range(10):
                await leader.replica.propose(b"x")
                await group.until(is_settled)
            counts.update({("reads", member.id): member.clock.reads for member in group.members.values()})
            blocks.append(Counter(counts))
    assert not any(block["hashes", ""] for block in blocks)
    least = {  # of the blocks: nodes that have just met tell each other more
        kind: [min(block[kind, node_id] for block in blocks) for node_id in ("n1", "n2", "n3")]
        for kind in ("steps", "cycles", "reads")
    }
    assert least["steps"] == [20, 10, 10]
    assert least["cycles"] == [20, 10, 10]
    assert least["reads"][0] <= 80, "2 steps, 2 answers, and up to 4 times that it wakes up or rests"
    assert least["reads"][1:] == [30, 30], "a message, a step and a rest"
