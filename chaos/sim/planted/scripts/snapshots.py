"""Directed schedules about snapshots that overlap with other events, and about the first entry of a log."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from chaos.sim.planted.scripts.stage import Ear, NotReached, Play, Schedule, Stage, calm, frames_of
from chaos.sim.rates import Rates
from raftsched.consensus.raft.messages import APPEND_ACK, Message

_CATCH_UP_SECONDS = 3.0
"""A follower that lacks a single entry has it long before that."""


def _late_checkpoints(rates: Rates) -> Rates:
    """A log is cut right behind its node's checkpoint, and nodes that began at other times make them at other times."""
    altered = calm(rates)
    return replace(altered, sizes=replace(altered.sizes, tail_bytes=1, chunk_bytes=1_000_000), checkpoint=4.0)


def _slow_disks(rates: Rates) -> Rates:
    """A journal takes a while to sync after a snapshot was installed."""
    altered = calm(rates)
    return replace(altered, sizes=replace(altered.sizes, tail_bytes=1), checkpoint=0.1, sync=0.05)


def _no_tails(rates: Rates) -> Rates:
    altered = calm(rates)
    return replace(altered, sizes=replace(altered.sizes, tail_bytes=1), checkpoint=0.05)


def _short_tails(rates: Rates) -> Rates:
    altered = calm(rates)
    return replace(altered, sizes=replace(altered.sizes, tail_bytes=400), checkpoint=0.25)


# -- installations ----------------------------------------------------------------------------------------------------


def a_log_passes_a_snapshot_that_is_verified(stage: Stage) -> Play:
    """While n3 verifies n1's snapshot, n2 takes the lead, and its log reaches back far enough to do without one.

    n3 acknowledges entries that the snapshot doesn't hold; n1 has none of them. Then the snapshot is found to be right.
    """
    yield from _verify_slowly(stage, seconds=1.0)
    yield from stage.until(lambda: stage.engine("n3").commit.durable_index == stage.last_index("n2"))
    stage.part(["n1"], ["n2", "n3"])
    yield from stage.submits("n2", 5)
    yield from stage.until(lambda: stage.engine("n3").receiver.progress is None)
    yield 0.1
    stage.host("n2").crash(power_loss=True)
    stage.join(["n1"], ["n2", "n3"])
    yield from stage.until(lambda: stage.leader_among(["n1", "n3"]))
    stage.host("n2").start()
    yield 0.3


def entries_come_to_a_log_that_begins_behind_them(stage: Stage) -> Play:
    """The same, but n2's entries reach n3 right after the snapshot: the log begins behind the first of them by then."""
    held: list[Message] = []

    def matched(sender: str, receiver: str, message: Message) -> None:
        if (sender, receiver) == ("n3", "n2") and message["success"] and not held:
            held.append(message)
            stage.cut(["n2"], ["n3"])

    yield from _verify_slowly(stage, seconds=0.6, ear=frames_of(APPEND_ACK, matched))
    yield from stage.until(lambda: held)
    installed = stage.host("n3").machine.points["after install"]
    yield from stage.until(lambda: stage.host("n3").machine.points["after install"] > installed)
    yield 0.02
    stage.heal(["n2"], ["n3"])
    yield 0.5


def _verify_slowly(stage: Stage, *, seconds: float, ear: Ear = lambda _sender, _receiver, _message: None) -> Play:
    """n3 has a snapshot of n1 whole, the log grows, and n2, whose log was not cut, leads; `ear` gets the frames until
    then.
    """
    yield from stage.settled("n1")
    yield from stage.until(lambda: all(map(stage.is_checkpointed, stage.ids)))
    absent_at = stage.last_index("n3")
    stage.host("n3").crash(power_loss=False)
    yield from stage.submits("n1", 8)
    yield 2.0
    stage.restart("n2")  # its next checkpoint comes so much later than the leader's
    yield from stage.until(lambda: stage.engine("n1").log.first_index > absent_at)
    stage.host("n3").snapshot_seconds = seconds
    stage.host("n3").start()
    yield from stage.until(lambda: _is_whole(stage, "n3"), seconds=1.5)
    if stage.engine("n2").log.first_index > absent_at:
        raise NotReached("the log of n2 was cut")
    yield from stage.submits("n1", 3)
    stage.on_frame = ear
    stage.transfer_leadership("n1")
    yield from stage.until(lambda: stage.serves("n2"), seconds=1.0)


def _is_whole(stage: Stage, node_id: str) -> bool:
    progress = stage.engine(node_id).receiver.progress
    return progress is not None and progress[0] == progress[1]


def the_power_fails_between_state_and_log(stage: Stage) -> Play:
    """A node has replaced its state by a snapshot, and its power fails before its log says so on disk; again and again."""
    leader = yield from stage.settled()
    victim, _ = stage.others(leader)
    machine = stage.host(victim).machine
    for _ in range(6):
        yield from _fall_behind(stage, leader, victim)
        installed = machine.points["after install"]
        stage.host(victim).start()
        yield from stage.until(lambda: machine.points["after install"] > installed)  # noqa: B023
        stage.restart(victim)
        yield from stage.until(lambda: _has_caught_up(stage, leader, victim))


def _has_caught_up(stage: Stage, leader: str, follower: str) -> bool:
    """Whether the leader knows that a follower has its whole log, and needs no snapshot."""
    engine = stage.engine(leader)
    return engine.sender.floor is None and engine.replication.progress[follower].match == engine.log.last_index


def _fall_behind(stage: Stage, leader: str, node_id: str) -> Play:
    """Stop a node until the leader's log begins behind its end."""
    last = stage.last_index(node_id)
    stage.host(node_id).crash(power_loss=False)
    yield from stage.submits(leader, 10)
    yield from stage.until(lambda: stage.engine(leader).log.first_index > last + 1)


# -- the log's start --------------------------------------------------------------------------------------------------


def a_follower_lacks_the_first_entry_of_a_log(stage: Stage) -> Play:
    """A leader has cut its log right behind a follower's end: what that lacks first is the log's first entry."""
    leader = yield from stage.settled()
    absent, _ = stage.others(leader)
    last = yield from _all_know_the_end(stage, leader)
    stage.part([absent], stage.others(absent))
    stage.submit(leader)
    yield from stage.until(lambda: stage.engine(leader).log.first_index == last + 1, seconds=1.0)
    stage.drop_links([absent], stage.others(absent))
    stage.join([absent], stage.others(absent))
    yield _CATCH_UP_SECONDS
    if stage.last_index(absent) < stage.last_index(leader):
        stage.fault(
            f"{absent} lacks entry {last + 1}, the first of {leader}'s log, {_CATCH_UP_SECONDS} s after its return"
        )


def the_first_entry_that_is_not_committed_is_replaced(stage: Stage) -> Play:
    """A leader that is alone cuts its log behind its checkpoint; what follows there is replaced by another leader's."""
    old = yield from stage.settled()
    others = stage.others(old)
    yield from stage.until(lambda: all(map(stage.is_checkpointed, stage.ids)))
    stage.submit(old)
    yield from stage.until(lambda: not stage.is_checkpointed(old))
    last = yield from _all_know_the_end(stage, old)
    stage.part([old], others)
    yield from stage.submits(old, 6)
    yield from stage.until(
        lambda: stage.is_checkpointed(old) and stage.engine(old).log.first_index >= last, seconds=0.5
    )
    yield from stage.until(lambda: stage.leader_among(others))
    stage.join([old], others)
    yield 0.5


def _all_know_the_end(stage: Stage, leader: str) -> Generator[float, None, int]:
    """Wait until all nodes know that the whole log is committed; return its last index."""
    last = stage.last_index(leader)
    yield from stage.until(lambda: all(stage.engine(node_id).commit_index == last for node_id in stage.ids))
    return last


A_LOG_PASSES_A_SNAPSHOT_THAT_IS_VERIFIED = Schedule(a_log_passes_a_snapshot_that_is_verified, alter=_late_checkpoints)
ENTRIES_COME_TO_A_LOG_THAT_BEGINS_BEHIND_THEM = Schedule(
    entries_come_to_a_log_that_begins_behind_them, alter=_late_checkpoints
)
THE_POWER_FAILS_BETWEEN_STATE_AND_LOG = Schedule(the_power_fails_between_state_and_log, alter=_slow_disks)
A_FOLLOWER_LACKS_THE_FIRST_ENTRY_OF_A_LOG = Schedule(a_follower_lacks_the_first_entry_of_a_log, alter=_no_tails)
THE_FIRST_ENTRY_THAT_IS_NOT_COMMITTED_IS_REPLACED = Schedule(
    the_first_entry_that_is_not_committed_is_replaced, alter=_short_tails
)
